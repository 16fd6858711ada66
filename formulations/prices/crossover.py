"""Crossover: from prices at which nearly all jobs are settled to exact prices, level and shares."""

from __future__ import annotations

import numpy as np

from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from formulations.interior_point.method import InteriorPoint, StructuredProgram, solve_structured
from formulations.prices.active_set import ActiveSet, Settled
from formulations.prices.best_responses import keep, respond_all
from formulations.prices.goals import Goal, Place
from throughputs.arrays import Floats
from throughputs.numerics import dot, matmul

_PRECISION = 1e-13
"""Relative gap of the last program."""

_NEGLIGIBLE_WORTH = 1e-9
"""Part of all capacity's worth below which the worth of a type's capacity is taken for nothing."""

_CLEARED = 1e-8
"""Part of a type that may be sold twice, and worth of unsold capacity per worth of all."""

_LEAST_LEFT = 1e-6
"""Part of a type that has to be left for jobs that share their time, so that their program has an interior."""

_MOST_LEVELS, _NEARLY_LINEAR = 8, 1e-6
"""Where demands are not linear in the level: programs at most; change of the level after which they need not be drawn
up again."""


class Crossover:
    """The interior point over undecided jobs, and the exact answer for `everyone`, whose mixes are noted."""

    def __init__(self, polytope: Polytope, goal: Goal, everyone: ActiveSet) -> None:
        self.polytope, self.goal, self.everyone = polytope, goal, everyone
        self.capacity = polytope.capacity
        self.iterations = 0

    def answer(self, undecided: ActiveSet, settled: Settled, place: Place) -> tuple[Answer | None, Place]:
        """The answer, and the exact place if nobody but the undecided changes the mix; None where others would.

        RuntimeError when it cannot be found or does not clear the market.
        """
        point, place = self._solved(undecided, settled, place)
        if self._off(settled, place):
            return None, place
        # what their time is worth follows from their mixes at the exact prices
        undecided.choose(place)
        return self._whole(undecided, point.shares.T[: len(undecided)], place), place

    def _solved(self, active: ActiveSet, settled: Settled, place: Place) -> tuple[InteriorPoint, Place]:
        """The best that the undecided jobs can do when the settled keep their mixes, with its prices and level."""
        if not len(active):
            raise RuntimeError("nobody is undecided")
        if not self.goal.linear:
            self._follow(active, settled, place)
        for _ in range(_MOST_LEVELS):
            point = solve_structured(self._program(active, settled, place), _PRECISION)
            self.iterations += point.iterations
            prices = point.prices * self._scale(point.prices, place)
            prices = self.goal.without_negligible(prices, self.capacity, _NEGLIGIBLE_WORTH)
            by = (point.level - 1.0) * self._part_of_all(active) if self.goal.levelled else 0.0
            following = Place(prices, self.goal.moved(place.level, by))
            if self.goal.linear:
                settled.moved(place.level, following.level, self.goal.sign)
                return point, following
            self._follow(active, settled, following)
            if abs(by) <= _NEARLY_LINEAR:
                return point, following
            place = Place(place.prices, following.level)
        raise RuntimeError("the level does not settle")

    def _follow(self, undecided: ActiveSet, settled: Settled, place: Place) -> None:
        """What settled jobs take now that the level has moved, where demands are not linear in it."""
        loads = self.everyone.jobs.loads.copy()
        loads[undecided.index] = 0.0
        totals = keep(self.everyone.jobs, self.goal.market(place), self.everyone.states, loads)
        settled.usage, settled.growth = totals.usage, totals.growth

    def _program(self, active: ActiveSet, settled: Settled, place: Place) -> StructuredProgram:
        polytope, market = self.polytope, active.goal.market(place)
        fastest = active.jobs.rates.max(axis=1)
        rates = np.divide(active.jobs.rates.T, fastest, order="C")
        if self.goal.budget is not None:
            return self._program_of_budgets(active, settled, rates)
        scale_factors = polytope.scale_factors[active.index].astype(np.float64)
        left = self.capacity - settled.usage
        figures = {"scale_factors": scale_factors, "counts": polytope.counts[active.index]}
        demand = None if market.demand is None else market.demand / fastest
        if active.goal.gain is not None:
            worth = rates * (active.goal.gain * scale_factors * fastest)
            return StructuredProgram(rates=rates, capacity=left, gains=worth, floors=demand, **figures)
        # demands in the relative level t around 1: d + g (t - 1); what all jobs gain by a step of the level is too much
        # for few of them, and would set the scale of what is resolved
        assert demand is not None
        assert market.growth is not None
        step = self._part_of_all(active)
        growth, drift = market.growth * (step / fastest), settled.growth * step
        if not growth.any():
            raise RuntimeError("nobody that is undecided rises with the level")
        return StructuredProgram(
            rates=rates,
            capacity=left + drift,
            slopes=growth,
            floors=demand - growth,
            drift=drift,
            **figures,
        )

    def _program_of_budgets(self, active: ActiveSet, settled: Settled, rates: Floats) -> StructuredProgram:
        """Over the undecided jobs and the classes that the others are folded into."""
        alone, folded, mass, budgets = settled.folded()
        left = self.capacity - alone
        if not (left > _LEAST_LEFT * self.capacity).all():
            raise RuntimeError("jobs that are settled leave nothing to decide")
        own = self.polytope.scale_factors[active.index].astype(np.float64)
        assert active.goal.budget is not None
        return StructuredProgram(
            rates=np.hstack([rates, folded / folded.max(axis=0, initial=0.0)]),
            scale_factors=np.append(own, np.ones(len(mass))),
            counts=np.append(self.polytope.counts[active.index], mass),
            capacity=left,
            budgets=np.append(active.goal.budget * own, budgets),
        )

    def _part_of_all(self, active: ActiveSet) -> float:
        """Of the GPUs that all jobs ask for."""
        return float(np.add.reduce(active.jobs.loads)) / float(np.add.reduce(self.everyone.jobs.loads))

    def _scale(self, prices: Floats, place: Place) -> float:
        """Prices of a level have no unit of their own: the same worth of all capacity as before."""
        if not self.goal.levelled:
            return 1.0
        return float((matmul(self.capacity, place.prices)) / (matmul(self.capacity, prices)))

    def _off(self, settled: Settled, place: Place) -> bool:
        """Whether prices or level are further off than was assumed when jobs were settled."""
        beyond = max(settled.lowest_level - place.level, place.level - settled.highest_level)
        if self.goal.levelled and beyond > _NEGLIGIBLE_WORTH * abs(place.level):
            return True
        off = np.maximum(settled.lowest - place.prices, place.prices - settled.highest)
        return float((off * self.capacity).max()) > _NEGLIGIBLE_WORTH * max(
            dot(place.prices, self.capacity), self.goal.most
        )

    def _whole(self, undecided: ActiveSet, their_shares: Floats, place: Place) -> Answer:
        """The others have their mixes, the undecided the shares (their number, M) that are given."""
        everyone, K = self.everyone, len(self.everyone)
        self.everyone.note(undecided)
        shares, multipliers = np.empty((K, len(self.capacity))), np.empty(K)
        respond_all(everyone.jobs, self.goal.market(place), everyone.states, shares, multipliers)
        shares[undecided.index] = their_shares
        multipliers *= self.polytope.scale_factors
        used = np.einsum("i,ij->j", everyone.jobs.loads, shares)
        worth = max(dot(self.capacity, place.prices), self.goal.most)
        unsold = dot(np.maximum(self.capacity - used, 0.0), place.prices)
        if unsold > _CLEARED * worth or (used > (1.0 + _CLEARED) * self.capacity).any():
            raise RuntimeError("prices do not clear the market")
        return Answer(shares, multipliers, place.prices, self.iterations)
