"""Best responses of all jobs to given prices, in one pass over chunks of jobs that stay in the processor's cache.

A job's response to prices is a *mix* of two types, idle time being one of them (`mixes`). Which mix is best does
not depend on the unit of its throughput, nor on its gang. What the others must know of a pass are sums over the jobs of
each mix; what is kept of a job is the number of its mix.

Whether a mix is *settled*, so that no prices near the given ones change it, is exact: with ``w = (a_l - a_j) /
(a_k - a_j)`` the mix of j and k is best as long as every other type l lies above their line,
``p_l >= (1 - w) p_j + w p_k``, which is linear in the prices.

Sums of chunks are added in their order, so the number of threads changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from formulations.prices.mixes import Mixes, mixes_of
from throughputs.arrays import Floats, Positions

States = NDArray[np.unsignedinteger]
Result = TypeVar("Result")

_CHUNK = 8192
"""Jobs whose arrays stay in the processor's cache together."""

_THREADS = 2
"""Threads that share the chunks; the passes are bound by memory, and more bring little."""

_ROUNDING = 1e-12
"""How far beyond its fastest type a demand may be."""


@dataclass(frozen=True, eq=False)
class Jobs:
    """K classes of jobs.

    Attributes
    ----------
    rates : (K, M) throughput.
    loads : (K,) GPUs that each class occupies.
    """

    rates: Floats
    loads: Floats

    def __len__(self) -> int:
        return len(self.loads)

    def take(self, jobs: Positions, loads: Floats | None = None) -> Jobs:
        """Some of the classes, with other loads if given."""
        return Jobs(self.rates[jobs], self.loads[jobs] if loads is None else loads)


@dataclass(frozen=True, eq=False)
class Market:
    """What jobs meet and want, (K,) each or None: prices (M,) apart.

    Attributes
    ----------
    demand, growth : throughput that they need, and its growth with the level.
    gain : what a class is paid for a unit of throughput, per GPU of the gang.
    budget : what a class pays per GPU of the gang, where its utility is the logarithm of its throughput.
    """

    prices: Floats
    demand: Floats | None = None
    growth: Floats | None = None
    gain: Floats | None = None
    budget: Floats | None = None

    @cached_property
    def mixes(self) -> Mixes:
        """All mixes; of two types the cheaper comes first."""
        return mixes_of(len(self.prices)).by_price(self.prices)

    @cached_property
    def steps(self) -> Floats:
        """(mixes,) how much dearer the second type is than the first."""
        prices = np.append(self.prices, 0.0)
        return np.asarray(prices[self.mixes.second] - prices[self.mixes.first])


@dataclass(frozen=True, eq=False)
class Box:
    """Half-widths of a box around a market: of prices (M,), and of the level."""

    prices: Floats
    level: float = 0.0


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums over jobs by mix, (4, mixes): loads, loads on the second type, growth of the latter with the level, and what
    is paid by budgets."""

    sums: Floats
    mixes: Mixes

    @property
    def usage(self) -> Floats:
        """(M,) GPUs that these jobs take of each type."""
        return self._by_type(self.sums[0] - self.sums[1], self.sums[1])

    @property
    def growth(self) -> Floats:
        """(M,) how usage changes with the level."""
        return self._by_type(-self.sums[2], self.sums[2])

    def _by_type(self, of_first: Floats, of_second: Floats) -> Floats:
        M = self.mixes.n_types
        total = np.bincount(self.mixes.first, of_first, M + 1) + np.bincount(self.mixes.second, of_second, M + 1)
        return np.asarray(total[:M])


def choose(jobs: Jobs, market: Market, states: States) -> Totals:
    """The best mix of every job, written to `states` (K,), and what they take."""

    def work(part: slice, chunk: _Chunk) -> Floats:
        chunk.choose(states[part])
        chunk.mix(states[part])
        return chunk.sums(chunk.loads)

    return _added(_by_chunk(jobs, market, work), market)


def keep(jobs: Jobs, market: Market, states: States, loads: Floats) -> Totals:
    """What jobs of other `loads` (K,) take in the mixes that they have."""

    def work(part: slice, chunk: _Chunk) -> Floats:
        chunk.mix(states[part])
        return chunk.sums(loads[part])

    return _added(_by_chunk(jobs, market, work), market)


def settle(jobs: Jobs, market: Market, box: Box, states: States, fewest: int = 0) -> tuple[Positions, Totals, Box]:
    """Jobs that may leave their mix (`states`) somewhere in the box around a market, and what the others take there.

    The box is widened, and returned so, until it leaves at least `fewest` jobs undecided.
    """
    fewest = min(fewest, len(jobs))

    def work(part: slice, chunk: _Chunk) -> tuple[Positions, Floats, Floats]:
        chunk.mix(states[part])
        reach = chunk.reach(box)
        settled = reach >= 1.0
        nearest = np.partition(reach, fewest)[:fewest] if fewest < len(reach) else reach
        return np.flatnonzero(~settled) + part.start, chunk.sums(chunk.loads * settled), nearest

    some, sums, distances = zip(*_by_chunk(jobs, market, work), strict=True)
    undecided = np.concatenate(some)
    if len(undecided) < fewest:
        nearest = np.sort(np.concatenate(distances))[:fewest]
        within = nearest[np.isfinite(nearest)]
        if len(within) > len(undecided):
            # a little more, so that rounding does not leave out the last of them
            by = float(within[-1]) * (1.0 + _ROUNDING)
            return settle(jobs, market, Box(by * box.prices, by * box.level), states)
    return undecided, _added(sums, market), box


def respond_all(jobs: Jobs, market: Market, states: States, shares: Floats, multipliers: Floats) -> None:
    """Shares (K, M) and multipliers (K,) per GPU of the gang of jobs that keep their mixes."""

    def work(part: slice, chunk: _Chunk) -> None:
        chunk.mix(states[part])
        chunk.write(shares[part], multipliers[part])

    _by_chunk(jobs, market, work)


def _by_chunk(jobs: Jobs, market: Market, work: Callable[[slice, _Chunk], Result]) -> list[Result]:
    """Results of `work` for all chunks of the jobs, in their order."""
    parts = [slice(at, min(at + _CHUNK, len(jobs))) for at in range(0, len(jobs), _CHUNK)]

    def run(part: slice) -> Result:
        # divisions by zero are expected; each thread has to be told
        with np.errstate(all="ignore"):
            return work(part, _Chunk(jobs, market, part))

    # counting processors takes as long as a pass over some hundred jobs
    threads = min(_THREADS, len(parts), os.cpu_count() or 1) if len(parts) > 1 else 1
    if threads == 1:
        return [run(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, parts))


def _added(sums: Iterable[Floats], market: Market) -> Totals:
    return Totals(np.sum([np.zeros((4, len(market.mixes.first))), *sums], axis=0), market.mixes)


class _Chunk:
    """Some jobs by types, idle time being the last row, and their mixes."""

    def __init__(self, jobs: Jobs, market: Market, part: slice) -> None:
        self.market, self.mixes = market, market.mixes
        self.n, self.M = part.stop - part.start, jobs.rates.shape[1]
        self.rates = np.zeros((self.M + 1, self.n))
        self.rates[: self.M] = jobs.rates[part].T
        self.loads = jobs.loads[part]
        wanted = (market.demand, market.growth, market.gain, market.budget)
        self.demand, self.growth, self.gain, self.budget = (None if each is None else each[part] for each in wanted)

    def mix(self, states: States) -> None:
        """Note the mixes: the rate of the first type, the difference to the second, and the second's share."""
        self.states: NDArray[np.integer] = states.astype(np.intp)
        place = np.arange(self.n)
        self.first, self.second = self.mixes.first[self.states], self.mixes.second[self.states]
        flat = self.rates.ravel()
        self.low = flat.take(self.first * self.n + place)
        self.span = flat.take(self.second * self.n + place)
        self.span -= self.low
        self.share = self.mixes.alone[self.states]
        if self.demand is not None:
            share = (self.demand - self.low) / self.span
            np.minimum(np.maximum(share, 0.0, out=share), 1.0, out=share)
            self.share = share if self.gain is None else np.where(self.states < self.mixes.n_pairs, share, self.share)
        if self.budget is not None:
            # where what is left of the budget buys the step from one type to the other
            share = self.budget / self.market.steps[self.states]
            share -= self.low / self.span
            np.minimum(np.maximum(share, 0.0, out=share), 1.0, out=share)
            self.share = np.where(self.states < self.mixes.n_pairs, share, self.share)

    def sums(self, loads: Floats) -> Floats:
        """(4, mixes) see `Totals`."""
        size = len(self.mixes.first)
        sums = np.zeros((4, size))
        sums[0] = np.bincount(self.states, loads, size)
        sums[1] = np.bincount(self.states, loads * self.share, size)
        if self.growth is not None:
            sums[2] = np.bincount(self.states, loads * self.growth / self.span, size)
        if self.budget is not None:
            sums[3] = np.bincount(self.states, loads * self.budget, size)
        return sums

    def reach(self, box: Box) -> Floats:
        """(K,) how many times as wide the box may be before the mix is not the best everywhere in it; below 1: it is
        not so in the box itself."""
        prices, width = np.append(self.market.prices, 0.0), np.append(box.prices, 0.0)
        reach = np.full(self.n, np.inf)
        bound = self.states < self.mixes.n_pairs
        if self.demand is not None:
            self._until_line_is_not_lowest(reach, prices, width)
            if self.gain is not None:
                reach[~bound] = np.inf
            if self.growth is not None:
                self._until_outside(reach, box.level)
        if self.gain is not None:
            first, second = self.first, self.second
            profit = prices[second] - prices[first] - self.gain * self.span
            corner = self._until_another_corner(self.gain, prices, width)
            np.fmin(reach, np.where(bound, profit / (width[first] + width[second]), corner), out=reach)
        if self.budget is not None:
            self._until_line_is_not_lowest(reach, prices, width)
            step, wide = self.market.steps[self.states], width[self.first] + width[self.second]
            high, low = self.budget * self.span / (self.low + self.span), self.budget * self.span / self.low
            np.fmin(reach, (step - high) / wide, out=reach)
            np.fmin(reach, (low - step) / wide, out=reach)
            reach = np.where(bound, reach, self._until_another_corner(self.budget / self.span, prices, width))
        return reach

    def _until_line_is_not_lowest(self, reach: Floats, prices: Floats, width: Floats) -> None:
        """Every other type, or idleness, is dearer than the line through the two types of the mix."""
        mixes, states = self.mixes, self.states
        cheap, step = prices[mixes.first][states], (prices[mixes.second] - prices[mixes.first])[states]
        wide, wider = width[mixes.first][states], width[mixes.second][states]
        for kind in range(self.M + 1):
            w = (self.rates[kind] - self.low) / self.span
            gap = prices[kind] - cheap
            gap -= w * step
            moves = np.abs(w) * wider
            np.subtract(1.0, w, out=w)
            moves += np.abs(w, out=w) * wide
            moves += width[kind]
            gap += np.where((mixes.first == kind) | (mixes.second == kind), np.inf, 0.0)[states]
            # nothing between two that do not move: not a number, which the minimum does not mind
            gap /= moves
            np.fmin(reach, gap, out=reach)

    def _until_outside(self, reach: Floats, level: float) -> None:
        """The demand stays between the rates of the mix; a demand does not fall to nothing."""
        assert self.demand is not None
        assert self.growth is not None
        moved = self.growth * level
        # below 0 where the demand has left the mix already
        above = np.copysign(1.0, self.span) * (self.demand - self.low)
        np.fmin(reach, (np.abs(self.span) - above) / moved, out=reach)
        above /= moved
        above[self.first == self.M] = np.inf
        np.fmin(reach, above, out=reach)

    def _until_another_corner(self, gain: Floats, prices: Floats, width: Floats) -> Floats:
        """No other type, nor idleness, pays more, at a `gain` (K,) per throughput, than the one type of the mix."""
        own = np.where(self.share > 0.0, self.second, self.M)
        left = prices[own] - gain * self.rates.ravel().take(own * self.n + np.arange(self.n))
        reach = np.full(self.n, np.inf)
        for kind in range(self.M + 1):
            gap = prices[kind] - gain * self.rates[kind] - left
            gap[own == kind] = np.inf
            gap /= width[own] + width[kind]
            np.fmin(reach, gap, out=reach)
        return reach

    def write(self, shares: Floats, multipliers: Floats) -> None:
        """Fill in the shares and multipliers."""
        for kind in range(self.M):
            column = (1.0 - self.share) * (self.first == kind)
            column += self.share * (self.second == kind)
            shares[:, kind] = column
        prices = np.append(self.market.prices, 0.0)
        multiplier = (prices[self.mixes.second] - prices[self.mixes.first])[self.states] / self.span
        if self.gain is not None:
            multiplier -= self.gain
        wanted = (self.states < self.mixes.n_pairs) & np.isfinite(multiplier)
        np.copyto(multipliers, np.where(wanted, np.maximum(multiplier, 0.0), 0.0))

    def choose(self, states: States) -> None:
        """Write the number of the cheapest mix to `states`, having tried every one."""
        n, M = self.n, self.M
        self.best, self.states = np.full(n, np.inf), states
        self.flag, self.number = np.empty(n, dtype=bool), np.empty(n, dtype=states.dtype)
        states.fill(0)
        if self.budget is not None:
            self._by_budget(self.budget)
            return
        able = np.tile(self.market.prices[:, None], n)
        if self.demand is not None:
            need = self.demand * (1.0 - _ROUNDING)
            for k in range(M):
                np.copyto(able[k], np.inf, where=np.less(self.rates[k], need, out=self.flag))
            self._pairs(need, able)
            if self.gain is not None:
                self.best -= self.gain * need
        else:
            self.best.fill(0.0)
            states.fill(self.mixes.n_pairs + M)
        if self.gain is not None:
            for k in range(M):
                able[k] -= self.gain * self.rates[k]
                np.less(able[k], self.best, out=self.flag)
                np.minimum(self.best, able[k], out=self.best)
                np.copyto(states, self.mixes.n_pairs + k, where=self.flag, casting="unsafe")

    def _by_budget(self, budget: Floats) -> None:
        """Where the next step of the hull first costs more than the budget buys.

        The multiplier is ``min_k max(b / a_k, p_k / a_k, max_{j : p_j < p_k} (p_k - p_j) / (a_k - a_j))``: to a point
        above the hull there is a steeper way than the hull has there, so that the minimum never picks it. The term that
        attains it says whether the mix is type k alone, or with idle time, or with type j.
        """
        mixes, prices, rates, M = self.mixes, self.market.prices, self.rates, self.M
        number_of = np.empty((M + 1, M + 1), dtype=np.intp)
        for number in range(mixes.n_pairs):
            number_of[mixes.first[number], mixes.second[number]] = number
        value, ratio = np.empty_like(budget), np.empty_like(budget)
        order = np.argsort(prices, kind="stable").tolist()
        for r, k in enumerate(order):
            np.maximum(budget, prices[k], out=value)
            value /= rates[k]
            self.number.fill(mixes.n_pairs + k)
            np.less_equal(budget, prices[k], out=self.flag)
            np.copyto(self.number, number_of[M, k], where=self.flag, casting="unsafe")
            for j in order[:r]:
                if prices[j] < prices[k]:
                    np.subtract(rates[k], rates[j], out=ratio)
                    np.divide(prices[k] - prices[j], ratio, out=ratio)
                    np.greater(ratio, value, out=self.flag)
                    np.maximum(ratio, value, out=value)
                    np.copyto(self.number, number_of[j, k], where=self.flag, casting="unsafe")
            np.less(value, self.best, out=self.flag)
            np.minimum(value, self.best, out=self.best)
            np.copyto(self.states, self.number, where=self.flag)

    def _pairs(self, need: Floats, able: Floats) -> None:
        """A type that is too slow has the price inf, so of two types the second must be fast enough.

        Where the first is fast enough as well the pair counts as the first alone, no cheaper than with idle time.
        """
        mixes, prices, rates, M = self.mixes, self.market.prices, self.rates, self.M
        above = np.maximum(rates[:M] - need, 0.0)
        below = np.maximum(need - rates[:M], 0.0)
        share, cost = np.empty_like(need), np.empty_like(need)
        for number in range(mixes.n_pairs):
            j, k = mixes.first[number], mixes.second[number]
            if j == M:
                np.maximum(rates[k], need, out=share)
                np.divide(need, share, out=share)
                np.multiply(share, able[k], out=cost)
            else:
                np.add(below[j], above[k], out=share)
                np.divide(below[j], share, out=share)
                np.subtract(able[k], prices[j], out=cost)
                cost *= share
                cost += prices[j]
            # not a number where nothing is left to be mixed
            np.less(cost, self.best, out=self.flag)
            np.fmin(self.best, cost, out=self.best)
            # later mixes have higher numbers, so the maximum keeps the last one that was cheaper
            np.multiply(self.flag, self.states.dtype.type(number), out=self.number)
            np.maximum(self.states, self.number, out=self.states)
