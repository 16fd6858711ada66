"""A trace in figures: who arrives how often, with how many GPUs, for how long, and what they ask of a cluster.

A job that asks for a part of a GPU counts with that part, everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughputs.tables.table import ThroughputTable
from throughputs.trace import Trace, allowed_types, partition_names

_Floats = NDArray[np.float64]

_INTERVALS = 60
"""Intervals into which the time from the first arrival to the last is divided."""

_HOUR = 3600.0


def _by(names: NDArray[Any], of: NDArray[np.intp], hours: _Floats, label: str) -> list[dict[str, Any]]:
    """Jobs and GPU hours (N,) of each name that some job is `of` (N,)."""
    jobs, asked = np.bincount(of, minlength=len(names)), np.bincount(of, hours, len(names))
    rows = zip(names, jobs.tolist(), asked.tolist(), strict=True)
    return [{label: str(name), "jobs": count, "gpu_hours": spent} for name, count, spent in rows if count]


def _sizes(trace: Trace, hours: _Floats) -> list[dict[str, Any]]:
    """Jobs and GPU hours by size: less than 1 GPU, then in classes of powers of two: 1, 2, 3 to 4, 5 to 8, ..."""
    largest = int(trace.scale_factor.max(initial=1))
    ends = [2**i for i in range((largest - 1).bit_length() + 1)]
    of = np.where(_gpus(trace) < 1, 0, np.searchsorted(ends, trace.scale_factor) + 1)
    names = ["less than 1", *(str(end) if end < 3 else f"{end // 2 + 1}-{end}" for end in ends)]
    return _by(np.array(names, dtype=object), of, hours, "gpus")


def _types(trace: Trace, hours: _Floats) -> list[dict[str, Any]]:
    """Jobs and GPU hours by the GPU type that they ask for, those with the most GPU hours first; of several types the
    names have bars between, of jobs that name none it is empty. No rows where no job names one.
    """
    rows = _by(*np.unique(trace.gpu_type.astype(str), return_inverse=True), hours, "gpu_type")
    return sorted(rows, key=lambda row: -row["gpu_hours"]) if trace.gpu_type.any() else []


def _pools(trace: Trace, hours: _Floats, capacity: Mapping[str, int] | None, span: float) -> list[dict[str, Any]]:
    """Jobs and GPU hours by partition, those with the most GPU hours first; of jobs without one the name is empty.

    Each row has ``partition``, ``jobs``, ``gpu_hours``, ``largest_gang``, and with `capacity` also ``cluster_gpus`` (of
    the types that the partition names; None where it names none, and its jobs run anywhere), ``demand`` (as that of the
    trace, None likewise) and ``n_jobs_impossible`` (larger than each type that they may use).
    """
    names, of = np.unique(trace.partition.astype(str), return_inverse=True)
    rows, impossible = _by(names, of, hours, "partition"), impossible_jobs(trace, capacity or {})
    for place, row in enumerate(rows):
        here = of == place
        row["largest_gang"] = int(trace.scale_factor[here].max())
        if capacity is not None:
            own = [capacity[part] for part in partition_names(row["partition"]) if part in capacity]
            row["cluster_gpus"] = sum(own) if own else None
            row["demand"] = _demand(row["gpu_hours"], sum(own), span)
            row["n_jobs_impossible"] = int(impossible[here].sum())
    return sorted(rows, key=lambda row: -row["gpu_hours"])


def impossible_jobs(trace: Trace, capacity: Mapping[str, int]) -> NDArray[np.bool_]:
    """(N,) whether a job is larger than each type that it may use (`allowed_types`)."""
    gpus = np.array(list(capacity.values()), dtype=np.int64)
    allowed = allowed_types(trace.gpu_type, trace.partition, list(capacity))
    room = gpus if allowed is None else np.where(allowed, gpus, 0)
    return np.asarray(trace.scale_factor > room.max(axis=-1, initial=0))


def _demand(gpu_hours: float | None, gpus: int, span: float) -> float | None:
    """GPU hours over those that so many GPUs have in a time, seconds; None where that is nothing."""
    return gpu_hours / gpus / (span / _HOUR) if gpu_hours is not None and gpus and span > 0 else None


def _demand_over_time(trace: Trace, durations: _Floats, span: float) -> dict[str, Any] | None:
    """GPUs that the jobs ask for over time, each from its arrival on for as long as it takes; and those recorded.

    None where arrivals span no time or no duration is known; else ``interval_s``, ``start_s`` of each interval from the
    first arrival to the last, ``gpus_asked``, their average over the interval, and ``gpus_recorded``, of the schedule
    that the trace records (None where it records none).
    """
    if not span > 0 or np.isnan(durations).all():
        return None
    arrival, gpus = trace.arrival_time, _gpus(trace)
    edges = np.linspace(arrival[0], arrival[-1], _INTERVALS + 1)
    return {
        "interval_s": float(edges[1] - edges[0]),
        "start_s": edges[:-1].tolist(),
        "gpus_asked": _averages(edges, arrival, arrival + durations, gpus),
        "gpus_recorded": _averages(edges, trace.recorded_start_seconds, trace.recorded_end_seconds, gpus),
    }


def _averages(edges: _Floats, start: _Floats, end: _Floats, gpus: _Floats) -> list[float] | None:
    """(B,) GPUs in use on average between neighbouring edges, by jobs that hold theirs from start to end; None where
    no end is known.
    """
    known = ~np.isnan(end)

    def held(since: _Floats) -> _Floats:
        """GPU seconds up to each edge of GPUs that are held for ever from these times on."""
        order = np.flatnonzero(known)[np.argsort(since[known], kind="stable")]
        before = np.searchsorted(since[order], edges, side="right")
        count = np.append(0.0, np.cumsum(gpus[order]))[before]
        weighted = np.append(0.0, np.cumsum(gpus[order] * since[order]))[before]
        return np.asarray(count * edges - weighted)

    averages: list[float] = np.maximum(np.diff(held(start) - held(end)) / np.diff(edges), 0.0).tolist()
    return averages if known.any() else None


def _gpus(trace: Trace) -> _Floats:
    """(N,) GPUs that each job asks for, less than 1 where it shares one."""
    return np.asarray(trace.scale_factor * trace.gpu_fraction)


_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


def describe_trace(
    trace: Trace,
    table: ThroughputTable | None = None,
    reference_accelerator: str | None = None,
    capacity: Mapping[str, int] | None = None,
) -> dict[str, Any]:
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
    ``deadline_quantiles`` by probability (time from arrival to deadline over duration; None without deadlines),
    ``n_jobs_not_profiled``, ``n_jobs_not_runnable``, ``gpu_hours`` and ``duration_quantiles_s`` by probability (both
    None where no duration is known); ``n_users`` and counts by value in ``partitions``; ``n_jobs_recorded``, of which
    the trace records start and end; ``n_jobs_sharing``, those that ask for a part of a GPU, with
    ``gpu_hours_asked_sharing``, as in all other figures those that they asked for, and ``gpu_hours_sharing``, which
    they would take, having it whole; ``n_gangs_sharing`` of them ask for a part of each of several GPUs, which a run
    refuses; and rows by size in ``sizes``, by GPU type in ``types``, by partition in ``pools``, and
    ``demand_over_time``. With `capacity` also
    ``cluster_gpus``, ``demand`` (GPU hours over those that the cluster has between the first arrival and the last;
    None where that is no time), ``least_hours`` (GPU hours over GPUs: no schedule is shorter) and
    ``n_jobs_impossible``: those with more GPUs than any type that they may use has.

    Raises
    ------
    InputError
        The table does not know the accelerator type, or a job of which the trace does not state the duration.
    """
    n = len(trace)
    profiled = np.zeros(n, dtype=np.bool_) if table is None else table.has(trace.job_type, trace.scale_factor)
    durations = durations_alone(trace, table, profiled, reference_accelerator)
    known = ~np.isnan(durations)
    ends: list[Any] = trace.arrival_time[[0, -1]].tolist() if n else [None, None]
    span = ends[1] - ends[0] if n else 0.0
    hours = np.nan_to_num(durations * _gpus(trace), nan=0.0) / _HOUR
    gpu_hours = float(hours.sum()) if known.any() else None
    described = {
        "n_jobs": n,
        "first_arrival_s": ends[0],
        "last_arrival_s": ends[1],
        "arrivals_per_hour": (n - 1) / span * _HOUR if span > 0 else None,
        "job_types": _counted(trace.job_type),
        "scale_factors": _counts(trace.scale_factor),
        "priority_weights": _counts(trace.priority_weight),
        "modes": _counted(trace.mode),
        "categories": _counted(trace.category),
        "n_jobs_with_slo": int((~np.isnan(trace.slo)).sum()),
        "n_jobs_with_deadline": int((~np.isnan(trace.deadline)).sum()),
        "n_jobs_with_deadline_options": sum(len(row) > 1 for row in trace.deadline_options),
        "deadline_quantiles": _quantiles((trace.deadline - trace.arrival_time) / durations),
        "n_jobs_not_profiled": int((~profiled).sum()) if table is not None else 0,
        "n_jobs_not_runnable": int((~known).sum()) if table is not None else 0,
        "gpu_hours": gpu_hours,
        "duration_quantiles_s": _quantiles(durations),
        "n_users": len(set(trace.user.tolist()) - {""}),
        "partitions": _counted(trace.partition),
        "n_jobs_recorded": int((~np.isnan(trace.recorded_end_seconds)).sum()),
        **_sharing(trace, hours),
    }
    if capacity is not None:
        gpus = sum(capacity.values())
        described |= {
            "cluster_gpus": gpus,
            "demand": _demand(gpu_hours, gpus, span),
            "least_hours": None if gpu_hours is None or not gpus else gpu_hours / gpus,
            "n_jobs_impossible": int(impossible_jobs(trace, capacity).sum()),
        }
    return described | {
        "sizes": _sizes(trace, hours),
        "types": _types(trace, hours),
        "pools": _pools(trace, hours, capacity, span),
        "demand_over_time": _demand_over_time(trace, durations, span),
    }


def _sharing(trace: Trace, hours: _Floats) -> dict[str, Any]:
    """The jobs that ask for a part of a GPU."""
    some = trace.gpu_fraction < 1
    return {
        "n_jobs_sharing": int(some.sum()),
        "n_gangs_sharing": int((some & (trace.scale_factor > 1)).sum()),
        "gpu_hours_sharing": float((hours / trace.gpu_fraction)[some].sum()),
        "gpu_hours_asked_sharing": float(hours[some].sum()),
    }


def durations_alone(
    trace: Trace, table: ThroughputTable | None, profiled: NDArray[np.bool_], accelerator: str | None = None
) -> NDArray[np.float64]:
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


def _quantiles(values: NDArray[np.float64]) -> dict[float, float] | None:
    """By probability, of those that are known; None where none is."""
    known = values[~np.isnan(values)]
    return dict(zip(_QUANTILES, np.quantile(known, _QUANTILES).tolist(), strict=True)) if len(known) else None


def _counted(names: NDArray[np.object_]) -> dict[str, int]:
    """Those that are not empty, the most frequent first."""
    return dict(Counter(name for name in names.tolist() if name).most_common())


def _counts(values: NDArray[Any]) -> dict[Any, int]:
    return dict(sorted(Counter(values.tolist()).items()))
