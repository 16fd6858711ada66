"""The linear programs behind every objective, as matrices, and the one loop that turns levels into them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.objectives import MaxMin, MaxSum, Objective, Threshold
from formulations.polytope import Polytope
from formulations.solution import Answer, NotAcceptedError

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

_ROUNDS = 60

_LEAST_DEMAND = 1e-4
"""Part of a job's fastest rate below which its demand is no measure of accuracy."""


def solve_by_linear_programs(polytope: Polytope, objective: Objective, solve: LinearSolver) -> Answer:
    """Solve by one linear program, or for finish-time fairness by a short sequence.

    A threshold objective with demands linear in the level is one program. Otherwise: at a level solve
    ``max k, u_i >= k demand_i(level)``; the multipliers prove a bound, which is the next level. Levels then move
    monotonically and stop at the optimum after a few programs, each a Newton step on k = 1.
    """
    if isinstance(objective, MaxSum):
        x, dual = solve(_assemble(polytope, None, objective.totals))
        return _answer(polytope, None, x, dual, 1)
    if isinstance(objective, MaxMin):
        x, dual = solve(_assemble(polytope, objective.weights, None))
        return _answer(polytope, objective.weights, x, dual, 1)
    if not isinstance(objective, Threshold):
        raise NotAcceptedError(f"{type(objective).__name__} is not piecewise linear")
    fastest = polytope.rates.max(axis=1)
    level, bound = objective.first_guess(fastest), objective.easiest_level(fastest)
    for round_ in range(1, _ROUNDS + 1):
        demand = objective.demand(level)
        x, dual = solve(_assemble(polytope, demand, None))
        answer = _answer(polytope, demand, x, dual, round_)
        supply = polytope.supply(answer.multipliers[:, None] * polytope.rates, answer.prices)
        bound = objective.worse(objective.bound(polytope.counts * answer.multipliers, supply), bound)
        attained = objective.level(polytope.throughput(polytope.repaired(answer.shares)))
        if abs(attained - bound) <= 1e-11 * abs(bound) or not abs(bound - level) > 1e-13 * abs(bound):
            break
        level = bound
    return answer


def _assemble(polytope: Polytope, weights: Array | None, gains: Array | None) -> LinearProgram:
    from scipy.sparse import csr_array, hstack, vstack

    columns = polytope.columns.general
    N, C = columns.rate.shape
    usage = columns.usage.multiply(np.repeat(polytope.counts, len(polytope.capacity)))
    rows = vstack([columns.time, usage], format="csr")
    limit = np.concatenate([np.ones(N), polytope.capacity])
    if weights is None:
        assert gains is not None
        return LinearProgram(gains @ columns.rate, rows, limit)
    # so is the level, whose coefficients a solver might otherwise take for zeros
    scale = _row_scale(polytope, weights)
    slope = weights / scale
    slope = slope / slope.max()
    demand = hstack([columns.rate.multiply(-1.0 / scale[:, None]), csr_array(slope[:, None])])
    rows = vstack([hstack([rows, csr_array((rows.shape[0], 1))]), demand], format="csr")
    cost = np.zeros(C + 1)
    cost[-1] = 1.0
    return LinearProgram(cost, rows, np.concatenate([limit, np.zeros(N)]))


def _row_scale(polytope: Polytope, weights: Array) -> Array:
    """(N,) what each row of demands is divided by.

    Rates of different jobs span orders of magnitude, and solvers meet rows to an absolute tolerance: it should be one
    of the job's demand, or of its fastest rate where next to nothing is demanded.
    """
    fastest = polytope.rates.max(axis=1)
    return np.asarray(np.maximum(weights / np.max(weights / fastest), _LEAST_DEMAND * fastest))


def _answer(polytope: Polytope, weights: Array | None, x: Array, dual: Array, programs: int) -> Answer:
    N, M = polytope.rates.shape
    multipliers = dual[N + M :]
    if weights is not None:
        multipliers = multipliers / (_row_scale(polytope, weights) * polytope.counts)
    return Answer(x[: N * M].reshape(N, M), multipliers, dual[N : N + M], programs)
