"""Solvers of programs that are written out: HiGHS, and CBC through PuLP as the second opinion."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from formulations.columns.near import Searched, search_near
from formulations.columns.rounding import rounded_rows
from formulations.columns.written import Written
from formulations.core.highs_model import TIGHT, with_model
from formulations.core.solution import InfeasibleError
from formulations.reference.cbc import run_cbc
from formulations.reference.stopping import StopRule
from throughputs.numerics import dot

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_EXACT: dict[str, Any] = {
    **TIGHT,
    "small_matrix_value": 1e-12,
    "mip_feasibility_tolerance": 1e-9,
    "random_seed": 0,
}
_EXACT_GAP = 1e-9
"""Absolute gap of a search, where the largest cost is 1."""

_WHOLE = 1e-10
"""Distance from a whole number up to which a vertex of the relaxation counts as whole."""

_BELOW_ONE = 0.99

_FEW_COLUMNS = 2000
"""Up to so many variables all of them are searched at once."""


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
    """A solver that keeps one program, and goes on from the last point when rows are added.

    Attributes
    ----------
    rounding : half a unit of the last digit with which it tells variables from 0.1 to 1 that are not whole; 0 where it
        tells them as it has them.
    """

    rounding: float

    def __init__(self, written: Written, seconds: float) -> None:
        """The program, and the time that all searches together may take."""
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
    """HiGHS: the relaxation first, branch and bound where its vertex is not whole, near it in large programs."""

    rounding = 0.0

    def __init__(self, written: Written, seconds: float) -> None:
        self._written, self._until = written, perf_counter() + seconds
        self._solver = with_model(
            written.matrix,
            np.zeros(len(written.least)),
            (written.lower, written.upper),
            lower=written.least,
            upper=written.most,
            whole=written.whole if written.whole.any() else None,
            options=_EXACT,
        )

    def optimise(self, cost: Array) -> Found:
        """The point of the most `cost` z."""
        V, written = len(cost), self._written
        scale = _scale(cost)
        # HiGHS minimises
        self._solver.changeColsCost(V, np.arange(V, dtype=np.int32), -cost / scale)
        # rows are few: what presolve saves of them costs more than it saves
        self._solver.setOptionValue("presolve", "off")
        self._solver.setOptionValue("solve_relaxation", True)
        z, _ = self._run(StopRule(absolute_gap=_EXACT_GAP))
        multipliers = -scale * np.asarray(self._solver.getSolution().row_dual)
        bound = np.inf
        fraction = np.abs(z - np.rint(z))[written.whole]
        if fraction.max(initial=0.0) > _WHOLE:
            aim = _aim(written, cost)
            if len(z) < _FEW_COLUMNS:
                z, bound = self._search_all(scale, aim)
            else:
                tight, prices = self._tightened(multipliers, scale)
                search = partial(self._search_some, tight, cost, aim)
                z, bound = search_near(tight, cost, prices, aim, search)
        return Found(np.where(written.whole, np.rint(z), z), multipliers, bound)

    def _search_all(self, scale: float, aim: float) -> tuple[Array, float]:
        """The best point with whole variables whole, and its bound."""
        self._solver.setOptionValue("presolve", "choose")
        self._solver.setOptionValue("solve_relaxation", False)
        z, _ = self._run(StopRule(absolute_gap=aim / scale))
        return z, -scale * float(self._solver.getInfo().mip_dual_bound)

    def _tightened(self, multipliers: Array, scale: float) -> tuple[Written, Array]:
        """The program with rows that whole variables keep, and the multipliers of its relaxation, of the last cost."""
        rounded, written = rounded_rows(self._written), self._written
        if rounded is None:
            return written, multipliers
        rows, upper = rounded
        lower, known = np.full(len(upper), -np.inf), len(written.lower)
        self.add(rows, lower, upper)
        self._run(StopRule(absolute_gap=_EXACT_GAP))
        tight, self._written = self._written, written
        found = -scale * np.asarray(self._solver.getSolution().row_dual)
        self._solver.deleteRows(len(upper), np.arange(known, known + len(upper), dtype=np.int32))
        return tight, found

    def _search_some(
        self, written: Written, cost: Array, aim: float, opened: Flags, point: Array, start: Array | None
    ) -> Searched:
        """The best point with variables that are not `opened` as in `point`."""
        scale = _scale(cost)
        # the relaxation of a program with rounded rows is nearly whole: presolve takes longer than what it saves
        presolve = "choose" if written is self._written else "off"
        z = np.where(opened, 0.0, point)
        held, kept = written.matrix @ z, np.flatnonzero(opened)
        solver = with_model(
            written.matrix[:, kept],
            -cost[kept] / scale,
            (written.lower - held, written.upper - held),
            lower=written.least[kept],
            upper=written.most[kept],
            whole=written.whole[kept],
            options={**_EXACT, "presolve": presolve},
        )
        if start is not None:
            import highspy

            known = highspy.HighsSolution()
            known.col_value = start[kept].tolist()
            solver.setSolution(known)
        before = float(np.add.reduce(cost * z))
        z[kept], proven = self._run(StopRule(absolute_gap=aim / scale), solver)
        return Searched(z, before - scale * float(solver.getInfo().mip_dual_bound), proven)

    def _run(self, stop: StopRule, solver: Any = None) -> tuple[Array, bool]:
        solver = self._solver if solver is None else solver
        options = replace(stop, seconds=self._until - perf_counter()).for_highs()
        # HiGHS counts the time of all its runs
        options["time_limit"] += solver.getRunTime()
        for name, value in options.items():
            solver.setOptionValue(name, value)
        return _run(solver)

    def add(self, matrix: Any, lower: Array, upper: Array) -> None:
        """Rows that hold from now on."""
        self._written = self._written.with_rows(matrix, lower, upper)
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


def _run(solver: Any) -> tuple[Array, bool]:
    """The point that HiGHS finds, and whether it came to its end.

    Raises
    ------
    InfeasibleError
        There is none.
    RuntimeError
        It stopped without one.
    """
    import highspy

    statuses = highspy.HighsModelStatus
    solver.run()
    status = solver.getModelStatus()
    if status in (statuses.kInfeasible, statuses.kUnboundedOrInfeasible):
        # every variable is bounded
        raise InfeasibleError("HiGHS: infeasible")
    solved = solver.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    if status != statuses.kOptimal and not (status == statuses.kTimeLimit and solved):
        raise RuntimeError(f"HiGHS stopped with status {solver.modelStatusToString(status)}")
    return np.asarray(solver.getSolution().col_value), status == statuses.kOptimal


class Cbc:
    """CBC through PuLP; starts anew each time: the relaxation first, branch and bound where its vertex is not whole."""

    # it writes eight digits
    rounding = 5e-9

    def __init__(self, written: Written, seconds: float) -> None:
        self._written, self._until = written, perf_counter() + seconds

    def optimise(self, cost: Array) -> Found:
        """The point of the most `cost` z."""
        written, scale = self._written, _scale(cost)
        relaxed = self._run(cost / scale, StopRule(absolute_gap=_EXACT_GAP))
        z, multipliers = relaxed.columns, scale * relaxed.row_duals
        if np.abs(z - np.rint(z))[written.whole].max(initial=0.0) <= _WHOLE:
            return Found(np.where(written.whole, np.rint(z), z), multipliers, np.inf)
        stop = StopRule(absolute_gap=_aim(written, cost) / scale)
        answer = self._run(cost / scale, stop, written.whole)
        point = np.where(written.whole, np.rint(answer.columns), answer.columns)
        # CBC tells PuLP no bound; within its gap is what it says when it stops by itself
        bound = dot(cost, point) + scale * stop.absolute_gap if answer.proven else np.inf
        return Found(point, multipliers, bound)

    def _run(self, cost: Array, stop: StopRule, whole: Flags | None = None) -> Any:
        """The point that CBC finds.

        Raises
        ------
        InfeasibleError
            There is none.
        RuntimeError
            It stopped without one.
        """
        written = self._written
        answer = run_cbc(
            written.matrix,
            cost,
            (written.lower, written.upper),
            lower=written.least,
            upper=written.most,
            maximise=True,
            whole=whole,
            stop=replace(stop, seconds=self._until - perf_counter()),
            options={"primalT": "1e-9", "dualT": "1e-9", "integerT": "1e-9", "randomCbcSeed": "1"},
        )
        if answer.infeasible:
            # every variable is bounded
            raise InfeasibleError(f"CBC: {answer.status}")
        if answer.columns is None:
            raise RuntimeError(f"CBC stopped with status {answer.status}")
        return answer

    def add(self, matrix: Any, lower: Array, upper: Array) -> None:
        """Rows that hold from now on."""
        self._written = self._written.with_rows(matrix, lower, upper)


ENGINES: dict[str, type[Highs] | type[Cbc]] = {"highs": Highs, "cbc": Cbc}
"""Engines by name, in the order in which they are tried."""


def _aim(written: Written, cost: Array) -> float:
    """Absolute gap at which a search may stop: a whole number within less than 1 of its bound is the largest."""
    return _BELOW_ONE if written.counts(cost) else _EXACT_GAP * _scale(cost)


def _scale(cost: Array) -> float:
    return max(float(np.abs(cost).max(initial=0.0)), 1e-300) if cost.any() else 1.0
