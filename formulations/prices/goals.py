"""What the jobs of a program want, as the search for prices sees it: demands by level, or pay and floors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from formulations.core.objectives import Threshold
from formulations.core.polytope import Polytope
from formulations.interior_point.structured import solve_for_logs, solve_threshold, solve_with_floors
from formulations.prices.best_responses import Market
from throughputs.arrays import Floats, Positions

_SAMPLE_PRECISION = 1e-6
"""Precision of a sample's prices: what it leaves out costs more."""

SMALLEST_PRICE = 0.01
"""Part of the highest price below which errors of a price are measured as if it were so high."""

_SAME_LEVEL = 1e-5
"""Relative difference up to which the sample's level is that of the hardest job alone."""


@dataclass(frozen=True, eq=False)
class Place:
    """Prices (M,) and the level that goes with them."""

    prices: Floats
    level: float

    @property
    def size(self) -> Floats:
        """(M,) what an error of each price is measured against; 0 for a type that costs nothing."""
        least = SMALLEST_PRICE * float(self.prices.max())
        return np.where(self.prices > 0, np.maximum(self.prices, least), 0.0)


class Goal(ABC):
    """What the jobs of a program want: demands by level, pay and floors, or what their budgets buy."""

    gain: Floats | None = None
    budget: Floats | None = None
    levelled = False
    most = 0.0
    """What all jobs could earn together."""

    @property
    def linear(self) -> bool:
        """Whether demands are proportional to the level."""
        return True

    @property
    def sign(self) -> float:
        """Which way the level is better."""
        return 1.0

    @abstractmethod
    def take(self, jobs: Positions) -> Goal:
        """The same for some jobs."""

    @abstractmethod
    def market(self, place: Place) -> Market:
        """Prices and demands; demands grow with the level relative to where it is."""

    def moved(self, level: float, by: float) -> float:  # noqa: ARG002
        """The level when it is better by a fraction `by`, as far as can be; 0 for none."""
        return 0.0

    def is_limit(self, level: float) -> bool:  # noqa: ARG002
        """Whether no level can be better, however much capacity there is."""
        return False

    def without_negligible(self, prices: Floats, capacity: Floats, negligible: float) -> Floats:
        """Prices (M,), 0 where an interior point left a capacity that is worth a part `negligible` of all at most."""
        worth = np.clip(prices, 0.0, None) * capacity
        return np.where(worth <= negligible * max(float(worth.sum()), self.most), 0.0, prices)

    @abstractmethod
    def need(self) -> Floats:
        """(K,) about how much of its time every job needs, or earns where there is no need; in any unit."""

    @abstractmethod
    def solve(self, part: Polytope) -> tuple[Place, int]:
        """Prices and level for all of a small program, and the iterations it took."""


@dataclass(frozen=True, eq=False)
class LevelGoal(Goal):
    """The best level of a threshold objective; `alone` is that of the hardest job by itself."""

    objective: Threshold
    fastest: Floats
    alone: float
    levelled = True

    @classmethod
    def of(cls, polytope: Polytope, objective: Threshold) -> LevelGoal:
        """Over all jobs."""
        return cls(objective, polytope.fastest, objective.easiest_level(polytope.fastest))

    @property
    def linear(self) -> bool:
        """Whether demands are proportional to the level."""
        return self.objective.linear

    @property
    def sign(self) -> float:
        """Which way the level is better."""
        return 1.0 if self.objective.higher_level_is_better else -1.0

    def take(self, jobs: Positions) -> LevelGoal:
        """Over some jobs."""
        return replace(self, objective=self.objective.take(jobs), fastest=self.fastest[jobs])

    def market(self, place: Place) -> Market:
        """Demands at the level, and their growth."""
        growth = self.objective.slope(place.level) * abs(place.level)
        return Market(place.prices, self.objective.demand(place.level), growth)

    def moved(self, level: float, by: float) -> float:
        """No better than the hardest job can attain alone."""
        following = level + self.sign * by * abs(level)
        return min(following, self.alone) if self.sign > 0 else max(following, self.alone)

    def is_limit(self, level: float) -> bool:
        """Whether it is the level that the hardest job attains alone."""
        return level == self.alone

    def need(self) -> Floats:
        """Time on the fastest type at the level of the hardest job alone."""
        return np.asarray(self.objective.demand(self.alone) / self.fastest)

    def solve(self, part: Polytope) -> tuple[Place, int]:
        """By the interior point, roughly."""
        answer = solve_threshold(part, self.objective, precision=_SAMPLE_PRECISION)
        level = self.objective.level(part.throughput(part.repaired(answer.shares)))
        near = abs(level - self.alone) <= _SAME_LEVEL * abs(self.alone)
        return Place(answer.prices, self.alone if near else self.moved(level, 0.0)), answer.iterations


@dataclass(frozen=True, eq=False)
class WorthGoal(Goal):
    """The largest total worth of the throughputs (gains, per GPU of the gang: `gain`), above floors."""

    gains: Floats
    floors: Floats | None
    fastest: Floats
    gain: Floats
    most: float

    @classmethod
    def of(cls, polytope: Polytope, gains: Floats, floors: Floats | None) -> WorthGoal:
        """Over all jobs."""
        gain = gains / polytope.scale_factors
        most = float(np.add.reduce(polytope.loads * gain * polytope.fastest))
        return cls(gains, floors, polytope.fastest, gain, most)

    def take(self, jobs: Positions) -> WorthGoal:
        """Over some jobs."""
        floors = None if self.floors is None else self.floors[jobs]
        some = (self.gains[jobs], floors, self.fastest[jobs], self.gain[jobs])
        return WorthGoal(*some, self.most)

    def market(self, place: Place) -> Market:
        """The floors, whatever the level."""
        return Market(place.prices, self.floors, gain=self.gain)

    def need(self) -> Floats:
        """Time for the floor on the fastest type; what is earned there where there are no floors."""
        return np.asarray(self.gain * self.fastest if self.floors is None else self.floors / self.fastest)

    def solve(self, part: Polytope) -> tuple[Place, int]:
        """By the interior point, roughly."""
        worth = self.gains[:, None] * part.rates
        answer = solve_with_floors(part, worth, self.floors, 0.0, precision=_SAMPLE_PRECISION)
        return Place(answer.prices, 0.0), answer.iterations


@dataclass(frozen=True, eq=False)
class LogGoal(Goal):
    """The largest sum of logarithms of throughputs, weighted by budgets (per GPU of the gang: `budget`)."""

    budgets: Floats
    budget: Floats
    most: float

    @classmethod
    def of(cls, polytope: Polytope, budgets: Floats) -> LogGoal:
        """Over all jobs."""
        budget = budgets / polytope.scale_factors
        return cls(budgets, budget, float(np.add.reduce(polytope.loads * budget)))

    def take(self, jobs: Positions) -> LogGoal:
        """Over some jobs."""
        return LogGoal(self.budgets[jobs], self.budget[jobs], self.most)

    def market(self, place: Place) -> Market:
        """Budgets are all that counts."""
        return Market(place.prices, budget=self.budget)

    def need(self) -> Floats:
        """What a GPU is paid."""
        return self.budget

    def solve(self, part: Polytope) -> tuple[Place, int]:
        """By the interior point, roughly."""
        answer = solve_for_logs(part, self.budgets, _SAMPLE_PRECISION)
        return Place(answer.prices, 0.0), answer.iterations
