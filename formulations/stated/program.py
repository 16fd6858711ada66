"""A program as its author states it in cvxpy: any convex objective, and rows between jobs, over the polytope."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from formulations.arguments import instance
from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.core.polytope import Polytope
from formulations.core.solution import Attempt, InfeasibleError, Solution
from formulations.stated.certificate import ConicForm, lower_bound
from formulations.stated.cones import provable
from formulations.statements import cp
from throughputs import InputError
from throughputs.arrays import Floats
from throughputs.errors import did_you_mean
from throughputs.numerics import dot

Statement = Callable[[Any, Any], tuple[Any, Sequence[Any]]]
"""``(cvxpy, shares) -> objective, constraints``; shares (N, M) is an expression of cvxpy."""

SOLVERS: dict[str, dict[str, Any]] = {
    "clarabel": {
        "tol_gap_abs": 1e-11,
        "tol_gap_rel": 1e-11,
        "tol_feas": 1e-11,
        "max_iter": 200,
        "accept_unknown": True,
    },
    "scs": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 20000},
    "ecos": {},
}
"""Solvers in the order in which they are asked, each with its options: tighter than their defaults, which leave up to
3e-4 on finish-time fairness."""

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
    if not ((polytope.rates > 0) & (polytope.capacity > 0)).any():
        nothing = np.full(len(polytope.capacity), np.nan)
        return Solution.empty(polytope.n_jobs, nothing, unit="", seconds=0.0)
    program, attempts, built = _Program(polytope, statement, source), list[Attempt](), perf_counter()
    names = tuple(SOLVERS) if solver == "auto" else (solver,)
    found, name = solve_in_turn((Turn(name, partial(program.solved, name)) for name in names), _TOLERANCE, attempts)
    ended = perf_counter()
    return replace(
        found,
        gap=found.gap if np.isfinite(found.gap) else np.nan,
        solver=name,
        seconds=ended - started,
        attempts=tuple(attempts),
        phases={"build": built - started, "solve": ended - built, "choose": 0.0},
    )


class _Program:
    """The problem in cvxpy, with what must be known of it.

    Attributes
    ----------
    open : (N, M) where a job can run. used : types with capacity rows.
    y : variable of the open shares, job by job.
    """

    def __init__(self, polytope: Polytope, statement: Statement, source: str) -> None:
        from scipy.sparse import csr_array

        self.polytope, self.source = polytope, source
        self.open = (polytope.rates > 0) & (polytope.capacity > 0)
        self.used, at = np.flatnonzero(self.open.any(axis=0)), np.flatnonzero(self.open)
        self.y = cp.Variable(len(at))
        spread = csr_array((np.ones(len(at)), (at, np.arange(len(at)))), shape=(self.open.size, len(at)))
        shares = cp.reshape(cp.matmul(spread, self.y), self.open.shape, order="C")
        stated = statement(cp, shares)
        if not (isinstance(stated, tuple | list) and len(stated) == 2 and isinstance(stated[1], tuple | list)):
            expected = "a pair: the objective, and a list of constraints"
            raise InputError(source, field="statement", found=stated, expected=expected)
        objective, rows = stated
        self.own_rows = rows
        self.capacity_rows = cp.matmul(polytope.loads, shares)[self.used] <= polytope.capacity[self.used]
        try:
            kept = [*rows, self.y >= 0, cp.sum(shares, axis=1)[self.open.any(axis=1)] <= 1, self.capacity_rows]
            self.problem = cp.Problem(objective, kept)
        except (TypeError, ValueError, AttributeError, cp.error.DCPError) as error:
            expected = "cvxpy.Maximize or cvxpy.Minimize of a number, and a list of constraints"
            raise InputError(source, field="statement", found=str(error), expected=expected) from None
        if self.problem.is_mixed_integer():
            raise InputError(source, field="statement", found="whole or boolean variables", expected="a convex program")
        parts = [("objective", objective), *((f"constraint {number}", row) for number, row in enumerate(rows, 1))]
        for field, part in parts:
            if not hasattr(part, "is_dcp"):
                raise InputError(source, field=field, found=part, expected="a constraint of cvxpy")
            if not part.is_dcp():
                convex = "convex <= concave, or affine == affine"
                if part is objective:
                    convex = "a concave expression to maximise, or a convex one to minimise"
                raise InputError(source, field=field, found=str(part), expected=f"{convex}, by the rules of cvxpy")

    def solved(self, name: str) -> Judged[Solution]:
        """The answer of one solver, scaled into the polytope, with what its multipliers prove of it."""
        proof, offset = self._asked(name)
        shares = np.zeros(self.open.shape)
        shares[self.open] = self.y.value
        shares = self.polytope.repaired(shares)
        idle, value = self._value(np.zeros(self.y.size)), self._value(shares[self.open])
        bound, worth = -np.inf, 0.0
        if proof is not None:
            bound, proving = lower_bound(*proof)
            worth = dot(np.abs(proof[0].limit), np.abs(proving))
        bound = (bound + offset) * (1.0 if type(self.problem.objective).__name__ == "Minimize" else -1.0)
        scale = max(abs(value - idle) if np.isfinite(idle) else 0.0, worth) or abs(value) or 1.0
        kept = max((_violation(row) for row in self.own_rows), default=0.0) <= _TOLERANCE
        gap = abs(value - bound) / scale if kept and np.isfinite(value) else np.inf
        prices = np.where(self.polytope.capacity > 0, 0.0, np.nan)
        prices[self.used] = np.abs(_multipliers(self.capacity_rows))
        answer = Solution(
            shares=shares,
            status="optimal" if gap <= _TOLERANCE else f"claimed: {self.problem.status}",
            objective=value,
            bound=bound if np.isfinite(bound) else np.nan,
            gap=gap,
            efficiency_gap=np.nan,
            prices=prices,
            multipliers=np.zeros(self.polytope.n_jobs),
            served=np.asarray(self.open.any(axis=1)),
            unit="",
            solver=name,
            seconds=0.0,
            row_prices={f"row {k}": _multipliers(row) for k, row in enumerate(self.own_rows, 1)},
        )
        return Judged(answer, gap)

    def _asked(self, name: str) -> tuple[tuple[ConicForm, Floats, Floats] | None, float]:
        """Solve with one solver; RuntimeError where it has no answer.

        Returns the conic form, its columns and multipliers, None where these prove nothing; and what the objective,
        minimised, has beyond that of the conic form.
        """
        problem, upper, options = self.problem, name.upper(), SOLVERS[name]
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
            raise InputError(self.source, field="statement", found=str(error), expected="finite numbers") from None
        word = str(problem.status)
        if word.startswith("infeasible"):
            expected = "time, capacity and the constraints of the statement exclude each other"
            raise InfeasibleError(f"{self.source}: no shares keep all rows: {expected} ({name}: {word})")
        if word.startswith("unbounded"):
            raise InfeasibleError(f"{self.source}: nothing bounds the objective ({name}: {word})")
        if self.y.value is None:
            raise RuntimeError(f"stopped with status {word}")
        return self._conic_form(name, data, raw), float(inverse[-1][cp.settings.OFFSET])

    def _value(self, columns: Floats) -> float:
        """The objective at open shares, the author's own variables as they are."""
        self.y.value = columns
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            value = self.problem.objective.value
        return np.nan if value is None else float(value)

    def _conic_form(self, name: str, data: dict[str, Any], raw: Any) -> tuple[ConicForm, Floats, Floats] | None:
        """The program as the solver was given it, its columns and multipliers; None where these prove nothing."""
        cones, at = data["dims"], data["param_prob"].var_id_to_col.get(self.y.id)
        bounded = data.get("lower_bounds") is not None or data.get("upper_bounds") is not None
        if not provable(cones) or at is None or bounded or name == "ecos":
            return None
        job = np.full(len(data["c"]), -1, dtype=np.int64)
        job[at : at + self.y.size] = np.nonzero(self.open)[0]
        quadratic = data["P"].tocsr() if "P" in data else None
        form = ConicForm(np.asarray(data["c"]), np.asarray(data["b"]), data["A"].tocsr(), quadratic, cones, job)
        point = (raw["x"], raw["y"]) if name == "scs" else (raw.x, raw.z)
        return form, np.asarray(point[0]), np.asarray(point[1])


def _multipliers(row: Any) -> Floats:
    return np.asarray(np.nan if row.dual_value is None else row.dual_value)


def _violation(row: Any) -> float:
    """By how much a constraint is violated, as a part of the largest of its terms."""
    size = max((float(np.abs(part.value).max(initial=0.0)) for part in row.args if part.value is not None), default=0.0)
    broken = float(np.max(row.violation(), initial=0.0))
    return broken / size if broken > 0 and size > 0 else broken
