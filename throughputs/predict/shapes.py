"""What a model has learned of each column: how the predicted duration changes with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from throughputs.numerics import exp
from throughputs.predict.durations import Learned

_Floats = NDArray[np.float64]

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
    values: _Floats
    labels: tuple[str, ...]
    factors: _Floats
    weights: _Floats

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


def _values(column: _Floats, is_category: bool) -> tuple[_Floats, _Floats]:
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
