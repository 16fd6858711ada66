"""Linear programs with whole variables in HiGHS or, through PuLP, in CBC: one model, and one rule for when it stops."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from time import perf_counter
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from formulations.reference.stopping import StopRule
from throughputs.arrays import Flags, Floats, Ints, Positions
from throughputs.numerics import dot

TIGHT: dict[str, Any] = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""Options of HiGHS for linear programs that are to be solved as exactly as it can."""

_LARGEST_COST = 1e6
"""Larger coefficients of an objective are scaled down to this, as solvers' tolerances are absolute."""

_WHOLE_TOLERANCE = 1e-6

_KEPT = 1e-6
"""By so much a point that CBC has written with eight digits may violate rows that it keeps."""


@dataclass(frozen=True, eq=False)
class MixedProgram:
    """``min cost @ x`` subject to ``row_lower <= matrix @ x <= row_upper``, ``lower <= x <= upper``, some x whole.

    `matrix` is in compressed rows. `maximise`: the most instead.
    """

    cost: Floats
    lower: Floats
    upper: Floats
    whole: Flags
    matrix: Any
    row_lower: Floats
    row_upper: Floats
    maximise: bool = False

    @classmethod
    def of(
        cls,
        matrix: Any,
        cost: Floats,
        rows: tuple[ArrayLike, ArrayLike],
        *,
        lower: ArrayLike = 0.0,
        upper: ArrayLike = np.inf,
        whole: ArrayLike = False,
        maximise: bool = False,
    ) -> MixedProgram:
        """From limits of rows, and of columns, of which one number may stand for all."""
        R, C = matrix.shape
        least, most = (np.broadcast_to(limit, C).astype(np.float64) for limit in (lower, upper))
        row_least, row_most = (np.broadcast_to(limit, R).astype(np.float64) for limit in rows)
        flags = np.broadcast_to(whole, C).astype(bool)
        return cls(cost, least, most, flags, matrix, row_least, row_most, maximise)

    def of_columns(self, some: Positions) -> Self:
        """The program in which all columns but some are 0."""
        taken = {name: getattr(self, name)[some] for name in ("cost", "lower", "upper", "whole")}
        return replace(self, matrix=self.matrix[:, some], **taken)

    def with_rows(self, matrix: Any, lower: Floats, upper: Floats) -> Self:
        """The program with more rows behind its own."""
        from scipy.sparse import vstack

        return replace(
            self,
            matrix=vstack([self.matrix, matrix], format="csr"),
            row_lower=np.concatenate([self.row_lower, lower]),
            row_upper=np.concatenate([self.row_upper, upper]),
        )

    def violation(self, point: Floats) -> float:
        """By how much the row that is violated most is."""
        values = self.matrix @ point
        return float(np.maximum(values - self.row_upper, self.row_lower - values).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class LinearAnswer:
    """What a solver returned.

    Attributes
    ----------
    columns : None where it found none.
    bound : that it has proven of the objective.
    note : its word for how it ended.
    row_duals : multipliers of the rows, of programs without whole columns.
    infeasible : whether it proved that there are no columns. proven : whether it came to its end.
    """

    columns: Floats | None
    bound: float
    note: str
    row_duals: Floats | None = None
    infeasible: bool = False
    proven: bool = False

    @property
    def optimum(self) -> tuple[Floats, Floats]:
        """Columns and row multipliers, in absolute value; RuntimeError unless they are proven to be optimal."""
        if self.columns is None or self.row_duals is None or not self.proven:
            raise RuntimeError(f"stopped with status {self.note}")
        return self.columns, np.abs(self.row_duals)


class RowBuilder:
    """Collects the entries of sparse rows, block by block."""

    def __init__(self, n_columns: int) -> None:
        self.n_columns = n_columns
        self.rows: list[Positions] = []
        self.columns: list[Positions] = []
        self.values: list[Floats] = []
        self.lower: list[Floats] = []
        self.upper: list[Floats] = []
        self.count = 0

    def add(self, n_rows: int, blocks: list[tuple[Any, Any, Any]], lower: Any, upper: Any) -> None:
        """Rows with entries of (row within the block, column, value), each of them broadcast against the others."""
        for rows, columns, values in blocks:
            row, column, value = np.broadcast_arrays(rows, columns, values)
            self.rows.append(row.ravel() + self.count)
            self.columns.append(column.ravel())
            self.values.append(value.ravel().astype(np.float64))
        self.lower.append(np.broadcast_to(np.asarray(lower, dtype=np.float64), n_rows))
        self.upper.append(np.broadcast_to(np.asarray(upper, dtype=np.float64), n_rows))
        self.count += n_rows

    @property
    def collected(self) -> tuple[Any, Floats, Floats]:
        """The rows, and their lower and upper limits."""
        from scipy.sparse import csr_matrix

        entries = (np.concatenate(self.values), (np.concatenate(self.rows), np.concatenate(self.columns)))
        matrix = csr_matrix(entries, shape=(self.count, self.n_columns))
        return matrix, np.concatenate(self.lower), np.concatenate(self.upper)

    def program(self, cost: Floats, lower: Floats, upper: Floats, whole: Flags) -> MixedProgram:
        """The program of all rows collected."""
        return MixedProgram(cost, lower, upper, whole, *self.collected)


class Highs:
    """A program in HiGHS on one thread, which goes on from its last point when it has changed.

    Parameters
    ----------
    options : of HiGHS; RuntimeError for one that it does not take.

    Attributes
    ----------
    rounding : half a unit of the last digit with which it tells variables from 0.1 to 1 that are not whole.
    solver : HiGHS itself.
    """

    rounding = 0.0

    def __init__(self, program: MixedProgram, options: Mapping[str, Any] | None = None) -> None:
        import highspy

        self._highs: Any = highspy
        self.whole = bool(program.whole.any())
        R, C = program.matrix.shape
        model: Any = highspy.HighsLp()
        model.num_row_, model.num_col_ = R, C
        model.sense_ = highspy.ObjSense.kMaximize if program.maximise else highspy.ObjSense.kMinimize
        model.col_cost_, model.col_lower_, model.col_upper_ = program.cost, program.lower, program.upper
        model.row_lower_, model.row_upper_ = program.row_lower, program.row_upper
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.num_row_, model.a_matrix_.num_col_ = R, C
        model.a_matrix_.start_, model.a_matrix_.index_ = program.matrix.indptr, program.matrix.indices
        model.a_matrix_.value_ = program.matrix.data
        if self.whole:
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            model.integrality_ = [kinds[int(each)] for each in program.whole]
        self.solver = new_solver(options or {})
        self._accepted(self.solver.passModel(model), "model")

    def solve(
        self,
        stop: StopRule | None = None,
        *,
        start: Floats | None = None,
        relaxed: bool = False,
        presolve: str | None = None,
        most_nodes: int | None = None,
    ) -> LinearAnswer:
        """What HiGHS finds.

        Parameters
        ----------
        stop : no limit when omitted.
        start : columns to start from.
        relaxed : without the demand for whole variables.
        presolve, most_nodes : options of HiGHS, from now on.
        """
        solver, statuses = self.solver, self._highs.HighsModelStatus
        if start is not None:
            known = self._highs.HighsSolution()
            known.col_value = start.tolist()
            self._accepted(solver.setSolution(known), "solution to start from")
        asked: dict[str, Any] = {"presolve": presolve, "mip_max_nodes": most_nodes}
        asked = {name: value for name, value in asked.items() if value is not None}
        if stop is not None:
            asked |= stop.for_highs()
            # HiGHS counts the time of all its runs
            asked["time_limit"] += solver.getRunTime()
        if self.whole:
            asked["solve_relaxation"] = relaxed
        for name, value in asked.items():
            self._accepted(solver.setOptionValue(name, value), f"option {name}={value}")
        solver.run()
        status, info = solver.getModelStatus(), solver.getInfo()
        note, proven = str(solver.modelStatusToString(status)), status == statuses.kOptimal
        if status == statuses.kInfeasible:
            return LinearAnswer(None, math.inf, note, infeasible=True, proven=True)
        found = info.primal_solution_status == self._highs.SolutionStatus.kSolutionStatusFeasible
        if proven and not found:
            note += f", with rows violated by {info.max_primal_infeasibility:.1e}"
        solution, linear = solver.getSolution(), relaxed or not self.whole
        bound = float(info.objective_function_value if linear else info.mip_dual_bound)
        return LinearAnswer(
            np.asarray(solution.col_value) if found else None,
            bound if math.isfinite(bound) and (proven or not linear) else -math.inf,
            note,
            np.asarray(solution.row_dual) if found and linear else None,
            proven=proven,
        )

    def set_cost(self, cost: Floats) -> None:
        """Another objective."""
        self.solver.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost)

    def add_rows(self, matrix: Any, lower: Floats, upper: Floats) -> None:
        """Rows that hold from now on; `matrix` by rows."""
        starts, indices = matrix.indptr[:-1].astype(np.int32), matrix.indices.astype(np.int32)
        self._accepted(self.solver.addRows(len(lower), lower, upper, matrix.nnz, starts, indices, matrix.data), "rows")

    def add_columns(self, matrix: Any, cost: Floats) -> None:
        """Columns of at least 0; `matrix` by columns."""
        C, starts, indices = len(cost), matrix.indptr[:-1].astype(np.int32), matrix.indices.astype(np.int32)
        most = np.full(C, np.inf)
        self._accepted(
            self.solver.addCols(C, cost, np.zeros(C), most, matrix.nnz, starts, indices, matrix.data), "columns"
        )

    def _accepted(self, status: Any, what: str) -> None:
        # HiGHS reports an unknown option or a refused value by its return code alone
        if status == self._highs.HighsStatus.kError:
            raise RuntimeError(f"HiGHS refused the {what}")


def new_solver(options: Mapping[str, Any]) -> Any:
    """A silent HiGHS of one thread; RuntimeError for an option that it does not take."""
    import highspy

    solver = _silent_highs()()
    for option, value in {"output_flag": False, "log_to_console": False, "threads": 1, **options}.items():
        if solver.setOptionValue(option, value) != highspy.HighsStatus.kOk:
            raise RuntimeError(f"HiGHS refused the option {option}={value}")
    return solver


@cache
def _silent_highs() -> Any:
    """HiGHS whose constructor prints nothing: that of release 1.16 writes a banner when it turns callbacks on."""
    import highspy

    class SilentHighs(highspy.Highs):
        def enableCallbacks(self) -> Any:
            self.setOptionValue("output_flag", False)
            untyped: Any = super()
            return untyped.enableCallbacks()

    return SilentHighs


class Cbc:
    """A program in CBC on one thread, from the beginning each time; see `Highs`.

    CBC's preprocessing of whole columns may, in version 2.10, fix them wrongly and end "optimal" beside the optimum
    (tests/formulations/test_leases.py has such a program), or at a point that does not keep the rows
    (tests/formulations/test_columns.py); without it CBC crashes where there is no point at all. So a program with
    whole columns for which it found a point is solved again without, and the better point that keeps the rows counts;
    it is proven where that second search has proven it.

    Parameters
    ----------
    options : of CBC, values by name.
    """

    # it writes eight digits
    rounding = 5e-9

    def __init__(self, program: MixedProgram, options: Mapping[str, Any] | None = None) -> None:
        self.program, self.options = program, options or {}

    def solve(self, stop: StopRule | None = None, *, relaxed: bool = False, **_: Any) -> LinearAnswer:
        """What CBC finds; it takes no start, and presolves as it likes."""
        stop, program = stop or StopRule(), self.program
        whole = program.whole & (not relaxed)
        with warnings.catch_warnings():
            # PuLP 3 announces PuLP 4, which the pinned range excludes
            warnings.simplefilter("ignore", DeprecationWarning)
            import pulp

            model = pulp.LpProblem("program", pulp.LpMaximize if program.maximise else pulp.LpMinimize)
            kinds = np.where(whole, "Integer", "Continuous")
            columns = zip(program.lower.tolist(), program.upper.tolist(), kinds, strict=True)
            x = [
                pulp.LpVariable(f"x{at}", least, None if math.isinf(most) else most, str(kind))
                for at, (least, most, kind) in enumerate(columns)
            ]
            model += pulp.lpSum(float(value) * x[at] for at, value in enumerate(program.cost) if value)
            matrix, of_row = program.matrix, []
            limits = zip(program.row_lower.tolist(), program.row_upper.tolist(), strict=True)
            for row, (least, most) in enumerate(limits):
                entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
                terms = zip(matrix.indices[entries].tolist(), matrix.data[entries].tolist(), strict=True)
                total = pulp.LpAffineExpression([(x[at], value) for at, value in terms])
                if not len(total):
                    if least > 0 or most < 0:
                        note = "a row without entries cannot be kept"
                        return LinearAnswer(None, math.inf, note, infeasible=True, proven=True)
                    continue
                kept = [total == most] if least == most else []
                if least < most < math.inf:
                    kept.append(total <= most)
                if -math.inf < least < most:
                    kept.append(total >= least)
                for limit in kept:
                    model += limit
                    of_row.append(row)
            # a name and its value are one option for PuLP: each gets one hyphen
            given = [f"{name} {value}" for name, value in self.options.items()]
            until = perf_counter() + stop.seconds

            def search(*more: str) -> LinearAnswer:
                rest = replace(stop, seconds=until - perf_counter()).for_cbc()
                try:
                    model.solve(pulp.PULP_CBC_CMD(msg=False, threads=1, options=[*given, *more], **rest))
                except pulp.PulpSolverError as error:
                    raise RuntimeError(f"CBC failed: {error}") from error
                return self._read(model, x, np.array(of_row, dtype=np.int64), stop, linear=not whole.any())

            found = search()
            if found.columns is None or not whole.any():
                return found
            again = search("preprocess off")
        if again.columns is None:
            return replace(found, proven=False, bound=-math.inf)
        sign = -1.0 if program.maximise else 1.0
        kept_too = program.violation(found.columns) <= max(_KEPT, program.violation(again.columns))
        first_is_better = sign * dot(program.cost, found.columns) < sign * dot(program.cost, again.columns)
        better = found if kept_too and first_is_better else again
        bound = self._bound(better.columns, stop) if again.proven else -math.inf
        return replace(better, proven=again.proven, bound=bound)

    def set_cost(self, cost: Floats) -> None:
        """Another objective."""
        self.program = replace(self.program, cost=cost)

    def add_rows(self, matrix: Any, lower: Floats, upper: Floats) -> None:
        """Rows that hold from now on; `matrix` by rows."""
        self.program = self.program.with_rows(matrix, lower, upper)

    def add_columns(self, matrix: Any, cost: Floats) -> None:
        """Columns of at least 0; `matrix` by columns."""
        from scipy.sparse import csr_array, hstack

        program, C = self.program, len(cost)
        self.program = MixedProgram.of(
            csr_array(hstack([program.matrix, matrix], format="csr")),
            np.concatenate([program.cost, cost]),
            (program.row_lower, program.row_upper),
            lower=np.append(program.lower, np.zeros(C)),
            upper=np.append(program.upper, np.full(C, np.inf)),
            whole=np.append(program.whole, np.zeros(C, dtype=bool)),
            maximise=program.maximise,
        )

    def _read(self, model: Any, x: list[Any], of_row: Ints, stop: StopRule, *, linear: bool) -> LinearAnswer:
        """What PuLP has read of CBC's answer; `of_row` says which row each of its constraints belongs to."""
        import pulp

        note = f"{pulp.LpStatus[model.status]}, {pulp.LpSolution[model.sol_status]}"
        if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            none = model.status in (pulp.LpStatusInfeasible, pulp.LpStatusUnbounded)
            return LinearAnswer(None, math.inf if none else -math.inf, note, infeasible=none, proven=none)
        multipliers = [constraint.pi or 0.0 for constraint in model.constraints.values()]
        duals = np.bincount(of_row, multipliers, minlength=len(self.program.row_lower)).astype(np.float64)
        point = np.array([variable.value() or 0.0 for variable in x])
        proven = model.sol_status == pulp.LpSolutionOptimal
        bound = self._bound(point, stop, linear=linear) if proven else -math.inf
        return LinearAnswer(point, bound, note, duals if linear else None, proven=proven)

    def _bound(self, point: Any, stop: StopRule, *, linear: bool = False) -> float:
        """CBC tells PuLP no bound; within its gap is what it says when it stops by itself."""
        cost = dot(self.program.cost, point)
        return cost if linear else cost - (-1.0 if self.program.maximise else 1.0) * stop.distance(cost)


MODELS: dict[str, type[Highs] | type[Cbc]] = {"highs": Highs, "cbc": Cbc}
"""Solvers by name."""

_SEEDS: dict[str, dict[str, Any]] = {"highs": {"random_seed": 0}, "cbc": {"randomCbcSeed": "1"}}


def solve_mixed(
    program: MixedProgram,
    solver: str,
    stop: StopRule,
    *,
    start: Floats | None = None,
    most_nodes: int | None = None,
    presolve: bool = True,
) -> LinearAnswer:
    """Solve with "highs" or "cbc", on one thread.

    HiGHS may be given a solution to start from and a limit of nodes, and may go without `presolve`, which costs more
    than it saves on few rows that hold most columns each. Costs that are too large for a solver in double precision are
    scaled down with the absolute gap, and the bound is scaled back.
    """
    scale, scaled = _scaled(program)
    stop = replace(stop, absolute_gap=stop.absolute_gap / scale)
    model = MODELS[solver](scaled, _SEEDS[solver])
    answer = model.solve(stop, start=start, presolve=None if presolve else "off", most_nodes=most_nodes)
    return replace(answer, bound=answer.bound * scale)


def solve_linear(program: MixedProgram) -> LinearAnswer:
    """Solve without the demand for whole variables, in HiGHS; with the multipliers of the rows."""
    scale, scaled = _scaled(program)
    answer = Highs(replace(scaled, whole=np.zeros_like(program.whole)), _SEEDS["highs"]).solve()
    duals = None if answer.row_duals is None else answer.row_duals * scale
    return replace(answer, bound=answer.bound * scale, row_duals=duals)


def _scaled(program: MixedProgram) -> tuple[float, MixedProgram]:
    scale = max(1.0, float(np.abs(program.cost).max(initial=0.0)) / _LARGEST_COST)
    return scale, replace(program, cost=program.cost / scale)


def at_vertex(program: MixedProgram, columns: Floats, n_columns: int) -> Floats | None:
    """An answer whose first columns are whole, as at a vertex they are once all those are that are asked to be.

    A solver's answer may have these whole and yet be no vertex of the rest.
    """
    first = columns[:n_columns]
    if np.abs(first - np.round(first)).max(initial=0.0) <= _WHOLE_TOLERANCE:
        return columns
    lower = np.where(program.whole, np.round(columns), program.lower)
    upper = np.where(program.whole, np.round(columns), program.upper)
    return solve_linear(replace(program, lower=lower, upper=upper)).columns
