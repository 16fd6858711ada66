"""What the jobs of a program want at a level, as the search for prices sees it, and how a sample of them is solved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from formulations.core.objectives import NashWelfare, Threshold
from formulations.core.polytope import Polytope
from formulations.interior_point import structured
from formulations.prices.responses import Wants
from throughputs.arrays import Floats, Positions
from throughputs.numerics import dot

_SAME_LEVEL = 1e-5
"""Relative difference up to which a level is that of the hardest job alone."""

_SAMPLE_PRECISION = 1e-6
"""Precision of a sample's prices: what it leaves out costs more."""


@dataclass(frozen=True, eq=False)
class Goal(ABC):
    """What the jobs of a program want: demands by level, pay and floors, or what their budgets buy."""

    polytope: Polytope

    @property
    def linear(self) -> bool:
        """Whether demands are proportional to the level."""
        return True

    @abstractmethod
    def wants(self, level: float) -> Wants:
        """Of all jobs; demands grow with the level relative to where it is."""

    @property
    def most(self) -> float:
        """What all jobs could earn together; 0 for a level, whose prices have no unit of their own."""
        return 0.0

    @abstractmethod
    def sampled(self, part: Polytope, jobs: Positions) -> tuple[Floats, float, int]:
        """Rough prices (M,) and level of a small program over some jobs, and the iterations it took."""

    def moved(self, level: float, by: float) -> float:  # noqa: ARG002
        """The level when it is better by a fraction `by`, as far as can be; 0 for none."""
        return 0.0

    def is_limit(self, level: float) -> bool:  # noqa: ARG002
        """Whether no level can be better, however much capacity there is."""
        return False

    def scaled(self, prices: Floats) -> Floats:
        """Prices (M,) in their unit."""
        return prices


@dataclass(frozen=True, eq=False)
class LevelGoal(Goal):
    """The best level of a threshold objective; `alone` is that of the hardest job by itself."""

    objective: Threshold
    alone: float

    @classmethod
    def of(cls, polytope: Polytope, objective: Threshold) -> LevelGoal:
        """Over all jobs."""
        return cls(polytope, objective, objective.easiest_level(polytope.fastest))

    @property
    def linear(self) -> bool:
        """Whether demands are proportional to the level."""
        return self.objective.linear

    def wants(self, level: float) -> Wants:
        """Demands at the level, and their growth."""
        return Wants(demand=self.objective.demand(level), growth=self.objective.slope(level) * abs(level))

    def sampled(self, part: Polytope, jobs: Positions) -> tuple[Floats, float, int]:
        """By the interior point."""
        objective = self.objective.take(jobs)
        answer = structured.solve(part, objective, precision=_SAMPLE_PRECISION)
        level = objective.level(part.throughput(part.repaired(answer.shares)))
        return answer.prices, self.objective.worse(level, self.alone), answer.iterations

    def moved(self, level: float, by: float) -> float:
        """No better than the hardest job can attain alone."""
        sign = 1.0 if self.objective.higher_level_is_better else -1.0
        return self.objective.worse(level + sign * by * abs(level), self.alone)

    def is_limit(self, level: float) -> bool:
        """Whether it is the level that the hardest job attains alone."""
        return abs(level - self.alone) <= _SAME_LEVEL * abs(self.alone)

    def scaled(self, prices: Floats) -> Floats:
        """Prices of a level have no unit of their own: all capacity is worth 1. NaN where it is worth nothing."""
        return prices / (dot(prices, self.polytope.capacity) or np.nan)


@dataclass(frozen=True, eq=False)
class WorthGoal(Goal):
    """The largest total worth of the throughputs, with `gains` (K,), above `floors` (K,) or none."""

    gains: Floats
    floors: Floats | None

    def wants(self, level: float) -> Wants:  # noqa: ARG002
        """The floors, whatever the level."""
        return Wants(demand=self.floors, gain=self.gains / self.polytope.scale_factors)

    @property
    def most(self) -> float:
        """All jobs on their fastest types."""
        return dot(self.polytope.counts * self.gains, self.polytope.fastest)

    def sampled(self, part: Polytope, jobs: Positions) -> tuple[Floats, float, int]:
        """By the interior point."""
        floors = None if self.floors is None else self.floors[jobs]
        worth = self.gains[jobs, None] * part.rates
        answer = structured.solve_with_floors(part, worth, floors, 0.0, precision=_SAMPLE_PRECISION)
        return answer.prices, 0.0, answer.iterations


@dataclass(frozen=True, eq=False)
class LogGoal(Goal):
    """The largest sum of logarithms of throughputs, weighted by budgets."""

    objective: NashWelfare

    def wants(self, level: float) -> Wants:  # noqa: ARG002
        """Budgets are all that counts."""
        return Wants(budget=self.objective.budgets / self.polytope.scale_factors)

    @property
    def most(self) -> float:
        """All budgets."""
        return dot(self.polytope.counts, self.objective.budgets)

    def sampled(self, part: Polytope, jobs: Positions) -> tuple[Floats, float, int]:
        """By the interior point."""
        answer = structured.solve(part, self.objective.take(jobs), precision=_SAMPLE_PRECISION)
        return answer.prices, 0.0, answer.iterations
