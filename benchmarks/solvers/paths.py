"""The paths: our own, and as peers what one would use otherwise.

Peers are vectorised cvxpy, HiGHS without a modelling layer, and the plain path of the published systems: dictionaries
in, a cvxpy program written job by job, ECOS, dictionaries out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.solvers.problems import Array, DeclinedError, Outcome, Problem, Program, Solve, path
from formulations import FinishTimeFairness, Makespan, MaxMin, MaxSum, Objective
from formulations.core.highs_model import new_solver
from throughputs import InputError, PlainColumns

# Ours: reduce, solve, prove and choose


def own(problem: Problem, solver: str) -> Solve:
    """The decision through `formulations`, with the default choice among optima."""

    def solve(program: Program) -> Outcome:
        try:
            solution = problem.decision.solve(program.polytope, program.objective, solver=solver)
        except InputError as error:
            raise DeclinedError("this decision has other paths") from error
        phases = solution.phases
        return Outcome(
            solution.shares,
            solution.status,
            # further phases that a solution may tell of belong to the solve
            {
                "build": phases.get("build", 0.0),
                "solve": sum(seconds for name, seconds in phases.items() if name not in ("build", "choose")),
                "recover": phases.get("choose", 0.0),
            },
            solution,
            solution.solver,
            solution.iterations,
        )

    return solve


@path("auto", "auto (ours)", kind="own")
def auto(problem: Problem) -> Solve:
    """What users get."""
    return own(problem, "auto")


for _solver in ("structured", "prices"):
    # The interior point on the structure; responses to prices, and an interior point over the undecided jobs, which
    # declines few classes.
    path(_solver, f"{_solver} (ours)", kind="own")(partial(own, solver=_solver))


# cvxpy: the program as one would write it today, solved by Clarabel


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


# HiGHS: sparse arrays in, simplex or interior point, columns out. Finish-time fairness is a sequence of linear
# programs: the largest k with ``u_i >= k r_i(rho)`` says how far the level rho is from what is feasible, its
# multipliers by how much k grows with rho; a Newton step, until k reaches 1.

_PROGRAMS = 30
_TIME_LIMIT = 60.0
"""Seconds after which a program is given up."""


for _name, _method, _title in (("highs", "simplex", "simplex"), ("highs_ipm", "ipm", "interior point")):
    _path = path(_name, f"HiGHS {_title}", kind="peer", most_jobs=100_000)
    _path(lambda _, method=_method: partial(_solve, method=method))


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
        return _matrix(rows, columns, values, (N + M, N * M)), (gains[:, None] * rates).ravel(), upper
    # each demand is divided by the job's fastest rate, as rates of different jobs span orders of magnitude, and the
    # level is counted in such a unit that the mean job needs its fastest rate at 1: tolerances are absolute
    fastest = rates.max(axis=1)
    share = demand / fastest
    rows += [N + M + job, N + M + np.arange(N)]
    columns += [column, np.full(N, N * M)]
    values += [(-rates / fastest[:, None]).ravel(), share / share.mean()]
    cost = np.append(np.zeros(N * M), 1.0)
    return _matrix(rows, columns, values, (2 * N + M, N * M + 1)), cost, np.concatenate([upper, np.zeros(N)])


def _matrix(rows: list[Any], columns: list[Any], values: list[Any], shape: tuple[int, int]) -> Any:
    from scipy.sparse import csr_array

    return csr_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=shape)


# The plain path: how the policies of the published systems take a decision, in our own words. The throughputs arrive as
# a dictionary of dictionaries and are flattened by Python loops; max-min and the sum are then one array expression,
# finish-time fairness one expression per job, and the makespan a bisection of feasibility problems that stops within
# 5 %.

_SOLVER = "ECOS"
_SHORTEST, _LONGEST, _PRECISION = 100.0, 1e6, 1.05
"""Bracket of the bisection in seconds, and the ratio at which it stops."""


@dataclass
class _Jobs:
    """What a caller of the plain path holds."""

    throughputs: Mapping[int, Mapping[str, float]]
    scale_factors: Mapping[int, int]
    cluster: Mapping[str, float]
    figures: Mapping[str, Mapping[int, float]]


@path(
    "cvxpy_ecos",
    "cvxpy + ECOS, as published",
    kind="peer",
    most_jobs=100_000,
    decisions=("max_min", "makespan", "finish_time", "max_sum"),
)
def cvxpy_ecos(problem: Problem) -> Solve:
    """Everything is built anew at each decision, in the way of the decision."""
    program = problem.pose()
    kind = type(program.objective)
    if kind is not Makespan and kind not in _STATEMENTS:
        raise DeclinedError("no published way to take this decision")
    jobs = _dictionaries(program)

    def solve(program: Program) -> Outcome:  # noqa: ARG001
        watch = Stopwatch()
        cp: Any = import_module("cvxpy")
        if kind is Makespan:
            found, x, iterations = _bisected(cp, jobs, watch)
        else:
            stated, answer = _plainly(cp, jobs, watch, _STATEMENTS[kind])
            if answer.value is None:
                raise RuntimeError(f"{_SOLVER} ended with status {stated.status}")
            found, x, iterations = stated.status, answer.value, int(stated.solver_stats.num_iters or 0)
        with watch.phase("recover"):
            shares = {
                job: {name: float(x[i, j]) for j, name in enumerate(jobs.cluster)}
                for i, job in enumerate(jobs.throughputs)
            }
        matrix = np.array([list(row.values()) for row in shares.values()])
        return Outcome(matrix, found, watch.phases, None, _SOLVER, iterations)

    return solve


def _dictionaries(program: Program) -> _Jobs:
    polytope, objective = program.polytope, program.objective
    names = [f"type{j}" for j in range(len(polytope.capacity))]
    figures = {
        name: dict(enumerate(getattr(objective, name).tolist()))
        for name in ("weights", "gains", "elapsed", "remaining", "isolated")
        if hasattr(objective, name)
    }
    return _Jobs(
        {i: dict(zip(names, row, strict=True)) for i, row in enumerate(polytope.rates.tolist())},
        dict(enumerate(polytope.scale_factors.tolist())),
        dict(zip(names, polytope.capacity.tolist(), strict=True)),
        figures,
    )


def _plainly(cp: Any, jobs: _Jobs, watch: Stopwatch, state: Callable[..., tuple[Any, list[Any]]]) -> tuple[Any, Any]:
    """A program and its variable, solved; `state` gives its objective and further rows."""
    with watch.phase("build"):
        rates = np.zeros((len(jobs.throughputs), len(jobs.cluster)))
        gangs = np.zeros_like(rates)
        for i, job in enumerate(jobs.throughputs):
            for j, name in enumerate(jobs.cluster):
                rates[i, j] = jobs.throughputs[job][name]
                gangs[i, j] = jobs.scale_factors[job]
        capacity = np.array(list(jobs.cluster.values()))
        x = cp.Variable(rates.shape)
        goal, rows = state(cp, jobs, rates, x)
        limits = [x >= 0, cp.sum(cp.multiply(gangs, x), axis=0) <= capacity, cp.sum(x, axis=1) <= 1]
        problem = cp.Problem(goal, [*limits, *rows])
    run_cvxpy(problem, _SOLVER, watch)
    return problem, x


def _of(jobs: _Jobs, figure: str) -> Array:
    return np.array([jobs.figures[figure][job] for job in jobs.throughputs])


def _max_min(cp: Any, jobs: _Jobs, rates: Array, x: Any) -> tuple[Any, list[Any]]:
    worth = rates * (1.0 / _of(jobs, "weights"))[:, None]
    return cp.Maximize(cp.min(cp.sum(cp.multiply(worth, x), axis=1))), []


def _max_sum(cp: Any, jobs: _Jobs, rates: Array, x: Any) -> tuple[Any, list[Any]]:
    return cp.Maximize(cp.sum(cp.multiply(rates * _of(jobs, "gains")[:, None], x))), []


def _worst_finish(cp: Any, jobs: _Jobs, rates: Array, x: Any) -> tuple[Any, list[Any]]:
    ratios = []
    for i, job in enumerate(jobs.throughputs):
        rate = cp.sum(cp.multiply(rates[i], x[i]))
        finish = jobs.figures["elapsed"][job] + jobs.figures["remaining"][job] * cp.inv_pos(rate)
        ratios.append(finish / jobs.figures["isolated"][job])
    return cp.Minimize(cp.maximum(*ratios) if len(ratios) > 1 else ratios[0]), []


_STATEMENTS: dict[type, Callable[..., tuple[Any, list[Any]]]] = {
    MaxMin: _max_min,
    MaxSum: _max_sum,
    FinishTimeFairness: _worst_finish,
}


def _bisected(cp: Any, jobs: _Jobs, watch: Stopwatch) -> tuple[str, Array, int]:
    """The least makespan for which a program that asks for no more is feasible."""

    def within(cp: Any, jobs: _Jobs, rates: Array, x: Any) -> tuple[Any, list[Any]]:
        return cp.Maximize(1), [cp.sum(cp.multiply(rates, x), axis=1) >= _of(jobs, "weights") / middle]

    low, high = _SHORTEST, _LONGEST
    best: Array | None = None
    programs = 0
    while best is None or _PRECISION * low < high:
        if best is None and _PRECISION * low >= high:
            # nothing was feasible: the next decade
            low, high = high, 10 * high
            if high > 1e15:
                raise RuntimeError("no feasible makespan found")
        middle = (low + high) / 2
        problem, x = _plainly(cp, jobs, watch, within)
        programs += 1
        if problem.status == "optimal":
            best, high = x.value, middle
        else:
            low = middle
    assert best is not None
    return "optimal", best, programs
