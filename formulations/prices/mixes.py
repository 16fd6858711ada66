"""Mixes of two types, the best responses of jobs to prices.

A job pays ``s (p . x)`` for shares x of the types and needs a throughput d. The cheapest x lies on the lower convex
hull of the points ``(a_j, p_j)`` and the origin (idle time is free), so it mixes two neighbours of the hull::

    phi(d; p) = min over pairs (j, k) with d between a_j and a_k  of  (1 - theta) p_j + theta p_k,
    theta = (d - a_j) / (a_k - a_j)

and the slope of the pair, times s, is the job's multiplier. The scale factor changes no choice: it makes all types
dearer alike. A job that is paid ``s g`` for every unit of throughput may want more than d: it then has a vertex of the
hull, one type for all its time, ``min over j with a_j >= d of p_j - g a_j``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from throughputs.arrays import Floats, Positions


@dataclass(frozen=True, eq=False)
class Mixes:
    """All mixes of M types, each with its two ends; M stands for idle time.

    First the pairs with idle time, then the pairs of types (up to `n_pairs`), then each type alone for all the time,
    then nothing at all.
    """

    n_types: int
    first: Positions
    second: Positions
    n_pairs: int

    @cached_property
    def alone(self) -> Floats:
        """(mixes,) share of the second type where it is the same for all jobs: for a type alone, 1."""
        return np.where(
            (np.arange(len(self.first)) >= self.n_pairs) & (np.arange(len(self.first)) < self.idle), 1.0, 0.0
        )

    @property
    def idle(self) -> int:
        """Number of the mix that is nothing at all."""
        return len(self.first) - 1

    def by_price(self, prices: Floats) -> Mixes:
        """The same mixes with the cheaper of two types first."""
        price = np.append(prices, -1.0)
        swap = price[self.second] < price[self.first]
        first, second = np.where(swap, self.second, self.first), np.where(swap, self.first, self.second)
        # nothing at all is written as idle time with a share of 0 of some type
        first[self.idle], second[self.idle] = self.first[self.idle], self.second[self.idle]
        return Mixes(self.n_types, first, second, self.n_pairs)


@cache
def mixes_of(M: int) -> Mixes:
    """The mixes of M types."""
    pairs = [(M, k) for k in range(M)] + [(j, k) for j in range(M) for k in range(j + 1, M)]
    ends = np.array([*pairs, *((M, k) for k in range(M)), (M, 0)], dtype=np.intp)
    return Mixes(M, ends[:, 0].copy(), ends[:, 1].copy(), len(pairs))
