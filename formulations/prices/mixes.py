"""Mixes of two types, the best responses of jobs to prices, and the level at which these cost what capacity is worth.

A job pays ``s (p . x)`` for shares x of the types and needs a throughput d. The cheapest x lies on the lower convex
hull of the points ``(a_j, p_j)`` and the origin (idle time is free), so it mixes two neighbours of the hull::

    phi(d; p) = min over pairs (j, k) with d between a_j and a_k  of  (1 - theta) p_j + theta p_k,
    theta = (d - a_j) / (a_k - a_j)

and the slope of the pair, times s, is the job's multiplier. The scale factor changes no choice: it makes all types
dearer alike. A job that is paid ``s g`` for every unit of throughput may want more than d: it then has a vertex of the
hull, one type for all its time, ``min over j with a_j >= d of p_j - g a_j``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.core.objectives import Threshold
from formulations.prices.log_responses import in_chunks
from throughputs.numerics import dot

Array = NDArray[np.float64]

_CHUNK = 8192
"""Jobs at a time: their arrays stay in the processor's cache."""

_MOST_STEPS = 12
"""Evaluations of a level at given prices: Newton steps, which are few."""

_ROUNDING = 1e-12
"""How far beyond its fastest type a demand may be."""


@dataclass(frozen=True, eq=False)
class Mixes:
    """All mixes of M types, each with its two ends; M stands for idle time.

    First the pairs with idle time, then the pairs of types (up to `n_pairs`), then each type alone for all the time,
    then nothing at all.
    """

    n_types: int
    first: NDArray[np.intp]
    second: NDArray[np.intp]
    n_pairs: int

    @cached_property
    def alone(self) -> Array:
        """(mixes,) share of the second type where it is the same for all jobs: for a type alone, 1."""
        return np.where(
            (np.arange(len(self.first)) >= self.n_pairs) & (np.arange(len(self.first)) < self.idle), 1.0, 0.0
        )

    @property
    def idle(self) -> int:
        """Number of the mix that is nothing at all."""
        return len(self.first) - 1

    def by_price(self, prices: Array) -> Mixes:
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


def level_at_prices(
    objective: Threshold, rates: Array, fastest: Array, loads: Array, budget: float, prices: Array, level: float
) -> float:
    """The level whose demands cost all jobs together just what the capacity is worth: none better is feasible.

    Every job answers the prices with its own best multiplier, where `Threshold.bound` keeps the multipliers given: the
    bound is tighter, and the better the further off `level`, from which the search starts, is.

    Parameters
    ----------
    rates : (M, K) in units of each job's `fastest` (K,).
    loads : (K,) GPUs of each class together.
    budget : ``capacity . prices``.
    """
    sign = 1.0 if objective.higher_level_is_better else -1.0
    good, bad = -np.inf, np.inf
    for _ in range(_MOST_STEPS):
        cost, mix = _cheapest_mixes(rates, prices, objective.demand(level) / fastest)
        with np.errstate(invalid="ignore", over="ignore"):
            # inf where a demand is beyond the fastest type; none at all where a level is
            excess = float(np.add.reduce(loads * cost)) - budget
        if not np.isfinite(excess):
            return np.nan
        if excess > 0:
            bad = min(bad, sign * level)
        else:
            good = max(good, sign * level)
        with np.errstate(over="ignore"):
            growth = dot(loads * _multipliers(rates, prices, mix), objective.slope(level) / fastest)
        following = sign * level - excess / growth if growth > 0 else np.nan
        if abs(following - sign * level) <= 1e-12 * abs(level):
            break
        if not good < following < bad:
            if not (np.isfinite(good) and np.isfinite(bad)):
                break
            following = 0.5 * (good + bad)
        if following >= sign * objective.limit:
            # from far off a Newton step may lead beyond any level
            following = 0.5 * (sign * level + sign * objective.limit)
        level = sign * following
    # where demands cost too much no level is attained: a bound; where they do not, nothing is proven
    return sign * bad if np.isfinite(bad) else np.nan


def _cheapest_mixes(rates: Array, prices: Array, demand: Array) -> tuple[Array, NDArray[np.intp]]:
    """(K,) price per GPU of the gang of the cheapest mix that gives the `demand`, inf where none does; and which."""

    def work(parts: Iterator[slice]) -> list[tuple[Array, NDArray[np.intp]]]:
        with np.errstate(all="ignore"):
            return [_cheapest_of(rates[:, part], prices, demand[part]) for part in parts]

    found = in_chunks(len(demand), work, chunk=_CHUNK)
    return np.concatenate([cost for cost, _ in found]), np.concatenate([mix for _, mix in found])


def _cheapest_of(rates: Array, prices: Array, demand: Array) -> tuple[Array, NDArray[np.intp]]:
    """The same for a chunk of jobs."""
    M, n = rates.shape
    mixes = mixes_of(M)
    cost, mix = np.full(n, np.inf), np.zeros(n, dtype=np.intp)
    share, price, span = np.empty((3, n))
    unfit, other = np.empty((2, n), dtype=bool)
    for number in range(mixes.n_pairs):
        j, k = mixes.first[number], mixes.second[number]
        if j == M:
            np.divide(demand, rates[k], out=share)
            np.multiply(share, prices[k], out=price)
            np.greater(share, 1.0 + _ROUNDING, out=unfit)
        else:
            np.subtract(rates[k], rates[j], out=span)
            np.subtract(demand, rates[j], out=share)
            np.divide(share, span, out=share)
            np.multiply(share, prices[k] - prices[j], out=price)
            price += prices[j]
            np.less_equal(share, 1.0 + _ROUNDING, out=unfit)
            np.greater_equal(share, -_ROUNDING, out=other)
            np.logical_and(unfit, other, out=unfit)
            np.logical_not(unfit, out=unfit)
        np.copyto(price, np.inf, where=unfit)
        np.less(price, cost, out=other)
        np.minimum(cost, price, out=cost)
        np.copyto(mix, number, where=other)
    return cost, mix


def _multipliers(rates: Array, prices: Array, mix: NDArray[np.intp]) -> Array:
    """(K,) what one more unit of demand costs per GPU of the gang."""
    M, K = rates.shape
    mixes, each, price = mixes_of(M), np.arange(K), np.append(prices, 0.0)
    first, second = mixes.first[mix], mixes.second[mix]
    of_second = rates[second, each]
    span = np.where(first < M, of_second - rates[first % M, each], of_second)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (price[second] - price[first]) / span
    return np.where(np.isfinite(slope), np.maximum(slope, 0.0), 0.0)
