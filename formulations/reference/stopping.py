"""When a search ends: one rule for all solvers of linear and mixed programs."""

from __future__ import annotations

from dataclasses import dataclass

TIME_LIMIT_SECONDS = 60.0
"""Limit where nothing else is said."""

_LEAST_SECONDS, _MOST_SECONDS = 0.01, 1e9
"""CBC takes 0 for no limit, and no infinity."""


@dataclass(frozen=True)
class StopRule:
    """A search ends where the best point is within the relative or the absolute gap of the bound, or at the limit.

    An answer is "optimal" where its bound proves it. What was found when the time was up is "feasible", with the gap
    that is left; without a point the solver has failed.

    Attributes
    ----------
    relative_gap : of the objective. absolute_gap : in its unit. seconds : time limit.
    """

    relative_gap: float = 0.0
    absolute_gap: float = 1e-6
    seconds: float = TIME_LIMIT_SECONDS

    def as_options(self, relative: str, absolute: str, seconds: str) -> dict[str, float]:
        """Options of a solver that has these names for relative gap, absolute gap and time limit."""
        limit = min(max(self.seconds, _LEAST_SECONDS), _MOST_SECONDS)
        return {relative: self.relative_gap, absolute: self.absolute_gap, seconds: limit}

    def distance(self, objective: float) -> float:
        """How far from the bound a solver that has stopped by itself may be."""
        return max(self.relative_gap * abs(objective), self.absolute_gap)
