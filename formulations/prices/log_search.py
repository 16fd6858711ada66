"""Prices first: logarithmic utilities for up to millions of distinct jobs.

The dual of the program has M variables, one price per type, and given prices every job's response is closed form
(`log_responses`). So the work is a few passes over the jobs:

1. the prices of a sample, by the interior point method. The sample is drawn by a hash of each job's figures, so it does
   not depend on the order of the jobs; jobs that were likely to be drawn count for fewer others;
2. Newton steps on the prices of all jobs. The response of one job has jumps, that of many has a slope: it is taken
   from the sample by differences and corrected by what each pass reveals (BFGS on the dual function);
3. when prices are near, most jobs are *settled*: no price within the remaining error makes them change their state.
   Settled jobs in one state respond to prices exactly as one class would (`_fold`). What remains, the undecided jobs
   and a handful of such classes, is a small program, and the interior point method gives its exact prices and shares;
4. every settled job responds to these prices.

If prices end up further away than was assumed when jobs were called settled, step 3 is repeated from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.core.solution import Answer
from formulations.interior_point.method import StructuredProgram, solve_structured
from formulations.prices.log_responses import (
    Market,
    Nearness,
    Responder,
    States,
    content_hash,
    in_chunks,
    states_at,
)
from formulations.prices.newton import Curvature, newton_step
from throughputs.numerics import dot

Array = NDArray[np.float64]

_SAMPLE_SIZE = 4096
"""Most jobs in the sample whose market gives the first prices."""
_SAMPLE_PRECISION = 1e-6
"""Relative gap that the sample's market is solved to."""
_PRICE_DIFFERENCE = 0.02
"""Relative change of a price by which slopes are measured on the sample."""
_MOST_STEPS = 12
"""Newton steps on the prices of all jobs before the undecided ones are solved for."""
_MOST_UNDECIDED = 40_000
"""Undecided jobs, where an eighth of all is less, beyond which the interior point over all is the better way."""
_SETTLING_MARGIN = 3.0
"""Jobs are settled if they would be so with this many times the estimated error of the prices."""
_MOST_ROUNDS = 8
"""Rounds of settling jobs and solving for the rest after which the search gives up."""
_PRECISION = 1e-11
"""Relative gap that the program over undecided jobs is solved to."""
_ACCEPTED_MISMATCH = 1e-8
"""Mismatch of demand and capacity with which the answer is as good as that of the interior point method."""
_SMALLEST_PRICE = 0.01
"""Part of the highest price below which errors of a price are measured as if it were so high."""
_NEGLIGIBLE_WORTH = 1e-9
"""Part of all budgets below which the worth of a type's capacity is taken for nothing."""


@dataclass(frozen=True, eq=False)
class _Totals:
    """Sums over jobs by state: weight n s, budget n B and surplus (states,)."""

    states: States
    mass: Array
    budget: Array
    surplus: Array

    @property
    def usage(self) -> Array:
        """(M,) GPUs that these jobs use."""
        return self.states.usage(self.mass, self.budget - self.surplus)


@dataclass(frozen=True, eq=False)
class _Near:
    """Prices near the optimum, and what to expect of their error relative to `_size_of`."""

    prices: Array
    error: float


class _Jobs:
    """A market with what every pass needs."""

    def __init__(self, market: Market) -> None:
        self.market = market
        self.per_gpu = market.budgets / market.scale_factors
        self.weight = market.counts * market.scale_factors
        self.total = float(np.add.reduce(market.counts * market.budgets))
        self.passes = 0

    def __len__(self) -> int:
        return len(self.per_gpu)

    def totals(self, prices: Array, jobs: NDArray[np.intp] | None = None) -> _Totals:
        """What all jobs, or some, together do at these prices."""
        rates, b, w = self.market.rates, self.per_gpu, self.weight
        if jobs is not None:
            rates, b, w = rates[:, jobs], b[jobs], w[jobs]
        states = states_at(prices)

        def work(parts: Iterator[slice]) -> list[Array]:
            respond = Responder(prices)
            found = []
            for part in parts:
                response = respond(rates[:, part], b[part])
                code, mass = response.state.astype(np.intp), w[part]
                sums = (mass, mass * b[part], mass * response.surplus)
                found.append(
                    np.array([np.bincount(code, values, len(states.low)) for values in sums], dtype=np.float64)
                )
            return found

        self.passes += jobs is None
        mass, budget, surplus = np.sum([np.zeros((3, len(states.low))), *in_chunks(len(b), work)], axis=0)
        return _Totals(states, mass, budget, surplus)

    def undecided(self, prices: Array, within: float) -> NDArray[np.intp]:
        """Jobs that may change their state when prices change by `within` times their size."""
        rates, b = self.market.rates, self.per_gpu

        def work(parts: Iterator[slice]) -> list[NDArray[np.intp]]:
            respond, nearness = Responder(prices), Nearness(prices, _size_of(prices))
            found = []
            for part in parts:
                near = nearness(rates[:, part], b[part], respond(rates[:, part], b[part]))
                found.append(np.flatnonzero(~(near > within)) + part.start)
            return found

        self.passes += 1
        return np.concatenate(in_chunks(len(b), work))

    def respond(self, prices: Array, shares: Array, multipliers: Array) -> None:
        """Fill in the shares (K, M) and multipliers (K,) of all jobs at these prices."""
        rates, b, s = self.market.rates, self.per_gpu, self.market.scale_factors
        states = states_at(prices)

        def work(parts: Iterator[slice]) -> list[None]:
            respond = Responder(prices)
            for part in parts:
                response = respond(rates[:, part], b[part])
                shares[part] = states.shares(rates[:, part], b[part], response)
                multipliers[part] = response.multiplier * s[part]
            return []

        self.passes += 1
        in_chunks(len(b), work)


def solve_by_prices(market: Market) -> Answer:
    """Shares, multipliers and prices of a market of many classes; its iterations are passes over the jobs.

    Every class has a positive rate somewhere; capacity is positive.

    Raises
    ------
    RuntimeError
        The method does not get there.
    """
    jobs = _Jobs(market)
    shares, multipliers = np.empty(market.rates.shape[::-1]), np.empty(len(jobs))
    free = np.zeros(len(market.capacity))
    if (jobs.totals(free).usage <= market.capacity).all():
        jobs.respond(free, shares, multipliers)
        return Answer(shares, multipliers, free, jobs.passes, "prices")
    near = _approach(jobs)
    for _ in range(_MOST_ROUNDS):
        within = _SETTLING_MARGIN * near.error
        open_jobs = jobs.undecided(near.prices, within)
        if len(open_jobs) > max(_MOST_UNDECIDED, len(jobs) // 8):
            break
        small = _solve_undecided(jobs, near.prices, open_jobs)
        if small is None:
            near = _Near(near.prices, 2.0 * near.error)
            continue
        prices, their_shares, their_multipliers = small
        moved = float((np.abs(prices - near.prices) / _size_of(near.prices)).max())
        if moved <= within:
            jobs.respond(prices, shares, multipliers)
            shares[open_jobs], multipliers[open_jobs] = their_shares, their_multipliers
            if _mismatch(jobs, shares, prices) > _ACCEPTED_MISMATCH:
                break
            return Answer(shares, multipliers, prices, jobs.passes, "prices")
        near = _Near(prices, min(moved, 2.0 * near.error))
    raise RuntimeError("prices settle too few jobs, or do not clear the market")


def _mismatch(jobs: _Jobs, shares: Array, prices: Array) -> float:
    """How far the market is from clearing: worth of unsold capacity per budget, or the part of a type sold twice."""
    over = np.einsum("i,ij->j", jobs.weight, shares) / jobs.market.capacity - 1.0
    unsold = dot(np.maximum(-over, 0.0), prices * jobs.market.capacity) / jobs.total
    return max(unsold, float(over.max()))


def _size_of(prices: Array) -> Array:
    """What an error of each price is measured against."""
    return np.asarray(np.maximum(prices, _SMALLEST_PRICE * prices.max()))


def _approach(jobs: _Jobs) -> _Near:
    """Prices near the optimum: those of a sample, then Newton steps over all jobs."""
    capacity = jobs.market.capacity
    sample = _Jobs(_sample(jobs, _few(len(jobs))))
    prices = _without_negligible(jobs, _solve_market(sample.market, _SAMPLE_PRECISION)[0])
    curvature = Curvature.measured(lambda near: sample.totals(near).usage, prices, _size_of(prices), _PRICE_DIFFERENCE)
    best, before = _Near(prices, np.inf), None
    for _ in range(_MOST_STEPS):
        excess = jobs.totals(prices).usage - capacity
        if before is not None:
            curvature.observe(prices - before[0], before[1], excess)
        step, _ = newton_step(curvature.matrix, np.zeros_like(excess), excess, prices)
        error = float((np.abs(step) / _size_of(prices)).max())
        if error >= 0.5 * best.error and best.error < 1e-3:
            break
        if error < best.error:
            best = _Near(prices, error)
        after = np.maximum(prices + step * min(1.0, 0.5 / max(error, 1e-300)), 0.0)
        if error < 0.05:
            open_jobs = sample.undecided(after, _SETTLING_MARGIN * error) if error > 1e-12 else np.zeros(0)
            if len(open_jobs) * len(jobs) <= _few(len(jobs)) * len(sample):
                # the step leaves an error well below its own length
                return _Near(after, error)
        before, prices = (prices, excess), after
    return best


def _few(K: int) -> int:
    """Jobs in a sample, and undecided jobs that a small program may comfortably have."""
    return int(np.clip(K // 8, 512, _SAMPLE_SIZE))


def _sample(jobs: _Jobs, size: int) -> Market:
    """A market of about `size` classes that stands for all: each drawn with a chance, and counted by its inverse."""
    market = jobs.market
    part = 0.5 * (market.counts * market.budgets / jobs.total + jobs.weight / jobs.weight.sum())
    chance = np.minimum(1.0, size * part)
    hashed = content_hash(*market.rates, market.scale_factors, market.budgets)
    drawn = np.flatnonzero(hashed * 2.0**-64 < chance)
    drawn = drawn[np.argsort(hashed[drawn], kind="stable")]
    return market.take(drawn, market.counts[drawn] / chance[drawn])


def _solve_market(market: Market, precision: float) -> tuple[Array, Array, Array]:
    """Prices (M,), shares (K, M) and multipliers (K,) by the interior point method."""
    fastest = market.rates.max(axis=0)
    point = solve_structured(
        StructuredProgram(
            rates=market.rates / fastest,
            scale_factors=market.scale_factors,
            counts=market.counts,
            capacity=market.capacity,
            budgets=market.budgets,
        ),
        precision,
    )
    return point.prices, point.shares.T, point.demand_multipliers / fastest


def _without_negligible(jobs: _Jobs, prices: Array) -> Array:
    """Prices with zeros for the negligible ones of an interior point."""
    return np.where(prices * jobs.market.capacity <= _NEGLIGIBLE_WORTH * jobs.total, 0.0, prices)


def _solve_undecided(jobs: _Jobs, prices: Array, open_jobs: NDArray[np.intp]) -> tuple[Array, Array, Array] | None:
    """Exact prices if all other jobs keep their states, with shares and multipliers of the undecided ones."""
    every, some = jobs.totals(prices), jobs.totals(prices, open_jobs)
    settled = _Totals(every.states, every.mass - some.mass, every.budget - some.budget, every.surplus - some.surplus)
    left, classes = _fold(jobs, settled)
    if not (left > 1e-6 * jobs.market.capacity).all():
        return None
    market = jobs.market
    few = market.take(open_jobs, market.counts[open_jobs])
    together = Market(
        np.hstack([few.rates, classes.rates]),
        np.concatenate([few.scale_factors, classes.scale_factors]),
        np.concatenate([few.budgets, classes.budgets]),
        np.concatenate([few.counts, classes.counts]),
        left,
    )
    if not len(together.budgets):
        return None
    exact, shares, multipliers = _solve_market(together, _PRECISION)
    return _without_negligible(jobs, exact), shares[: len(open_jobs)], multipliers[: len(open_jobs)]


def _fold(jobs: _Jobs, settled: _Totals) -> tuple[Array, Market]:
    """Capacity (M,) left by settled jobs on one type all the time, and one class for all jobs of each other state.

    A job that takes turns between j and k spends ``b / (p_k - p_j) - a_j / (a_k - a_j)`` of its time on k. The sum over
    jobs has the same form, with means of b and of the second term: the response of a class that gains 1 on k over j.
    """
    states, M = settled.states, len(jobs.market.capacity)
    present = settled.mass > _NEGLIGIBLE_WORTH * jobs.weight.sum()
    left = jobs.market.capacity - np.bincount(states.high, np.where(states.alone, settled.mass, 0.0), minlength=M)
    moving = np.flatnonzero(present & ~states.alone)
    mass, low, high = settled.mass[moving], states.low[moving], states.high[moving]
    slow = (settled.surplus[moving] + states.low_price[moving] * mass) / (states.step[moving] * mass)
    slow[low < 0] = 0.0
    rates = np.zeros((M, len(moving)))
    mixed = np.flatnonzero(low >= 0)
    rates[low[mixed], mixed] = slow[mixed]
    rates[high, np.arange(len(moving))] = 1.0 + slow
    ones = np.ones(len(moving))
    return left, Market(rates, ones, settled.budget[moving] / mass, mass, left)
