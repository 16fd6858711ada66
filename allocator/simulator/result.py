"""What a simulation leaves behind, as tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from allocator.allocation import Allocation
    from allocator.cluster import Cluster

__all__ = ["SimulationResult"]


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """One simulated run.

    Attributes
    ----------
    policy : name of the policy.
    cluster : the cluster it ran on.
    settings : every named setting of the run, ready for JSON.
    jobs : one row per job of the trace: job_id, job_type, scale_factor, priority_weight, total_steps, arrival_time,
        start_time (nan: never ran), completion_time (nan: not completed), jct, isolated_jct, rho (finish-time
        fairness: jct / isolated_jct), gpu_seconds, rounds_run, preemptions. Times in seconds.
    rounds : one row per job and round in which it ran: round, start_time, end_time (of this job in this round),
        job_id, accelerator (category), gpus (GPU ids as text, space separated), steps.
    timeline : one row per round: round, start_time, end_time, active_jobs, running_jobs, queued_jobs, busy_gpus.
    decisions : (round, clock in seconds, Allocation) for each time the policy was asked; job labels are job ids.
    makespan : clock when the last job completed, seconds.
    utilization : busy GPU time divided by GPU time up to the makespan.
    policy_seconds, wall_seconds : time spent in the policy, and in the whole simulation.
    """

    policy: str
    cluster: Cluster
    settings: dict[str, Any]
    jobs: pd.DataFrame
    rounds: pd.DataFrame
    timeline: pd.DataFrame
    makespan: float
    utilization: float
    policy_seconds: float
    wall_seconds: float
    decisions: tuple[tuple[int, float, Allocation], ...] = field(default=())

    def summary(self) -> dict[str, Any]:
        """Figures of the run, ready for JSON."""
        from allocator.simulator.metrics import summarize

        return summarize(self)
