"""Objectives as goals of a packed program, and sums with floors and costs with their proof."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from formulations.core.certificate import Certificate, made_feasible, relative_gap
from formulations.core.objectives import MaxMin, MaxSum, Method, Objective, Threshold
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer, SolverError
from formulations.packed.class_pairs import NAME, ClassPairs
from formulations.packed.program import Goal
from throughputs.numerics import dot

ACCEPTED_SHORTFALL = 1e-7
"""Fraction of a floor that an answer may miss."""

_SETTLED, _UNMOVED = 4e-11, 1e-13
"""Gap of a level that is not closed in on further, and a relative change of the level that is none."""

_MOST_PROGRAMS = 40
"""Programs, one for each level that is tried, after which the search for a level ends."""


@dataclass(frozen=True, eq=False)
class PairsEngine(Method[Answer]):
    """The engine of packed programs, for objectives over its classes (K,)."""

    program: ClassPairs
    name = NAME

    def __call__(self, program: Polytope, objective: Objective) -> Answer:  # noqa: ARG002
        """Times that are best for the objective; the program is that of the pairs."""
        return objective.accept(self)

    def weighted_sum(self, objective: MaxSum) -> Answer:
        """One program."""
        return self.program.best(Goal(gains=objective.gains[:, None]))

    def linear_level(self, objective: MaxMin) -> Answer:
        """One program."""
        return self.program.best(Goal(slopes=objective.weights))

    def level(self, objective: Threshold) -> Answer:
        """Close in on the level by max-min programs, each a Newton step on ``max k, u >= k demand(level)``, ``k = 1``.

        The level only moves to proven bounds.
        """
        program = self.program
        level, bound = objective.first_guess(program.fastest), objective.easiest_level(program.fastest)
        iterations = 0
        for _ in range(_MOST_PROGRAMS):
            answer = self.program.best(Goal(slopes=objective.demand(level)))
            iterations += answer.iterations
            supply = program.supply_at(answer.multipliers, answer.prices, answer.time)
            bound = objective.worse(objective.bound(program.counts * answer.multipliers, supply), bound)
            attained = objective.level(program.throughput(program.repaired(answer.shares)))
            if objective.gap(attained, bound) <= _SETTLED or not relative_gap(level, bound) > _UNMOVED:
                break
            level = bound
        return replace(answer, iterations=iterations)


def solve_for_sum(program: ClassPairs, goal: Goal) -> Certificate:
    """Feasible times of the most worth, less the cost of GPUs in use, that keep the floors of a goal.

    What proves the bound are multipliers of the floors, at least 0, the worth of time, and prices. SolverError where
    the floors are not kept.
    """
    try:
        answer = program.best(goal)
    except SolverError:
        if goal.floors is None:
            raise
        # few pairs are there at first: those that keep the floors may have to be found
        program.best(Goal(slopes=goal.floors))
        answer = program.best(goal)
    n = program.counts
    floors = np.zeros_like(n) if goal.floors is None else goal.floors
    shares, multipliers, prices, time = made_feasible(program, answer)
    u = program.throughput(shares)
    if (u < floors * (1.0 - ACCEPTED_SHORTFALL)).any():
        raise SolverError(f"{NAME}: missed a floor")
    held = np.where(floors > 0, multipliers, 0.0)
    supply = program.supply_at(goal.gains + held[:, None], prices, time, goal.gpu_cost)
    bound = supply - dot(n * held, floors)
    value, spent = dot(program.worth(goal)[: len(shares)], shares), (goal.gpu_cost * program.used(shares)).sum()
    gap = max(bound - value, 0.0) / max(value + spent, 1e-300)
    return Certificate(shares, value, max(bound, value), gap, held, prices, time)
