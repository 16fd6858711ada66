"""Linear programs with whole variables, straight into HiGHS or through PuLP into CBC."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.core.highs_model import with_model
from formulations.reference.cbc import run_cbc
from formulations.reference.stopping import StopRule
from throughputs.numerics import dot

Array = NDArray[np.float64]

_LARGEST_COST = 1e6
"""Larger coefficients of an objective are scaled down to this, as solvers' tolerances are absolute."""

_WHOLE_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class MixedProgram:
    """``min cost @ x`` subject to ``row_lower <= matrix @ x <= row_upper``, ``lower <= x <= upper``, some x whole.

    `matrix` is in compressed rows.
    """

    cost: Array
    lower: Array
    upper: Array
    whole: NDArray[np.bool_]
    matrix: Any
    row_lower: Array
    row_upper: Array

    def of_columns(self, some: NDArray[np.intp]) -> MixedProgram:
        """The program in which all columns but some are 0."""
        taken = {name: getattr(self, name)[some] for name in ("cost", "lower", "upper", "whole")}
        return replace(self, matrix=self.matrix[:, some], **taken)

    def with_rows_of(self, other: MixedProgram) -> MixedProgram:
        """The program that has the rows of another one, of as many columns, before its own."""
        from scipy import sparse

        return replace(
            self,
            matrix=sparse.vstack([other.matrix, self.matrix], format="csr"),
            row_lower=np.concatenate([other.row_lower, self.row_lower]),
            row_upper=np.concatenate([other.row_upper, self.row_upper]),
        )


@dataclass(frozen=True, eq=False)
class LinearAnswer:
    """What a solver returned: columns, a proven lower bound of the cost, and its word for how it ended.

    `columns` is None where it found none; `infeasible` says that it proved that there are none.
    """

    columns: Array | None
    bound: float
    note: str
    row_duals: Array | None = None
    infeasible: bool = False


class RowBuilder:
    """Collects the entries of sparse rows, block by block."""

    def __init__(self, n_columns: int) -> None:
        self.n_columns = n_columns
        self.rows: list[NDArray[np.intp]] = []
        self.columns: list[NDArray[np.intp]] = []
        self.values: list[Array] = []
        self.lower: list[Array] = []
        self.upper: list[Array] = []
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

    def program(self, cost: Array, lower: Array, upper: Array, whole: NDArray[np.bool_]) -> MixedProgram:
        """The program of all rows collected."""
        from scipy import sparse

        entries = (np.concatenate(self.values), (np.concatenate(self.rows), np.concatenate(self.columns)))
        matrix = sparse.csr_matrix(entries, shape=(self.count, self.n_columns))
        return MixedProgram(cost, lower, upper, whole, matrix, np.concatenate(self.lower), np.concatenate(self.upper))


def solve_mixed(
    program: MixedProgram,
    solver: str,
    stop: StopRule,
    *,
    start: Array | None = None,
    most_nodes: int | None = None,
    presolve: bool = True,
) -> LinearAnswer:
    """Solve with "highs" or "cbc", on one thread.

    HiGHS may be given a solution to start from and a limit of nodes, and may go without `presolve`, which costs more
    than it saves on few rows that hold most columns each. Costs that are too large for a solver in double precision are
    scaled down with the absolute gap, and the bound is scaled back.
    """
    scale = max(1.0, float(np.abs(program.cost).max(initial=0.0)) / _LARGEST_COST)
    scaled = replace(stop, absolute_gap=stop.absolute_gap / scale)
    if solver == "cbc":
        return _with_cbc(program, scale, scaled)
    more = {"mip_max_nodes": most_nodes, "presolve": None if presolve else "off"}
    asked = ((name, value) for name, value in more.items() if value is not None)
    model = _highs_model(program, scale, *scaled.for_highs().items(), *asked)
    if start is not None:
        _start_from(model, start)
    return _run_highs(model, scale, mixed=bool(program.whole.any()))


def solve_linear(program: MixedProgram) -> LinearAnswer:
    """Solve without the demand for whole variables, in HiGHS; with the multipliers of the rows."""
    scale = max(1.0, float(np.abs(program.cost).max(initial=0.0)) / _LARGEST_COST)
    return _run_highs(_highs_model(program, scale, relaxed=True), scale, mixed=False)


def at_vertex(program: MixedProgram, columns: Array, n_columns: int) -> Array | None:
    """An answer whose first columns are whole, as at a vertex they are once all those are that are asked to be.

    A solver's answer may have these whole and yet be no vertex of the rest.
    """
    first = columns[:n_columns]
    if np.abs(first - np.round(first)).max(initial=0.0) <= _WHOLE_TOLERANCE:
        return columns
    lower = np.where(program.whole, np.round(columns), program.lower)
    upper = np.where(program.whole, np.round(columns), program.upper)
    return solve_linear(replace(program, lower=lower, upper=upper)).columns


def _highs_model(program: MixedProgram, scale: float, *options: tuple[str, float | str], relaxed: bool = False) -> Any:
    return with_model(
        program.matrix,
        program.cost / scale,
        (program.row_lower, program.row_upper),
        lower=program.lower,
        upper=program.upper,
        whole=program.whole if program.whole.any() and not relaxed else None,
        options={"random_seed": 0, **dict(options)},
    )


def _start_from(solver: Any, columns: Array) -> None:
    import highspy

    solution = highspy.HighsSolution()
    solution.col_value = columns
    if solver.setSolution(solution) == highspy.HighsStatus.kError:
        raise RuntimeError("HiGHS refused the solution to start from")


def _run_highs(solver: Any, scale: float, *, mixed: bool) -> LinearAnswer:
    import highspy

    solver.run()
    status = solver.getModelStatus()
    note = str(solver.modelStatusToString(status))
    if status == highspy.HighsModelStatus.kInfeasible:
        return LinearAnswer(None, math.inf, note, infeasible=True)
    info = solver.getInfo()
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    solution = solver.getSolution()
    columns = np.asarray(solution.col_value) if feasible else None
    if mixed:
        bound = float(info.mip_dual_bound)
    else:
        bound = float(info.objective_function_value) if status == highspy.HighsModelStatus.kOptimal else -math.inf
    duals = np.asarray(solution.row_dual) * scale if feasible and not mixed else None
    return LinearAnswer(columns, bound * scale if math.isfinite(bound) else -math.inf, note, duals)


def _with_cbc(program: MixedProgram, scale: float, stop: StopRule) -> LinearAnswer:
    answer = run_cbc(
        program.matrix,
        program.cost / scale,
        (program.row_lower, program.row_upper),
        lower=program.lower,
        upper=program.upper,
        whole=program.whole,
        stop=stop,
        options={"randomCbcSeed": "1"},
    )
    if answer.columns is None:
        bound = math.inf if answer.infeasible else -math.inf
        return LinearAnswer(None, bound, answer.status, infeasible=answer.infeasible)
    cost = dot(program.cost, answer.columns) / scale
    # CBC tells PuLP no bound; within its gap is what it says when it stops by itself
    bound = (cost - stop.distance(cost)) * scale if answer.proven else -math.inf
    return LinearAnswer(answer.columns, bound, answer.status)
