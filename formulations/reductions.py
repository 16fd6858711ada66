"""Exact reductions of a program, each with the data that undoes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Classes", "aggregate"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Classes:
    """N jobs as K classes of interchangeable ones.

    Attributes
    ----------
    first : (K,) one job of each class.
    of : (N,) class of each job.
    counts : (K,) jobs in each class.
    """

    first: NDArray[np.intp]
    of: NDArray[np.intp]
    counts: Array


def aggregate(*keys: Array | NDArray[np.int64]) -> Classes:
    """Classes of jobs whose rows are equal in every key (N, k).

    A convex program has an optimum in which interchangeable jobs get equal shares, so one variable with a count
    stands for all of them. The order of the classes depends on their content alone, never on the order of the jobs:
    sums are then taken in the same order however the jobs are listed.
    """
    rows = np.column_stack(keys)
    if rows.shape[1] == 0 or len(rows) == 0:
        return Classes(
            np.zeros(min(len(rows), 1), np.intp),
            np.zeros(len(rows), np.intp),
            np.full(min(len(rows), 1), float(len(rows))),
        )
    # a random projection separates distinct rows; equality is then checked, not assumed
    direction = np.cos(np.arange(1, rows.shape[1] + 1) * 1.2345678910111213) + 1.5
    _, first, of, counts = np.unique(
        (rows * direction).sum(1), return_index=True, return_inverse=True, return_counts=True
    )
    if not np.array_equal(rows, rows[first[of]]):
        _, first, of, counts = np.unique(rows, axis=0, return_index=True, return_inverse=True, return_counts=True)
    return Classes(first, of.reshape(-1), counts.astype(np.float64))
