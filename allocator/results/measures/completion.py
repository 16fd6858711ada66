"""Completion and queueing times of a table of jobs: means, percentiles, finish-time fairness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from throughputs.numerics import exp, log

if TYPE_CHECKING:
    import pandas as pd

_Floats = NDArray[np.float64]

# A job counts as treated unfairly when it took this much longer than on its isolated share: 1 with a margin for
# the granularity of rounds.
UNFAIR_RHO = 1.05

# The margin that other comparisons allow.
VERY_UNFAIR_RHO = 1.1

PERCENTILES = {"median": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9}
"""Percentiles that are told, by what the names of their figures begin with."""


def completion_figures(jobs: pd.DataFrame) -> dict[str, Any]:
    """Completed jobs, their completion and queueing times (seconds) and rho, of a table of jobs; None where nothing is.

    Percentiles lie on the line between the two values next to them in rank.
    """
    jct = _defined(_numbers(jobs, "jct"))
    figures = {
        "completed_jobs": int(jct.size),
        "average_jct": _finite(jct.mean()) if jct.size else None,
        **_percentiles(jct, "jct"),
        **_mean_figures(jct),
    }
    for part in ("queueing_time", "running_time"):
        values = _of_completed(jobs, part)
        figures[f"average_{part}"] = _finite(values.mean()) if values.size else None
        if part == "queueing_time":
            figures |= _percentiles(values, part)
    figures |= _rho_figures(jobs, "rho")
    for name in ("rho_static", "rho_themis", "rho_isolated"):
        if name in jobs:
            figures |= _rho_figures(jobs, name)
    return figures


def percentiles_by_group(values: _Floats, of: NDArray[np.int64], n: int, name: str) -> dict[str, _Floats]:
    """The percentiles of each of n groups, in one pass over all: figures by name, (n,) each.

    Parameters
    ----------
    values : (K,); nan where there is nothing to measure.
    of : (K,) group of each.
    name : what is measured; the figures are called "median_NAME", "p90_NAME" and so on.
    """
    there = ~np.isnan(values)
    values, of = values[there], of[there]
    order = np.lexsort((values, of))
    ordered = np.append(values[order], np.nan)
    count = np.bincount(of, minlength=n)
    first = np.cumsum(count) - count
    figures = {}
    for prefix, percent in PERCENTILES.items():
        rank = np.maximum(count - 1, 0) * (percent / 100)
        below = np.floor(rank).astype(np.int64)
        above = np.minimum(below + 1, np.maximum(count - 1, 0))
        low, high = ordered[first + below], ordered[first + above]
        figures[f"{prefix}_{name}"] = np.where(count > 0, low + (high - low) * (rank - below), np.nan)
    return figures


def _percentiles(values: _Floats, name: str) -> dict[str, float | None]:
    found = np.percentile(values, list(PERCENTILES.values())) if values.size else np.full(len(PERCENTILES), np.nan)
    return {f"{prefix}_{name}": _finite(value) for prefix, value in zip(PERCENTILES, found, strict=True)}


def _mean_figures(jct: _Floats) -> dict[str, Any]:
    """The means that a few long jobs move less."""
    some = bool(jct.size and (jct > 0).all())
    return {
        "geometric_mean_jct": _finite(np.float64(exp(log(jct).mean()))) if some else None,
        "harmonic_mean_jct": _finite(1 / (1 / jct).mean()) if some else None,
    }


def _of_completed(jobs: pd.DataFrame, part: str) -> _Floats:
    """A part of the completion times of the completed jobs; none where it is not known."""
    if part not in jobs:
        return np.empty(0)
    return _defined(_numbers(jobs, part)[~np.isnan(_numbers(jobs, "jct"))])


def _rho_figures(jobs: pd.DataFrame, column: str) -> dict[str, Any]:
    """Average, worst and unfair share of one kind of rho; the ending of its name goes to all of them."""
    rho = _defined(_numbers(jobs, column))
    ending = column.removeprefix("rho")
    return {
        f"average_rho{ending}": _finite(rho.mean()) if rho.size else None,
        f"worst_rho{ending}": _finite(rho.max()) if rho.size else None,
        f"unfair_fraction{ending}": float((rho > UNFAIR_RHO).mean()) if rho.size else None,
        f"very_unfair_fraction{ending}": float((rho > VERY_UNFAIR_RHO).mean()) if rho.size else None,
    }


def _numbers(jobs: pd.DataFrame, column: str) -> _Floats:
    return jobs[column].to_numpy(dtype=np.float64)


def _defined(values: _Floats) -> _Floats:
    return values[~np.isnan(values)]


def _finite(value: np.floating[Any]) -> float | None:
    return float(value) if np.isfinite(value) else None
