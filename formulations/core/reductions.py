"""Exact reductions of a program, each with the data that undoes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from throughputs.arrays import Flags, Floats, Ints, Positions

_GRID = 2.0**36
"""Steps of a unit in which relative rates are added up: whole numbers this small have the same sum in any order."""

_MOST_JOBS_FOR_TIES = 20_000
"""Number of jobs up to which types with as many GPUs are told apart by the rates on them."""

_LEAST_ROWS_TO_HASH = 50_000
"""Number of jobs from which counting equal rows in a hash table beats sorting them, where few rows differ."""

_COSINE = 0.3299290689357723
"""Of 1.2345678910111213, which has no simple ratio to pi."""

_MOST_DISTINCT = 0.25
"""Part of a sample's rows that may differ for the hash table to be worth its while."""


@dataclass(frozen=True, eq=False)
class Classes:
    """N jobs as K classes of interchangeable ones, in an order that depends on the content of their rows alone.

    A convex program has an optimum in which interchangeable jobs get equal shares, so one variable with a count stands
    for all of them.

    Attributes
    ----------
    first : (K,) one job of each class.
    of : (N,) class of each job.
    counts : (K,) jobs in each class.
    """

    first: Positions
    of: Positions
    counts: Floats

    @classmethod
    def single(cls, n_jobs: int) -> Classes:
        """Every job its own class, in the order given."""
        each = np.arange(n_jobs)
        return cls(each, each, np.ones(n_jobs))


def types_in_order(rates: Floats, fastest: Floats, capacity: Floats) -> Positions:
    """Positions of the types with GPUs in an order that depends on their content alone.

    More GPUs first; of as many, the faster ones, by the sums over jobs of the rates relative to each job's `fastest`
    (N,) and of their squares. Up to a unit of each job's throughput, what is equal in that is taken as it comes.
    """
    types = np.flatnonzero(capacity > 0)
    gpus = capacity[types].tolist()
    if len(set(gpus)) == len(gpus) or len(rates) > _MOST_JOBS_FOR_TIES:
        return types[np.argsort([-each for each in gpus], kind="stable")]
    relative = rates.T[types] / np.where(fastest > 0, fastest, 1.0)
    sums = np.rint(relative * _GRID).sum(axis=1), np.rint(relative * relative * _GRID).sum(axis=1)
    return types[np.lexsort((-sums[1], -sums[0], -capacity[types]))]


def classes_of(columns: Sequence[Floats | Ints]) -> Classes:
    """Classes of the jobs whose figures are equal in every one of `columns` (N,)."""
    place = _project(columns)
    if len(place) >= _LEAST_ROWS_TO_HASH:
        sample = place[:: len(place) // 4096]
        if len(np.unique(sample)) <= _MOST_DISTINCT * len(sample):
            classes = _by_hash(columns, place)
            if classes is not None:
                return classes
    return _by_order(columns, place)


def spread_weights(n: int) -> Floats:
    """(n,) weights from 0.5 to 2.5 under which sums of different rows hardly ever agree: cosines of multiples of 1.23.

    By the recurrence ``cos (k + 1) a = 2 cos a cos k a - cos (k - 1) a``: cosines of the C library depend on the
    processor.
    """
    cosines = [1.0, _COSINE]
    while len(cosines) < n:
        cosines.append(2.0 * _COSINE * cosines[-1] - cosines[-2])
    return np.array(cosines[:n]) + 1.5


def _project(columns: Sequence[Floats | Ints]) -> Floats:
    """(N,) one number per row: equal for equal rows, and different for different ones but for chance."""
    direction = spread_weights(len(columns) + 1)[1:]
    # column by column: the same operations for every row, so that equal rows give equal bits
    place = columns[0] * direction[0]
    for column, weight in zip(columns[1:], direction[1:], strict=True):
        place += column * weight
    return np.asarray(place)


def _by_order(columns: Sequence[Floats | Ints], place: Floats) -> Classes:
    """Sort by place; neighbours whose rows are equal are one class."""
    n = len(place)
    # the fastest sort leaves equal places in an order that depends on the processor: no matter where rows are equal too
    order = np.argsort(place)
    starts, met = _starts(columns, place, order)
    if met:
        order = np.argsort(place, kind="stable")
        starts, _ = _starts(columns, place, order)
    of = np.empty(n, dtype=np.intp)
    if starts.all():
        of[order] = np.arange(n)
        return Classes(order, of, np.ones(n))
    of[order] = np.cumsum(starts) - 1
    begins = np.flatnonzero(starts)
    return Classes(_first_of(of, len(begins)), of, np.diff(np.append(begins, n)).astype(np.float64))


def _starts(columns: Sequence[Floats | Ints], place: Floats, order: Positions) -> tuple[Flags, bool]:
    """(N,) where the row differs from the one before in this order, and whether different rows are in one place."""
    sorted_places = place[order]
    starts = np.ones(len(place), dtype=bool)
    near = np.flatnonzero(sorted_places[1:] == sorted_places[:-1])
    if not len(near):
        return starts, False
    one, other = order[near + 1], order[near]
    differs = np.zeros(len(near), dtype=bool)
    for column in columns:
        differs |= column[one] != column[other]
    starts[near + 1] = differs
    return starts, bool(differs.any())


def _first_of(of: Positions, n_classes: int) -> Positions:
    """(K,) the first job of each class."""
    first = np.empty(n_classes, dtype=np.intp)
    first[of[::-1]] = np.arange(len(of))[::-1]
    return first


def _by_hash(columns: Sequence[Floats | Ints], place: Floats) -> Classes | None:
    """Count equal places in a hash table; None should different rows have met in one place."""
    import pandas as pd

    codes, places = pd.factorize(place)
    rank = np.empty(len(places), dtype=np.intp)
    rank[np.argsort(places)] = np.arange(len(places))
    of = rank[codes]
    first = _first_of(of, len(places))
    if any((column != column[first][of]).any() for column in columns):
        return None
    return Classes(first, of, np.bincount(of, minlength=len(places)).astype(np.float64))
