"""Linear programs with whole variables in HiGHS or in CBC, which comes with PuLP: one model, one rule for the end."""

from __future__ import annotations

import math
import subprocess
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from formulations.reference.stopping import StopRule
from throughputs.arrays import Flags, Floats, Positions
from throughputs.numerics import dot

TIGHT: dict[str, Any] = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""Options of HiGHS for linear programs that are to be solved as exactly as it can."""

_LARGEST_COST = 1e6
"""Larger coefficients of an objective are scaled down to this, as solvers' tolerances are absolute."""

_WHOLE_TOLERANCE = 1e-6


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
        self.n_columns, self.count = n_columns, 0
        self.entries: list[Any] = []
        self.limits: list[Any] = []

    def add(self, n_rows: int, blocks: list[tuple[Any, Any, Any]], lower: Any, upper: Any) -> None:
        """Rows with entries of (row within the block, column, value), each of them broadcast against the others."""
        for rows, columns, values in blocks:
            entries = np.broadcast_arrays(np.asarray(rows) + self.count, columns, values)
            self.entries.append([part.ravel() for part in entries])
        self.limits.append(np.broadcast_to(np.stack(np.broadcast_arrays(lower, upper), axis=-1), (n_rows, 2)))
        self.count += n_rows

    @property
    def collected(self) -> tuple[Any, Floats, Floats]:
        """The rows, and their lower and upper limits."""
        from scipy.sparse import csr_matrix

        rows, columns, values = (np.concatenate(part) for part in zip(*self.entries, strict=True))
        matrix = csr_matrix((values.astype(np.float64), (rows, columns)), shape=(self.count, self.n_columns))
        lower, upper = np.concatenate(self.limits).astype(np.float64).T
        return matrix, lower, upper

    def program(self, cost: Floats, lower: ArrayLike, upper: ArrayLike, whole: ArrayLike) -> MixedProgram:
        """The program of all rows collected."""
        matrix, least, most = self.collected
        return MixedProgram.of(matrix, cost, (least, most), lower=lower, upper=upper, whole=whole)


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
        self.solver = _silent_highs()()
        self._set({"output_flag": False, "log_to_console": False, "threads": 1, **(options or {})})
        matrix, (R, C) = program.matrix, program.matrix.shape
        sense = highspy.ObjSense.kMaximize if program.maximise else highspy.ObjSense.kMinimize
        sizes = C, R, matrix.nnz, int(highspy.MatrixFormat.kRowwise), int(sense), 0.0
        limits = program.lower, program.upper, program.row_lower, program.row_upper
        entries = matrix.indptr, matrix.indices, matrix.data
        status = self.solver.passModel(*sizes, program.cost, *limits, *entries, program.whole.astype(np.int32))
        self._accepted(status, "model")

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
        presolve, most_nodes : options of HiGHS, from now on; to presolve costs more than it saves on few rows that
            hold most columns each.
        """
        solver, statuses = self.solver, self._highs.HighsModelStatus
        if start is not None:
            known = self._highs.HighsSolution()
            known.col_value = start.tolist()
            self._accepted(solver.setSolution(known), "solution to start from")
        asked: dict[str, Any] = {"presolve": presolve, "mip_max_nodes": most_nodes}
        asked = {name: value for name, value in asked.items() if value is not None}
        if stop is not None:
            asked |= stop.as_options("mip_rel_gap", "mip_abs_gap", "time_limit")
            # HiGHS counts the time of all its runs
            asked["time_limit"] += solver.getRunTime()
        if self.whole:
            asked["solve_relaxation"] = relaxed
        self._set(asked)
        if solver.run() == self._highs.HighsStatus.kError:
            # its threads are one pool for the whole process, which others may have made larger
            solver.resetGlobalScheduler(True)
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

    def _set(self, options: Mapping[str, Any]) -> None:
        for name, value in options.items():
            self._accepted(self.solver.setOptionValue(name, value), f"option {name}={value}")

    def _accepted(self, status: Any, what: str) -> None:
        # HiGHS reports an unknown option or a refused value by its return code alone
        if status == self._highs.HighsStatus.kError:
            raise RuntimeError(f"HiGHS refused the {what}")


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


class Cbc(Highs):
    """A program in CBC on one thread, from the beginning each time; see `Highs`.

    CBC's preprocessing of whole columns may, in version 2.10, fix them wrongly and end "optimal" beside the optimum
    (tests/formulations/test_leases.py has such a program), or at a point that does not keep the rows
    (tests/formulations/test_columns.py); without it CBC crashes where there is no point at all. So programs with whole
    columns are solved without, and once more with it where that finds nothing; a point of this second search is
    unproven.

    Parameters
    ----------
    options : of CBC, values by name.
    """

    # it writes eight digits
    rounding = 5e-9

    def __init__(self, program: MixedProgram, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(program, {"small_matrix_value": 1e-12})
        self.options, self.maximise = options or {}, program.maximise

    def solve(self, stop: StopRule | None = None, *, relaxed: bool = False, **_: Any) -> LinearAnswer:
        """What CBC finds; it takes no start, and presolves as it likes."""
        stop, whole = stop or StopRule(), self.whole and not relaxed
        until = perf_counter() + stop.seconds
        if not whole:
            return self._search(stop, whole=False)
        try:
            found = self._search(stop, "-preprocess=off")
        except RuntimeError as error:
            found = LinearAnswer(None, math.inf, str(error))
        if found.columns is not None:
            return found
        found = self._search(replace(stop, seconds=until - perf_counter()))
        return found if found.columns is None else replace(found, proven=False, bound=-math.inf)

    def _search(self, stop: StopRule, *more: str, whole: bool = True) -> LinearAnswer:
        """One search by CBC's command in the file that HiGHS writes; RuntimeError where it fails."""
        with warnings.catch_warnings():
            # PuLP 3 announces PuLP 4, which the pinned range excludes
            warnings.simplefilter("ignore", DeprecationWarning)
            from pulp import PULP_CBC_CMD

            cbc = PULP_CBC_CMD(msg=False).path
        # by default CBC leaves out points that are better by less than 1e-5
        options = {"threads": 1, "increment": 0.0, **stop.as_options("ratio", "allow", "sec"), **self.options}
        asked = [*(f"-{name}={value}" for name, value in options.items()), *more]
        with TemporaryDirectory() as folder:
            stated, found = Path(folder) / "program.mps", Path(folder) / "found.txt"
            self.solver.writeModel(str(stated))
            asked += ["-max"] * self.maximise
            asked += ["-solve" if whole else "-initialSolve", "-printingOptions", "all", "-solution", str(found)]
            ended = subprocess.run([cbc, str(stated), *asked], capture_output=True, check=False)
            if ended.returncode or not found.exists():
                raise RuntimeError(f"CBC failed with {ended.returncode}")
            note, *lines = found.read_text().splitlines()
        word = note.split()
        if word[0] in ("Infeasible", "Integer", "Unbounded"):
            return LinearAnswer(None, math.inf, note, infeasible=True, proven=True)
        proven = word[0] == "Optimal"
        if not proven and word[4:5] != ["objective"]:
            return LinearAnswer(None, -math.inf, note)
        # number, name, value and multiplier of each row, then of each column; stars where it violates its limits
        values, multipliers = np.array([line.replace("**", "").split()[2:] for line in lines], dtype=np.float64).T
        lp = self.solver.getLp()
        # rows without a limit are not in the file
        rows = np.flatnonzero(np.isfinite(lp.row_lower_) | np.isfinite(lp.row_upper_))
        point, duals = values[len(rows) :], np.zeros(lp.num_row_)
        duals[rows] = multipliers[: len(rows)]
        bound = dot(np.asarray(lp.col_cost_), point)
        if whole:
            # CBC tells no bound; within its gap is what it says when it stops by itself
            bound += (1.0 if self.maximise else -1.0) * stop.distance(bound)
        return LinearAnswer(point, bound if proven else -math.inf, note, None if whole else duals, proven=proven)


MODELS: dict[str, type[Highs] | type[Cbc]] = {"highs": Highs, "cbc": Cbc}
"""Solvers by name."""

_SEEDS: dict[str, dict[str, Any]] = {"highs": {"random_seed": 0}, "cbc": {"randomCbcSeed": "1"}}


def solve_mixed(program: MixedProgram, solver: str, stop: StopRule, **search: Any) -> LinearAnswer:
    """Solve with "highs" or "cbc", on one thread; `search` are arguments of `Highs.solve`.

    Costs that are too large for a solver in double precision are scaled down with the absolute gap, and bound and
    multipliers are scaled back.
    """
    scale = max(1.0, float(np.abs(program.cost).max(initial=0.0)) / _LARGEST_COST)
    stop = replace(stop, absolute_gap=stop.absolute_gap / scale)
    model = MODELS[solver](replace(program, cost=program.cost / scale), _SEEDS[solver])
    answer = model.solve(stop, **search)
    duals = None if answer.row_duals is None else answer.row_duals * scale
    return replace(answer, bound=answer.bound * scale, row_duals=duals)


def solve_linear(program: MixedProgram) -> LinearAnswer:
    """Solve without the demand for whole variables, in HiGHS; with the multipliers of the rows."""
    return solve_mixed(replace(program, whole=np.zeros_like(program.whole)), "highs", StopRule(seconds=math.inf))


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
