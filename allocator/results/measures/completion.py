"""Completion and queueing times of a table of jobs: means, percentiles, finish-time fairness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from throughputs.arrays import Floats, Ints, Values
from throughputs.files import JsonObject
from throughputs.numerics import exp, log

if TYPE_CHECKING:
    import pandas as pd


# A job counts as treated unfairly when it took this much longer than on its isolated share: 1 with a margin for
# the granularity of rounds.
UNFAIR_RHO = 1.05

# The margin that other comparisons allow.
VERY_UNFAIR_RHO = 1.1

PERCENTILES = {"median": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9}
"""Percentiles that are told, by what the names of their figures begin with."""


def completion_figures(jobs: pd.DataFrame) -> JsonObject:
    """Completed jobs, their completion and queueing times (seconds) and rho, of a table of jobs; None where nothing is.

    Percentiles lie on the line between the two values next to them in rank.
    """
    done = jobs[jobs["jct"].notna()]
    jct, queueing, running = (done[name].to_numpy(float) for name in ("jct", "queueing_time", "running_time"))
    some = bool(jct.size and (jct > 0).all())
    figures = {
        "completed_jobs": int(jct.size),
        "average_jct": _mean(jct),
        **_percentiles(jct, "jct"),
        # the means that a few long jobs move less
        "geometric_mean_jct": _finite(np.float64(exp(log(jct).mean()))) if some else None,
        "harmonic_mean_jct": _finite(1 / (1 / jct).mean()) if some else None,
        "average_queueing_time": _mean(queueing),
        **_percentiles(queueing, "queueing_time"),
        "average_running_time": _mean(running),
    }
    if "bounded_slowdown" in jobs:
        slowdown = done["bounded_slowdown"].to_numpy(float)
        figures |= {"average_bounded_slowdown": _mean(slowdown), **_percentiles(slowdown, "bounded_slowdown")}
    for column in ("rho", "rho_static", "rho_themis", "rho_isolated"):
        if column in jobs:
            figures |= _rho_figures(jobs[column].dropna().to_numpy(float), column.removeprefix("rho"))
    return figures


def percentiles_by_group(values: Floats, of: Ints, n: int, name: str) -> dict[str, Floats]:
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


def _percentiles(values: Floats, name: str) -> dict[str, float | None]:
    found = np.percentile(values, list(PERCENTILES.values())) if values.size else np.full(len(PERCENTILES), np.nan)
    return {f"{prefix}_{name}": _finite(value) for prefix, value in zip(PERCENTILES, found, strict=True)}


def _rho_figures(rho: Floats, ending: str) -> JsonObject:
    """Average, worst and unfair share of one kind of rho; the ending of its name goes to all of them."""
    return {
        f"average_rho{ending}": _mean(rho),
        f"worst_rho{ending}": _finite(rho.max()) if rho.size else None,
        f"unfair_fraction{ending}": _mean(rho > UNFAIR_RHO),
        f"very_unfair_fraction{ending}": _mean(rho > VERY_UNFAIR_RHO),
    }


def _mean(values: Values) -> float | None:
    return _finite(values.mean()) if values.size else None


def _finite(value: np.floating[Any]) -> float | None:
    return float(value) if np.isfinite(value) else None
