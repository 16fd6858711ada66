"""Small worlds in which jobs share GPUs."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from allocator.cluster import Cluster
from allocator.protocol import Need, SharePolicy
from allocator.protocol.allocation import Allocation
from formulations import Pairs
from tests.simulator.worlds import make_trace
from throughputs import PackedColumns

PairShares = dict[tuple[int, int, int], float]
"""Share of time of jobs (labels) first and second on a type (position)."""


def make_pairs(shares):
    keys = sorted(shares)
    first, second, accelerator = (np.array([key[c] for key in keys], dtype=np.int64) for c in range(3))
    return Pairs(first, second, accelerator, np.array([shares[key] for key in keys], dtype=np.float64))


class PairPolicy(SharePolicy):
    """Returns the shares alone and the pairs that `decide` computes from the state; pairs by position."""

    name = "pairs"
    needs = Need.COLOCATION | Need.ISOLATED_TIME

    def __init__(self, decide, fills_idle_gpus=True):
        self.decide = decide
        self.fills_idle_gpus = fills_idle_gpus
        self.states = []

    def allocate(self, state):
        state.read_all()
        self.states.append(state)
        shares, pairs = self.decide(state)
        alone = np.asarray(shares, dtype=float)
        return Allocation(self.name, state.throughputs, alone, "closed form", pairs=make_pairs(pairs))


def always_together(state):
    """Jobs 0 and 1 share type 0 as long as both are there; whoever is left has it alone."""
    if state.n_jobs == 2:
        return np.zeros(state.rates.shape), {(0, 1, 0): 1.0}
    shares = np.zeros(state.rates.shape)
    shares[:, 0] = 1.0 / max(state.n_jobs, 1)
    return shares, {}


def random_shares(seed):
    """Feasible shares: random ones over jobs alone and all pairs of gangs of one size, scaled into the polytope."""

    def decide(state):
        rng = np.random.default_rng([seed, int(state.clock)])
        n, m = state.rates.shape
        alone = rng.uniform(0, 1, (n, m)) * rng.integers(0, 2, (n, m)) * (state.rates > 0)
        sizes = state.scale_factors
        pairs = {
            (i, k, j): float(rng.uniform(0.1, 1))
            for i in range(n)
            for k in range(i + 1, n)
            for j in range(m)
            if sizes[i] == sizes[k] and rng.random() < 0.5
        }
        time, used = alone.sum(axis=1), sizes @ alone
        for (i, k, j), share in pairs.items():
            time[[i, k]] += share
            used[j] += sizes[i] * share
        worst = max(float(time.max(initial=0)), float((used / np.maximum(state.capacity, 1e-9)).max(initial=0)), 1e-9)
        return alone / worst, {key: share / worst for key, share in pairs.items()}

    return decide


@st.composite
def packed_worlds(draw):
    """A trace, a cluster and rates by group, in part 0; some gangs are larger than every type."""
    m, groups = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    gpus = {f"type{j}": draw(st.integers(0, 4)) for j in range(m)}
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(0, 8))
    sizes = rng.choice([1, 1, 2, 4], groups)
    group = rng.integers(0, groups, n)
    alone = rng.choice([0.0, 0.5, 1.0, 2.5], (groups, m), p=[0.1, 0.3, 0.3, 0.3])
    together = rng.choice([0.0, 0.4, 0.8], (groups, groups, m)) * (alone[:, None] > 0)
    together *= (sizes[:, None] == sizes)[:, :, None]
    arrivals = np.cumsum(rng.choice([0.0, 0.0, 100.0, 360.0, 5000.0], n))
    trace = make_trace(rng.integers(1, 2000, n).astype(float).tolist(), sizes[group].tolist(), arrivals.tolist())
    return trace, Cluster(gpus), PackedColumns(group, alone, together, sizes, accelerators=list(gpus))
