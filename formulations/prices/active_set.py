"""The active set of a search for prices, and what the settled jobs take together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.prices.best_responses import Box, Jobs, Market, Totals, choose, settle
from formulations.prices.goals import Goal, Place
from throughputs.arrays import Floats, Positions

_FEWEST_UNDECIDED, _TOO_MANY_UNDECIDED = 48, 0.8
"""Fewest jobs that are left undecided, and the part of all that is so many that nobody is settled."""

_NEGLIGIBLE_MASS = 1e-9
"""Part of all settled GPUs below which those of a mix are none."""

_LEVEL_ERROR = 0.3
"""Relative error of the level per relative error of the prices."""


@dataclass(frozen=True, eq=False)
class ActiveSet:
    """Some jobs (numbers `index` of all), what they want, and their mixes."""

    index: Positions
    jobs: Jobs
    goal: Goal
    states: NDArray[np.unsignedinteger]

    def __len__(self) -> int:
        return len(self.index)

    def take(self, some: Positions) -> ActiveSet:
        """Some of them."""
        return ActiveSet(self.index[some], self.jobs.take(some), self.goal.take(some), self.states[some])

    def choose(self, place: Place) -> Totals:
        """Their best mixes are noted in `states`."""
        return choose(self.jobs, self.goal.market(place), self.states)

    def note(self, some: ActiveSet) -> None:
        """Keep the mixes of some of them, whose numbers are their places in this set."""
        self.states[some.index] = some.states

    def settle(self, settled: Settled, place: Place, error: float) -> ActiveSet:
        """Those who may still change their mix within the error of the prices; the others are added to the settled."""
        box = Box(error * place.size, _LEVEL_ERROR * error)
        undecided, totals, box = settle(self.jobs, self.goal.market(place), box, self.states, _FEWEST_UNDECIDED)
        if len(undecided) > _TOO_MANY_UNDECIDED * len(self):
            return self
        settled.add(totals, place, box)
        settled.totals, settled.market = totals, self.goal.market(place)
        return self.take(undecided)


@dataclass(eq=False)
class Settled:
    """What settled jobs take (M,) at a level, and how it grows with it; and for which prices (M,) and levels they are
    settled.

    What those take that spend a budget depends on prices; they are settled together, with their `totals` in a `market`.
    """

    usage: Floats
    growth: Floats
    lowest: Floats
    highest: Floats
    lowest_level: float = -np.inf
    highest_level: float = np.inf
    totals: Totals | None = None
    market: Market | None = None

    @classmethod
    def nobody(cls, M: int) -> Settled:
        """To begin with."""
        return cls(np.zeros(M), np.zeros(M), np.full(M, -np.inf), np.full(M, np.inf))

    def add(self, totals: Totals, place: Place, box: Box) -> None:
        """More jobs, which are settled in a box around a place."""
        self.usage = self.usage + totals.usage
        self.growth = self.growth + totals.growth
        self.lowest = np.maximum(self.lowest, place.prices - box.prices)
        self.highest = np.minimum(self.highest, place.prices + box.prices)
        width = box.level * abs(place.level)
        self.lowest_level = max(self.lowest_level, place.level - width)
        self.highest_level = min(self.highest_level, place.level + width)

    def folded(self) -> tuple[Floats, Floats, Floats, Floats]:
        """What those on one type alone take (M,), and of one class for those of each other mix: rates (M, F), how many
        jobs of one GPU it stands for (F,), and the budget of each (F,).

        A job that takes turns between j and k spends ``b / (p_k - p_j) - a_j / (a_k - a_j)`` of its time on k. The sum
        over jobs has the same form, with means of b and of the second term: the response of a class that gains 1 on k
        over j.
        """
        assert self.totals is not None
        assert self.market is not None
        mixes, M = self.totals.mixes, len(self.usage)
        mass, on_second, _, paid = self.totals.sums
        pair = np.arange(len(mass)) < mixes.n_pairs
        alone = np.bincount(mixes.second, np.where(pair, 0.0, mass), M)
        some = np.flatnonzero(pair & (mass > _NEGLIGIBLE_MASS * float(np.add.reduce(mass))))
        first, second, mass, paid = mixes.first[some], mixes.second[some], mass[some], paid[some]
        slow = np.where(first == M, 0.0, (paid / self.market.steps[some] - on_second[some]) / mass)
        rates = np.zeros((M + 1, len(some)))
        rates[first, np.arange(len(some))] = slow
        rates[second, np.arange(len(some))] = 1.0 + slow
        return alone.astype(np.float64), rates[:M], mass, paid / mass

    def moved(self, before: float, after: float, sign: float) -> None:
        """The level has moved; growth is relative to where it is, and to the better."""
        if before != after:
            self.usage = self.usage + self.growth * (sign * (after - before) / before)
            self.growth = self.growth * (after / before)
