"""Small worlds for the conformance check: what a policy may know of a few jobs, as a run would tell it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from allocator.api import load_throughputs
from allocator.cluster import Cluster
from allocator.protocol import ClusterState, Policy
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Need
from throughputs import InputError, ThroughputTable, Trace

_JOB_TYPES = ("ResNet-18 (batch size 64)", "LM (batch size 20)", "ResNet-50 (batch size 32)", "LM (batch size 5)")
_SIZES = (1, 1, 2, 1, 4, 1, 1, 2)
_WEIGHTS = (1.0, 4.0, 1.0, 1.0, 2.0)
_ROUND_SECONDS = 360.0


@cache
def _table(colocated: bool) -> ThroughputTable:
    return load_throughputs(colocated=colocated)


def table_for(policy: Policy) -> ThroughputTable:
    """The embedded throughputs, with those of pairs of jobs where the policy packs."""
    return _table(Need.COLOCATION in policy.needs)


def for_one_type(policy: Policy) -> bool:
    """Whether the policy refuses clusters with several types of accelerator."""
    try:
        policy.allocate(World(1).state(policy))
    except Exception as error:
        return isinstance(error, InputError) and error.field == "cluster"
    return False


@cache
def trace_of(n_jobs: int, seed: int, hours: float) -> Trace:
    """Jobs of several sizes, models and weights, of about `hours` each, that arrive together or some minutes apart."""
    rng = np.random.default_rng([seed, n_jobs])
    kinds = [_JOB_TYPES[int(k)] for k in rng.integers(len(_JOB_TYPES), size=n_jobs)]
    sizes = [_SIZES[int(k)] for k in rng.integers(len(_SIZES), size=n_jobs)]
    seconds = 3600.0 * hours * rng.uniform(0.5, 2.0, n_jobs)
    rates = [_table(False).rates([kind], [size], ["v100"])[0, 0] for kind, size in zip(kinds, sizes, strict=True)]
    arrivals = np.sort(rng.choice([0.0, 0.0, 600.0, 1500.0], n_jobs))
    return Trace(
        kinds,
        sizes,
        np.ceil(seconds * rates) if n_jobs else [],
        arrivals - arrivals.min(initial=0.0) if n_jobs else [],
        priority_weight=[_WEIGHTS[int(k)] for k in rng.integers(len(_WEIGHTS), size=n_jobs)],
    )


@dataclass(frozen=True)
class World:
    """What a policy is asked about: some jobs in the midst of their training, and a cluster.

    Attributes
    ----------
    n_jobs, seed : which jobs (`trace_of`).
    gpus : V100, P100 and K80.
    """

    n_jobs: int
    seed: int = 0
    gpus: tuple[int, int, int] = (4, 2, 2)

    @property
    def of_one_type(self) -> World:
        """The same with all GPUs of the first type."""
        return replace(self, gpus=(sum(self.gpus), 0, 0))

    @property
    def cluster(self) -> Cluster:
        """Its GPUs by type."""
        return Cluster(dict(zip(("v100", "p100", "k80"), self.gpus, strict=True)))

    def state(self, policy: Policy) -> ClusterState:
        """The state after two hours, with what the policy needs."""
        trace, cluster = trace_of(self.n_jobs, self.seed, hours=3.0), self.cluster
        table = JobTable.from_trace(trace, table_for(policy), cluster, needs=policy.needs)
        rng = np.random.default_rng([self.seed, self.n_jobs, 1])
        done = rng.uniform(0.0, 0.5, self.n_jobs)
        table.steps_done = np.floor(table.total_steps * done)
        table.isolated_seconds = 7200.0 * done
        if table.training is not None:
            table.training.admit(np.arange(self.n_jobs), trace.arrival_time)
        ids = np.arange(self.n_jobs)
        state = table.snapshot(ids, 7200.0, cluster, policy.needs, slot_seconds=_ROUND_SECONDS)
        state.read_all()
        return state

    def described(self, policy: Policy) -> str:
        """The jobs and the cluster, for people."""
        state: Any = self.state(policy)
        lines = [f"{self.n_jobs} jobs (seed {self.seed}) on {state.cluster}"]
        for i in range(min(state.n_jobs, 8)):
            rates = ", ".join(f"{rate:.4g}" for rate in state.rates[i])
            lines.append(
                f"job {i}: {state.scale_factors[i]} GPUs, weight {state.priority_weights[i]:g}, "
                f"{state.steps_remaining[i]:.0f} steps left, {rates} steps/s"
            )
        return "\n".join(lines)
