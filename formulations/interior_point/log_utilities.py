"""Logarithmic utilities have no unit: jobs that are equal but for the unit of their throughput are one class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.core.polytope import Polytope
from formulations.core.reductions import Classes, classes_of
from formulations.core.solution import Answer
from throughputs import PlainColumns, ThroughputMatrix

Array = NDArray[np.float64]

_PROBED_JOBS = 4096
"""Jobs that are compared first, to see whether classes are worth looking for among all."""

_SAME_DECIMALS = 12
"""Decimals to which two jobs' relative rates must agree to be one class."""


@dataclass(frozen=True, eq=False)
class Merged:
    """Jobs with the same rates relative to their fastest, gang and budget as one class; and types on which all run
    alike, only the sum of which matters, as one type.

    Attributes
    ----------
    part : over the classes, with rates relative to the fastest. budgets : of a job of each class.
    of : (N,) class of each job; None where hardly any two are alike, and each is its own.
    type_of, fraction : (M,) the type that each type is part of, and its fraction of the GPUs.
    """

    part: Polytope
    budgets: Array
    of: NDArray[np.intp] | None
    type_of: NDArray[np.intp]
    fraction: Array

    def expanded(self, answer: Answer) -> Answer:
        """From classes to jobs, and to all types; the multipliers of throughputs follow from these."""
        shares, prices = answer.shares if self.of is None else answer.shares[self.of], answer.prices
        if len(prices) < len(self.type_of):
            shares, prices = shares[:, self.type_of] * self.fraction, prices[self.type_of]
        return Answer(shares, np.zeros(0), prices, answer.iterations)


def merged(polytope: Polytope, budgets: Array) -> Merged:
    """Every job has a positive rate somewhere, and every type GPUs."""
    first, type_of = _alike(polytope.rates)
    capacity = np.bincount(type_of, polytope.capacity).astype(np.float64)
    relative = np.ascontiguousarray(polytope.rates[:, first].T, dtype=np.float64)
    relative /= relative.max(axis=0)
    sizes, counts, of = polytope.scale_factors, polytope.counts, None
    classes = _classes(relative, sizes, budgets)
    if classes is not None:
        relative, sizes, budgets, of = (
            relative[:, classes.first],
            sizes[classes.first],
            budgets[classes.first],
            classes.of,
        )
        counts = np.bincount(of, counts, len(classes.first)).astype(np.float64)
    names = [str(j) for j in first]
    matrix = ThroughputMatrix.trusted(relative.T, jobs=range(len(sizes)), accelerators=names, scale_factors=sizes)
    part = Polytope(PlainColumns(matrix), capacity, counts)
    return Merged(part, budgets, of, type_of, polytope.capacity / capacity[type_of])


def _alike(rates: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first of each type that differs from those before, and which one of these each type is."""
    of = np.arange(rates.shape[1])
    for k in range(1, len(of)):
        for j in np.flatnonzero(of[:k] == np.arange(k)).tolist():
            some = slice(_PROBED_JOBS)
            if np.array_equal(rates[some, j], rates[some, k]) and (rates[:, j] == rates[:, k]).all():
                of[k] = j
                break
    return np.unique(of, return_inverse=True)


def _classes(relative: Array, sizes: NDArray[np.int64], budgets: Array) -> Classes | None:
    """None when a sample says that hardly any two jobs are alike."""
    K = len(budgets)

    def among(some: slice) -> Classes:
        return classes_of([*(np.round(rate, _SAME_DECIMALS) for rate in relative[:, some]), sizes[some], budgets[some]])

    every = max(K // _PROBED_JOBS, 1)
    if K > 2 * _PROBED_JOBS and len(among(slice(None, None, every)).first) > 0.9 * len(budgets[::every]):
        return None
    return among(slice(None))
