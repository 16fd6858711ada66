"""Objectives as goals of a packed program, and what is proven about an answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from formulations.core.certificate import relative_gap
from formulations.core.objectives import MaxMin, MaxSum, Method, Objective, Threshold
from formulations.core.solution import SolverError
from formulations.packed.certificate import dual_bound, repaired
from formulations.packed.class_pairs import NAME, ClassPairs
from formulations.packed.program import Goal, PackedPoint, PackedProgram
from throughputs.arrays import Floats
from throughputs.numerics import dot

ACCEPTED_SHORTFALL = 1e-7
"""Fraction of a floor that an answer may miss."""

_SETTLED, _UNMOVED = 4e-11, 1e-13
"""Gap of a level that is not closed in on further, and a relative change of the level that is none."""

_MOST_PROGRAMS = 40
"""Programs, one for each level that is tried, after which the search for a level ends."""

_SAME_BOUND = 1e-10
"""Relative distance of bounds from which the better one is proven by what proves it, not by the other's multipliers."""


@dataclass(frozen=True, eq=False)
class Proof:
    """A feasible point with what is proven about it; `objective` and `bound` are of the reported value.

    `excess` is what the cluster can earn at the multipliers beyond what the point's demands cost (0 at an optimum).
    `proving` are what proves the bound, in units of the level: multipliers of demands (K,), worth of time (K,), prices.
    """

    point: PackedPoint
    throughput: Floats
    objective: float
    bound: float
    gap: float
    prices: Floats
    proving: tuple[Floats, Floats, Floats]
    excess: float = 0.0


def solve_for(pairs: ClassPairs, objective: Objective) -> Proof:
    """Feasible times for an objective over the classes (K,), their value, and a bound by weak duality.

    Multipliers and prices are in units of the objective.
    """
    return objective.accept(_Solved(pairs))


@dataclass(frozen=True, eq=False)
class _Solved(Method[Proof]):
    pairs: ClassPairs

    def weighted_sum(self, objective: MaxSum) -> Proof:
        proof = solve_for_sum(self.pairs, Goal(gains=objective.gains))
        return replace(proof, proving=(objective.gains, *proof.proving[1:]))

    def linear_level(self, objective: MaxMin) -> Proof:
        return _prove_level(self.pairs.program, objective, self.pairs(Goal(slopes=objective.weights)))

    def level(self, objective: Threshold) -> Proof:
        return _prove_level(self.pairs.program, objective, _by_levels(self.pairs, objective))

    def refusal(self, objective: Objective) -> Exception:
        return TypeError(f"no packed program for {type(objective).__name__}")


def solve_for_sum(pairs: ClassPairs, goal: Goal) -> Proof:
    """Feasible times of the most worth, less the cost of GPUs in use, that keep the floors of a goal.

    What proves the bound are multipliers of the floors, at least 0, the worth of time, and prices. SolverError where
    the floors are not kept.
    """
    program = pairs.program
    try:
        answer = pairs(goal)
    except SolverError:
        if goal.floors is None:
            raise
        # few pairs are there at first: those that keep the floors may have to be found
        pairs(Goal(slopes=goal.floors))
        answer = pairs(goal)
    n, gains, cost = program.counts, goal.gains_by_type(program), goal.costs(program)
    floors = np.zeros_like(n) if goal.floors is None else goal.floors
    point = repaired(program, answer)
    u = program.throughput(point)
    if (u < floors * (1.0 - ACCEPTED_SHORTFALL)).any():
        raise SolverError(f"{NAME}: missed a floor")
    held = np.where(floors > 0, np.clip(np.nan_to_num(answer.demand_multipliers), 0.0, None), 0.0)
    dual = dual_bound(program, gains + held[:, None], answer.time_multipliers, answer.prices, cost)
    bound = dual.supply - dot(n * held, floors)
    earned = dot(n, (gains * program.throughput_by_type(point)).sum(axis=1))
    value = earned - dot(cost, program.used(point))
    gap = max(bound - value, 0.0) / max(earned, 1e-300)
    point = replace(point, demand_multipliers=held)
    return Proof(point, u, value, max(bound, value), gap, dual.prices, (held, dual.time, dual.prices))


def _by_levels(pairs: ClassPairs, objective: Threshold) -> PackedPoint:
    """Close in on the level by max-min programs, each a Newton step on ``max k, u >= k demand(level)``, ``k = 1``.

    The level only moves to proven bounds.
    """
    program = pairs.program
    level, bound = objective.first_guess(program.fastest), objective.easiest_level(program.fastest)
    iterations = 0
    for _ in range(_MOST_PROGRAMS):
        point = pairs(Goal(slopes=objective.demand(level)))
        iterations += point.iterations
        weights = point.demand_multipliers
        dual = dual_bound(program, weights, point.time_multipliers, point.prices)
        bound = objective.worse(objective.bound(program.counts * weights, dual.supply), bound)
        attained = objective.level(program.throughput(repaired(program, point)))
        if objective.gap(attained, bound) <= _SETTLED or not objective.gap(level, bound) > _UNMOVED:
            break
        level = bound
    return replace(point, iterations=iterations)


def _prove_level(program: PackedProgram, objective: Threshold, answer: PackedPoint) -> Proof:
    point = repaired(program, answer)
    u = program.throughput(point)
    n = program.counts
    weights = np.clip(np.nan_to_num(answer.demand_multipliers), 0.0, None)
    dual = dual_bound(program, weights, answer.time_multipliers, answer.prices)
    level = objective.level(u)
    bound = objective.bound(n * weights, dual.supply)
    alone = objective.easiest_level(program.fastest)
    held_alone = objective.worse(alone, bound) != bound and relative_gap(alone, bound) > _SAME_BOUND
    bound = objective.worse(alone, bound)
    with np.errstate(all="ignore"):
        scale = dot(n * weights, objective.slope(level)) if np.isfinite(level) else np.inf
        owed = dot(n * weights, objective.demand(level)) if np.isfinite(level) else 0.0
    excess, prices, time = dual.supply - owed, dual.prices, dual.time
    if scale > 0 and np.isfinite(scale):
        weights, prices, time, excess = weights / scale, prices / scale, time / scale, excess / scale
    point = replace(point, demand_multipliers=weights)
    proving = weights, time, prices
    if held_alone:
        on_one = objective.held_alone(program.fastest) / n
        proving = on_one, on_one * program.fastest, np.zeros_like(prices)
    value, limit = objective.report(level), objective.report(bound)
    prices = objective.report_price(prices, level)
    return Proof(point, u, value, limit, objective.gap(value, limit), prices, proving, excess)
