"""A trace in figures: who arrives how often, with how many GPUs, for how long, and what they ask of a cluster.

A job that asks for a part of a GPU counts with that part, everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from throughputs.arrays import Flags, Floats, Positions, Texts, Values
from throughputs.files import JsonObject
from throughputs.numerics import interval_means
from throughputs.tables.table import ThroughputTable
from throughputs.trace import Trace, partition_names

_INTERVALS = 60
"""Intervals into which the time from the first arrival to the last is divided."""

_HOUR = 3600.0


def _by(names: Values, of: Positions, hours: Floats, label: str) -> list[JsonObject]:
    """Jobs and GPU hours (N,) of each name that some job is `of` (N,)."""
    jobs, asked = np.bincount(of, minlength=len(names)), np.bincount(of, hours, len(names))
    rows = zip(names, jobs.tolist(), asked.tolist(), strict=True)
    return [{label: str(name), "jobs": count, "gpu_hours": spent} for name, count, spent in rows if count]


def _sizes(trace: Trace, gpus: Floats, hours: Floats) -> list[JsonObject]:
    """Jobs and GPU hours by size: less than 1 GPU, then in classes of powers of two: 1, 2, 3 to 4, 5 to 8, ..."""
    largest = int(trace.scale_factor.max(initial=1))
    ends = [2**i for i in range((largest - 1).bit_length() + 1)]
    of = np.where(gpus < 1, 0, np.searchsorted(ends, trace.scale_factor) + 1)
    names = ["less than 1", *(str(end) if end < 3 else f"{end // 2 + 1}-{end}" for end in ends)]
    return _by(np.array(names, dtype=object), of, hours, "gpus")


def _types(trace: Trace, hours: Floats) -> list[JsonObject]:
    """Jobs and GPU hours by the GPU type that they ask for, those with the most GPU hours first; of several types the
    names have bars between, of jobs that name none it is empty. No rows where no job names one.
    """
    names, of = np.unique(trace.gpu_type.astype(str), return_inverse=True)
    rows = _by(names, of, hours, "gpu_type") if any(names) else []
    return sorted(rows, key=lambda row: -row["gpu_hours"])


def _pools(
    trace: Trace, hours: Floats, span: float, capacity: Mapping[str, int], impossible: Flags | None
) -> list[JsonObject]:
    """Jobs and GPU hours by partition, those with the most GPU hours first; of jobs without one the name is empty.

    Each row has ``partition``, ``jobs``, ``gpu_hours``, ``largest_gang``, and where it is known which are `impossible`
    also ``cluster_gpus`` (of the types that the partition names; None where it names none, and its jobs run anywhere),
    ``demand`` (as that of the trace, None likewise) and ``n_jobs_impossible`` (larger than all that they may use).
    """
    names, of = np.unique(trace.partition.astype(str), return_inverse=True)
    rows = _by(names, of, hours, "partition")
    for place, row in enumerate(rows):
        here = of == place
        row["largest_gang"] = int(trace.scale_factor[here].max())
        if impossible is not None:
            own = [capacity[part] for part in partition_names(row["partition"]) if part in capacity]
            gpus = row["cluster_gpus"] = sum(own) if own else None
            asked = float(hours[here & ~impossible].sum())
            row["demand"] = asked / gpus / (span / _HOUR) if gpus and span > 0 else None
            row["n_jobs_impossible"] = int(impossible[here].sum())
    return sorted(rows, key=lambda row: -row["gpu_hours"])


def impossible_jobs(trace: Trace, capacity: Mapping[str, int]) -> Flags:
    """(N,) whether a job is larger than each type that it may use: those that its GPU type names, else its partition,
    else all.
    """
    room = np.zeros(len(trace), dtype=np.int64)
    for column in (trace.gpu_type, trace.partition):
        names, of = np.unique(column.astype(str), return_inverse=True)
        own = [max((capacity.get(part, 0) for part in partition_names(name)), default=0) for name in names.tolist()]
        room = np.where(room > 0, room, np.array(own, dtype=np.int64)[of])
    return np.asarray(trace.scale_factor > np.where(room > 0, room, max(capacity.values(), default=0)))


def _demand_over_time(trace: Trace, gpus: Floats, durations: Floats) -> JsonObject | None:
    """GPUs that the jobs ask for over time, each from its arrival on for as long as it takes; and those recorded.

    None where arrivals span no time or no duration is known; else ``interval_s``, ``start_s`` of each interval from the
    first arrival to the last, ``gpus_asked``, their average over the interval, and of the schedule that the trace
    records (None where it records none) ``gpus_recorded`` and ``most_gpus_recorded``, the most at a time.
    """
    known = ~np.isnan(durations)
    if not known.any() or trace.arrival_time[-1] <= trace.arrival_time[0]:
        return None
    edges = np.linspace(trace.arrival_time[0], trace.arrival_time[-1], _INTERVALS + 1)

    def in_use(some: Flags, start: Floats, end: Floats) -> list[float]:
        """GPUs in use on average in each interval, by jobs that hold theirs from start to end."""
        means: list[float] = interval_means(start[some], end[some], gpus[some], edges).tolist()
        return means

    began = ~np.isnan(trace.recorded_end_seconds)
    at = np.concatenate([trace.recorded_start_seconds[began], trace.recorded_end_seconds[began]])
    change = np.bincount(np.unique(at, return_inverse=True)[1], np.concatenate([gpus[began], -gpus[began]]))
    return {
        "interval_s": float(edges[1] - edges[0]),
        "start_s": edges[:-1].tolist(),
        "gpus_asked": in_use(known, trace.arrival_time, trace.arrival_time + durations),
        "gpus_recorded": in_use(began, trace.recorded_start_seconds, trace.recorded_end_seconds)
        if began.any()
        else None,
        "most_gpus_recorded": float(change.cumsum().max()) if began.any() else None,
    }


_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


def describe_trace(
    trace: Trace,
    table: ThroughputTable | None = None,
    reference_accelerator: str | None = None,
    capacity: Mapping[str, int] | None = None,
) -> JsonObject:
    """Summary of a trace, ready for JSON.

    Parameters
    ----------
    trace : the jobs.
    table : when given, durations are steps over throughput on `reference_accelerator`; jobs that cannot run
        there are left out of them and counted in ``n_jobs_not_runnable``. Without a table, and for jobs that it does
        not have, which ``n_jobs_not_profiled`` counts, durations are those that the trace states.
    reference_accelerator : accelerator type of the durations and GPU hours; v100 if the table has it, else its first.
    capacity : GPUs of a cluster by type, to set the demand against.

    Returns
    -------
    dict with ``n_jobs``, ``first_arrival_s``, ``last_arrival_s``, ``arrivals_per_hour`` (None unless the
    arrivals span some time), counts by value in ``job_types``, ``scale_factors``, ``priority_weights``,
    ``modes`` and ``categories``, ``n_jobs_with_slo``, ``n_jobs_with_deadline``, ``n_jobs_with_deadline_options``
    (several),
    ``deadline_over_duration_quantiles`` by probability (of the time from arrival to deadline; None without deadlines),
    ``n_jobs_not_profiled``, ``n_jobs_not_runnable``, ``gpu_hours`` and ``duration_quantiles_s`` by probability (both
    None where no duration is known); ``n_users`` and counts by value in ``partitions``; ``n_jobs_recorded``, of which
    the trace records start and end; ``n_jobs_sharing``, those that ask for a part of a GPU, with
    ``gpu_hours_asked_sharing``, as in all other figures those that they asked for, and ``gpu_hours_sharing``, which
    they would take, having it whole; ``n_gangs_sharing`` of them ask for a part of each of several GPUs, which a run
    refuses; and rows by size in ``sizes``, by GPU type in ``types``, by partition in ``pools``, and
    ``demand_over_time``. With `capacity` also
    ``cluster_gpus``, ``demand`` (GPU hours over those that the cluster has between the first arrival and the last;
    None where that is no time), ``least_hours`` (GPU hours over GPUs: no schedule is shorter) and
    ``n_jobs_impossible``: those with more GPUs than any type that they may use has, which the two others leave out.

    Raises
    ------
    InputError
        The table does not know the accelerator type, or a job of which the trace does not state the duration.
    """
    n = len(trace)
    profiled = np.zeros(n, dtype=bool) if table is None else table.has(trace.job_type, trace.scale_factor)
    durations = durations_alone(trace, table, profiled, reference_accelerator)
    known = ~np.isnan(durations)
    first, last = (float(trace.arrival_time[0]), float(trace.arrival_time[-1])) if n else (None, None)
    span = last - first if first is not None and last is not None else 0.0
    gpus, sharing = trace.scale_factor * trace.gpu_fraction, trace.gpu_fraction < 1
    hours = np.nan_to_num(durations * gpus, nan=0.0) / _HOUR  # 0 where the duration is not known
    gpu_hours = float(hours.sum()) if known.any() else None
    described = {
        "n_jobs": n,
        "first_arrival_s": first,
        "last_arrival_s": last,
        "arrivals_per_hour": (n - 1) / span * 3600 if span > 0 else None,
        "job_types": _counted(trace.job_type),
        "scale_factors": _counts(trace.scale_factor),
        "priority_weights": _counts(trace.priority_weight),
        "modes": _counted(trace.mode),
        "categories": _counted(trace.category),
        "n_jobs_with_slo": int((~np.isnan(trace.slo)).sum()),
        "n_jobs_with_deadline": int((~np.isnan(trace.deadline)).sum()),
        "n_jobs_with_deadline_options": sum(len(row) > 1 for row in trace.deadline_options),
        "deadline_over_duration_quantiles": _quantiles((trace.deadline - trace.arrival_time) / durations),
        "n_jobs_not_profiled": int((~profiled).sum()) if table is not None else 0,
        "n_jobs_not_runnable": int((~known).sum()) if table is not None else 0,
        "gpu_hours": gpu_hours,
        "duration_quantiles_s": _quantiles(durations),
        "n_users": len(set(trace.user.tolist()) - {""}),
        "partitions": _counted(trace.partition),
        "n_jobs_recorded": int((~np.isnan(trace.recorded_end_seconds)).sum()),
        "n_jobs_sharing": int(sharing.sum()),
        "n_gangs_sharing": int((sharing & (trace.scale_factor > 1)).sum()),
        "gpu_hours_sharing": float((hours[sharing] / trace.gpu_fraction[sharing]).sum()),
        "gpu_hours_asked_sharing": float(hours[sharing].sum()),
    }
    impossible = None
    if capacity is not None:
        there, impossible = sum(capacity.values()), impossible_jobs(trace, capacity)
        least = None if gpu_hours is None or not there else float(hours[~impossible].sum()) / there
        described |= {
            "cluster_gpus": there,
            "demand": least / (span / _HOUR) if least is not None and span > 0 else None,
            "least_hours": least,
            "n_jobs_impossible": int(impossible.sum()),
        }
    return described | {
        "sizes": _sizes(trace, gpus, hours),
        "types": _types(trace, hours),
        "pools": _pools(trace, hours, span, capacity or {}, impossible),
        "demand_over_time": _demand_over_time(trace, gpus, durations),
    }


def durations_alone(
    trace: Trace, table: ThroughputTable | None, profiled: Flags, accelerator: str | None = None
) -> Floats:
    """(N,) seconds that each job takes alone, nan where unknown.

    With a table, durations of the jobs that are `profiled` (N,), and of those whose duration the trace does not state,
    are steps over throughput on the `accelerator`; v100 if the table has it, else its first.

    Raises
    ------
    InputError
        The table does not know the accelerator type, or a job of which the trace does not state the duration.
    """
    if table is None:
        return trace.duration
    if accelerator is None:
        accelerator = table.reference_accelerator
    asked = np.flatnonzero(profiled | np.isnan(trace.duration))
    rates = table.rates(trace.job_type[asked], trace.scale_factor[asked], [accelerator])[:, 0]
    durations = trace.duration.copy()
    durations[asked] = np.nan
    durations[asked[rates > 0]] = trace.total_steps[asked[rates > 0]] / rates[rates > 0]
    return durations


def _quantiles(values: Floats) -> dict[float, float] | None:
    """By probability, of those that are known; None where none is."""
    known = values[~np.isnan(values)]
    return dict(zip(_QUANTILES, np.quantile(known, _QUANTILES).tolist(), strict=True)) if len(known) else None


def _counted(names: Texts) -> dict[str, int]:
    """Those that are not empty, the most frequent first."""
    return dict(Counter(name for name in names.tolist() if name).most_common())


def _counts(values: Values) -> dict[Any, int]:
    distinct, counts = np.unique(values, return_counts=True)
    return dict(zip(distinct.tolist(), counts.tolist(), strict=True))
