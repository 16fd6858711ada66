"""Small runs and decisions for the tests of policies that keep jobs in line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from allocator import Cluster, ClusterState, ThroughputMatrix
from allocator.protocol import Assignment, Plan, PlanPolicy
from tests.simulator.worlds import make_trace
from throughputs import Trace


def state_of(
    labels: Sequence[int],
    gpus: Sequence[int],
    cluster: Cluster,
    *,
    clock: float = 0.0,
    running: Sequence[int] = (),
    rates: Sequence[float] | None = None,
    **columns: Any,
) -> ClusterState:
    """Jobs of a cluster with one type, in order of arrival; `running` are labels."""
    (name,) = cluster.accelerators
    speed = np.ones(len(labels)) if rates is None else np.array(rates)
    matrix = ThroughputMatrix(speed[:, None], list(labels), [name], gpus)
    rows = [list(labels).index(label) for label in running]
    now = Assignment.of(rows, [0] * len(rows), [gpus[i] for i in rows])
    elapsed = columns.pop("elapsed_seconds", np.arange(len(labels), 0, -1.0))
    return ClusterState(cluster, matrix, clock=clock, running=now, elapsed_seconds=elapsed, **columns)


def who_runs(plan: Plan, state: ClusterState) -> list[int]:
    """Labels of the jobs of the first step, ascending."""
    return sorted(state.throughputs.jobs[i] for i in plan.steps[0].assignment.jobs.tolist())


def decide(policy: PlanPolicy, memory: Any, state: ClusterState) -> list[int]:
    return who_runs(policy.plan(state, memory), state)


@st.composite
def traces(draw: st.DrawFn) -> tuple[Trace, Cluster, np.ndarray]:
    """Gangs of up to 8 GPUs on a few servers of 4 or 8, all of which fit, some of which arrive together."""
    per_server = draw(st.sampled_from([4, 8]))
    gpus = per_server * draw(st.integers(8 // per_server, 4))
    n = draw(st.integers(1, 14))
    arrivals = np.cumsum([draw(st.sampled_from([0.0, 0.0, 7.0, 100.0, 3000.0])) for _ in range(n)])
    steps = [float(draw(st.integers(1, 4000))) for _ in range(n)]
    sizes = [draw(st.sampled_from([1, 1, 1, 2, 3, 4, 8])) for _ in range(n)]
    rates = np.array([[draw(st.sampled_from([0.5, 1.0, 2.3]))] for _ in range(n)])
    return make_trace(steps, sizes, arrivals.tolist()), Cluster({"a100": gpus}, {"a100": per_server}), rates
