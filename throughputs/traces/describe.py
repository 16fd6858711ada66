"""A trace in figures: who arrives how often, with how many GPUs, for how long."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughputs.tables.table import ThroughputTable
from throughputs.trace import Trace

__all__ = ["describe_trace"]

_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


def describe_trace(
    trace: Trace, table: ThroughputTable | None = None, reference_accelerator: str = "v100"
) -> dict[str, Any]:
    """Summary of a trace, ready for JSON.

    Parameters
    ----------
    trace : the jobs.
    table : when given, durations are steps over throughput on `reference_accelerator`; jobs that cannot run
        there are left out of them and counted in ``n_jobs_not_runnable``. Without a table the durations are
        those that the trace states.
    reference_accelerator : accelerator type of the durations and GPU hours.

    Returns
    -------
    dict with ``n_jobs``, ``first_arrival_s``, ``last_arrival_s``, ``arrivals_per_hour`` (None unless the
    arrivals span some time), counts by value in ``job_types``, ``scale_factors``, ``priority_weights`` and
    ``modes``, ``n_jobs_with_slo``, ``n_jobs_not_runnable``, ``gpu_hours`` and ``duration_quantiles_s`` by
    probability (both None where no duration is known).

    Raises
    ------
    InputError
        The table does not know a job type, scale factor or the accelerator type.
    """
    n = len(trace)
    durations = _durations(trace, table, reference_accelerator)
    known = ~np.isnan(durations)
    first, last = (float(trace.arrival_time[0]), float(trace.arrival_time[-1])) if n else (None, None)
    span = last - first if first is not None and last is not None else 0.0
    quantiles = (
        dict(zip(_QUANTILES, np.quantile(durations[known], _QUANTILES).tolist(), strict=True)) if known.any() else None
    )
    return {
        "n_jobs": n,
        "first_arrival_s": first,
        "last_arrival_s": last,
        "arrivals_per_hour": (n - 1) / span * 3600 if span > 0 else None,
        "job_types": dict(Counter(trace.job_type.tolist()).most_common()),
        "scale_factors": _counts(trace.scale_factor),
        "priority_weights": _counts(trace.priority_weight),
        "modes": dict(Counter(trace.mode.tolist()).most_common()),
        "n_jobs_with_slo": int((~np.isnan(trace.slo)).sum()),
        "n_jobs_not_runnable": int((~known).sum()) if table is not None else 0,
        "gpu_hours": float((durations * trace.scale_factor)[known].sum() / 3600) if known.any() else None,
        "duration_quantiles_s": quantiles,
    }


def _durations(trace: Trace, table: ThroughputTable | None, accelerator: str) -> NDArray[np.float64]:
    """(N,) seconds, nan where unknown."""
    if table is None:
        return trace.duration
    rates = table.rates(trace.job_type, trace.scale_factor, [accelerator])[:, 0]
    durations = np.full(len(trace), np.nan)
    np.divide(trace.total_steps, rates, out=durations, where=rates > 0)
    return durations


def _counts(values: NDArray[Any]) -> dict[Any, int]:
    distinct, counts = np.unique(values, return_counts=True)
    return dict(zip(distinct.tolist(), counts.tolist(), strict=True))
