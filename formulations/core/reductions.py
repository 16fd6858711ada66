"""Which jobs are interchangeable, and an order of jobs and types that depends on their content alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from throughputs.arrays import Floats, Ints, Positions

_GRID = 2.0**36
"""Steps of a unit in which relative rates are added up: whole numbers this small have the same sum in any order."""

_MOST_JOBS_FOR_TIES = 20_000
"""Number of jobs up to which types with as many GPUs are told apart by the rates on them."""

_COSINE = 0.3299290689357723
"""Of 1.2345678910111213, which has no simple ratio to pi."""


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
    gpus = capacity[types]
    if len(set(gpus.tolist())) == len(gpus) or len(rates) > _MOST_JOBS_FOR_TIES:
        return types[np.argsort(-gpus, kind="stable")]
    relative = rates.T[types] / np.where(fastest > 0, fastest, 1.0)
    sums = [np.rint(each * _GRID).sum(axis=1) for each in (relative, relative * relative)]
    return types[np.lexsort((-sums[1], -sums[0], -gpus))]


def classes_of(columns: Sequence[Floats | Ints]) -> Classes:
    """Classes of the jobs whose figures are equal in every one of `columns` (N,).

    They are told apart, and put in order, by one number for each row: equal for equal rows, and different for different
    ones but for chance.
    """
    n = len(columns[0])
    weights = spread_weights(len(columns) + 1)[1:]
    # column by column: the same operations for every row, so that equal rows give equal bits
    place = columns[0] * weights[0]
    for column, weight in zip(columns[1:], weights[1:], strict=True):
        place += column * weight
    # the fastest sort leaves equal places in an order that depends on the processor, which does not matter
    order = np.argsort(place)
    of = np.empty(n, dtype=np.intp)
    of[order] = np.append(0, np.cumsum(np.diff(place[order]) != 0))[:n]
    first = _first_of(of)
    if len(first) < n and any((column != column[first][of]).any() for column in columns):
        # different rows have met in one place
        _, of = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
        first = _first_of(of)
    return Classes(first, of, np.bincount(of).astype(np.float64))


def _first_of(of: Positions) -> Positions:
    """(K,) the first job of each class."""
    first = np.empty(of.max(initial=-1) + 1, dtype=np.intp)
    first[of[::-1]] = np.arange(len(of))[::-1]
    return first


def spread_weights(n: int) -> Floats:
    """(n,) weights from 0.5 to 2.5 under which sums of different rows hardly ever agree: cosines of multiples of 1.23.

    By the recurrence ``cos (k + 1) a = 2 cos a cos k a - cos (k - 1) a``: cosines of the C library depend on the
    processor.
    """
    cosines = [1.0, _COSINE]
    while len(cosines) < n:
        cosines.append(2.0 * _COSINE * cosines[-1] - cosines[-2])
    return np.array(cosines[:n]) + 1.5
