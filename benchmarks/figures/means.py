"""Means of a sweep over its seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from throughputs import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["busiest", "interval", "summary"]

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


def interval(figures: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float]:
    """Mean and half width of its confidence interval; nan for a single figure."""
    n = len(figures)
    if n < 2:
        return float(figures.mean()), np.nan
    from scipy.stats import t

    error = figures.std(ddof=1) / np.sqrt(n)
    return float(figures.mean()), float(t.ppf((1 + CONFIDENCE) / 2, n - 1) * error)


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
