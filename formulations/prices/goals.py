"""What the jobs of a program want, as the search for prices sees it: demands by level, or pay and floors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.core.objectives import Threshold
from formulations.core.polytope import Polytope
from formulations.interior_point.structured import solve_for_logs, solve_threshold, solve_with_floors
from formulations.prices.best_responses import Market

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_SAMPLE_PRECISION = 1e-6
"""Precision of a sample's prices: what it leaves out costs more."""

SMALLEST_PRICE = 0.01
"""Part of the highest price below which errors of a price are measured as if it were so high."""

_SAME_LEVEL = 1e-5
"""Relative difference up to which the sample's level is that of the hardest job alone."""


@dataclass(frozen=True, eq=False)
class Place:
    """Prices (M,) and the level that goes with them."""

    prices: Array
    level: float

    @property
    def size(self) -> Array:
        """(M,) what an error of each price is measured against; 0 for a type that costs nothing."""
        least = SMALLEST_PRICE * float(self.prices.max())
        return np.where(self.prices > 0, np.maximum(self.prices, least), 0.0)


class Goal(ABC):
    """What the jobs of a program want: demands by level, pay and floors, or what their budgets buy."""

    gain: Array | None = None
    budget: Array | None = None
    levelled = False
    linear = True
    sign = 1.0
    most = 0.0
    """What all jobs could earn together."""

    @abstractmethod
    def take(self, jobs: Index) -> Goal:
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

    def without_negligible(self, prices: Array, capacity: Array, negligible: float) -> Array:
        """Prices (M,), 0 where an interior point left a capacity that is worth a part `negligible` of all at most."""
        worth = np.clip(prices, 0.0, None) * capacity
        return np.where(worth <= negligible * max(float(worth.sum()), self.most), 0.0, prices)

    @abstractmethod
    def need(self) -> Array:
        """(K,) about how much of its time every job needs, or earns where there is no need; in any unit."""

    @abstractmethod
    def solve(self, part: Polytope) -> tuple[Place, int]:
        """Prices and level for all of a small program, and the iterations it took."""


class LevelGoal(Goal):
    """The best level of a threshold objective."""

    levelled = True

    def __init__(self, polytope: Polytope, objective: Threshold) -> None:
        self.objective = objective
        self.fastest = polytope.fastest
        self.alone = objective.easiest_level(self.fastest)
        self.sign = 1.0 if objective.higher_level_is_better else -1.0
        self.linear = objective.linear

    def take(self, jobs: Index) -> LevelGoal:
        """Over some jobs."""
        part = object.__new__(LevelGoal)
        part.objective, part.fastest = self.objective.take(jobs), self.fastest[jobs]
        part.alone, part.sign, part.linear = self.alone, self.sign, self.linear
        return part

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

    def need(self) -> Array:
        """Time on the fastest type at the level of the hardest job alone."""
        return np.asarray(self.objective.demand(self.alone) / self.fastest)

    def solve(self, part: Polytope) -> tuple[Place, int]:
        """By the interior point, roughly."""
        answer = solve_threshold(part, self.objective, precision=_SAMPLE_PRECISION)
        level = self.objective.level(part.throughput(part.repaired(answer.shares)))
        near = abs(level - self.alone) <= _SAME_LEVEL * abs(self.alone)
        return Place(answer.prices, self.alone if near else self.moved(level, 0.0)), answer.iterations


class WorthGoal(Goal):
    """The largest total worth of the throughputs, above floors."""

    def __init__(self, polytope: Polytope, gains: Array, floors: Array | None) -> None:
        self.gains, self.floors, self.fastest = gains, floors, polytope.fastest
        self.gain = gains / polytope.scale_factors
        self.most = float(np.add.reduce(polytope.loads * self.gain * self.fastest))

    def take(self, jobs: Index) -> WorthGoal:
        """Over some jobs."""
        part = object.__new__(WorthGoal)
        part.gains, part.floors = self.gains[jobs], None if self.floors is None else self.floors[jobs]
        assert self.gain is not None
        part.gain, part.fastest = self.gain[jobs], self.fastest[jobs]
        return part

    def market(self, place: Place) -> Market:
        """The floors, whatever the level."""
        return Market(place.prices, self.floors)

    def need(self) -> Array:
        """Time for the floor on the fastest type; what is earned there where there are no floors."""
        if self.floors is not None:
            return self.floors / self.fastest
        assert self.gain is not None
        return np.asarray(self.gain * self.fastest)

    def solve(self, part: Polytope) -> tuple[Place, int]:
        """By the interior point, roughly."""
        worth = self.gains[:, None] * part.rates
        answer = solve_with_floors(part, worth, self.floors, 0.0, precision=_SAMPLE_PRECISION)
        return Place(answer.prices, 0.0), answer.iterations


class LogGoal(Goal):
    """The largest sum of logarithms of throughputs, weighted by budgets."""

    def __init__(self, polytope: Polytope, budgets: Array) -> None:
        self.budgets, self.budget = budgets, budgets / polytope.scale_factors
        self.most = float(np.add.reduce(polytope.loads * self.budget))

    def take(self, jobs: Index) -> LogGoal:
        """Over some jobs."""
        part = object.__new__(LogGoal)
        part.budgets, part.budget = self.budgets[jobs], self.need()[jobs]
        return part

    def market(self, place: Place) -> Market:
        """Prices are all that there is."""
        return Market(place.prices)

    def need(self) -> Array:
        """What a GPU is paid."""
        assert self.budget is not None
        return self.budget

    def solve(self, part: Polytope) -> tuple[Place, int]:
        """By the interior point, roughly."""
        answer = solve_for_logs(part, self.budgets, _SAMPLE_PRECISION)
        return Place(answer.prices, 0.0), answer.iterations
