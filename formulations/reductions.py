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
        return np.asarray(np.add.reduceat(values, self.first, axis=0) / self.counts[:, None])


def canonical_order(*keys: Array | NDArray[np.int64]) -> NDArray[np.intp]:
    """(N,) order of the jobs by the content of their rows; only interchangeable jobs keep the order they came in."""
    return np.argsort(_project(np.column_stack(keys).astype(np.float64)), kind="stable")


def _project(rows: Array) -> Array:
    """(N,) one number per row, different for different rows (up to rounding)."""
    direction = np.cos(np.arange(1, rows.shape[1] + 1) * 1.2345678910111213) + 1.5
    return np.asarray((rows * direction).sum(axis=1))


def aggregate(*keys: Array | NDArray[np.int64]) -> Classes:
    """Classes of neighbouring jobs whose rows are equal in every key (N, k).

    A convex program has an optimum in which interchangeable jobs get equal shares, so one variable with a count
    stands for all of them. In `canonical_order` all interchangeable jobs are neighbours; in any other order the classes
    are smaller and the answer is the same.
    """
    rows = np.column_stack(keys)
    n = len(rows)
    starts = np.ones(n, dtype=bool)
    if n:
        starts[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    first = np.flatnonzero(starts)
    counts = np.diff(np.append(first, n)).astype(np.float64)
    return Classes(first, np.cumsum(starts) - 1, counts)
