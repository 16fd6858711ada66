"""Constant index helpers for sums over types and over pairs of types, as the structured methods write them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Pairs:
    """The M (M - 1)/2 pairs of M types.

    Attributes
    ----------
    first, second : the members of each pair.
    diagonal : 0 .. M - 1, for indexing a diagonal.
    others : (M, M) ``others[j]`` sums over the types but j.
    without : (M, pairs) ``without[j]`` sums over the pairs without j.
    """

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    diagonal: NDArray[np.intp]
    others: NDArray[np.float64]
    without: NDArray[np.float64]


@cache
def pairs_of(M: int) -> Pairs:
    """The helpers for M types."""
    pairs = list(combinations(range(M), 2))
    without = np.array([[float(j not in pair) for pair in pairs] for j in range(M)]).reshape(M, len(pairs))
    return Pairs(
        np.array([j for j, _ in pairs], dtype=np.intp),
        np.array([k for _, k in pairs], dtype=np.intp),
        np.arange(M),
        1.0 - np.eye(M),
        without,
    )
