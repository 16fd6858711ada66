"""What every job does at given prices: the best response under a logarithmic utility, in closed form, for all jobs.

At prices p, a job with rates a, gangs of s and budget B maximises ``B log(a.x) - s p.x`` over its time,
``sum_j x_j <= 1``. With b = B / s only the points (p_j, a_j) and idleness (0, 0) matter: the job uses one type, or two
neighbours on the hull of these points. Its multiplier per GPU is::

    lambda  =  min_k  max( b / a_k,  p_k / a_k,  max_{j : p_j < p_k} (p_k - p_j) / (a_k - a_j) )

In words: lambda on the hull is where the slope of the next step first exceeds b / a. A point k above the hull has
a steeper way to it than the hull has there, so the minimum over k never picks it. The term that attains lambda says
what the job does (its *state*): type k all the time, type k part of the time, or types j and k by turns.

Everything runs over chunks of jobs that stay in cache, on a few threads; results of chunks are added in their order, so
the number of threads changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Result = TypeVar("Result")

_CHUNK = 16384
"""Jobs whose arrays stay in the processor's cache together."""
_THREADS = 2
"""Threads that share the chunks; the passes are bound by memory, and more bring little."""


@dataclass(frozen=True, eq=False)
class Market:
    """K classes of jobs that buy M types.

    Attributes
    ----------
    rates : (M, K) throughput a.
    scale_factors, budgets, counts : (K,) s, B and n of a class.
    capacity : (M,) GPUs, positive.
    """

    rates: Array
    scale_factors: Array
    budgets: Array
    counts: Array
    capacity: Array

    def take(self, jobs: NDArray[np.intp], counts: Array) -> Market:
        """Some classes, with other counts."""
        return Market(
            np.ascontiguousarray(self.rates[:, jobs]),
            self.scale_factors[jobs],
            self.budgets[jobs],
            counts,
            self.capacity,
        )


@dataclass(frozen=True, eq=False)
class States:
    """The M (M + 1) states a job can be in at prices p.

    State ``r (M + 1) + q`` for the r-th cheapest type k: all the time on k (q = 0), part of the time on k (q = 1), or
    by turns with the (q - 2)-th cheapest type j. Types are stored as numbers, idleness as -1.

    Attributes
    ----------
    order : (M,) types by price.
    low, high : (states,) types j and k; j is -1 (idle) where q = 1 and k itself where q = 0.
    low_price, step : (states,) p_j and p_k - p_j.
    """

    order: NDArray[np.intp]
    low: NDArray[np.intp]
    high: NDArray[np.intp]
    low_price: Array
    step: Array

    @property
    def alone(self) -> NDArray[np.bool_]:
        """States on one type all the time."""
        return np.asarray(self.low == self.high)

    def usage(self, mass: Array, cost: Array) -> Array:
        """(M,) GPUs used by jobs of total weight `mass` (states,) that spend `cost` (states,)."""
        used = np.zeros(len(self.order))
        moving = ~self.alone & (mass > 0)
        share = np.zeros(len(mass))
        share[moving] = (cost[moving] - self.low_price[moving] * mass[moving]) / self.step[moving]
        np.add.at(used, self.high, np.where(self.alone, mass, share))
        mixed = moving & (self.low >= 0)
        np.add.at(used, self.low[mixed], (mass - share)[mixed])
        return used

    def shares(self, rates: Array, b: Array, response: Response) -> Array:
        """(K, M) shares of time of jobs with rates (M, K) and budgets per GPU b (K,) that gave this response."""
        job = np.arange(len(b))
        low, high = self.low[response.state], self.high[response.state]
        fast, slow = rates[high, job], np.where(low >= 0, rates[low, job], 0.0)
        with np.errstate(all="ignore"):
            share = np.clip((b / response.multiplier - slow) / (fast - slow), 0.0, 1.0)
        share[low == high] = 1.0
        shares = np.zeros((len(b), len(rates)))
        shares[job, high] = share
        mixed = np.flatnonzero((low >= 0) & (low != high))
        shares[mixed, low[mixed]] = 1.0 - share[mixed]
        return shares


def states_at(prices: Array) -> States:
    """The states at these prices."""
    M = len(prices)
    order = np.argsort(prices, kind="stable")
    high = np.repeat(order, M + 1)
    low = np.concatenate([[k, -1, *order[: M - 1]] for k in order]).astype(np.intp)
    low_price = np.where(low >= 0, prices[low], 0.0)
    return States(order, low, high, low_price, prices[high] - low_price)


@dataclass(frozen=True, eq=False)
class Response:
    """Multiplier per GPU, state and surplus ``max(0, max_j a_j lambda - p_j)`` of every job of a chunk (K,)."""

    multiplier: Array
    state: NDArray[np.unsignedinteger]
    surplus: Array


class Responder:
    """Evaluates chunks of jobs at fixed prices; one per thread, it owns the working arrays."""

    def __init__(self, prices: Array) -> None:
        self.prices, self.states = prices, states_at(prices)
        kind = np.uint8 if len(self.states.low) <= 256 else np.uint16
        self._value, self._ratio, self._best, self._surplus = np.empty((4, _CHUNK))
        self._state, self._of_type = np.empty((2, _CHUNK), dtype=kind)
        self._flag = np.empty(_CHUNK, dtype=np.bool_)

    def __call__(self, rates: Array, b: Array) -> Response:
        """Response of jobs with rates (M, K) and budgets per GPU b (K,); the arrays are good until the next call."""
        with np.errstate(all="ignore"):
            return self._respond(rates, b)

    def _respond(self, rates: Array, b: Array) -> Response:
        n, M, order, prices = len(b), len(rates), self.states.order, self.prices
        value, ratio, best = self._value[:n], self._ratio[:n], self._best[:n]
        state, of_type, flag = self._state[:n], self._of_type[:n], self._flag[:n]
        best.fill(np.inf)
        state.fill(0)
        for r, k in enumerate(order):
            first = r * (M + 1)
            np.less_equal(b, prices[k], out=flag)
            np.add(flag, first, out=of_type, casting="unsafe")
            np.maximum(b, prices[k], out=value)
            value /= rates[k]
            for q, j in enumerate(order[:r]):
                if prices[j] == prices[k]:
                    continue
                np.subtract(rates[k], rates[j], out=ratio)
                np.divide(prices[k] - prices[j], ratio, out=ratio)
                np.greater(ratio, value, out=flag)
                np.maximum(ratio, value, out=value)
                # later states have higher numbers, so the maximum keeps the last one that was better
                np.maximum(of_type, flag * of_type.dtype.type(first + 2 + q), out=of_type)
            np.less(value, best, out=flag)
            np.minimum(value, best, out=best)
            of_type *= flag
            np.maximum(state, of_type, out=state)
        surplus = self._surplus[:n]
        surplus.fill(0.0)
        for k in range(M):
            np.multiply(rates[k], best, out=ratio)
            ratio -= prices[k]
            np.maximum(surplus, ratio, out=surplus)
        return Response(best, state, surplus)


class Nearness:
    """How far prices are from those at which a job changes its state.

    In units of `size` (M,): a job of nearness e keeps its state while every price j moves by less than ``e size_j``.
    A type outside the state is a line ``a_l lambda - p_l`` below the surplus by some gap; a move of prices changes the
    gap at a rate that is bounded by the figures of the state and by the gap itself. For two types by turns, the share
    of time must stay within 0 and 1 as well.
    """

    def __init__(self, prices: Array, size: Array) -> None:
        self.prices, self.states = prices, states_at(prices)
        low, high, step = self.states.low, self.states.high, self.states.step
        low_size = np.where(low >= 0, size[low], 0.0)
        alone = self.states.alone
        with np.errstate(all="ignore"):
            both = np.where(alone, 0.0, (low_size + size[high]) / step)
            self._growth, self._share_rate = both, np.where(alone, 0.0, both / step)
            # the last line is idleness, whose price is 0 and does not move
            self._lines = []
            for kind, price, own in zip([*range(len(prices)), -1], [*prices, 0.0], [*size, 0.0], strict=True):
                by_turns = np.abs(self.states.low_price - price) * size[high] + np.abs(prices[high] - price) * low_size
                member = (low == kind) | (high == kind)
                rate = np.where(member, 1.0, own + np.where(alone, size[high], by_turns / step))
                self._lines.append((kind, price, rate, np.where(member, np.inf, 0.0)))

    def __call__(self, rates: Array, b: Array, response: Response) -> Array:
        """(K,) nearness of jobs with rates (M, K) and budgets per GPU b (K,)."""
        code = response.state
        growth = self._growth[code]
        near = np.full(len(b), np.inf)
        with np.errstate(all="ignore"):
            for kind, price, rate, member in self._lines:
                line = rates[kind] * response.multiplier - price if kind >= 0 else 0.0
                gap = np.maximum(response.surplus - line, 0.0)
                gap /= rate[code] + growth * gap
                gap += member[code]
                np.minimum(near, gap, out=near)
            share = (b - response.surplus - self.states.low_price[code]) / self.states.step[code]
            room = np.where(self.states.low[code] >= 0, np.minimum(share, 1.0 - share), 1.0 - share)
            room = np.where(self.states.alone[code], np.inf, np.maximum(room, 0.0) / (b * self._share_rate[code]))
        return np.asarray(np.minimum(near, room))


def in_chunks(K: int, work: Callable[[Iterator[slice]], list[Result]], *, chunk: int = _CHUNK) -> list[Result]:
    """Results of `work` for all chunks of K jobs, in their order; each thread is given a contiguous run of chunks."""
    parts = [slice(at, min(at + chunk, K)) for at in range(0, K, chunk)]
    # counting processors takes as long as a pass over some hundred jobs
    threads = min(_THREADS, len(parts), os.cpu_count() or 1) if len(parts) > 1 else 1
    if threads == 1:
        return work(iter(parts))
    ends = [len(parts) * t // threads for t in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        runs = pool.map(lambda t: work(iter(parts[ends[t] : ends[t + 1]])), range(threads))
        return [result for run in runs for result in run]


def content_hash(*columns: Array) -> NDArray[np.uint64]:
    """(K,) a number per job that depends on its own figures alone, spread evenly over 64 bits."""
    hashed = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        hashed ^= np.ascontiguousarray(column, dtype=np.float64).view(np.uint64)
        hashed *= np.uint64(0x9E3779B97F4A7C15)
        hashed ^= hashed >> np.uint64(29)
    hashed *= np.uint64(0xBF58476D1CE4E5B9)
    hashed ^= hashed >> np.uint64(32)
    return hashed
