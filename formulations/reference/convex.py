"""The readable path: statements (`formulations.statements`) in the solvers that cvxpy has."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from formulations.core.objectives import Objective
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from formulations.stated.program import SOLVERS
from formulations.statements import cp, shares
from throughputs.arrays import Floats


def solve_clarabel(polytope: Polytope, objective: Objective) -> Answer:
    """The statement in Clarabel."""
    return _solve(polytope, objective, "clarabel")


def solve_ecos(polytope: Polytope, objective: Objective) -> Answer:
    """The statement in ECOS with its default settings."""
    return _solve(polytope, objective, "ecos")


def solve_scs(polytope: Polytope, objective: Objective) -> Answer:
    """The statement in SCS."""
    return _solve(polytope, objective, "scs")


def _solve(polytope: Polytope, objective: Objective, solver: str) -> Answer:
    problem = shares.best(polytope, objective)
    found = point_of(problem, solver.upper(), **SOLVERS[solver])
    prices, of_time = (rows.dual_value for rows in problem.constraints[-2:])
    return answer_of(polytope, found, prices, of_time, int(problem.solver_stats.num_iters or 0))


def answer_of(polytope: Polytope, shares: Floats, prices: Floats, of_time: Floats, iterations: int) -> Answer:
    """From shares (N, M) and the multipliers of types (M,) and of the time of jobs (N,).

    Those of jobs are the largest that time and capacity pay for: a_ij lambda_i <= m_i + s_i p_j.
    """
    prices = np.abs(prices)
    paid = (np.abs(of_time) / polytope.counts)[:, None] + polytope.scale_factors[:, None] * prices
    each = np.divide(paid, polytope.rates, out=np.full_like(paid, np.inf), where=polytope.rates > 0)
    return Answer(shares, each.min(axis=1), prices, iterations)


def point_of(problem: Any, solver: str, **options: Any) -> Floats:
    """The variable x at which a solver of cvxpy ends; RuntimeError where it has none."""
    with warnings.catch_warnings():
        # inaccuracy is judged by the certificate, not by the solver's own word
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=solver, **options)
        except (cp.error.SolverError, ValueError) as error:
            raise RuntimeError(f"{solver} failed: {error}") from error
    found = problem.var_dict["x"].value
    if found is None:
        raise RuntimeError(f"{solver} stopped with status {problem.status}")
    return np.asarray(found)
