"""Solvers of programs that are written out: HiGHS, and CBC through PuLP as the second opinion."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from formulations.columns.written import Written
from formulations.core.highs_model import TIGHT, with_model
from formulations.core.solution import InfeasibleError
from formulations.reference.cbc import run_cbc
from throughputs.numerics import dot

__all__ = ["ENGINES", "Engine", "Found"]

Array = NDArray[np.float64]

_EXACT: dict[str, Any] = {
    **TIGHT,
    "small_matrix_value": 1e-12,
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 1e-9,
    "mip_feasibility_tolerance": 1e-9,
    "random_seed": 0,
}
_WHOLE = 1e-10
"""Distance from a whole number up to which a vertex of the relaxation counts as whole."""

_BELOW_ONE = 0.99

_FEW_COLUMNS = 2000
"""Up to so many variables a search begins with none."""

_GAP_OF_A_BEGINNING = 1e-4
"""Relative gap of the point that such a search begins with."""


@dataclass(frozen=True, eq=False)
class Found:
    """What an engine returns, unproven.

    Attributes
    ----------
    z : (V,) the point; whole variables exactly so.
    multipliers : (rows,) of the rows, those of the relaxation where variables are whole; a positive one belongs to
        an upper limit. Empty where the engine has none.
    bound : what the engine says that no point exceeds; inf where it says nothing beyond its multipliers.
    """

    z: Array
    multipliers: Array
    bound: float


class Engine(Protocol):
    """A solver that keeps one program, and goes on from the last point when rows are added."""

    def __init__(self, written: Written, seconds: float) -> None:
        """The program, and the time that one search may take."""
        ...

    def optimise(self, cost: Array) -> Found:
        """The point of the most `cost` z.

        Raises
        ------
        InfeasibleError
            There is none.
        RuntimeError
            The solver stopped without one.
        """
        ...

    def add(self, matrix: Any, lower: Array, upper: Array) -> None:
        """Rows that hold from now on."""
        ...


class Highs:
    """HiGHS: the relaxation first, branch and bound where its vertex is not whole."""

    def __init__(self, written: Written, seconds: float) -> None:
        self._whole, self._counts = written.whole, written.counts
        self._least, self._most = written.least, written.most
        self._solver = with_model(
            written.matrix,
            np.zeros(len(written.least)),
            (written.lower, written.upper),
            lower=written.least,
            upper=written.most,
            whole=written.whole if written.whole.any() else None,
            options={**_EXACT, "time_limit": min(seconds, 1e9)},
        )

    def optimise(self, cost: Array) -> Found:
        """The point of the most `cost` z."""
        V = len(cost)
        scale = _scale(cost)
        # HiGHS minimises
        self._solver.changeColsCost(V, np.arange(V, dtype=np.int32), -cost / scale)
        # rows are few: what presolve saves of them costs more than it saves
        self._solver.setOptionValue("presolve", "off")
        self._solver.setOptionValue("solve_relaxation", True)
        z = self._run()
        multipliers = -scale * np.asarray(self._solver.getSolution().row_dual)
        bound = np.inf
        fraction = np.abs(z - np.rint(z))[self._whole]
        if fraction.max(initial=0.0) > _WHOLE:
            reduced = np.array(self._solver.getSolution().col_dual)
            # a whole number within less than 1 of its bound is the largest
            aim = _BELOW_ONE / scale if self._counts(cost) else _EXACT["mip_abs_gap"]
            self._solver.setOptionValue("mip_abs_gap", aim)
            self._solver.setOptionValue("presolve", "choose")
            self._solver.setOptionValue("solve_relaxation", False)
            self._begin_from(z, reduced)
            z = self._run()
            bound = -scale * float(self._solver.getInfo().mip_dual_bound)
        return Found(np.where(self._whole, np.rint(z), z), multipliers, bound)

    def _begin_from(self, z: Array, reduced: Array) -> None:
        """Give a large search a good point to begin with, from a vertex of the relaxation and its reduced costs.

        Columns that the relaxation would have to pay for are closed at first. What is found without them is close to
        the best, in a program a tenth as large, and lets the search of all columns drop most of them at once.
        """
        closed = np.flatnonzero(self._whole & (z <= _WHOLE) & (reduced > _WHOLE) & (self._least <= 0.0))
        if len(z) < _FEW_COLUMNS or not len(closed):
            return
        import highspy

        columns = closed.astype(np.int32)
        self._solver.changeColsBounds(len(columns), columns, np.zeros(len(columns)), np.zeros(len(columns)))
        self._solver.setOptionValue("mip_rel_gap", _GAP_OF_A_BEGINNING)
        start = highspy.HighsSolution()
        # where there is none in time, the search of all columns begins without
        with contextlib.suppress(InfeasibleError, RuntimeError):
            start.col_value = self._run().tolist()
        self._solver.setOptionValue("mip_rel_gap", _EXACT["mip_rel_gap"])
        self._solver.changeColsBounds(len(columns), columns, self._least[columns], self._most[columns])
        if start.col_value:
            self._solver.setSolution(start)

    def add(self, matrix: Any, lower: Array, upper: Array) -> None:
        """Rows that hold from now on."""
        R = matrix.shape[0]
        self._solver.addRows(
            R,
            lower,
            upper,
            matrix.nnz,
            matrix.indptr[:-1].astype(np.int32),
            matrix.indices.astype(np.int32),
            matrix.data,
        )

    def _run(self) -> Array:
        import highspy

        statuses = highspy.HighsModelStatus
        self._solver.run()
        status = self._solver.getModelStatus()
        if status in (statuses.kInfeasible, statuses.kUnboundedOrInfeasible):
            # every variable is bounded
            raise InfeasibleError("HiGHS: infeasible")
        solved = self._solver.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        if status != statuses.kOptimal and not (status == statuses.kTimeLimit and solved):
            raise RuntimeError(f"HiGHS stopped with status {self._solver.modelStatusToString(status)}")
        return np.asarray(self._solver.getSolution().col_value)


class Cbc:
    """CBC through PuLP; starts anew each time. Has multipliers where nothing is whole."""

    def __init__(self, written: Written, seconds: float) -> None:
        self._written, self._seconds = written, seconds

    def optimise(self, cost: Array) -> Found:
        """The point of the most `cost` z."""
        written, scale = self._written, _scale(cost)
        answer = run_cbc(
            written.matrix,
            cost / scale,
            (written.lower, written.upper),
            lower=written.least,
            upper=written.most,
            maximise=True,
            whole=written.whole,
            seconds=self._seconds if self._seconds < 1e9 else None,
            options={"primalT": "1e-9", "dualT": "1e-9", "integerT": "1e-9", "randomCbcSeed": "1"},
        )
        if answer.infeasible:
            # every variable is bounded
            raise InfeasibleError(f"CBC: {answer.status}")
        if answer.columns is None:
            raise RuntimeError(f"CBC stopped with status {answer.status}")
        point = np.where(written.whole, np.rint(answer.columns), answer.columns)
        if written.whole.any():
            # CBC tells PuLP no bound; that it searched everything is its word
            return Found(point, np.zeros(0), dot(cost, point) if answer.proven else np.inf)
        return Found(point, scale * answer.row_duals, np.inf)

    def add(self, matrix: Any, lower: Array, upper: Array) -> None:
        """Rows that hold from now on."""
        self._written = self._written.with_rows(matrix, lower, upper)


ENGINES: dict[str, type[Highs] | type[Cbc]] = {"highs": Highs, "cbc": Cbc}
"""Engines by name, in the order in which they are tried."""


def _scale(cost: Array) -> float:
    return max(float(np.abs(cost).max(initial=0.0)), 1e-300) if cost.any() else 1.0
