"""How much work comes next: forecasts of counts by bins of time, from bins that have passed.

The columns are like those of the throughput predict model of Q. Hu et al., "Lucid", ASPLOS 2023; none of them looks
past the bin in which a forecast is made.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from throughputs.arrays import Floats
from throughputs.errors import InputError
from throughputs.numerics import exp, log
from throughputs.predict.models import check_model, fit_values
from throughputs.trace import Trace

_DAY = 86400.0
_HOUR = 3600.0

_LAGS = (_HOUR, 3 * _HOUR, _DAY, 7 * _DAY)
"""Seconds before the bin of which the level is looked at, where they are not less than the time ahead."""

_WINDOWS = (_HOUR, 6 * _HOUR, _DAY)
"""Seconds over which the last counts are averaged."""

_FEWEST_BINS = 100
"""Bins that must have passed before a model is fitted; the last one known stands in until then."""


def arrivals_by_bin(trace: Trace, bin_seconds: float = 600.0) -> dict[str, Floats]:
    """Jobs, and GPUs that they ask for, submitted in each bin from second 0 to the last arrival: (B,) each.

    >>> arrivals_by_bin(Trace(["a"] * 3, [1, 4, 2], [9, 9, 9], [0, 30, 700]))["GPUs"].tolist()
    [5.0, 2.0]
    """
    _check_seconds("bin_seconds", bin_seconds)
    which = np.floor(trace.arrival_time / bin_seconds).astype(np.int64)
    jobs = np.bincount(which).astype(float)
    gpus = np.bincount(which, weights=trace.scale_factor.astype(float)).astype(float)
    return {"jobs": jobs, "GPUs": gpus}


def forecast(
    series: Mapping[str, Floats],
    target: str,
    *,
    ahead: int = 6,
    first: int = 0,
    model: str = "fast",
    bin_seconds: float = 600.0,
    refit_bins: int = 1008,
    offset: float = 0.0,
    since: str | None = None,
) -> Floats:
    """Forecasts of one series, each made `ahead` bins before from the bins up to then, of all series.

    What is forecast is the median (fast) or the mean, of counts by their logarithms (interpretable). Columns are the
    hour and the day of the week; of each series the count an hour, three hours, a day and a week before, alone and
    smoothed; and of what has passed the mean, median and standard deviation over the last hour, and the means over six
    hours and a day.

    Parameters
    ----------
    series : (B,) counts by name, at least 0.
    target : name of the one to be forecast.
    ahead : bins between the last one known and the one forecast.
    first : first bin that is forecast; those before are nan.
    model : of `throughputs.predict.MODELS`.
    bin_seconds : length of a bin.
    refit_bins : the model is fitted anew after so many bins, to all that have passed: a week of bins of ten minutes.
    offset : seconds from the last Monday at midnight before the first bin to it.
    since : of a target that drifts, as nodes in use do: the series from whose last known value its change is learned.

    Returns
    -------
    (B,) at least 0. Where fewer than 100 bins had passed, the last known count; nan before there was one.

    Raises
    ------
    InputError
        Series of different lengths, negative counts, no such target, numbers of bins that are not whole, or a model
        that there is not, or whose package is missing.

    >>> forecast({"jobs": np.array([3.0, 1.0, 4.0, 1.0])}, "jobs", ahead=2).tolist()
    [nan, nan, 3.0, 1.0]
    """
    check_model(model)
    values = _checked(series, target)
    for name, given, least in (("ahead", ahead, 1), ("first", first, 0), ("refit_bins", refit_bins, 1)):
        if int(given) != given or given < least:
            raise InputError(name, found=given, expected=f"a whole number of bins, at least {least}")
    _check_seconds("bin_seconds", bin_seconds)
    n = len(values)
    result = np.full(n, np.nan)
    columns = _columns(series, ahead, bin_seconds, offset)
    median = model == "fast"
    base = np.zeros(n) if since is None else _before(_checked(series, since), ahead)
    logs = not median and since is None
    learned = log(values + 1.0) if logs else values - base
    for begin in range(first, n, refit_bins):
        # the first forecast of a fit is made `ahead` bins before its bin, and knows that bin
        known = begin - ahead + 1
        part = slice(begin, min(begin + refit_bins, n))
        if known - ahead < _FEWEST_BINS:
            made = np.arange(part.start, part.stop) - ahead
            result[part] = np.where(made >= 0, values[np.maximum(made, 0)], np.nan)
            continue
        rows = slice(0 if since is None else ahead, known)
        fitted = fit_values(model, columns[rows], [False] * columns.shape[1], learned[rows], median=median)
        told = fitted.predict(columns[part])
        result[part] = np.maximum(exp(told) - 1.0 if logs else base[part] + told, 0.0)
    return result


def _checked(series: Mapping[str, Floats], target: str) -> Floats:
    """The series of a name; all are looked at."""
    if target not in series:
        raise InputError("series", found=target, expected=f"one of {', '.join(series)}")
    for name, values in series.items():
        bad = ~(np.isfinite(values) & (values >= 0))
        if len(values) != len(series[target]):
            raise InputError("series", field=name, found=len(values), expected=f"{len(series[target])} bins")
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError("series", line=row + 1, field=name, found=float(values[row]), expected="a count from 0")
    return np.asarray(series[target], dtype=float)


def _check_seconds(name: str, seconds: float) -> None:
    if not (np.isfinite(seconds) and seconds > 0):
        raise InputError(name, found=seconds, expected="seconds above 0")


def _columns(series: Mapping[str, Floats], ahead: int, bin_seconds: float, offset: float) -> Floats:
    """(B, F) what is known of each bin `ahead` bins before."""
    n = len(next(iter(series.values())))
    clock = offset + np.arange(n) * bin_seconds
    columns = [np.floor(clock / _HOUR) % 24.0, np.floor(clock / _DAY) % 7.0]
    for counts in series.values():
        for seconds in _LAGS:
            lag = max(round(seconds / bin_seconds), ahead)
            columns += [_before(counts, lag), _smoothed(counts, lag)]
        for place, seconds in enumerate(_WINDOWS):
            length = max(round(seconds / bin_seconds), 1)
            windows = _windows(counts, length)
            columns.append(_before(windows.mean(axis=1), ahead))
            if place == 0:
                columns += [_before(np.median(windows, axis=1), ahead), _before(windows.std(axis=1), ahead)]
    return np.column_stack(columns)


def _before(counts: Floats, bins: int) -> Floats:
    """(B,) the values so many bins before; nan where there were none."""
    return np.concatenate([np.full(min(bins, len(counts)), np.nan), counts[: max(len(counts) - bins, 0)]])


def _smoothed(counts: Floats, lag: int) -> Floats:
    """(B,) half of the bin `lag` before, and a quarter of each of the two before it."""
    return 0.5 * _before(counts, lag) + 0.25 * (_before(counts, lag + 1) + _before(counts, lag + 2))


def _windows(counts: Floats, length: int) -> Floats:
    """(B, length) the last counts up to each bin; nan where there were none, so that short windows say nothing."""
    if not len(counts):
        return np.empty((0, length))
    padded = np.concatenate([np.full(length - 1, np.nan), counts])
    return np.lib.stride_tricks.sliding_window_view(padded, length)
