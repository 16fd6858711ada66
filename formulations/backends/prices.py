"""Prices first: for programs whose jobs are too many to be iterated over.

Jobs meet only in the M capacity rows, so all that a job must know of the others is M prices and, where there is one,
the level. At given prices every job's mix of types is closed form (`mixes`), and the best prices are those at which all
jobs together use what there is:

1. prices from a sample of the jobs, each standing for its neighbours in the canonical order, by the interior point;
2. Newton steps on prices and level. One job changes its mix at once, many do so gradually: how usage changes with
   prices is measured on the sample, and corrected by what each pass reveals (BFGS). How far a step goes says how far
   off the prices still are, and jobs whose mix is the best for all prices so near are *settled*: later passes leave
   them out;
3. the interior point over the few jobs that are left, the others' use of capacity being what their mixes say: exact
   prices, and shares.

Should prices end up further off than was assumed when jobs were settled, all begins anew from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from formulations.backends.interior_point import InteriorPoint, StructuredProgram
from formulations.backends.mixes import Box, Jobs, Totals, choose, keep, respond_all, settle
from formulations.backends.price_goals import SMALLEST_PRICE, Goal, LevelGoal, Place, WorthGoal
from formulations.backends.price_steps import Curvature, newton_step
from formulations.backends.structured import own_engine
from formulations.objectives import MaxSum, Objective, Threshold
from formulations.polytope import Polytope
from formulations.solution import Answer, NotAcceptedError

__all__ = ["solve", "solve_for_worth", "takes"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_SMALLEST = 16_000
"""Number of classes below which the interior point over all of them is as fast."""

_FEWEST, _MOST = 48, 4096
"""Fewest undecided jobs, and most jobs that a small program may comfortably have; twice the fewest in a sample."""

_HARDEST = 8
"""Jobs that need most and are in every sample, at next to no weight."""

_MOST_UNDECIDED = 0.35
"""Part of all jobs beyond which undecided ones are too many: the interior point over all of them is the better way."""

_STEPS, _ROUNDS, _LEVELS = 12, 3, 6
_LONGEST = 0.5
"""Relative change of a price that a step is cut to."""

_SETTLING = 0.5
"""Relative error of the prices from which jobs are settled."""

_DIFFERENCE, _LEAST_DIFFERENCE = 0.02, 1e-3
"""Relative change of a price by which slopes are measured."""

_GOOD_STEP, _STALLS = 0.5, 3
"""Part of the error that a good step leaves; how many worse steps are put up with."""

_TIED, _MANY_TIED = 1e-5, 0.2
"""Relative error of a price within which jobs count as tied, and the part of all GPUs that such jobs may occupy."""

_LEAST_ERROR = 1e-10
"""What a step that does not move prices at all may be wrong by."""

_EXACT = 1e-6
"""Relative error of the prices of an interior point, on the safe side."""

_PRECISION = 1e-11
_DUST = 1e-9
"""Part of all capacity's worth below which the worth of a type's capacity is taken for nothing."""

_FREE = 1e-5
"""The same for a sample's prices, which are rough."""

_CLEARED = 1e-8
"""Part of a type that may be sold twice, and worth of unsold capacity per worth of all."""

_LINEAR = 1e-6
"""Relative change of the level after which demands that are not linear in it are drawn up again."""


def takes(polytope: Polytope) -> bool:
    """Whether the classes are many enough for this path to pay."""
    return polytope.n_jobs >= _SMALLEST


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Solve a threshold objective or a sum over many classes of jobs.

    Raises
    ------
    NotAcceptedError
        Another objective, or few classes.
    RuntimeError
        Prices settle too few jobs, or do not clear the market.
    """
    if not isinstance(objective, Threshold | MaxSum):
        raise NotAcceptedError(f"{type(objective).__name__} is not piecewise linear")
    if not takes(polytope):
        raise NotAcceptedError(f"{polytope.n_jobs} classes of jobs are fewer than {_SMALLEST}")
    if isinstance(objective, MaxSum):
        return solve_for_worth(polytope, objective.gains, None)
    try:
        return _Search(polytope, LevelGoal(polytope, objective)).run()
    except _HeldAloneError:
        return _alone(polytope, objective)


def solve_for_worth(polytope: Polytope, gains: Array, floors: Array | None) -> Answer:
    """Maximise ``sum_i n_i g_i u_i`` while every job keeps its floor ``u_i >= f_i`` (K,); RuntimeError if it fails."""
    return _Search(polytope, WorthGoal(polytope, gains, floors)).run()


def _alone(polytope: Polytope, objective: Threshold) -> Answer:
    """Where the hardest job holds the level alone, any shares that meet the level's demands will do."""
    level = objective.relaxed(objective.easiest_level(polytope.fastest), 1e-12)
    return solve_for_worth(polytope, polytope.normalised_worth, objective.demand(level))


class _HeldAloneError(RuntimeError):
    """A single job holds the level, so that capacity is worth nothing and prices say nothing."""


@dataclass(frozen=True, eq=False)
class _Crowd:
    """Some jobs (numbers `index` of all), what they want, and their mixes."""

    index: Index
    jobs: Jobs
    goal: Goal
    states: NDArray[np.unsignedinteger]

    def __len__(self) -> int:
        return len(self.index)

    def take(self, some: Index) -> _Crowd:
        return _Crowd(self.index[some], self.jobs.take(some), self.goal.take(some), self.states[some])

    def choose(self, place: Place) -> Totals:
        """Their best mixes are noted in `states`."""
        return choose(self.jobs, self.goal.market(place), self.states)


@dataclass(eq=False)
class _Settled:
    """What settled jobs take (M,) at a level, and how it grows with it; and the prices (M,) for which they are so."""

    usage: Array
    growth: Array
    lowest: Array
    highest: Array

    @classmethod
    def nobody(cls, M: int) -> _Settled:
        return cls(np.zeros(M), np.zeros(M), np.full(M, -np.inf), np.full(M, np.inf))

    def add(self, totals: Totals, place: Place, box: Box) -> None:
        self.usage = self.usage + totals.usage
        self.growth = self.growth + totals.growth
        self.lowest = np.maximum(self.lowest, place.prices - box.prices)
        self.highest = np.minimum(self.highest, place.prices + box.prices)

    def moved(self, before: float, after: float, sign: float) -> None:
        """The level has moved; growth is relative to where it is, and to the better."""
        if before != after:
            self.usage = self.usage + self.growth * (sign * (after - before) / before)
            self.growth = self.growth * (after / before)


class _Search:
    """Newton steps over all jobs, then over the undecided ones, and the interior point over the last of these."""

    def __init__(self, polytope: Polytope, goal: Goal) -> None:
        self.polytope, self.goal = polytope, goal
        self.capacity = polytope.capacity
        K, M = polytope.rates.shape
        kind = np.min_scalar_type((M + 1) * (M + 2) // 2 + M)
        self.everyone = _Crowd(
            np.arange(K), Jobs(polytope.rates, polytope.loads, goal.gain), goal, np.zeros(K, dtype=kind)
        )
        self.few = int(np.clip(K // 16, 2 * _FEWEST, _MOST))
        self.iterations = 0

    def run(self) -> Answer:
        """RuntimeError when prices settle too few jobs or do not clear the market."""
        place, curvature = self._from_sample()
        if self.goal.is_limit(place.level) or (self.goal.gain is not None and not place.prices.any()):
            return self._at_limit(place)
        for _ in range(_ROUNDS):
            undecided, settled, place = self._approach(place, curvature)
            point, place = self._finish(undecided, settled, place)
            if self._off(settled, place):
                continue
            clean = self._cleaned(undecided, settled, place)
            return self._answer(*(clean or (undecided, point, place)))
        raise RuntimeError("prices are further off than it seems")

    def _off(self, settled: _Settled, place: Place) -> bool:
        """Whether prices are further off than was assumed when jobs were settled."""
        off = np.maximum(settled.lowest - place.prices, place.prices - settled.highest)
        return float((off * self.capacity).max()) > _DUST * max(float(place.prices @ self.capacity), self.goal.most)

    def _cleaned(
        self, undecided: _Crowd, settled: _Settled, place: Place
    ) -> tuple[_Crowd, InteriorPoint, Place] | None:
        """At exact prices next to all jobs are settled, and need no shares of an interior point, which has its dust."""
        undecided.choose(place)
        settled = replace(settled)
        crowd = self._settle(undecided, settled, place, _EXACT)
        if crowd is undecided:
            return None
        try:
            point, exact = self._finish(crowd, settled, place)
        except RuntimeError:
            return None
        return None if self._off(settled, exact) else (crowd, point, exact)

    def _from_sample(self) -> tuple[Place, Curvature]:
        """Solve for a part of the jobs, every one standing for its neighbours."""
        polytope, everyone = self.polytope, self.everyone
        need = self.goal.need()
        hardest = np.argpartition(need, -_HARDEST)[-_HARDEST:]
        chance = polytope.loads * need
        chance *= 0.5 * self.few / max(float(np.add.reduce(chance)), 1e-300)
        chance += polytope.loads * (0.5 * self.few / float(np.add.reduce(polytope.loads)))
        np.minimum(chance, 1.0, out=chance)
        # in the canonical order, each with its chance, as evenly as can be
        passed = np.floor(np.cumsum(chance) + 0.5)
        chosen = np.flatnonzero(np.diff(passed, prepend=0.0) > 0.0)
        jobs = np.concatenate([chosen, np.sort(hardest)])
        counts = np.concatenate([polytope.counts[chosen] / chance[chosen], np.full(_HARDEST, 1e-9)])
        part = polytope.restricted(jobs, np.arange(len(self.capacity)), counts)
        sample = _Crowd(jobs, everyone.jobs.take(jobs, part.loads), self.goal.take(jobs), everyone.states[jobs])
        found = sample.goal.solve(part)
        place = Place(self._without_dust(found.prices, _FREE), found.level)
        if place.prices.any() and not self.goal.is_limit(place.level):
            self._refuse_ties(sample, place)
        return place, self._measured(sample, place, _DIFFERENCE)

    def _refuse_ties(self, sample: _Crowd, place: Place) -> None:
        """Where many jobs are undecided at the very prices, prices do not say what they do."""
        sample.choose(place)
        tied, _ = settle(sample.jobs, sample.goal.market(place), Box(_TIED * place.size, 0.0), sample.states)
        if float(np.add.reduce(sample.jobs.loads[tied])) > _MANY_TIED * float(np.add.reduce(sample.jobs.loads)):
            raise RuntimeError("prices leave many jobs tied")

    def _measured(self, crowd: _Crowd, place: Place, difference: float) -> Curvature:
        """Slopes of usage, measured on one job for several where there are many."""
        each = max(1, len(crowd) // (2 * self.few))
        if each > 1:
            part = crowd.take(np.arange(each // 2, len(crowd), each))
            crowd = replace(part, jobs=replace(part.jobs, loads=part.jobs.loads * each))
        else:
            crowd = replace(crowd, states=crowd.states.copy())

        def usage(prices: Array) -> Array:
            return crowd.choose(Place(prices, place.level)).usage

        least = SMALLEST_PRICE * max(float(place.prices.max()), self.goal.most / float(self.capacity.sum()))
        return Curvature.measured(usage, place.prices, np.where(place.size > 0, place.size, least), difference)

    def _at_limit(self, place: Place) -> Answer:
        """Where capacity is worth nothing, any shares that meet the demands will do if they fit."""
        usage = self.everyone.choose(place).usage
        if (usage > self.capacity).any():
            raise _HeldAloneError("a single job holds the level")
        K, M = self.polytope.rates.shape
        shares, multipliers = np.empty((K, M)), np.empty(K)
        respond_all(self.everyone.jobs, self.goal.market(place), self.everyone.states, shares, multipliers)
        return Answer(shares, np.zeros(K), np.zeros(M), self.iterations)

    def _approach(self, place: Place, curvature: Curvature) -> tuple[_Crowd, _Settled, Place]:
        """Newton steps, settling jobs on the way; the undecided ones, and the others together."""
        crowd, settled = self.everyone, _Settled.nobody(len(self.capacity))
        best, stalled = np.inf, 0
        expected, moved = None, np.zeros(len(self.capacity))
        for _ in range(_STEPS):
            totals = crowd.choose(place)
            excess = totals.usage + settled.usage - self.capacity
            growth = totals.growth + settled.growth
            if expected is not None:
                curvature.observe(moved, expected, excess)
            step, by = newton_step(curvature.matrix, growth, excess, place.prices)
            size = Place(np.maximum(place.prices, place.prices + step), 0.0).size
            error = max(float((np.abs(step) / np.where(size > 0, size, np.inf)).max()), abs(by), _LEAST_ERROR)
            cut = min(1.0, _LONGEST / max(error, 1e-300))
            by = float(np.clip(by * cut, -_LONGEST, _LONGEST))
            following = Place(np.maximum(place.prices + cut * step, 0.0), self.goal.moved(place.level, by))
            settled.moved(place.level, following.level, self.goal.sign)
            moved, expected = following.prices - place.prices, excess + growth * by
            place = following
            if self.goal.is_limit(place.level) and crowd is self.everyone:
                raise _HeldAloneError("a single job holds the level")
            if error < _SETTLING:
                crowd = self._settle(crowd, settled, place, error)
            if len(crowd) <= self.few:
                break
            if error > _GOOD_STEP * best:
                stalled += 1
                if stalled > _STALLS:
                    break
                curvature = self._measured(crowd, place, max(error, _LEAST_DIFFERENCE))
            best = min(best, error)
        if len(crowd) > min(max(_MOST_UNDECIDED * len(self.everyone), 4 * self.few), 4 * _MOST):
            raise RuntimeError("prices settle too few jobs")
        return crowd, settled, place

    def _settle(self, crowd: _Crowd, settled: _Settled, place: Place, error: float) -> _Crowd:
        """The jobs that may still change their mix within the error of the prices."""
        box = Box(error * place.size, 0.3 * error)
        undecided, totals = settle(crowd.jobs, crowd.goal.market(place), box, crowd.states)
        while len(undecided) < min(_FEWEST, len(crowd)) and box.prices.any():
            box = Box(4.0 * box.prices, 4.0 * box.level)
            undecided, totals = settle(crowd.jobs, crowd.goal.market(place), box, crowd.states)
        if len(undecided) > 0.8 * len(crowd):
            return crowd
        settled.add(totals, place, box)
        self.everyone.states[crowd.index] = crowd.states
        return crowd.take(undecided)

    def _finish(self, crowd: _Crowd, settled: _Settled, place: Place) -> tuple[InteriorPoint, Place]:
        """The best that the undecided jobs can do when the settled keep their mixes, with its prices and level."""
        if not len(crowd):
            raise RuntimeError("nobody is undecided")
        for _ in range(_LEVELS):
            point = own_engine(self._program(crowd, settled, place), _PRECISION)
            self.iterations += point.iterations
            prices = self._without_dust(point.prices * self._scale(point.prices, place))
            by = point.level - 1.0 if self.goal.gain is None else 0.0
            following = Place(prices, self.goal.moved(place.level, by))
            if self.goal.linear or abs(by) <= _LINEAR:
                settled.moved(place.level, following.level, self.goal.sign)
                return point, following
            place = Place(place.prices, following.level)
            loads = self.everyone.jobs.loads.copy()
            loads[crowd.index] = 0.0
            totals = keep(self.everyone.jobs, self.goal.market(place), self.everyone.states, loads)
            settled.usage, settled.growth = totals.usage, totals.growth
        raise RuntimeError("the level does not settle")

    def _program(self, crowd: _Crowd, settled: _Settled, place: Place) -> StructuredProgram:
        polytope, market = self.polytope, crowd.goal.market(place)
        fastest = crowd.jobs.rates.max(axis=1)
        rates = np.divide(crowd.jobs.rates.T, fastest, order="C")
        scale_factors = polytope.scale_factors[crowd.index].astype(np.float64)
        left = self.capacity - settled.usage
        figures = {"scale_factors": scale_factors, "counts": polytope.counts[crowd.index]}
        demand = None if market.demand is None else market.demand / fastest
        if crowd.jobs.gain is not None:
            worth = rates * (crowd.jobs.gain * scale_factors * fastest)
            return StructuredProgram(rates=rates, capacity=left, gains=worth, floors=demand, **figures)
        # demands in the relative level t around 1: d + g (t - 1)
        assert demand is not None
        assert market.growth is not None
        growth = market.growth / fastest
        return StructuredProgram(
            rates=rates,
            capacity=left + settled.growth,
            slopes=growth,
            floors=demand - growth,
            drift=settled.growth,
            **figures,
        )

    def _scale(self, prices: Array, place: Place) -> float:
        """Prices of a level have no unit of their own: the same worth of all capacity as before."""
        return 1.0 if self.goal.gain is not None else float((self.capacity @ place.prices) / (self.capacity @ prices))

    def _without_dust(self, prices: Array, dust: float = _DUST) -> Array:
        """Prices with zeros where an interior point left dust."""
        worth = np.clip(prices, 0.0, None) * self.capacity
        return np.where(worth <= dust * max(float(worth.sum()), self.goal.most), 0.0, prices)

    def _answer(self, undecided: _Crowd, point: InteriorPoint, place: Place) -> Answer:
        """Settled jobs keep their mixes, the undecided have the shares that the interior point gave them."""
        everyone, K = self.everyone, len(self.everyone)
        undecided.choose(place)
        everyone.states[undecided.index] = undecided.states
        shares, multipliers = np.empty((K, len(self.capacity))), np.empty(K)
        respond_all(everyone.jobs, self.goal.market(place), everyone.states, shares, multipliers)
        shares[undecided.index] = point.shares.T
        multipliers *= self.polytope.scale_factors
        used = np.einsum("i,ij->j", everyone.jobs.loads, shares)
        worth = max(float(self.capacity @ place.prices), self.goal.most)
        unsold = float(np.maximum(self.capacity - used, 0.0) @ place.prices)
        if unsold > _CLEARED * worth or (used > (1.0 + _CLEARED) * self.capacity).any():
            raise RuntimeError("prices do not clear the market")
        return Answer(shares, multipliers, place.prices, self.iterations)
