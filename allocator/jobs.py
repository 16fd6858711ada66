"""The job table: one array per attribute for all jobs that a world knows of.

A job's id is its position. The world (simulator, runtime) writes the progress, the decision core keeps the ledgers
that policies read; a policy sees neither, only the `ClusterState` snapshot of the active rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allocator.cluster import Cluster
from allocator.protocol import ClusterState
from throughputs import InputError, ThroughputMatrix, Trace

if TYPE_CHECKING:
    from throughputs import ThroughputTable

__all__ = ["JobTable"]


class JobTable:
    """N jobs on the M accelerator types of a cluster, as a struct of arrays.

    Parameters
    ----------
    trace : the jobs as they were submitted.
    rates : (N, M) steps/s of each job's own gang on each type of `cluster`; 0 where it cannot run.
    cluster : the cluster. A gang larger than all GPUs of a type can never run there: its rate is set to 0.

    Attributes
    ----------
    job_type, scale_factor, priority_weight, total_steps, arrival_time : (N,) as in the trace; times in seconds.
    rates : (N, M) steps/s.
    steps_done : (N,) steps trained so far; written by the world.
    completion_time : (N,) seconds, nan until the job completes; written by the world.
    isolated_seconds : (N,) seconds the steps done so far would have taken on isolated shares of the cluster, as they
        were when the policy was asked (Gavel, OSDI'20, sec. 4.2); written by the decision core.
    current_accelerator : (N,) type given by a policy that does not preempt, -1 for none; written by the decision core.

    Raises
    ------
    InputError
        `rates` has the wrong shape, or an entry is negative or not finite.
    """

    def __init__(self, trace: Trace, rates: ArrayLike, cluster: Cluster) -> None:
        n, m = len(trace), len(cluster.accelerators)
        given = np.array(rates, dtype=np.float64)
        if given.size == 0:
            given = given.reshape(n, m) if n * m == 0 else given
        if given.shape != (n, m):
            raise InputError(
                "throughputs",
                field="rates",
                found=given.shape,
                expected=f"shape ({n}, {m}) (jobs, accelerators)",
            )
        bad = ~(np.isfinite(given) & (given >= 0))
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise InputError(
                "throughputs",
                field=f"rate of job {row} on {cluster.accelerators[column]!r}",
                found=float(given[row, column]),
                expected="a finite rate of at least 0 steps/s",
            )
        self.job_type = trace.job_type
        self.scale_factor = trace.scale_factor
        self.priority_weight = trace.priority_weight
        self.total_steps = trace.total_steps
        self.arrival_time = trace.arrival_time
        self.rates = np.where(trace.scale_factor[:, None] <= cluster.capacity[None, :], given, 0.0)
        self.steps_done = np.zeros(n)
        self.completion_time = np.full(n, np.nan)
        self.isolated_seconds = np.zeros(n)
        self.current_accelerator = np.full(n, -1, dtype=np.int64)

    @classmethod
    def from_trace(cls, trace: Trace, throughputs: ThroughputTable | ArrayLike, cluster: Cluster) -> JobTable:
        """Table of the jobs of `trace`, with rates looked up in a throughput table or given as an (N, M) array."""
        look_up = getattr(throughputs, "rates", None)
        if callable(look_up):
            return cls(trace, look_up(trace.job_type, trace.scale_factor, cluster.accelerators), cluster)
        return cls(trace, throughputs, cluster)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.total_steps)

    @property
    def runnable(self) -> NDArray[np.bool_]:
        """(N,) whether any type of the cluster can run the job at all."""
        runnable: NDArray[np.bool_] = np.any(self.rates > 0, axis=1)
        return runnable

    @property
    def steps_remaining(self) -> NDArray[np.float64]:
        """(N,) steps left, at least 0."""
        return np.maximum(self.total_steps - self.steps_done, 0.0)

    def snapshot(self, active: NDArray[np.int64], clock: float, cluster: Cluster) -> ClusterState:
        """What a policy may know at `clock` about the `active` jobs (ascending ids, which become the labels)."""
        matrix = ThroughputMatrix(
            self.rates[active],
            active.tolist(),
            cluster.accelerators,
            self.scale_factor[active],
            unit="steps/s",
        )
        return ClusterState(
            cluster,
            matrix,
            priority_weights=self.priority_weight[active],
            steps_remaining=np.maximum(self.total_steps[active] - self.steps_done[active], 0.0),
            elapsed_seconds=np.maximum(clock - self.arrival_time[active], 0.0),
            isolated_seconds=self.isolated_seconds[active],
            current_accelerator=self.current_accelerator[active],
            clock=clock,
        )
