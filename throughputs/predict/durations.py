"""How long jobs will run, by models that know the past alone, and how well that agrees with what came true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from throughputs.arrays import Floats, Positions, Texts
from throughputs.errors import InputError
from throughputs.files import JsonObject
from throughputs.numerics import dot, exp, quotient
from throughputs.predict.models import Fitted, check_model, fit_values
from throughputs.predict.submissions import Submissions, encoded, log_seconds
from throughputs.trace import Trace


def compared(predicted: Floats, true: Floats, constant: Floats) -> dict[str, float]:
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


def absolute_error(predicted: Floats, true: Floats) -> float:
    """Mean absolute error; nan of nothing."""
    return float(np.add.reduce(np.abs(predicted - true)) / len(true)) if len(true) else np.nan


def symmetric_error(predicted: Floats, true: Floats) -> float:
    """Symmetric mean absolute percentage error, from 0 to 200: errors over the mean of the two; 0 where both are 0."""
    if not len(true):
        return np.nan
    scale = (np.abs(predicted) + np.abs(true)) / 2
    parts = quotient(np.abs(predicted - true), scale, 0.0)
    return float(100 * np.add.reduce(parts) / len(true))


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's: the correlation of ranks, equal values sharing the mean of theirs; nan where one does not vary.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([10.0, 1000.0, 20.0]))
    0.5
    """
    x, y = _ranks(a), _ranks(b)
    x, y = x - x.sum() / max(len(x), 1), y - y.sum() / max(len(y), 1)
    spread = dot(x, x) * dot(y, y)
    return dot(x, y) / float(np.sqrt(spread)) if spread > 0 else np.nan


def _ranks(values: Floats) -> Floats:
    """(N,) from 0, the mean of the places that equal values take."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count + 1) / 2)[place], dtype=float)


REFIT_SECONDS = 7 * 86400.0
"""A week: what is published for Lucid is fitted anew every week (Q. Hu et al., "Lucid", ASPLOS 2023)."""

SOURCES = ("model", "median", "file", "truth", "none")
"""What predicted a job: a model, the median of the jobs that had ended, a file, its true duration, or nothing."""

FEWEST_JOBS = 100
"""Jobs that must have ended before a model is fitted to them."""

_HALVINGS = 6
"""So often is the first period halved, so that the first jobs need not wait as long as the others for a model."""


@dataclass(frozen=True)
class Period:
    """The jobs between two fits, and how well they were predicted.

    Attributes
    ----------
    begin, end : seconds from the start of the trace.
    jobs : jobs submitted meanwhile. known : jobs that had ended when it began.
    quality : ``compared``, ``rank_correlation``, ``error_s`` and ``error_of_median_s`` of its jobs, as of
        `DurationPredictions.quality`.
    """

    begin: float
    end: float
    jobs: int
    known: int
    quality: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Learned:
    """A model, and what it has learned from.

    Attributes
    ----------
    model : predicts natural logarithms of seconds.
    rows : (K, F) columns of the jobs that it was fitted to. names : of the columns, categories first.
    labels : of each category, the texts by number.
    """

    model: Fitted
    rows: Floats
    names: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class DurationPredictions:
    """Predicted durations of N jobs.

    Attributes
    ----------
    seconds : (N,) above 0; nan where unknown.
    source : (N,) what predicted each job, of `SOURCES`.
    median : (N,) the median of the durations that were known at the last fit before each job; nan where none was.
    duration : (N,) true durations; nan where unknown.
    periods : from fit to fit, those with jobs.
    last : the model of the last period; None without one.
    """

    seconds: Floats
    source: Texts
    median: Floats
    duration: Floats
    periods: tuple[Period, ...]
    last: Learned | None = None

    def quality(self) -> JsonObject:
        """Errors over the jobs of which the duration, a prediction and a median are known.

        Returns
        -------
        dict with ``jobs``, ``predicted`` by source, ``compared`` (jobs in the figures that follow),
        ``rank_correlation`` (Spearman's), ``error_s`` (mean absolute error) and ``error_of_median_s``, that of the
        median of what was known; nan where there is nothing to compare.
        """
        predicted = {name: int((self.source == name).sum()) for name in SOURCES if (self.source == name).any()}
        return {"jobs": len(self.seconds), "predicted": predicted} | compared(self.seconds, self.duration, self.median)


def predict_durations(
    jobs: Submissions | Trace, model: str = "fast", *, refit_seconds: float = REFIT_SECONDS
) -> DurationPredictions:
    """Predict each job from jobs that had ended before, with models that are fitted anew from time to time.

    A model predicts the logarithm of seconds (its median, or with the interpretable one its mean), so predictions are
    above 0 and errors count in proportion. It is fitted
    to the jobs that had ended at the last fit: at each multiple of `refit_seconds`, and at the first of them halved six
    times over. Where fewer than 100 jobs had ended the median of their durations is predicted, and nothing before the
    first has. A job counts as ended `duration` seconds after its submission; in no schedule does it end earlier.

    Parameters
    ----------
    jobs : the jobs, in the order of their submission.
    model : of `throughputs.predict.MODELS`.
    refit_seconds : time between two fits.

    Raises
    ------
    InputError
        No durations, a time between fits that is not above 0, a model that there is not, or whose package is missing.

    >>> trace = Trace(["a"] * 3, [1, 1, 1], [60, 90, 30], [0, 5400, 99999], duration=[60, 90, 30])
    >>> predict_durations(trace).seconds.tolist()
    [nan, nan, 75.0]
    """
    check_model(model)
    rows = Submissions.of_trace(jobs) if isinstance(jobs, Trace) else jobs
    values = log_seconds(rows.duration)
    seconds = np.full(len(values), np.nan)
    source = np.full(len(values), "none", dtype=object)
    last = None
    for _, _, asked, known in _stretches(rows, refit_seconds):
        if len(known) >= FEWEST_JOBS:
            columns = encoded(rows.columns, known, asked)
            fitted = fit_values(model, columns.known, columns.categories, values[known], median=True)
            # nothing beyond what has been seen
            logs = np.clip(fitted.predict(columns.asked), values[known].min(), values[known].max())
            seconds[asked], source[asked] = np.round(exp(logs), 3), "model"
            last = Learned(fitted, columns.known, columns.names, columns.labels)
        elif len(known):
            seconds[asked], source[asked] = np.median(rows.duration[known]), "median"
    return _judged(rows, seconds, source, refit_seconds, last)


def given_durations(
    jobs: Submissions | Trace, seconds: Floats, source: str, *, refit_seconds: float = REFIT_SECONDS
) -> DurationPredictions:
    """Predictions that come from elsewhere, judged in the same way.

    Parameters
    ----------
    jobs, refit_seconds : as for `predict_durations`.
    seconds : (N,) above 0; nan where unknown.
    source : of `SOURCES`, what they come from.
    """
    rows = Submissions.of_trace(jobs) if isinstance(jobs, Trace) else jobs
    told = np.where(np.isnan(seconds), "none", source).astype(object)
    return _judged(rows, seconds, told, refit_seconds, None)


def _stretches(rows: Submissions, refit_seconds: float) -> Iterator[tuple[float, float, slice, Positions]]:
    """From fit to fit, where jobs are submitted: begin, end, these jobs, and those that had ended at its begin."""
    if not (np.isfinite(refit_seconds) and refit_seconds > 0):
        raise InputError("refit_seconds", found=refit_seconds, expected="seconds above 0")
    submitted = rows.submitted
    if not len(submitted):
        return
    if np.isnan(rows.duration).all():
        expected = "the durations of some jobs: predictions are learned from, or compared with, jobs that have ended"
        raise InputError("jobs", field="duration", expected=expected)
    which = np.unique(np.floor(submitted / refit_seconds))
    early = refit_seconds * 0.5 ** np.arange(_HALVINGS, 0, -1)
    begins = np.unique(np.concatenate([[0.0], early, which * refit_seconds]))
    ends = np.append(begins[1:], np.inf)
    first = np.searchsorted(submitted, begins)
    behind = np.searchsorted(submitted, ends)
    for begin, end, a, b in zip(begins.tolist(), ends.tolist(), first.tolist(), behind.tolist(), strict=True):
        if b > a:
            yield begin, min(end, float(submitted[-1])), slice(a, b), np.flatnonzero(rows.ended <= begin)


def _judged(
    rows: Submissions, seconds: Floats, source: Texts, refit_seconds: float, last: Learned | None
) -> DurationPredictions:
    median = np.full(len(seconds), np.nan)
    periods = []
    for begin, end, part, known in _stretches(rows, refit_seconds):
        if len(known):
            median[part] = np.median(rows.duration[known])
        figures = compared(seconds[part], rows.duration[part], median[part])
        periods.append(Period(begin, end, part.stop - part.start, len(known), figures))
    return DurationPredictions(seconds, source, median, rows.duration, tuple(periods), last)


_ROWS = 200
"""Jobs, evenly taken from those that the model has learned from, over which a function is averaged."""

_VALUES = 24
"""Values of a column at which its function is looked at."""


@dataclass(frozen=True, eq=False)
class Shape:
    """The shape function of a column.

    Attributes
    ----------
    name : of the column.
    values : (V,) where it was looked at, ascending; of a category the numbers of its labels.
    labels : of a category, the texts of its values; empty for numbers.
    factors : (V,) predicted durations over their geometric mean.
    weights : (V,) share of the jobs that have the value, or, of numbers, are nearest to it.
    """

    name: str
    values: Floats
    labels: tuple[str, ...]
    factors: Floats
    weights: Floats

    @property
    def reach(self) -> float:
        """Largest over smallest factor."""
        return float(self.factors.max() / self.factors.min())


def shape_functions(learned: Learned) -> list[Shape]:
    """Shape functions of all columns that vary, those that change predictions most first.

    Predictions with the column set to a value, averaged (as logarithms) over jobs that the model has learned from: the
    partial dependence of J. Friedman, "Greedy function approximation", Annals of Statistics 29 (2001). Of the
    interpretable model, a sum of one function per column, these are those functions but for a constant; of the fast one
    they leave out how columns act together.
    """
    rows = learned.rows
    sample = rows[np.linspace(0, len(rows) - 1, min(_ROWS, len(rows))).astype(np.int64)]
    shapes = []
    for place, name in enumerate(learned.names):
        labels = learned.labels[place] if place < len(learned.labels) else ()
        values, weights = _values(rows[:, place], bool(labels))
        if len(values) < 2:
            continue
        asked = np.repeat(sample[None], len(values), axis=0)
        asked[:, :, place] = values[:, None]
        logs = learned.model.predict(asked.reshape(-1, rows.shape[1])).reshape(len(values), -1)
        means = logs.sum(axis=1) / logs.shape[1]
        told = tuple(labels[int(value)] for value in values) if labels else ()
        shapes.append(Shape(name, values, told, exp(means - (means * weights).sum()), weights))
    return sorted(shapes, key=lambda shape: -shape.reach)


def _values(column: Floats, is_category: bool) -> tuple[Floats, Floats]:
    """Values at which to look, and the share of the jobs that each stands for."""
    known = column[~np.isnan(column)]
    values, counts = np.unique(known, return_counts=True)
    if len(values) > _VALUES and is_category:
        most = np.sort(np.argsort(-counts, kind="stable")[:_VALUES])
        values, counts = values[most], counts[most]
    elif len(values) > _VALUES:
        places = np.linspace(0, len(known) - 1, _VALUES).astype(np.int64)
        values = np.unique(np.sort(known)[places])
        middles = (values[1:] + values[:-1]) / 2
        counts = np.bincount(np.searchsorted(middles, known), minlength=len(values))
    return values, counts / max(counts.sum(), 1)
