"""Peers in HiGHS without a modelling layer: sparse arrays in, simplex or interior point, columns out.

Finish-time fairness is a sequence of linear programs: the largest k with ``u_i >= k r_i(rho)`` says how far the level
rho is from what is feasible, its multipliers by how much k grows with rho; a Newton step, until k reaches 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.solvers.peers.cvxpy_peers import Stopwatch
from benchmarks.solvers.registry import Array, DeclinedError, Outcome, Problem, Program, Solve, path
from formulations import FinishTimeFairness, MaxMin, MaxSum
from formulations.core.highs_model import new_solver
from throughputs import PlainColumns

_PROGRAMS = 30
_TIME_LIMIT = 60.0
"""Seconds after which a program is given up."""


@path("highs", "HiGHS simplex", kind="peer", most_jobs=100_000)
def highs(problem: Problem) -> Solve:  # noqa: ARG001
    """Dual simplex."""
    return lambda program: _solve(program, "simplex")


@path("highs_ipm", "HiGHS interior point", kind="peer", most_jobs=100_000)
def highs_ipm(problem: Problem) -> Solve:  # noqa: ARG001
    """Interior point with crossover."""
    return lambda program: _solve(program, "ipm")


def _solve(program: Program, method: str) -> Outcome:
    objective, watch = program.objective, Stopwatch()
    if not isinstance(program.polytope.columns, PlainColumns):
        raise DeclinedError("stated for jobs on types only")
    if isinstance(objective, MaxSum):
        columns, _, iterations = _linear_program(program, None, objective.gains, method, watch)
    elif isinstance(objective, MaxMin):
        columns, _, iterations = _linear_program(program, objective.weights, None, method, watch)
    elif isinstance(objective, FinishTimeFairness):
        columns, iterations = _finish_time(program, objective, method, watch)
    else:
        raise DeclinedError("no linear program for this decision")
    with watch.phase("recover"):
        N, M = program.polytope.rates.shape
        shares = columns[: N * M].reshape(N, M)
    return Outcome(shares, "optimal", watch.phases, None, f"HiGHS {method}", iterations)


def _finish_time(program: Program, objective: FinishTimeFairness, method: str, watch: Stopwatch) -> tuple[Array, int]:
    fastest = program.polytope.rates.max(axis=1)
    rho = float(((objective.elapsed + objective.remaining / fastest) / objective.isolated).max())
    total = 0
    for _ in range(_PROGRAMS):
        left = rho * objective.isolated - objective.elapsed
        demand = objective.remaining / left
        columns, multipliers, iterations = _linear_program(program, demand, None, method, watch)
        total += iterations
        k = columns[-1] / float((demand / fastest).mean())
        if k >= 1.0 - 1e-10:
            return columns, total
        # d log k / d rho, by the weight of each job in the multipliers of the demands
        growth = float(multipliers @ (demand * objective.isolated / left)) / float(multipliers @ demand)
        step = -np.log(k) / growth
        if not step > 1e-15 * rho:
            return columns, total
        rho += step
    return columns, total


def _linear_program(
    program: Program, demand: Array | None, gains: Array | None, method: str, watch: Stopwatch
) -> tuple[Array, Array, int]:
    """``max gains . u`` or ``max t, u_i >= t demand_i``: columns, multipliers of the demands, iterations."""
    import highspy

    with watch.phase("build"):
        solver = new_solver({"solver": method, "time_limit": _TIME_LIMIT})
        matrix, cost, upper = _arrays(program, demand, gains)
        model: Any = highspy.HighsLp()
        model.num_row_, model.num_col_ = matrix.shape
        model.sense_ = highspy.ObjSense.kMaximize
        model.col_cost_, model.col_lower_ = cost, np.zeros(len(cost))
        model.col_upper_ = np.full(len(cost), highspy.kHighsInf)
        model.row_lower_, model.row_upper_ = np.full(len(upper), -highspy.kHighsInf), upper
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.num_row_, model.a_matrix_.num_col_ = matrix.shape
        model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr, matrix.indices
        model.a_matrix_.value_ = matrix.data
        if solver.passModel(model) == highspy.HighsStatus.kError:
            raise RuntimeError("HiGHS refused the model")
    with watch.phase("solve"):
        solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"HiGHS ended with status {solver.modelStatusToString(status)}")
    with watch.phase("recover"):
        solution, info = solver.getSolution(), solver.getInfo()
        N, M = program.polytope.rates.shape
        iterations = info.ipm_iteration_count if method == "ipm" else info.simplex_iteration_count
        multipliers = np.abs(np.asarray(solution.row_dual))[N + M :]
        if demand is not None:
            multipliers = multipliers / program.polytope.rates.max(axis=1)
        return np.asarray(solution.col_value), multipliers, int(iterations)


def _arrays(program: Program, demand: Array | None, gains: Array | None) -> tuple[Any, Array, Array]:
    """Rows: time of each job, capacity of each type, then demands; columns: job by type, then the level."""
    from scipy.sparse import csr_array

    polytope = program.polytope
    rates = polytope.rates
    N, M = rates.shape
    column = np.arange(N * M)
    job, kind = np.divmod(column, M)
    rows, columns = [job, N + kind], [column, column]
    values = [np.ones(N * M), np.repeat(polytope.scale_factors.astype(float), M)]
    upper = np.concatenate([np.ones(N), polytope.capacity])
    if demand is None:
        assert gains is not None
        return _csr(csr_array, rows, columns, values, (N + M, N * M)), (gains[:, None] * rates).ravel(), upper
    # each demand is divided by the job's fastest rate, as rates of different jobs span orders of magnitude, and the
    # level is counted in such a unit that the mean job needs its fastest rate at 1: tolerances are absolute
    fastest = rates.max(axis=1)
    share = demand / fastest
    rows += [N + M + job, N + M + np.arange(N)]
    columns += [column, np.full(N, N * M)]
    values += [(-rates / fastest[:, None]).ravel(), share / share.mean()]
    cost = np.zeros(N * M + 1)
    cost[-1] = 1.0
    matrix = _csr(csr_array, rows, columns, values, (2 * N + M, N * M + 1))
    return matrix, cost, np.concatenate([upper, np.zeros(N)])


def _csr(kind: Any, rows: list[Any], columns: list[Any], values: list[Any], shape: tuple[int, int]) -> Any:
    at = (np.concatenate(rows), np.concatenate(columns))
    return kind((np.concatenate(values), at), shape=shape)
