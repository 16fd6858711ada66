"""A trace in figures: who arrives how often, with how many GPUs, for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughputs.tables.table import ThroughputTable
from throughputs.trace import Trace
from throughputs.traces.description.demand import (
    demand_over_time,
    gpu_hours_of,
    impossible_jobs,
    pools_of,
    sizes_of,
    types_of,
)

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
    refuses; and the rows of `demand.sizes_of` in ``sizes``, of `demand.types_of` in ``types``, of
    `demand.pools_of` in ``pools``, and `demand.demand_over_time`. With `capacity` also
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
    first, last = (float(trace.arrival_time[0]), float(trace.arrival_time[-1])) if n else (None, None)
    span = last - first if first is not None and last is not None else 0.0
    gpu_hours = float(gpu_hours_of(trace, durations).sum()) if known.any() else None
    described = {
        "n_jobs": n,
        "first_arrival_s": first,
        "last_arrival_s": last,
        "arrivals_per_hour": (n - 1) / span * 3600 if span > 0 else None,
        "job_types": dict(Counter(trace.job_type.tolist()).most_common()),
        "scale_factors": _counts(trace.scale_factor),
        "priority_weights": _counts(trace.priority_weight),
        "modes": dict(Counter(trace.mode.tolist()).most_common()),
        "categories": dict(Counter(name for name in trace.category.tolist() if name).most_common()),
        "n_jobs_with_slo": int((~np.isnan(trace.slo)).sum()),
        "n_jobs_with_deadline": int((~np.isnan(trace.deadline)).sum()),
        "n_jobs_with_deadline_options": sum(len(row) > 1 for row in trace.deadline_options),
        "deadline_quantiles": _quantiles((trace.deadline - trace.arrival_time) / durations),
        "n_jobs_not_profiled": int((~profiled).sum()) if table is not None else 0,
        "n_jobs_not_runnable": int((~known).sum()) if table is not None else 0,
        "gpu_hours": gpu_hours,
        "duration_quantiles_s": _quantiles(durations),
        "n_users": len(set(trace.user.tolist()) - {""}),
        "partitions": dict(Counter(name for name in trace.partition.tolist() if name).most_common()),
        "n_jobs_recorded": int((~np.isnan(trace.recorded_end_seconds)).sum()),
        **_sharing(trace, durations),
    }
    if capacity is not None:
        described |= _against(trace, capacity, gpu_hours, span)
    return described | {
        "sizes": sizes_of(trace, durations),
        "types": types_of(trace, durations),
        "pools": pools_of(trace, durations, capacity, span),
        "demand_over_time": demand_over_time(trace, durations),
    }


def _sharing(trace: Trace, durations: NDArray[np.float64]) -> dict[str, Any]:
    """The jobs that ask for a part of a GPU."""
    some = trace.gpu_fraction < 1
    asked = gpu_hours_of(trace, durations)[some]
    return {
        "n_jobs_sharing": int(some.sum()),
        "n_gangs_sharing": int((some & (trace.scale_factor > 1)).sum()),
        "gpu_hours_sharing": float((asked / trace.gpu_fraction[some]).sum()),
        "gpu_hours_asked_sharing": float(asked.sum()),
    }


def _against(trace: Trace, capacity: Mapping[str, int], gpu_hours: float | None, span: float) -> dict[str, Any]:
    """The demand of a trace beside what a cluster has."""
    gpus = sum(capacity.values())
    hours = None if gpu_hours is None or not gpus else gpu_hours / gpus
    return {
        "cluster_gpus": gpus,
        "demand": hours / (span / 3600) if hours is not None and span > 0 else None,
        "least_hours": hours,
        "n_jobs_impossible": int(impossible_jobs(trace, capacity).sum()),
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


def _counts(values: NDArray[Any]) -> dict[Any, int]:
    distinct, counts = np.unique(values, return_counts=True)
    return dict(zip(distinct.tolist(), counts.tolist(), strict=True))
