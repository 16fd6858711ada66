"""What every job does at given prices, in closed form.

A job pays ``s (p . x)`` for shares x of the types and needs a throughput d. The cheapest x lies on the lower convex
hull of the points ``(a_j, p_j)`` and the origin (idle time is free), so it mixes two neighbours of the hull::

    phi(d; p) = min over pairs (j, k) with d between a_j and a_k  of  (1 - theta) p_j + theta p_k,
    theta = (d - a_j) / (a_k - a_j)

and the slope of the pair, times s, is the job's multiplier. The scale factor changes no choice: it makes all types
dearer alike. A job that is paid ``s g`` for every unit of throughput may want more than d: it then has a vertex of the
hull, one type for all its time, ``min over j with a_j >= d of p_j - g a_j``.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from os import cpu_count

import numpy as np
from numpy.typing import NDArray

from formulations.core.objectives import Threshold
from throughputs.numerics import dot

__all__ = ["Mixes", "Responses", "level_at_prices", "mixes_of", "respond"]

Array = NDArray[np.float64]

_CHUNK = 8192
"""Jobs at a time: their arrays stay in the processor's cache."""

_THREADED = 100_000
"""Number of jobs from which a second thread pays."""

_STEPS = 12
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


@dataclass(frozen=True, eq=False)
class Responses:
    """The cheapest mixes of K jobs.

    Attributes
    ----------
    rates : (M, K) throughput of each type.
    cost : (K,) price of the mix per GPU of the gang; inf where no mix gives the demand.
    mix : (K,) which pair of types.
    theta : (K,) share of the pair's second type; the first has the rest.
    decided : (K,) by which fraction prices or demand may move before the mix changes; 0 for a tie.
    """

    rates: Array
    cost: Array
    mix: NDArray[np.int16]
    theta: Array
    decided: Array

    @property
    def ends(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(K,) first and second type of the mix; M for idle time."""
        mixes = mixes_of(len(self.rates))
        return mixes.first[self.mix], mixes.second[self.mix]

    @property
    def bound(self) -> NDArray[np.bool_]:
        """(K,) whether the demand determines the mix."""
        return self.mix < mixes_of(len(self.rates)).n_pairs

    def span(self) -> Array:
        """(K,) throughput of the second type less that of the first."""
        first, second = self.ends
        M, K = self.rates.shape
        each = np.arange(K)
        return np.where(first < M, self.rates[second, each] - self.rates[first % M, each], self.rates[second, each])

    def multipliers(self, prices: Array, gain: Array | None = None) -> Array:
        """(K,) what one more unit of demand costs per GPU of the gang, beyond what it is paid."""
        first, second = self.ends
        price = np.append(prices, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (price[second] - price[first]) / self.span() - (0.0 if gain is None else gain)
        return np.where(self.bound & np.isfinite(slope), np.maximum(slope, 0.0), 0.0)


def respond(rates: Array, prices: Array, demand: Array | None, gain: Array | None = None) -> Responses:
    """The best mixes at `prices` (M,) for jobs with `rates` (M, K).

    `demand` (K,), positive: throughput that each job needs; None: none. `gain` (K,): what it is paid for a unit of
    throughput, per GPU of its gang; None: nothing. One of the two must be given.
    """
    K = rates.shape[1]
    answer = Responses(rates, np.empty(K), np.empty(K, dtype=np.int16), np.empty(K), np.empty(K))
    starts = range(0, K, _CHUNK)

    def fill(start: int) -> None:
        _Chunk(answer, slice(start, min(start + _CHUNK, K)), prices, demand, gain).fill()

    if K >= _THREADED and (cpu_count() or 1) > 1:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(fill, starts))
    else:
        for start in starts:
            fill(start)
    return answer


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
    for _ in range(_STEPS):
        responses = respond(rates, prices, objective.demand(level) / fastest)
        with np.errstate(invalid="ignore", over="ignore"):
            # inf where a demand is beyond the fastest type; none at all where a level is
            excess = float(np.add.reduce(loads * responses.cost)) - budget
        if not np.isfinite(excess):
            return np.nan
        if excess > 0:
            bad = min(bad, sign * level)
        else:
            good = max(good, sign * level)
        with np.errstate(over="ignore"):
            growth = dot(loads * responses.multipliers(prices), objective.slope(level) / fastest)
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


class _Chunk:
    """Some jobs: try every mix, keep the cheapest and how far off the next is."""

    def __init__(self, answer: Responses, part: slice, prices: Array, demand: Array | None, gain: Array | None) -> None:
        self.rates, self.prices = answer.rates[:, part], prices
        self.demand = None if demand is None else demand[part]
        self.gain = None if gain is None else gain[part]
        self.cost, self.mix, self.theta = answer.cost[part], answer.mix[part], answer.theta[part]
        self.decided = answer.decided[part]
        n = self.rates.shape[1]
        self.runner_up = np.full(n, np.inf)
        self.share, self.price, self.work = np.empty(n), np.empty(n), np.empty(n)
        self.flag, self.other = np.empty(n, dtype=bool), np.empty(n, dtype=bool)

    def fill(self) -> None:
        M, mixes = len(self.rates), mixes_of(len(self.rates))
        with np.errstate(all="ignore"):
            self.cost.fill(np.inf)
            self.mix.fill(0)
            self.theta.fill(0.0)
            if self.demand is not None:
                self._pairs(self.demand, mixes)
                np.clip(self.theta, 0.0, 1.0, out=self.theta)
                if self.gain is not None:
                    # pairs give just the demand: all of them are paid the same
                    paid = self.gain * self.demand
                    self.cost -= paid
                    self.runner_up -= paid
            else:
                self.cost.fill(0.0)
                self.mix.fill(mixes.n_pairs + M)
            if self.gain is not None:
                self._types(self.gain, mixes)
            self._distance()

    def _pairs(self, demand: Array, mixes: Mixes) -> None:
        rates, prices, share, price, span = self.rates, self.prices, self.share, self.price, self.work
        flag, other, M = self.flag, self.other, len(self.rates)
        for number in range(mixes.n_pairs):
            j, k = mixes.first[number], mixes.second[number]
            if j == M:
                np.divide(demand, rates[k], out=share)
                np.multiply(share, prices[k], out=price)
                np.greater(share, 1.0 + _ROUNDING, out=flag)
            else:
                np.subtract(rates[k], rates[j], out=span)
                np.subtract(demand, rates[j], out=share)
                np.divide(share, span, out=share)
                np.multiply(share, prices[k] - prices[j], out=price)
                price += prices[j]
                np.less_equal(share, 1.0 + _ROUNDING, out=flag)
                np.greater_equal(share, -_ROUNDING, out=other)
                np.logical_and(flag, other, out=flag)
                np.logical_not(flag, out=flag)
            np.copyto(price, np.inf, where=flag)
            self._take(number, share)

    def _types(self, gain: Array, mixes: Mixes) -> None:
        for k, price in enumerate(self.prices):
            np.multiply(gain, self.rates[k], out=self.price)
            np.subtract(price, self.price, out=self.price)
            if self.demand is not None:
                np.less(self.rates[k], self.demand, out=self.flag)
                np.copyto(self.price, np.inf, where=self.flag)
            self._take(mixes.n_pairs + k, 1.0)

    def _take(self, number: int, share: Array | float) -> None:
        """The mix `number` where it is the cheapest so far."""
        np.less(self.price, self.cost, out=self.other)
        np.maximum(self.price, self.cost, out=self.work)
        np.minimum(self.runner_up, self.work, out=self.runner_up)
        np.minimum(self.cost, self.price, out=self.cost)
        np.copyto(self.theta, share, where=self.other)
        np.copyto(self.mix, np.int16(number), where=self.other)

    def _distance(self) -> None:
        """By which part prices may move before the runner-up is cheaper, or the demand before it leaves the mix."""
        cost, runner_up, theta = self.cost, self.runner_up, self.theta
        scale = np.abs(runner_up) + np.abs(cost)
        if self.gain is not None:
            scale += self.gain
        distance = np.where(np.isfinite(runner_up), (runner_up - cost) / scale, 1.0)
        if self.demand is not None and self.gain is None:
            chunk = Responses(self.rates, cost, self.mix, theta, cost)
            # idle time is no end: a demand does not fall to nothing
            to_end = np.where(self.mix < len(self.rates), 1.0 - theta, np.minimum(theta, 1.0 - theta))
            distance = np.fmin(distance, to_end * np.abs(chunk.span()) / self.demand)
        self.decided[:] = np.where(np.isfinite(cost), distance, 0.0)
