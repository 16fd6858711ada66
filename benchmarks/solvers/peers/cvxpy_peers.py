"""Peers in vectorised cvxpy: the program as one would write it today, solved by Clarabel."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.solvers.registry import Array, DeclinedError, Outcome, Problem, Program, Solve, path
from formulations import FinishTimeFairness, MaxMin, MaxSum, Objective
from throughputs import PlainColumns


class Stopwatch:
    """Wall seconds by phase."""

    def __init__(self) -> None:
        self.phases = {"build": 0.0, "solve": 0.0, "recover": 0.0}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time of the block, added to that of the phase."""
        started = perf_counter()
        try:
            yield
        finally:
            self.phases[name] += perf_counter() - started


def run_cvxpy(problem: Any, solver: str, watch: Stopwatch) -> None:
    """``problem.solve(solver=solver)``, its compilation counted as build and the way back as recover."""
    with warnings.catch_warnings():
        # what an answer is worth is judged afterwards
        warnings.simplefilter("ignore")
        with watch.phase("build"):
            data, chain, inverse = problem.get_problem_data(solver, solver_opts={})
        with watch.phase("solve"):
            raw = chain.solve_via_data(problem, data, solver_opts={})
        with watch.phase("recover"):
            problem.unpack_results(raw, chain, inverse)


def _plain(program: Program) -> None:
    if not isinstance(program.polytope.columns, PlainColumns):
        raise DeclinedError("stated for jobs on types only")


def _outcome(problem: Any, x: Any, watch: Stopwatch, solver: str) -> Outcome:
    if x.value is None:
        raise RuntimeError(f"{solver} ended with status {problem.status}")
    with watch.phase("recover"):
        shares = np.asarray(x.value)
    return Outcome(shares, problem.status, watch.phases, None, solver, int(problem.solver_stats.num_iters or 0))


@path("cvxpy_vectorised", "cvxpy, vectorised, Clarabel", kind="peer", most_jobs=100_000)
def cvxpy_vectorised(problem: Problem) -> Solve:  # noqa: ARG001
    """Constants compiled anew at each decision."""
    cp: Any = import_module("cvxpy")

    def solve(program: Program) -> Outcome:
        _plain(program)
        watch, polytope = Stopwatch(), program.polytope
        with watch.phase("build"):
            x = cp.Variable(polytope.rates.shape, nonneg=True)
            limits = [polytope.scale_factors.astype(float) @ x <= polytope.capacity, cp.sum(x, axis=1) <= 1]
            stated = cp.Problem(_stated(cp, program, x), limits)
        run_cvxpy(stated, "CLARABEL", watch)
        return _outcome(stated, x, watch, "CLARABEL")

    return solve


# An N x M parameter is expensive to compile: seconds at some thousand jobs.
@path("cvxpy_parameters", "cvxpy, parameters, Clarabel", kind="peer", most_jobs=2048)
def cvxpy_parameters(problem: Problem) -> Solve:
    """Compiled once for N jobs and M types; each decision sets the parameters and solves again."""
    cp: Any = import_module("cvxpy")
    program = problem.pose()
    _plain(program)
    N, M = program.polytope.rates.shape
    x = cp.Variable((N, M), nonneg=True)
    worth, offset = cp.Parameter((N, M), nonneg=True), cp.Parameter(N)
    usage, capacity = cp.Parameter(N, nonneg=True), cp.Parameter(M, nonneg=True)
    gained = cp.sum(cp.multiply(worth, x), axis=1)
    goal = _scaled_statement(cp, program.objective, gained, offset)
    if goal is None:
        raise DeclinedError("no statement with parameters for this decision")
    stated = cp.Problem(goal, [usage @ x <= capacity, cp.sum(x, axis=1) <= 1])
    figures: dict[str, Any] = {"worth": worth, "offset": offset, "usage": usage, "capacity": capacity}

    def solve(program: Program) -> Outcome:
        watch = Stopwatch()
        with watch.phase("build"):
            for name, value in _parameters(program).items():
                figures[name].value = value
        run_cvxpy(stated, "CLARABEL", watch)
        return _outcome(stated, x, watch, "CLARABEL")

    solve(program)  # the compilation, which the next decisions find done
    return solve


def _stated(cp: Any, program: Program, x: Any) -> Any:
    """The objective with constants; in well scaled figures where we know how, else as it states itself."""
    worth, offset = _scaled(program)
    goal = _scaled_statement(cp, program.objective, cp.sum(cp.multiply(worth, x), axis=1), offset)
    return goal or program.objective.statement(cp, cp.sum(cp.multiply(program.polytope.rates, x), axis=1))


def _scaled_statement(cp: Any, objective: Objective, gained: Any, offset: Any) -> Any:
    """The objective in figures in which parameters enter linearly; None for a decision that is not known here."""
    if isinstance(objective, MaxMin):
        return cp.Maximize(cp.min(gained))
    if isinstance(objective, FinishTimeFairness):
        return cp.Minimize(cp.max(offset + cp.inv_pos(gained)))
    if isinstance(objective, MaxSum):
        return cp.Maximize(cp.sum(gained))
    return None


def _scaled(program: Program) -> tuple[Array, Array]:
    """(N, M) what the rates are worth to the objective, (N,) what is added.

    Solvers stop at absolute tolerances, so a level of 1e-4 per second, as of a makespan of hours, would come out rough:
    where a common factor changes nothing, the mean job is worth 1 on its fastest type.
    """
    objective, rates = program.objective, program.polytope.rates
    none = np.zeros(len(rates))
    if isinstance(objective, FinishTimeFairness):
        return rates * (objective.isolated / objective.remaining)[:, None], objective.elapsed / objective.isolated
    if isinstance(objective, MaxMin):
        worth = rates / objective.weights[:, None]
    elif isinstance(objective, MaxSum):
        worth = rates * objective.gains[:, None]
    else:
        worth = rates
    return worth / worth.max(axis=1).mean(), none


def _parameters(program: Program) -> dict[str, Any]:
    """Values of the parameters."""
    worth, offset = _scaled(program)
    usage = program.polytope.scale_factors.astype(float)
    return {"worth": worth, "offset": offset, "usage": usage, "capacity": program.polytope.capacity}
