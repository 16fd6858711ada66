"""The linear programs behind every objective, as matrices, and the one loop that turns levels into them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.core.objectives import MaxMin, MaxSum, Method, Objective, Threshold
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from formulations.interior_point.method import StructuredProgram
from formulations.interior_point.sparse_form import WrittenOut

__all__ = ["LinearProgram", "LinearSolver", "solve_by_linear_programs"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """``max c.x`` subject to ``A x <= b``, ``x >= 0`` with A (rows, columns) sparse by rows.

    Rows are time (N), capacity (M), then demands (N) where there are any; the last column is then the level.
    """

    cost: Array
    matrix: object
    limit: Array


LinearSolver = Callable[[LinearProgram], tuple[Array, Array]]
"""Returns the columns and the row multipliers (at least 0)."""

_MOST_PROGRAMS = 60


def solve_by_linear_programs(polytope: Polytope, objective: Objective, solve: LinearSolver) -> Answer:
    """Solve by one linear program, or for demands that bend by a short sequence.

    A threshold objective with demands linear in the level is one program. Otherwise: at a level solve
    ``max k, u_i >= demand_i(level) - (1 - k) scaled_i(level)``; the multipliers prove a bound, which is the next level.
    Levels then move monotonically and stop at the optimum after a few programs, each a Newton step on k = 1.
    """
    return objective.accept(_LinearPrograms(polytope, solve))


@dataclass(frozen=True, eq=False)
class _LinearPrograms(Method[Answer]):
    polytope: Polytope
    solve: LinearSolver

    def weighted_sum(self, objective: MaxSum) -> Answer:
        return _solve(self.polytope, self.solve, gains=objective.gains)

    def linear_level(self, objective: MaxMin) -> Answer:
        return _solve(self.polytope, self.solve, demand=objective.weights, scaled=objective.weights)

    def level(self, objective: Threshold) -> Answer:
        return _by_levels(self.polytope, objective, self.solve)


def _by_levels(polytope: Polytope, objective: Threshold, solve: LinearSolver) -> Answer:
    better = 1.0 if objective.higher_level_is_better else -1.0
    level, bound = objective.first_guess(polytope.fastest), objective.easiest_level(polytope.fastest)
    most, tried = -better * np.inf, {level}
    for round_ in range(1, _MOST_PROGRAMS + 1):
        answer = _solve(polytope, solve, demand=objective.demand(level), scaled=objective.scaled(level), level=1.0)
        supply = polytope.supply_at(answer.multipliers, answer.prices)
        proven = objective.bound(polytope.counts * answer.multipliers, supply)
        attained = objective.level(polytope.throughput(polytope.repaired(answer.shares)))
        # a program that holds at its level may say nothing of better ones
        if round_ == 1 or better * (bound - proven) > 0:
            bound, proof = objective.worse(proven, bound), answer
        if round_ == 1 or better * (attained - most) > 0:
            most, best = attained, answer
        # without a new bound the level was far from what can be had, which was nothing in the units of the program
        level = bound if objective.gap(level, bound) > 1e-13 else most
        if objective.gap(most, bound) <= 1e-11 or level in tried:
            break
        tried.add(level)
    return Answer(best.shares, proof.multipliers, proof.prices, round_)


def _solve(
    polytope: Polytope,
    solve: LinearSolver,
    *,
    gains: Array | None = None,
    demand: Array | None = None,
    scaled: Array | None = None,
    level: float | None = None,
) -> Answer:
    """One program: a weighted sum, or the largest level k at which ``demand - (1 - k) scaled`` is met."""
    floors = None if demand is None or scaled is None else demand - scaled
    written = WrittenOut(
        StructuredProgram(
            rates=polytope.rates.T,
            scale_factors=polytope.scale_factors.astype(np.float64),
            counts=polytope.counts,
            capacity=polytope.capacity,
            slopes=scaled,
            floors=floors,
            gains=None if gains is None else gains * polytope.rates.T,
        ),
        level=level,
    )
    x, dual = solve(LinearProgram(written.cost, written.matrix.tocsr(), written.limit))
    shares, multipliers, prices = written.read(x, dual)
    return Answer(np.ascontiguousarray(shares.T), multipliers if demand is not None else np.zeros(0), prices, 1)
