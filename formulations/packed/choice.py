"""The choice among optima of a threshold objective.

An optimum with ``lambda_k > 0`` for every class has ``u_k = demand_k(t)`` for every class (complementary slackness, and
any optimal multipliers go with any optimal point): the throughputs are unique, and as an allocation that is better for
somebody and worse for nobody would be optimal too, nobody can gain. Otherwise a second program takes, of all
allocations that attain the level, one with the largest total normalised throughput::

    max  sum_i (s_i / p_i) u_i        u_i >= demand_i(t)

with p_i the throughput of the job alone under the proportional share (its fastest rate should that be 0). It leaves no
GPU idle that some job could use. Several allocations may give the same throughputs; which of them is returned is up to
the solver, the same for the same jobs in whatever order.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from formulations.core.objectives import Threshold
from formulations.core.solution import SolverError
from formulations.packed.class_pairs import ClassPairs
from formulations.packed.levels import solve_for_sum
from formulations.packed.program import Goal
from formulations.solving.choice import Among, Choice, gap_of_level
from throughputs.arrays import Flags, Floats

_RELAXATION = 1e-10
"""Fraction by which the level is relaxed so that the second program has room."""

_ACCEPTED_LOSS = 2e-9
"""Relative loss of the objective up to which a choice is accepted."""

_PROVEN = 1e-7
"""Efficiency gap up to which the optimum at hand is taken for the efficient one."""


@dataclass(frozen=True, eq=False)
class AmongPairs(Among):
    """The optima of a packed program, of which `best` is one."""

    polytope: ClassPairs

    def of_sum(self, gains: Floats) -> Choice:
        """Every throughput counts in a sum with positive gains."""
        return Choice(self.best.shares, self.best.gap if (gains > 0).all() else np.nan)

    def of_throughputs(self, held: Flags, *, raising: bool) -> Choice:  # noqa: ARG002
        """Where nobody can rise without another's loss, no other choice is more efficient."""
        return Choice(self.best.shares, self.best.gap)

    def of_level(self, objective: Threshold) -> Choice:
        """The efficient optimum; the one at hand should no better one be found."""
        program = self.polytope
        level = objective.level(program.throughput(self.best.shares))
        best = Choice(self.best.shares, gap_of_level(program, objective, self.best))
        if best.efficiency_gap > _PROVEN:
            goal = Goal(
                floors=objective.demand(objective.relaxed(level, _RELAXATION)), gains=program.normalised_worth[:, None]
            )
            with suppress(SolverError):
                found = solve_for_sum(program, goal)
                attained = objective.level(program.throughput(found.shares))
                loss = level - attained if objective.higher_level_is_better else attained - level
                if loss <= _ACCEPTED_LOSS * abs(level) and found.gap < best.efficiency_gap:
                    best = Choice(found.shares, found.gap)
        return best if np.isfinite(best.efficiency_gap) else self.as_found()
