"""Figures of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from allocator.simulator.result import SimulationResult

__all__ = ["UNFAIR_RHO", "summarize"]

# A job counts as treated unfairly when it took this much longer than on its isolated share: 1 with a margin for
# the granularity of rounds.
UNFAIR_RHO = 1.05


def summarize(result: SimulationResult) -> dict[str, Any]:
    """Figures of a run, ready for JSON; times in seconds, None where there is nothing to measure.

    - average_jct, median_jct, p99_jct, worst_rho, average_rho: over completed jobs; rho is jct / isolated_jct.
    - unfair_fraction: share of the completed jobs with rho above `UNFAIR_RHO`.
    - makespan, utilization: as in `SimulationResult`.
    - average_queue, average_active: jobs that waited and jobs in the cluster, time average over the rounds.
    - completed_jobs, unserved_jobs (no accelerator type can run them), dropped_jobs (given up), jobs.
    - preemptions: times a job was not given the GPUs it had the round before.
    """
    jobs, timeline = result.jobs, result.timeline
    jct = _defined(jobs["jct"].to_numpy(dtype=np.float64))
    rho = _defined(jobs["rho"].to_numpy(dtype=np.float64))
    status = list(jobs.get("status", ()))
    length = (timeline["end_time"] - timeline["start_time"]).to_numpy(dtype=np.float64)
    return {
        "policy": result.policy,
        "cluster": str(result.cluster),
        "average_jct": _finite(jct.mean()) if jct.size else None,
        "median_jct": _finite(np.median(jct)) if jct.size else None,
        "p99_jct": _finite(np.percentile(jct, 99)) if jct.size else None,
        "makespan": float(result.makespan),
        "utilization": float(result.utilization),
        "average_rho": _finite(rho.mean()) if rho.size else None,
        "worst_rho": _finite(rho.max()) if rho.size else None,
        "unfair_fraction": float((rho > UNFAIR_RHO).mean()) if rho.size else None,
        "average_queue": _time_average(timeline["queued_jobs"].to_numpy(dtype=np.float64), length),
        "average_active": _time_average(timeline["active_jobs"].to_numpy(dtype=np.float64), length),
        "jobs": len(jobs),
        "completed_jobs": int(jct.size),
        "unserved_jobs": status.count("unserved"),
        "dropped_jobs": status.count("dropped"),
        "preemptions": int(jobs["preemptions"].sum()),
        "rounds": len(timeline),
        "policy_calls": len(result.decisions),
        "policy_seconds": float(result.policy_seconds),
        "wall_seconds": float(result.wall_seconds),
    }


def _defined(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[~np.isnan(values)]


def _finite(value: np.floating[Any]) -> float | None:
    return float(value) if np.isfinite(value) else None


def _time_average(values: NDArray[np.float64], seconds: NDArray[np.float64]) -> float | None:
    return float((values * seconds).sum() / seconds.sum()) if seconds.sum() > 0 else None
