"""Figures of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.results.cost import owned_cost
from allocator.results.deadlines import deadline_figures
from allocator.results.efficiency import average_efficiency, loaded_span, loaded_utilization
from allocator.results.fairness import pairwise_envy
from allocator.results.measures.completion import completion_figures
from allocator.results.measures.fragmentation import GANG, measure_fragmentation
from allocator.results.measures.gpu_utilization import gpu_utilization
from allocator.results.measures.parts import (
    SIZE_CLASSES,
    partitions_table,
    priorities_table,
    restart_gpu_hours,
    rows_of,
    sizes_table,
    users_table,
)
from allocator.results.measures.pools import accelerators_table
from allocator.results.views.summary import Summary

if TYPE_CHECKING:
    import pandas as pd

    from allocator.results.record import RunRecord
    from allocator.results.result import SimulationResult

HOUR = 3600.0


def summarize(result: SimulationResult, *, size_classes: Sequence[int] = SIZE_CLASSES, gang: int = GANG) -> Summary:
    """The figures of a run.

    Parameters
    ----------
    result : the run.
    size_classes : smallest number of GPUs of each class of `by_size`, ascending from 1.
    gang : GPUs of the gang of which `gang_fits_fraction` and `gang_blocked_fraction` tell.

    Raises
    ------
    InputError
        Size classes that do not ascend from 1.
    """
    every_job, timeline = result.jobs, result.timeline
    windowed = "measured" in every_job
    jobs = every_job[every_job["measured"]] if windowed else every_job
    if windowed:
        start, end = _span(jobs)
        timeline = timeline[(timeline["end_time"] > start) & (timeline["start_time"] < end)]
    status = list(jobs.get("status", ()))
    opportunities = extensions = None
    if result.record is not None:
        extensions, opportunities = result.record.leases
    summary: dict[str, Any] = {
        "policy": result.policy,
        **({"label": result.label} if result.label != result.policy else {}),
        "cluster": str(result.cluster),
        "status": result.status,
        "status_detail": result.status_detail,
        **completion_figures(jobs),
        "makespan": float(result.makespan),
        "utilization": float(result.utilization),
        "loaded_utilization": loaded_utilization(result.record),
        **_contention_figures(timeline, result.cluster.total_gpus),
        "jobs": len(jobs),
        "unserved_jobs": status.count("unserved"),
        "dropped_jobs": status.count("dropped"),
        "rejected_jobs": status.count("rejected"),
        "cut_off_jobs": status.count("cut_off"),
        "unfinished_jobs": status.count("unfinished"),
        "preemptions": int(jobs["preemptions"].sum()),
        "migrations": None if result.record is None else result.record.migrations,
        "restart_gpu_hours": restart_gpu_hours(every_job),
        **_failure_figures(every_job),
        **_use_by_job(jobs),
        **_promise_figures(result.record),
        "lease_extensions": extensions,
        "lease_opportunities": opportunities,
        "lease_extension_rate": extensions / opportunities if extensions is not None and opportunities else None,
        **_envy_figures(jobs),
        **deadline_figures(jobs, deadline_measure(result)),
        **_efficiency_figures(result),
        "cost": float(every_job["cost"].sum()) if "cost" in every_job else None,
        "owned_cost": owned_cost(result.record),
        "rounds": int(result.timeline["rounds"].sum()) if "rounds" in result.timeline else len(result.timeline),
        "policy_calls": result.policy_calls,
        "fallback_decisions": sum(bool(allocation.fallbacks) for _, _, allocation in result.decisions),
        "policy_seconds": float(result.policy_seconds),
        "wall_seconds": float(result.wall_seconds),
    }
    if windowed and result.record is not None:
        utilization = result.record.utilization_between(start, end)
        summary |= {"window_start": start, "window_end": end, "window_utilization": utilization}
    summary |= _pool_figures(result, gang)
    if jobs["priority_weight"].nunique() > 1:
        summary["by_priority"] = rows_of(priorities_table(every_job, deadline_measure(result)))
    if jobs["scale_factor"].nunique() > 1:
        summary["by_size"] = rows_of(sizes_table(every_job, size_classes))
    if "user" in jobs:
        summary["by_user"] = rows_of(users_table(jobs))
    if "partition" in jobs:
        summary["by_partition"] = rows_of(partitions_table(jobs))
    if len(result.entities):
        summary["by_entity"] = rows_of(result.entities)
    return Summary.of(summary | dict.fromkeys(result.not_told))


def _contention_figures(timeline: pd.DataFrame, gpus: int) -> dict[str, Any]:
    """Jobs that waited, and jobs in the cluster, alone and per GPU: the time average and the most at a time."""
    length = (timeline["end_time"] - timeline["start_time"]).to_numpy(dtype=np.float64)
    queued, active = (timeline[name].to_numpy(dtype=np.float64) for name in ("queued_jobs", "active_jobs"))
    average = _time_average(active, length)
    return {
        "average_queue": _time_average(queued, length),
        "largest_queue": int(queued.max(initial=0.0)),
        "average_active": average,
        "average_contention": average / gpus if average is not None and gpus else None,
        "largest_contention": float(active.max(initial=0.0)) / gpus if gpus else None,
    }


def _use_by_job(jobs: pd.DataFrame) -> dict[str, Any]:
    """Starts after the first, of the jobs that ran, and GPU hours, of those that completed."""
    ran = jobs["start_time"].notna()
    done = jobs["jct"].notna()
    return {
        "restarts_per_job": float(jobs.loc[ran, "preemptions"].mean()) if ran.any() else None,
        "gpu_hours_per_job": float(jobs.loc[done, "gpu_seconds"].mean()) / HOUR if done.any() else None,
    }


def _failure_figures(jobs: pd.DataFrame) -> dict[str, Any]:
    """What jobs lost by failures of nodes; nothing in a world where none fail."""
    if "failures" not in jobs:
        return {}
    hours = float(jobs["lost_gpu_seconds"].sum()) / HOUR
    return {"failures": int(jobs["failures"].sum()), "lost_gpu_hours": hours}


def _promise_figures(record: RunRecord | None) -> dict[str, Any]:
    """What jobs had beyond their shares of time; nothing under policies that promise none."""
    if record is None or record.promises is None or record.promised_seconds is None:
        return {}
    gpus, ran = record.jobs.scale_factor, record.running_seconds
    beyond = np.maximum(ran - record.promised_seconds, 0.0)
    total = float((gpus * ran).sum())
    exceeded = int(record.ran_beyond_shares.sum()) if record.promises.binding else None
    return {
        "beyond_shares_fraction": float((gpus * beyond).sum()) / total if total else None,
        "exceeded_jobs": exceeded,
    }


def _pool_figures(result: SimulationResult, gang: int) -> dict[str, Any]:
    """Fragmentation, measured utilisation, and what each type was used for, while jobs arrived; all jobs count."""
    record = result.record
    if record is None:
        return {}
    start, end = loaded_span(record) or (float(record.jobs.arrival_time.min(initial=0.0)), record.makespan)
    found = measure_fragmentation(record, start, end, gang)
    figures: dict[str, Any] = {}
    if found is not None:
        names = ("fragmentation", "gang_fits_fraction", "gang_blocked_fraction")
        figures = {name: None if np.isnan(value) else value for name, value in zip(names, found.overall, strict=True)}
    measured = gpu_utilization(record, start, end)
    if measured is not None:
        figures |= {
            "gpu_utilization": measured.overall,
            "busy_gpu_utilization": measured.busy,
            "known_gpu_utilization": measured.known,
        }
    if len(record.cluster.accelerators) > 1:
        figures["by_accelerator"] = rows_of(accelerators_table(record, start, end, found))
    return figures


def _envy_figures(jobs: pd.DataFrame) -> dict[str, Any]:
    if "scheduled_fraction" not in jobs:
        return {}
    mean, largest = pairwise_envy(jobs["scheduled_fraction"].to_numpy(dtype=np.float64))
    return {"mean_envy": mean, "largest_envy": largest}


def deadline_measure(result: SimulationResult) -> str:
    """Which deadlines count for the ratio of those kept."""
    return str(result.settings.get("deadline_measure", "first"))


def _efficiency_figures(result: SimulationResult) -> dict[str, Any]:
    if "deadline" not in result.jobs:
        return {}
    return {"cluster_efficiency": None if result.record is None else average_efficiency(result.record)}


def _span(jobs: pd.DataFrame) -> tuple[float, float]:
    """First arrival and last completion, seconds."""
    done = _defined(jobs["completion_time"].to_numpy(dtype=np.float64))
    start = float(jobs["arrival_time"].min()) if len(jobs) else 0.0
    return start, max(start, float(done.max())) if done.size else start


def _defined(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[~np.isnan(values)]


def _time_average(values: NDArray[np.float64], seconds: NDArray[np.float64]) -> float | None:
    return float((values * seconds).sum() / seconds.sum()) if seconds.sum() > 0 else None
