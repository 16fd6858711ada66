"""The readable path: the polytope and the objective's own statement in cvxpy, with any of its solvers."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.core.objectives import Objective
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer

Array = NDArray[np.float64]

# Tighter than the solvers' defaults, which leave up to 3e-4 on finish-time fairness.
_CLARABEL = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11, "max_iter": 200}
_SCS = {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 20000}


def _cvxpy() -> Any:
    # cvxpy's re-exports are not visible to type checkers
    return import_module("cvxpy")


# The published system writes ``x >= 0`` as its first constraint; cvxpy appends that of a non-negative variable as the
# last one. Other rows, other roundings: among many optima ECOS then ends at another.
_SIGN_IS_A_ROW = ("ECOS",)


def state(polytope: Polytope, objective: Objective, solver: str = "") -> tuple[Any, Any]:
    """The program as a cvxpy problem as `solver` is given it, and its variable: shares (N, M) of time.

    Capacity and time are the last two constraints.
    """
    cp = _cvxpy()

    x, rows = _shares(cp, polytope, solver)
    u = cp.sum(cp.multiply(polytope.rates, x), axis=1)
    return cp.Problem(objective.statement(cp, u), rows), x


def _shares(cp: Any, polytope: Polytope, solver: str) -> tuple[Any, list[Any]]:
    """Shares (N, M) of time, and the rows of the polytope."""
    explicit = solver in _SIGN_IS_A_ROW
    x = cp.Variable(polytope.rates.shape, nonneg=not explicit)
    used = cp.sum(cp.multiply(polytope.loads[:, None], x), axis=0)
    rows = [used <= polytope.capacity, cp.sum(x, axis=1) <= 1]
    return x, [x >= 0, *rows] if explicit else rows


def feasible_point(polytope: Polytope, floors: Array, solver: str) -> Array:
    """Shares at which every job gets at least its floor: where the solver's feasibility problem ends."""
    cp = _cvxpy()

    x, rows = _shares(cp, polytope, solver)
    u = cp.sum(cp.multiply(polytope.rates, x), axis=1)
    problem = cp.Problem(cp.Maximize(1), [*rows, u >= floors])
    _run(problem, solver, {})
    if x.value is None:
        raise RuntimeError(f"{solver} stopped with status {problem.status}")
    return np.asarray(x.value)


def solve_clarabel(polytope: Polytope, objective: Objective) -> Answer:
    """The statement in Clarabel."""
    return _solve(polytope, objective, "CLARABEL", _CLARABEL)


def solve_ecos(polytope: Polytope, objective: Objective) -> Answer:
    """The statement in ECOS with its default settings, its rows in the order of the published system: its point."""
    return _solve(polytope, objective, "ECOS", {})


def solve_scs(polytope: Polytope, objective: Objective) -> Answer:
    """The statement in SCS."""
    return _solve(polytope, objective, "SCS", _SCS)


def _solve(polytope: Polytope, objective: Objective, solver: str, options: dict[str, Any]) -> Answer:
    problem, x = state(polytope, objective, solver)
    _run(problem, solver, options)
    if x.value is None:
        raise RuntimeError(f"{solver} stopped with status {problem.status}")
    prices, of_time = (rows.dual_value for rows in problem.constraints[-2:])
    return answer_of(polytope, np.asarray(x.value), prices, of_time, int(problem.solver_stats.num_iters or 0))


def answer_of(polytope: Polytope, shares: Array, prices: Array, of_time: Array, iterations: int) -> Answer:
    """From shares (N, M) and the multipliers of types (M,) and of the time of jobs (N,).

    Those of jobs are the largest that time and capacity pay for: a_ij lambda_i <= m_i + s_i p_j.
    """
    prices = np.abs(prices)
    paid = (np.abs(of_time) / polytope.counts)[:, None] + polytope.scale_factors[:, None] * prices
    each = np.divide(paid, polytope.rates, out=np.full_like(paid, np.inf), where=polytope.rates > 0)
    return Answer(shares, each.min(axis=1), prices, iterations)


def _run(problem: Any, solver: str, options: dict[str, Any]) -> None:
    cp = _cvxpy()

    with warnings.catch_warnings():
        # inaccuracy is judged by the certificate, not by the solver's own word
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=solver, **options)
        except cp.error.SolverError as error:
            raise RuntimeError(f"{solver} failed: {error}") from error
