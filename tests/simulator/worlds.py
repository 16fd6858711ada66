"""Small worlds for the tests of mechanism and simulator: a few jobs, a few GPUs, policies that return given shares."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from allocator.cluster import Cluster
from allocator.protocol import SharePolicy
from allocator.protocol.allocation import Allocation
from throughputs import Trace


def make_trace(steps, sizes=None, arrivals=None):
    n = len(steps)
    return Trace(["job"] * n, sizes or [1] * n, steps, arrivals if arrivals is not None else [0.0] * n)


def equal_shares(state):
    """Each job the same share of every type, as far as time and GPUs go."""
    usage = state.cluster.capacity / max(int(state.scale_factors.sum()), 1)
    shares = np.tile(usage, (state.n_jobs, 1)) * (state.rates > 0)
    return shares / np.maximum(shares.sum(axis=1, keepdims=True), 1.0)


class SharesPolicy(SharePolicy):
    """Returns what `shares` computes from the state."""

    name = "shares"

    def __init__(
        self,
        shares=equal_shares,
        heterogeneity_aware=True,
        fills_idle_gpus=True,
        preemptive=True,
        **data,
    ):
        self.shares = shares
        self.heterogeneity_aware = heterogeneity_aware
        self.fills_idle_gpus = fills_idle_gpus
        self.preemptive = preemptive
        self.states = []
        vars(self).update(data)

    def allocate(self, state):
        state.read_all()
        self.states.append(state)
        return Allocation(self.name, state.throughputs, np.asarray(self.shares(state), dtype=float), "closed form")


@st.composite
def worlds(draw):
    """A trace, a cluster and rates; some rates are 0, some gangs are larger than every type."""
    m = draw(st.integers(1, 3))
    gpus = {f"type{j}": draw(st.integers(0, 5)) for j in range(m)}
    servers = {name: draw(st.integers(1, 4)) for name in gpus}
    n = draw(st.integers(0, 8))
    arrivals = np.cumsum([draw(st.sampled_from([0.0, 0.0, 100.0, 360.0, 5000.0])) for _ in range(n)])
    steps = [float(draw(st.integers(1, 3000))) for _ in range(n)]
    sizes = [draw(st.sampled_from([1, 1, 1, 2, 4])) for _ in range(n)]
    rate = st.sampled_from([0.0, 0.5, 1.0, 2.5, 7.3])
    rates = np.array([[draw(rate) for _ in range(m)] for _ in range(n)]).reshape(n, m)
    return make_trace(steps, sizes, arrivals.tolist()), Cluster(gpus, servers), rates
