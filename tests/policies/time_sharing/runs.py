"""Small runs and decisions for the tests of policies that keep jobs in line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from allocator import Cluster, ClusterState, ThroughputMatrix
from allocator.presets import preset
from allocator.protocol import Assignment, Plan
from tests.simulator.worlds import make_trace
from throughputs import Trace


class Asked:
    """A policy with its memory: called with jobs in order of arrival it says who runs (labels) and for how long."""

    def __init__(self, name: str, gpus: int = 4, per_server: int = 4, system: str = "default", **settings: Any) -> None:
        self.cluster = Cluster({"a100": gpus}, {"a100": per_server})
        self.policy = preset(system).make_policy(name, self.cluster, **settings)
        self.memory = self.policy.new_memory()

    def plan(
        self,
        labels: Sequence[int],
        gpus: Sequence[int],
        clock: float = 0.0,
        running: Sequence[int] = (),
        **columns: Any,
    ) -> Plan:
        """`running` are labels; `rates` steps/s, `trained` seconds on these gangs so far."""
        speed = np.array(columns.pop("rates", np.ones(len(labels))))
        matrix = ThroughputMatrix(speed[:, None], list(labels), ["a100"], gpus)
        rows = [list(labels).index(label) for label in running]
        now = Assignment.of(rows, [0] * len(rows), [gpus[i] for i in rows])
        if "trained" in columns:
            seconds = np.array(columns.pop("trained"), dtype=float)
            columns |= {"run_seconds": seconds, "gpu_seconds": seconds * gpus}
        columns = {"elapsed_seconds": np.arange(len(labels), 0, -1.0), **columns}
        return self.policy.plan(ClusterState(self.cluster, matrix, clock=clock, running=now, **columns), self.memory)

    def __call__(
        self, labels: Sequence[int], gpus: Sequence[int], *more: Any, **columns: Any
    ) -> tuple[list[int], float]:
        step = self.plan(labels, gpus, *more, **columns).steps[0]
        return sorted(labels[i] for i in step.assignment.jobs.tolist()), step.seconds

    @property
    def places(self) -> list[int]:
        """Labels in the order of their turns."""
        return [self.memory.jobs[i] for i in np.argsort(self.memory.turn).tolist()]


@st.composite
def traces(draw: st.DrawFn) -> tuple[Trace, Cluster, np.ndarray]:
    """Gangs of up to 8 GPUs on a few servers of 4 or 8, all of which fit, some of which arrive together."""
    per_server = draw(st.sampled_from([4, 8]))
    gpus = per_server * draw(st.integers(8 // per_server, 4))
    n = draw(st.integers(1, 9))
    arrivals = np.cumsum([draw(st.sampled_from([0.0, 0.0, 7.0, 100.0, 3000.0])) for _ in range(n)])
    steps = [float(draw(st.integers(1, 2000))) for _ in range(n)]
    sizes = [draw(st.sampled_from([1, 1, 1, 2, 3, 4, 8])) for _ in range(n)]
    rates = np.array([[draw(st.sampled_from([0.5, 1.0, 2.3]))] for _ in range(n)])
    return make_trace(steps, sizes, arrivals.tolist()), Cluster({"a100": gpus}, {"a100": per_server}), rates
