"""What jobs ask of a cluster: by their size, by type of GPU, by the pool that they were submitted to, and over time.

A job that asks for a part of a GPU counts with that part, everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughputs.trace import Trace, partition_names

_Floats = NDArray[np.float64]

_INTERVALS = 60
"""Intervals into which the time from the first arrival to the last is divided."""

_HOUR = 3600.0


def sizes_of(trace: Trace, durations: _Floats) -> list[dict[str, Any]]:
    """Jobs and GPU hours by size: less than 1 GPU, then in classes of powers of two: 1, 2, 3 to 4, 5 to 8, ...

    Each row has ``gpus`` (text), ``jobs`` and ``gpu_hours`` (of the jobs with a known duration).
    """
    if not len(trace):
        return []
    largest = int(trace.scale_factor.max())
    ends = [2**i for i in range((largest - 1).bit_length() + 1)]
    of = np.where(_gpus(trace) < 1, 0, np.searchsorted(ends, trace.scale_factor) + 1)
    jobs, hours = np.bincount(of), np.bincount(of, gpu_hours_of(trace, durations))
    names = ["less than 1", *(str(end) if end < 3 else f"{end // 2 + 1}-{end}" for end in ends)][: len(jobs)]
    rows = zip(names, jobs.tolist(), hours.tolist(), strict=True)
    return [{"gpus": name, "jobs": count, "gpu_hours": asked} for name, count, asked in rows if count]


def types_of(trace: Trace, durations: _Floats) -> list[dict[str, Any]]:
    """Jobs and GPU hours by the GPU type that they ask for, those with the most GPU hours first; of jobs that name none
    ``gpu_type`` is empty. No rows where no job names one.

    Each row has ``gpu_type`` (several with bars between), ``jobs`` and ``gpu_hours``.
    """
    names, of = np.unique(trace.gpu_type.astype(str), return_inverse=True)
    if not any(names):
        return []
    jobs, hours = np.bincount(of), np.bincount(of, gpu_hours_of(trace, durations))
    rows = zip(names.tolist(), jobs.tolist(), hours.tolist(), strict=True)
    listed = [{"gpu_type": name, "jobs": count, "gpu_hours": asked} for name, count, asked in rows]
    return sorted(listed, key=lambda row: -row["gpu_hours"])


def pools_of(trace: Trace, durations: _Floats, capacity: Mapping[str, int] | None, span: float) -> list[dict[str, Any]]:
    """Jobs and GPU hours by partition, those with the most GPU hours first; of jobs without one the name is empty.

    Each row has ``partition``, ``jobs``, ``gpu_hours``, ``largest_gang``, and with `capacity` also ``cluster_gpus`` (of
    the types that the partition names; None where it names none, and its jobs run anywhere), ``demand`` (as that of the
    trace, None likewise) and ``n_jobs_impossible`` (larger than each type that they may use).
    """
    names, of = np.unique(trace.partition.astype(str), return_inverse=True)
    n = len(names)
    hours = np.bincount(of, gpu_hours_of(trace, durations), n)
    largest = np.zeros(n, dtype=np.int64)
    np.maximum.at(largest, of, trace.scale_factor)
    rows = [
        {"partition": name, "jobs": jobs, "gpu_hours": asked, "largest_gang": gang}
        for name, jobs, asked, gang in zip(
            names.tolist(), np.bincount(of, minlength=n).tolist(), hours.tolist(), largest.tolist(), strict=True
        )
    ]
    if capacity is not None:
        impossible = np.bincount(of[impossible_jobs(trace, capacity)], minlength=n).tolist()
        for row, name, count in zip(rows, names.tolist(), impossible, strict=True):
            own = [capacity[part] for part in partition_names(name) if part in capacity]
            gpus = sum(own) if own else None
            asked = row["gpu_hours"]
            row["cluster_gpus"] = gpus
            row["demand"] = asked / gpus / (span / _HOUR) if gpus and span > 0 else None
            row["n_jobs_impossible"] = count
    return sorted(rows, key=lambda row: -row["gpu_hours"])


def impossible_jobs(trace: Trace, capacity: Mapping[str, int]) -> NDArray[np.bool_]:
    """(N,) whether a job is larger than each type that it may use: those that its GPU type names, else its partition,
    else all.
    """
    room = np.zeros(len(trace), dtype=np.int64)
    for column in (trace.gpu_type, trace.partition):
        names, of = np.unique(column.astype(str), return_inverse=True)
        own = [max((capacity.get(part, 0) for part in partition_names(name)), default=0) for name in names.tolist()]
        room = np.where(room > 0, room, np.array(own, dtype=np.int64)[of])
    return np.asarray(trace.scale_factor > np.where(room > 0, room, max(capacity.values(), default=0)))


def demand_over_time(trace: Trace, durations: _Floats) -> dict[str, Any] | None:
    """GPUs that the jobs ask for over time, each from its arrival on for as long as it takes; and those recorded.

    None where arrivals span no time or no duration is known; else ``interval_s``, ``start_s`` of each interval from the
    first arrival to the last, ``gpus_asked``, their average over the interval, and ``gpus_recorded``, of the schedule
    that the trace records (None where it records none).
    """
    known = ~np.isnan(durations)
    if not known.any() or trace.arrival_time[-1] <= trace.arrival_time[0]:
        return None
    edges = np.linspace(trace.arrival_time[0], trace.arrival_time[-1], _INTERVALS + 1)
    arrival, gpus = trace.arrival_time[known], _gpus(trace)
    began = ~np.isnan(trace.recorded_end_seconds)
    start, end = trace.recorded_start_seconds[began], trace.recorded_end_seconds[began]
    recorded = _averages(edges, start, end, gpus[began]) if began.any() else None
    return {
        "interval_s": float(edges[1] - edges[0]),
        "start_s": edges[:-1].tolist(),
        "gpus_asked": _averages(edges, arrival, arrival + durations[known], gpus[known]).tolist(),
        "gpus_recorded": None if recorded is None else recorded.tolist(),
    }


def _averages(edges: _Floats, start: _Floats, end: _Floats, gpus: _Floats) -> _Floats:
    """(B,) GPUs in use on average between neighbouring edges, by jobs that hold theirs from start to end."""

    def held(since: _Floats) -> _Floats:
        """GPU seconds up to each edge of GPUs that are held for ever from these times on."""
        order = np.argsort(since, kind="stable")
        before = np.searchsorted(since[order], edges, side="right")
        count = np.concatenate([[0.0], np.cumsum(gpus[order])])[before]
        weighted = np.concatenate([[0.0], np.cumsum(gpus[order] * since[order])])[before]
        return np.asarray(count * edges - weighted)

    used = held(start) - held(end)
    averages: _Floats = np.maximum(np.diff(used) / np.diff(edges), 0.0)
    return averages


def _gpus(trace: Trace) -> _Floats:
    """(N,) GPUs that each job asks for, less than 1 where it shares one."""
    return np.asarray(trace.scale_factor * trace.gpu_fraction)


def gpu_hours_of(trace: Trace, durations: _Floats) -> _Floats:
    """(N,) 0 where the duration is not known."""
    return np.nan_to_num(durations * _gpus(trace), nan=0.0) / _HOUR
