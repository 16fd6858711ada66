"""A program as its author states it in cvxpy: any convex objective, and rows between jobs, over the polytope."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from formulations.arguments import instance
from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.core.polytope import Polytope
from formulations.core.solution import Attempt, InfeasibleError, Solution
from formulations.stated.certificate import ConicForm, lower_bound
from formulations.stated.cones import Cones
from formulations.statements import cp
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints
from throughputs.errors import did_you_mean
from throughputs.numerics import dot

Statement = Callable[[Any, Any], tuple[Any, Sequence[Any]]]
"""``(cvxpy, shares) -> objective, constraints``; shares (N, M) is an expression of cvxpy."""

_TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11, "max_iter": 200, "accept_unknown": True}
_CAREFUL = {
    "max_step_fraction": 0.9,
    "equilibrate_max_iter": 100,
    "equilibrate_min_scaling": 1e-8,
    "equilibrate_max_scaling": 1e8,
}
SOLVERS: dict[str, tuple[dict[str, Any], ...]] = {
    "clarabel": (_TIGHT, _TIGHT | _CAREFUL),
    "scs": ({"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 20000},),
    "ecos": ({},),
}
"""Solvers in the order in which they are asked, each with its options: Clarabel once more with shorter steps and wider
scaling, for objectives in which throughputs of very different size meet."""

_TOLERANCE = 1e-7
"""Relative gap up to which a program is proven, and part of its terms by which a row may be violated."""


def solve_stated(
    polytope: Polytope, statement: Statement, *, solver: str = "auto", source: str = "statement"
) -> Solution:
    """Solve what the author states, over shares of time in the polytope.

    Time and capacity rows are added to the author's; a share is open where the job's rate is positive and the type has
    GPUs, and 0 elsewhere. With "auto" Clarabel is asked first, then SCS and ECOS where no proof was found. There is no
    choice among optima: the point is the solver's.

    The status is "optimal" where the duality gap is proven from the multipliers of the conic form
    (`formulations.stated.certificate`) and no row of the author's is violated; otherwise it is the solver's own word
    after "claimed: ". The gap is relative to what the objective gains over an idle cluster, or to what GPUs and time
    are worth at the multipliers, whichever is more: a constant in the objective changes nothing. Programs with
    semidefinite rows are solved but not proven, and so are answers of ECOS. What is proven is the program that cvxpy
    makes of the statement: by its rules an exponent may stand for a fraction near it.

    Parameters
    ----------
    polytope : time and capacity rows.
    statement : objective and constraints.
    solver : "auto", or one of `SOLVERS` alone.
    source : named in errors.

    Raises
    ------
    InfeasibleError
        No shares keep all rows.
    InputError
        The statement is not a convex program.
    SolverError
        No solver returned an answer.
    """
    started = perf_counter()
    instance(source, "polytope", polytope, Polytope, "Polytope(PlainColumns(matrix), capacity)")
    given: Any = statement
    if not callable(given):
        expected = "a function of cvxpy and the shares that returns an objective and a list of constraints"
        raise InputError(source, field="statement", found=given, expected=expected)
    if solver != "auto" and solver not in SOLVERS:
        expected = f"auto or a solver of convex programs{did_you_mean(solver, SOLVERS)}: one of {', '.join(SOLVERS)}"
        raise InputError(source, field="solver", found=solver, expected=expected)
    open_ = (polytope.rates > 0) & (polytope.capacity > 0)
    if not open_.any():
        nothing = np.full(len(polytope.capacity), np.nan)
        return Solution.empty(polytope.n_jobs, nothing, unit="", seconds=0.0)
    program = _stated(polytope, statement, open_, source)
    attempts: list[Attempt] = []
    names = tuple(SOLVERS) if solver == "auto" else (solver,)
    built = perf_counter()
    found, name = solve_in_turn(_turns(program, names), _TOLERANCE, attempts)
    return Solution(
        shares=found.shares,
        status="optimal" if found.gap <= _TOLERANCE else f"claimed: {found.word}",
        objective=found.value,
        bound=found.bound,
        gap=found.gap if np.isfinite(found.gap) else np.nan,
        efficiency_gap=np.nan,
        prices=found.prices,
        multipliers=np.zeros(polytope.n_jobs),
        served=np.asarray(open_.any(axis=1)),
        unit="",
        solver=name,
        seconds=perf_counter() - started,
        attempts=tuple(attempts),
        phases={"build": built - started, "solve": perf_counter() - built, "choose": 0.0},
        row_prices={f"row {k}": price for k, price in enumerate(found.row_prices, 1)},
    )


@dataclass(frozen=True, eq=False)
class _Program:
    """The problem in cvxpy, with what must be known of it.

    Attributes
    ----------
    columns : variable of the open shares (C,), job by job.
    job, pool : (C,) whose share on which type a column is.
    """

    polytope: Polytope
    source: str
    problem: Any
    columns: Any
    job: Ints
    pool: Ints
    capacity_rows: Any
    own_rows: tuple[Any, ...]

    @property
    def maximises(self) -> bool:
        return bool(type(self.problem.objective).__name__ == "Maximize")

    def shares(self, columns: Floats) -> Floats:
        """(N, M) shares of the open columns (C,)."""
        shares = np.zeros(self.polytope.rates.shape)
        shares[self.job, self.pool] = columns
        return shares

    def at_rest(self, columns: Floats) -> float:
        """The objective on an idle cluster, the author's own variables as they are; `columns` are put back."""
        self.columns.value = np.zeros(len(columns))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            idle = self.problem.objective.value
        self.columns.value = columns
        return np.nan if idle is None else float(idle)


@dataclass(frozen=True, eq=False)
class _Found:
    """One solver's answer, in the polytope, with what is proven of it; `word` is the solver's."""

    shares: Floats
    value: float
    bound: float
    gap: float
    prices: Floats
    word: str
    row_prices: tuple[Floats, ...]


def _stated(polytope: Polytope, statement: Statement, open_: Flags, source: str) -> _Program:
    from scipy.sparse import csr_array

    N, M = polytope.rates.shape
    job, pool = np.nonzero(open_)
    columns = cp.Variable(len(job))
    spread = csr_array((np.ones(len(job)), (job * M + pool, np.arange(len(job)))), shape=(N * M, len(job)))
    flat = columns if len(job) == N * M else cp.matmul(spread, columns)
    shares = cp.reshape(flat, (N, M), order="C")
    stated = statement(cp, shares)
    if not (isinstance(stated, tuple | list) and len(stated) == 2 and isinstance(stated[1], tuple | list)):
        expected = "a pair: the objective, and a list of constraints"
        raise InputError(source, field="statement", found=stated, expected=expected)
    objective, rows = stated[0], tuple(stated[1])
    used = np.unique(pool)
    loads = csr_array((polytope.loads[job], (pool, np.arange(len(job)))), shape=(M, len(job)))[used]
    time = csr_array((np.ones(len(job)), (job, np.arange(len(job)))), shape=(N, len(job)))[np.unique(job)]
    capacity_rows = cp.matmul(loads, columns) <= polytope.capacity[used]
    own = [columns >= 0, cp.matmul(time, columns) <= 1, capacity_rows]
    try:
        problem = cp.Problem(objective, [*rows, *own])
    except (TypeError, ValueError, AttributeError, cp.error.DCPError) as error:
        expected = "cvxpy.Maximize or cvxpy.Minimize of a number, and a list of constraints"
        raise InputError(source, field="statement", found=str(error), expected=expected) from None
    _check_convex(problem, rows, source)
    return _Program(polytope, source, problem, columns, job, pool, capacity_rows, rows)


def _check_convex(problem: Any, rows: Sequence[Any], source: str) -> None:
    if problem.is_mixed_integer():
        raise InputError(source, field="statement", found="whole or boolean variables", expected="a convex program")
    if not problem.objective.is_dcp():
        expected = "a concave expression to maximise, or a convex one to minimise, by the rules of cvxpy"
        raise InputError(source, field="objective", found=str(problem.objective), expected=expected)
    for number, row in enumerate(rows, 1):
        if not hasattr(row, "is_dcp"):
            raise InputError(source, field=f"constraint {number}", found=row, expected="a constraint of cvxpy")
        if not row.is_dcp():
            expected = "convex <= concave, or affine == affine, by the rules of cvxpy"
            raise InputError(source, field=f"constraint {number}", found=str(row), expected=expected)


def _turns(program: _Program, names: Sequence[str]) -> Iterable[Turn[_Found]]:
    for name in names:
        for options in SOLVERS[name]:
            yield Turn(name, partial(_judged, program, name, options))


def _judged(program: _Program, name: str, options: dict[str, Any]) -> Judged[_Found]:
    """The answer of one solver; RuntimeError where it has none."""
    problem, upper = program.problem, name.upper()
    try:
        with warnings.catch_warnings():
            # inaccuracy is judged by the certificate, not by the solver's own word
            warnings.simplefilter("ignore")
            data, chain, inverse = problem.get_problem_data(upper, solver_opts=options)
            raw = chain.solve_via_data(problem, data, solver_opts=options)
            problem.unpack_results(raw, chain, inverse)
    except cp.error.SolverError as error:
        raise RuntimeError(str(error)) from None
    except ValueError as error:
        raise InputError(program.source, field="statement", found=str(error), expected="finite numbers") from None
    word = str(problem.status)
    if word.startswith("infeasible"):
        expected = "time, capacity and the constraints of the statement exclude each other"
        raise InfeasibleError(f"{program.source}: no shares keep all rows: {expected} ({name}: {word})")
    if word.startswith("unbounded"):
        raise InfeasibleError(f"{program.source}: nothing bounds the objective ({name}: {word})")
    if program.columns.value is None:
        raise RuntimeError(f"stopped with status {word}")
    offset = float(inverse[-1][cp.settings.OFFSET])
    found = _proven(program, name, word, data, raw, offset)
    return Judged(found, found.gap)


def _proven(program: _Program, name: str, word: str, data: dict[str, Any], raw: Any, offset: float) -> _Found:
    """The answer scaled into the polytope, with the bound that its multipliers prove.

    `offset` is what the objective, minimised, has beyond that of the conic form.
    """
    sign = -1.0 if program.maximises else 1.0
    point, multipliers = _columns_and_multipliers(name, raw)
    polytope = program.polytope
    shares = polytope.repaired(program.shares(np.asarray(program.columns.value, dtype=np.float64)))
    columns = shares[program.job, program.pool]
    idle = program.at_rest(columns)
    value = float(program.problem.objective.value)
    bound, worth = -np.inf, 0.0
    prices = np.where(polytope.capacity > 0, 0.0, np.nan)
    used = np.unique(program.pool)
    if program.capacity_rows.dual_value is not None:
        prices[used] = np.abs(program.capacity_rows.dual_value)
    form = None if point is None else _conic_form(program, data)
    if form is not None and point is not None and multipliers is not None:
        bound, proving = lower_bound(form, point, multipliers)
        worth = dot(np.abs(form.limit), np.abs(proving))
        bound += offset
    scale = max(abs(value - idle) if np.isfinite(idle) else 0.0, worth) or abs(value) or 1.0
    kept = max((_violation(row) for row in program.own_rows), default=0.0) <= _TOLERANCE
    gap = abs(sign * value - bound) / scale if kept and np.isfinite(value) else np.inf
    row_prices = tuple(np.asarray(np.nan if row.dual_value is None else row.dual_value) for row in program.own_rows)
    return _Found(shares, value, sign * bound if np.isfinite(bound) else np.nan, gap, prices, word, row_prices)


def _columns_and_multipliers(name: str, raw: Any) -> tuple[Floats | None, Floats | None]:
    """(C,) columns and (R,) multipliers of the conic form; None where they are not told in its order of rows."""
    if name == "clarabel":
        return np.asarray(raw.x), np.asarray(raw.z)
    if name == "scs":
        return np.asarray(raw["x"]), np.asarray(raw["y"])
    return None, None


def _conic_form(program: _Program, data: dict[str, Any]) -> ConicForm | None:
    """The program as the solver was given it; None where the proof does not know its cones."""
    cones = Cones.of(data["dims"])
    at = data["param_prob"].var_id_to_col.get(program.columns.id)
    if cones is None or at is None or data.get("lower_bounds") is not None or data.get("upper_bounds") is not None:
        return None
    job = np.full(len(data["c"]), -1, dtype=np.int64)
    job[at : at + len(program.job)] = program.job
    quadratic = data["P"].tocsr() if "P" in data else None
    return ConicForm(np.asarray(data["c"]), np.asarray(data["b"]), data["A"].tocsr(), quadratic, cones, job)


def _violation(row: Any) -> float:
    """By how much a constraint is violated, as a part of the largest of its terms."""
    size = max((float(np.abs(part.value).max(initial=0.0)) for part in row.args if part.value is not None), default=0.0)
    broken = float(np.max(row.violation(), initial=0.0))
    return broken / size if broken > 0 and size > 0 else broken
