"""Exact reductions of a program, each with the data that undoes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Classes", "aggregate", "canonical_order"]

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

    def mean(self, values: Array) -> Array:
        """(K, M) mean over each class of `values` (N, M)."""
        total = np.zeros((len(self.first), values.shape[1]))
        np.add.at(total, self.of, values)
        return np.asarray(total / self.counts[:, None])


def canonical_order(*keys: Array | NDArray[np.int64]) -> NDArray[np.intp]:
    """(N,) order of the jobs by the content of their rows; only interchangeable jobs keep the order they came in."""
    return np.argsort(_project(np.column_stack(keys).astype(np.float64)), kind="stable")


def _project(rows: Array) -> Array:
    """(N,) one number per row, different for different rows (up to rounding)."""
    direction = np.cos(np.arange(1, rows.shape[1] + 1) * 1.2345678910111213) + 1.5
    return np.asarray((rows * direction).sum(axis=1))


def aggregate(*keys: Array | NDArray[np.int64]) -> Classes:
    """Classes of jobs whose rows are equal in every key (N, k).

    A convex program has an optimum in which interchangeable jobs get equal shares, so one variable with a count
    stands for all of them. The order of the classes depends on their content alone, never on the order of the jobs:
    sums are then taken in the same order however the jobs are listed.
    """
    rows = np.column_stack(keys).astype(np.float64)
    if rows.shape[1] == 0 or len(rows) == 0:
        return Classes(
            np.zeros(min(len(rows), 1), np.intp),
            np.zeros(len(rows), np.intp),
            np.full(min(len(rows), 1), float(len(rows))),
        )
    # the projection separates distinct rows; equality is then checked, not assumed
    _, first, of, counts = np.unique(_project(rows), return_index=True, return_inverse=True, return_counts=True)
    if not np.array_equal(rows, rows[first[of]]):
        _, first, of, counts = np.unique(rows, axis=0, return_index=True, return_inverse=True, return_counts=True)
    return Classes(first, of.reshape(-1), counts.astype(np.float64))
