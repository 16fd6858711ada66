"""How well predictions agree with what came true."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from throughputs.numerics import dot

_Floats = NDArray[np.float64]


def compared(predicted: _Floats, true: _Floats, constant: _Floats) -> dict[str, float]:
    """Figures over the entries that all three have, nan where there is nothing to compare.

    ``compared`` entries, ``rank_correlation`` of predictions and truth, and the mean absolute errors ``error_s`` of the
    predictions and ``error_of_median_s`` of the constant beside them.
    """
    same = np.flatnonzero(~np.isnan(predicted + true + constant))
    return {
        "compared": len(same),
        "rank_correlation": rank_correlation(predicted[same], true[same]),
        "error_s": absolute_error(predicted[same], true[same]),
        "error_of_median_s": absolute_error(constant[same], true[same]),
    }


def absolute_error(predicted: _Floats, true: _Floats) -> float:
    """Mean absolute error; nan of nothing."""
    return float(np.add.reduce(np.abs(predicted - true)) / len(true)) if len(true) else np.nan


def symmetric_error(predicted: _Floats, true: _Floats) -> float:
    """Symmetric mean absolute percentage error, from 0 to 200: errors over the mean of the two; 0 where both are 0."""
    if not len(true):
        return np.nan
    scale = (np.abs(predicted) + np.abs(true)) / 2
    parts = np.divide(np.abs(predicted - true), scale, out=np.zeros(len(true)), where=scale > 0)
    return float(100 * np.add.reduce(parts) / len(true))


def rank_correlation(a: _Floats, b: _Floats) -> float:
    """Spearman's: the correlation of ranks, equal values sharing the mean of theirs; nan where one does not vary.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([10.0, 1000.0, 20.0]))
    0.5
    """
    x, y = _ranks(a), _ranks(b)
    x, y = x - x.sum() / max(len(x), 1), y - y.sum() / max(len(y), 1)
    spread = dot(x, x) * dot(y, y)
    return dot(x, y) / float(np.sqrt(spread)) if spread > 0 else np.nan


def _ranks(values: _Floats) -> _Floats:
    """(N,) from 0, the mean of the places that equal values take."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count + 1) / 2)[place], dtype=np.float64)
