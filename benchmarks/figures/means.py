"""Means of a sweep over its seeds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from throughputs import InputError

if TYPE_CHECKING:
    import pandas as pd

CONFIDENCE = 0.95


def summary(results: pd.DataFrame, *, load: str, value: str, unit: float = 1.0, series: str = "policy") -> pd.DataFrame:
    """Means over seeds.

    Parameters
    ----------
    results : of a sweep, one row per run.
    load, value, series : columns; of `value` in `unit`.

    Returns
    -------
    pandas.DataFrame
        One row per series, in the order in which they come, and load, ascending: `series`, `load`, ``seeds`` (runs),
        ``status`` (completed; saturated, as soon as one run has; or failed), ``mean`` and ``half_width`` of the
        confidence interval, nan where not all runs completed, the latter also with a single seed.

    Raises
    ------
    InputError
        A column is missing.
    """
    import pandas as pd

    for name in (series, load, value, "status"):
        if name not in results:
            raise InputError("results of a sweep", field=name, found=list(results.columns), expected="such a column")
    rows = []
    for (label, at), group in results.groupby([series, load], sort=False):
        states = set(group["status"])
        status = next((state for state in ("failed", "saturated") if state in states), "completed")
        figures = group[value].to_numpy(dtype=np.float64) / unit
        mean, half_width = interval(figures) if status == "completed" else (np.nan, np.nan)
        rows.append((label, at, len(group), status, mean, half_width))
    table = pd.DataFrame(rows, columns=[series, load, "seeds", "status", "mean", "half_width"])
    order = {label: i for i, label in enumerate(dict.fromkeys(results[series]))}
    rank = table[series].map(order)
    return table.assign(_rank=rank).sort_values(["_rank", load]).drop(columns="_rank").reset_index(drop=True)


def interval(figures: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and half width of its confidence interval; nan for a single figure."""
    mean, half_width = intervals(figures[:, None])
    return float(mean[0]), float(half_width[0])


def half_width(figures: Iterable[float]) -> float:
    """Half width of the confidence interval of the mean; nan for a single figure."""
    return interval(np.asarray(list(figures), dtype=np.float64))[1]


def intervals(draws: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means over draws and half widths of their confidence intervals, nan for a single draw; draws is (S, K)."""
    n = len(draws)
    mean = draws.mean(axis=0)
    if n < 2:
        return mean, np.full(mean.shape, np.nan)
    from scipy.stats import t

    error = draws.std(axis=0, ddof=1) / np.sqrt(n)
    return mean, t.ppf((1 + CONFIDENCE) / 2, n - 1) * error


def busiest(table: pd.DataFrame, load: str) -> float:
    """The largest load at which every series of a `summary` has completed.

    Raises
    ------
    InputError
        There is none.
    """
    whole = (table["status"] == "completed").groupby(table[load]).all()
    if not whole.any():
        raise InputError(
            "results of a sweep", field="status", found="no load", expected="one that all series completed"
        )
    return float(whole[whole].index.max())
