"""Jobs to accelerator types and positions in line, at the least total completion time.

A job in the k-th position from the end of a line holds up k jobs, itself included, so it adds k times its processing
time to the sum of all completion times (Horn, Operations Research 21(3), 1973; Bruno, Coffman and Sethi, CACM 17(7),
1974). GPUs of a type are alike, and costs grow with k: with m jobs and F GPUs only the last ``ceil(m / F)`` positions
of each can be used, so the program does not grow with jobs times GPUs times jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from throughputs import InputError

__all__ = ["Line", "assign_to_lines"]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Line:
    """Who waits where.

    Attributes
    ----------
    accelerator : (m,) type of each job, -1 for one that no type takes.
    position : (m,) position from the end, 1 for the last; 0 for a job without a type.
    seconds : total completion time, ``sum_i k_i p_ij``.
    bound : no assignment has less, proven.
    solver : what solved it.
    """

    accelerator: Whole
    position: Whole
    seconds: float
    bound: float
    solver: str

    @property
    def gap(self) -> float:
        """Relative distance of the total from its bound."""
        return max(self.seconds - self.bound, 0.0) / self.seconds if self.seconds > 0 else 0.0


def assign_to_lines(
    seconds: ArrayLike, gpus: ArrayLike, scale_factors: ArrayLike | None = None, *, precision: float = 0.0
) -> Line:
    """Assign every job a type and a position from the end::

        min  sum_ijk k p_ij y_ijk
        with sum_jk y_ijk = 1                 for every job i
             sum_i s_i y_ijk <= F_j           for every type j and position k
             y_ijk in {0, 1}

    With single GPUs it is an assignment problem, solved exactly (`scipy.optimize.linear_sum_assignment`). A gang takes
    s_i GPUs of one position; the integer program is then solved by HiGHS.

    Parameters
    ----------
    seconds : (m, M) p, processing time of each job on each type; inf where it cannot run. A job with no finite entry
        is left out.
    gpus : (M,) F, GPUs of each type. A type is closed to gangs with more.
    scale_factors : (m,) s, GPUs per gang; 1 for every job when omitted.
    precision : relative gap to which the integer program is solved.

    Raises
    ------
    InputError
        A shape does not fit, or a time is not positive.

    Source: Le et al., EuroSys 2020 (AlloX), section 4; the positions of gangs are ours.
    """
    p, F = np.asarray(seconds, dtype=np.float64), np.asarray(gpus, dtype=np.int64)
    if p.ndim != 2 or F.shape != p.shape[1:]:
        found = f"seconds {p.shape}, gpus {F.shape}"
        raise InputError("assignment", field="seconds", found=found, expected="shapes (jobs, types) and (types,)")
    if np.isnan(p).any() or (p <= 0).any():
        raise InputError("assignment", field="seconds", found=float(p[~(p > 0)][0]), expected="times above 0")
    s = np.ones(len(p), dtype=np.int64) if scale_factors is None else np.asarray(scale_factors, dtype=np.int64)
    if s.shape != (len(p),) or (s < 1).any():
        raise InputError("assignment", field="scale_factors", found=s.tolist(), expected="a size for each job")
    p = np.where(s[:, None] <= F, p, np.inf)
    jobs = np.flatnonzero(np.isfinite(p).any(axis=1))
    accelerator, position = np.full(len(p), -1, dtype=np.int64), np.zeros(len(p), dtype=np.int64)
    if not len(jobs):
        return Line(accelerator, position, 0.0, 0.0, "")
    if (s[jobs] == 1).all():
        j, k, bound, solver = _single(p[jobs], F)
    else:
        j, k, bound, solver = _gangs(p[jobs], F, s[jobs], precision)
    accelerator[jobs], position[jobs] = j, k
    total = float((k * p[jobs, j]).sum())
    return Line(accelerator, position, total, total if bound is None else min(bound, total), solver)


def _single(p: Array, F: Whole) -> tuple[Whole, Whole, float | None, str]:
    from scipy.optimize import linear_sum_assignment

    m = len(p)
    levels = np.where(F > 0, -(-m // np.maximum(F, 1)), 0)
    j = np.repeat(np.arange(len(F)), F * levels)
    k = np.concatenate([np.repeat(np.arange(1, level + 1), count) for level, count in zip(levels, F, strict=True)])
    _, column = linear_sum_assignment(p[:, j] * k)
    return j[column].astype(np.int64), k[column].astype(np.int64), None, "linear_sum_assignment"


_MARGIN = 1.25
"""Positions to begin with, over those that gangs without any gap between them would fill."""

_GROWTH = 1.5


def _gangs(p: Array, F: Whole, s: Whole, precision: float) -> tuple[Whole, Whole, float | None, str]:
    """The integer program over the positions and columns that can matter.

    Two neighbouring positions that a type uses hold more than F GPUs together (else they were one), so twice the GPUs
    asked for over F are always enough; the relaxation's prices of jobs tell whether fewer are. A column whose reduced
    cost exceeds the distance of an assignment from the relaxation's value is in no better assignment and is left out.
    """
    total = int(s.sum())
    most = np.where(F > 0, np.minimum(len(p), 2 * -(-total // np.maximum(F, 1))), 0)
    # an exact answer is proven over every position that could be of use
    few = precision == 0.0 or len(p) * int(most.sum()) <= _FEW
    levels = most if few else np.minimum(most, int(np.ceil(_MARGIN * total / F.sum())) + 1)
    unit = float(np.median(p[np.isfinite(p)]))
    while True:
        program = _Positions(p / unit, F, s, levels)
        relaxed = program.relaxed()
        wanting = levels < most
        if relaxed is not None:
            beyond = np.where(np.isfinite(p), (levels + 1) * p / unit - relaxed.of_jobs[:, None], np.inf).min(axis=0)
            wanting &= beyond < -_ROUNDING * relaxed.value
            if not wanting.any():
                break
        levels = np.where(wanting, np.minimum(most, np.ceil(levels * _GROWTH).astype(np.int64)), levels)
    value, reach = relaxed.value, 0.0
    # first only the jobs that the relaxation splits are placed anew
    split = np.isin(program.job, program.job[(relaxed.columns > _SPLIT) & (relaxed.columns < 1.0 - _SPLIT)])
    columns = np.flatnonzero(split | (relaxed.columns >= 1.0 - _SPLIT))
    while True:
        found = program.whole(columns, precision)
        distance = np.inf if found is None else found.value - value
        whole = len(columns) == len(program.job)
        if distance <= max(reach, precision * value) or (whole and found is not None):
            break
        if whole:
            # gaps in the lines may need positions that the relaxation does not
            levels = np.minimum(most, levels + 1 + levels // 2)
            program = _Positions(p / unit, F, s, levels)
            again = program.relaxed()
            assert again is not None
            relaxed = again
        reach = min(distance * (1.0 + _ROUNDING), max(4.0 * reach, _FIRST_REACH * value))
        columns = np.flatnonzero(relaxed.reduced <= reach)
    assert found is not None
    chosen = columns[found.columns > 0.5]
    j, k = np.zeros(len(p), dtype=np.int64), np.zeros(len(p), dtype=np.int64)
    j[program.job[chosen]], k[program.job[chosen]] = program.type[chosen], program.level[chosen]
    further = np.where(levels < most, beyond, np.inf).min()
    proven = distance <= reach and further > distance
    return j, k, (max(value, found.bound) if proven else value) * unit, "highs"


_FEW = 20_000
"""Columns up to which every position that could be of use is in the program."""

_ROUNDING = 1e-9
_SPLIT = 1e-6
_FIRST_REACH = 1e-4
"""Reduced cost, relative to the value, up to which columns are in the first integer program."""


@dataclass(frozen=True, eq=False)
class _Relaxed:
    value: float
    columns: Array
    of_jobs: Array
    reduced: Array


@dataclass(frozen=True, eq=False)
class _Whole:
    value: float
    columns: Array
    bound: float


class _Positions:
    """Columns (job, type, position) and rows: one position per job, F GPUs per type and position."""

    def __init__(self, p: Array, F: Whole, s: Whole, levels: Whole) -> None:
        from scipy.sparse import csr_array, vstack

        job, kind = np.nonzero(np.isfinite(p))
        repeats = levels[kind]
        self.job, self.type = np.repeat(job, repeats), np.repeat(kind, repeats)
        within = np.arange(len(self.job)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        self.level = within + 1
        C = len(self.job)
        start = np.cumsum(levels) - levels
        one = csr_array((np.ones(C), (self.job, np.arange(C))), shape=(len(p), C))
        slot = start[self.type] + within
        room = csr_array((s[self.job].astype(np.float64), (slot, np.arange(C))), shape=(int(levels.sum()), C))
        self.rows = csr_array(vstack([one, room], format="csr"))
        self.most = np.concatenate([np.ones(len(p)), np.repeat(F, levels)]).astype(np.float64)
        self.least = np.concatenate([np.ones(len(p)), np.full(int(levels.sum()), -np.inf)])
        self.cost = self.level * p[self.job, self.type]
        self.n_jobs = len(p)

    def relaxed(self) -> _Relaxed | None:
        """Value, prices of the jobs' rows and reduced costs without whole numbers; None where there is no room."""
        solver = self._run(np.arange(len(self.job)), {})
        if solver is None:
            return None
        solution = solver.getSolution()
        value = float(solver.getInfo().objective_function_value)
        columns, of_jobs = np.asarray(solution.col_value), np.asarray(solution.row_dual)[: self.n_jobs]
        return _Relaxed(value, columns, of_jobs, np.asarray(solution.col_dual))

    def whole(self, columns: NDArray[np.intp], precision: float) -> _Whole | None:
        """The integer program over some of the columns; None where they hold no assignment."""
        solver = self._run(columns, {"mip_rel_gap": precision, "mip_abs_gap": 0.0})
        if solver is None:
            return None
        x = np.asarray(solver.getSolution().col_value)
        return _Whole(float(self.cost[columns] @ np.rint(x)), x, float(solver.getInfo().mip_dual_bound))

    def _run(self, columns: NDArray[np.intp], whole: dict[str, float]) -> Any:
        """HiGHS after its run, on an integer program where options for one are given; None for infeasible."""
        import highspy
        from scipy.sparse import csr_array

        matrix = csr_array(self.rows[:, columns])
        model: Any = highspy.HighsLp()
        model.num_row_, model.num_col_ = matrix.shape
        model.col_cost_ = self.cost[columns]
        model.col_lower_, model.col_upper_ = np.zeros(len(columns)), np.ones(len(columns))
        model.row_lower_, model.row_upper_ = self.least, self.most
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.num_row_, model.a_matrix_.num_col_ = matrix.shape
        model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr, matrix.indices
        model.a_matrix_.value_ = matrix.data
        if whole:
            model.integrality_ = [highspy.HighsVarType.kInteger] * len(columns)
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        options: dict[str, Any] = {"output_flag": False, "log_to_console": False, "threads": 1, **whole}
        for option, value in options.items():
            if solver.setOptionValue(option, value) != highspy.HighsStatus.kOk:
                raise RuntimeError(f"HiGHS refused the option {option}={value}")
        if solver.passModel(model) == highspy.HighsStatus.kError:
            raise RuntimeError("HiGHS refused the model")
        solver.run()
        status = solver.getModelStatus()
        if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
            return None
        if status != highspy.HighsModelStatus.kOptimal:
            raise RuntimeError(f"HiGHS stopped with status {solver.modelStatusToString(status)}")
        return solver
