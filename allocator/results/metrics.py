"""Figures of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from allocator.results.deadlines import deadline_figures
from allocator.results.efficiency import average_efficiency, loaded_span, loaded_utilization
from allocator.results.fairness import pairwise_envy
from allocator.results.measures.completion import completion_figures
from allocator.results.measures.cost import owned_cost
from allocator.results.measures.fragmentation import GANG, measure_fragmentation
from allocator.results.measures.parts import (
    SIZE_CLASSES,
    entities_table,
    named_parts_table,
    priorities_table,
    restart_gpu_hours,
    rows_of,
    sizes_table,
)
from allocator.results.measures.pools import accelerators_table, gpu_utilization
from allocator.results.summary import Summary
from throughputs.arrays import Floats
from throughputs.files import JsonObject
from throughputs.trace import ENDINGS

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
    record, every_job, timeline = result.record, result.jobs, result.timeline
    measure = str(result.settings.get("deadline_measure", "first"))
    jobs, window = every_job, {}
    if record.window is not None or record.placed is not None:
        jobs = every_job[every_job["measured"]]
        start, end = _span(jobs)
        timeline = timeline[(timeline["end_time"] > start) & (timeline["start_time"] < end)]
        utilization = record.utilization_between(start, end)
        window = {"window_start": start, "window_end": end, "window_utilization": utilization}
    status = jobs["status"].tolist()
    extensions, opportunities = record.leases
    ran, done = jobs["start_time"].notna(), jobs["jct"].notna()
    summary: JsonObject = {
        "policy": result.policy,
        **({"label": result.label} if result.label != result.policy else {}),
        "cluster": str(result.cluster),
        "status": result.status,
        "status_detail": result.status_detail,
        **completion_figures(jobs),
        "makespan": float(result.makespan),
        "utilization": float(result.utilization),
        "loaded_utilization": loaded_utilization(record),
        **_contention_figures(timeline, result.cluster.total_gpus),
        "jobs": len(jobs),
        **{f"{name}_jobs": status.count(name) for name in (*_ENDS, *(ENDINGS[1:] if record.logged else ()))},
        "preemptions": int(jobs["preemptions"].sum()),
        "migrations": record.migrations,
        "restart_gpu_hours": restart_gpu_hours(every_job),
        **_failure_figures(every_job),
        "restarts_per_job": float(jobs.loc[ran, "preemptions"].mean()) if ran.any() else None,
        "gpu_hours_per_job": float(jobs.loc[done, "gpu_seconds"].mean()) / HOUR if done.any() else None,
        **_promise_figures(record),
        "lease_extensions": extensions,
        "lease_opportunities": opportunities,
        "lease_extension_rate": extensions / opportunities if opportunities else None,
        **_envy_figures(jobs),
        **deadline_figures(jobs, measure),
        **({"cluster_efficiency": average_efficiency(record)} if "deadline" in every_job else {}),
        "cost": float(every_job.loc[slice(None) if record.placed is None else record.placed, "cost"].sum())
        if "cost" in every_job
        else None,
        "owned_cost": owned_cost(record),
        "rounds": int(record.round_length.sum()),
        "policy_calls": result.policy_calls,
        "fallback_decisions": sum(bool(allocation.fallbacks) for _, _, allocation in result.decisions),
        "policy_seconds": float(result.policy_seconds),
        "wall_seconds": float(result.wall_seconds),
        **window,
        **_pool_figures(record, gang),
    }
    parts = {}
    if jobs["priority_weight"].nunique() > 1:
        parts["by_priority"] = priorities_table(jobs, measure)
    if jobs["scale_factor"].nunique() > 1:
        parts["by_size"] = sizes_table(jobs, size_classes)
    parts |= {f"by_{name}": named_parts_table(jobs, name) for name in ("user", "partition") if name in jobs}
    if record.jobs.membership is not None:
        parts["by_entity"] = entities_table(every_job, record, record.jobs.membership)
    summary |= {name: rows_of(table) for name, table in parts.items()}
    return Summary.of(summary | dict.fromkeys(result.not_told))


_ENDS = ("unserved", "dropped", "rejected", "cut_off", "unfinished")


def _contention_figures(timeline: pd.DataFrame, gpus: int) -> JsonObject:
    """Jobs that waited, and jobs in the cluster, alone and per GPU: the time average and the most at a time."""
    start, end, queued, active = (
        timeline[name].to_numpy(dtype=float) for name in ("start_time", "end_time", "queued_jobs", "active_jobs")
    )
    average = _time_average(active, end - start)
    return {
        "average_queue": _time_average(queued, end - start),
        "largest_queue": int(queued.max(initial=0.0)),
        "average_active": average,
        "average_contention": average / gpus if average is not None and gpus else None,
        "largest_contention": float(active.max(initial=0.0)) / gpus if gpus else None,
    }


def _failure_figures(jobs: pd.DataFrame) -> JsonObject:
    """What jobs lost by failures of nodes; nothing in a world where none fail."""
    if "failures" not in jobs:
        return {}
    hours = float(jobs["lost_gpu_seconds"].sum()) / HOUR
    return {"failures": int(jobs["failures"].sum()), "lost_gpu_hours": hours}


def _promise_figures(record: RunRecord) -> JsonObject:
    """What jobs had beyond their shares of time; nothing under policies that promise none."""
    if record.promises is None or record.promised_seconds is None:
        return {}
    gpus, ran = record.jobs.scale_factor, record.running_seconds
    total = float((gpus * ran).sum())
    beyond = float((gpus * np.maximum(ran - record.promised_seconds, 0.0)).sum())
    return {
        "beyond_shares_fraction": beyond / total if total else None,
        "exceeded_jobs": int(record.ran_beyond_shares.sum()) if record.promises.binding else None,
    }


def _pool_figures(record: RunRecord, gang: int) -> JsonObject:
    """Fragmentation, measured utilisation, and what each type was used for, while jobs arrived; all jobs count."""
    start, end = loaded_span(record) or (float(record.jobs.arrival_time.min(initial=0.0)), record.makespan)
    found = measure_fragmentation(record, start, end, gang)
    measured, by_pool = gpu_utilization(record, start, end) or ({}, None)
    figures: JsonObject = {} if found is None else dict(found.overall)
    figures = {name: None if np.isnan(value) else value for name, value in figures.items()} | measured
    if len(record.cluster.accelerators) > 1:
        figures["by_accelerator"] = rows_of(accelerators_table(record, start, end, found, by_pool))
    return figures


def _envy_figures(jobs: pd.DataFrame) -> JsonObject:
    if "scheduled_fraction" not in jobs:
        return {}
    mean, largest = pairwise_envy(jobs["scheduled_fraction"].to_numpy(dtype=float))
    return {"mean_envy": mean, "largest_envy": largest}


def _span(jobs: pd.DataFrame) -> tuple[float, float]:
    """First arrival and last completion, seconds."""
    start = float(jobs["arrival_time"].min()) if len(jobs) else 0.0
    return start, float(np.fmax(start, jobs["completion_time"].max()))


def _time_average(values: Floats, seconds: Floats) -> float | None:
    return float((values * seconds).sum() / seconds.sum()) if seconds.sum() > 0 else None
