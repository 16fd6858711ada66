"""Jobs to accelerator types and positions in line, at the least total completion time.

A job in the k-th position from the end of a line holds up k jobs, itself included, so it adds k times its processing
time to the sum of all completion times (Horn, Operations Research 21(3), 1973; Bruno, Coffman and Sethi, CACM 17(7),
1974). GPUs of a type are alike, and costs grow with k: with m jobs and F GPUs only the last ``ceil(m / F)`` positions
of each can be used, so the program does not grow with jobs times GPUs times jobs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from formulations.reference.mixed_integer import RowBuilder, solve_linear, solve_mixed
from formulations.reference.stopping import StopRule
from throughputs import InputError
from throughputs.arrays import Floats, Ints, Positions
from throughputs.numerics import dot


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

    accelerator: Ints
    position: Ints
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


def _single(p: Floats, F: Ints) -> tuple[Ints, Ints, float | None, str]:
    from scipy.optimize import linear_sum_assignment

    m = len(p)
    levels = np.where(F > 0, -(-m // np.maximum(F, 1)), 0)
    j = np.repeat(np.arange(len(F)), F * levels)
    k = np.concatenate([np.repeat(np.arange(1, level + 1), count) for level, count in zip(levels, F, strict=True)])
    _, column = linear_sum_assignment(p[:, j] * k)
    return j[column].astype(np.int64), k[column].astype(np.int64), None, "linear_sum_assignment"


def _gangs(p: Floats, F: Ints, s: Ints, precision: float) -> tuple[Ints, Ints, float | None, str]:
    """The integer program over the positions and columns that can matter.

    Two neighbouring positions that a type uses hold more than F GPUs together (else they were one), so twice the GPUs
    asked for over F are always enough. Gangs put into the first positions with room, on the types that the relaxation
    gives them, are often within `precision` of its value. If not, a column whose reduced cost exceeds the distance of
    an assignment from that value is in no better one and is left out.
    """
    total = int(s.sum())
    most = np.where(F > 0, np.minimum(len(p), 2 * -(-total // np.maximum(F, 1))), 0)
    unit = float(np.median(p[np.isfinite(p)]))
    p = p / unit
    program = _Positions(p, F, s, most)
    relaxed = program.relaxed(_greedy(p, F, s))
    share = np.zeros(p.shape)
    np.add.at(share, (program.job, program.type), relaxed.columns)
    kind = share.argmax(axis=1)
    level = _first_fit(p, F, s, kind)
    value, best = relaxed.value, float((level * p[np.arange(len(p)), kind]).sum())
    bound, reach = value, 0.0
    while best - value > max(reach, precision * value) and reach < np.inf:
        wide = min((best - value) * (1.0 + _ROUNDING), max(4.0 * reach, _FIRST_REACH * value))
        columns = np.flatnonzero(relaxed.reduced <= wide)
        reach = np.inf if len(columns) == len(program.job) else wide
        found = program.whole(columns, precision)
        if found is not None and found.value < best:
            chosen = columns[found.columns > 0.5]
            best = found.value
            kind[program.job[chosen]], level[program.job[chosen]] = program.type[chosen], program.level[chosen]
        if found is not None and best - value <= reach:
            bound = max(value, min(found.bound, best))
    return kind, level, bound * unit, "highs"


def _greedy(p: Floats, F: Ints, s: Ints) -> Ints:
    """Position of each job: those that take longest on their fastest type choose first, the cheapest place."""
    level = np.zeros(len(p), dtype=np.int64)
    room: list[list[int]] = [[] for _ in F]
    for i in np.argsort(-(p.min(axis=1) / s), kind="stable").tolist():
        places = [(_place(room[j], int(s[i])), j) for j in np.flatnonzero(np.isfinite(p[i])).tolist()]
        k, j = min(places, key=lambda place: (place[0] * p[i, place[1]], place))
        _take(room[j], k, int(F[j]), int(s[i]))
        level[i] = k
    return level


def _first_fit(p: Floats, F: Ints, s: Ints, kind: Ints) -> Ints:
    """Position of each job on its type: the longest per GPU first, each as far at the end as there is room."""
    level = np.zeros(len(p), dtype=np.int64)
    room: list[list[int]] = [[] for _ in F]
    for i in np.argsort(-(p[np.arange(len(p)), kind] / s), kind="stable").tolist():
        j = int(kind[i])
        level[i] = _place(room[j], int(s[i]))
        _take(room[j], int(level[i]), int(F[j]), int(s[i]))
    return level


def _place(room: list[int], size: int) -> int:
    """First position with `size` GPUs left, of positions with `room`, or a new one."""
    return next((k for k, left in enumerate(room, start=1) if left >= size), len(room) + 1)


def _take(room: list[int], k: int, gpus: int, size: int) -> None:
    if k > len(room):
        room.append(gpus)
    room[k - 1] -= size


_ROUNDING = 1e-9
"""Relative slack of reduced costs that is rounding, not an improvement."""
_FIRST_REACH = 1e-4
"""Reduced cost, relative to the value, up to which columns are in the first integer program."""

_FIRST_POSITIONS = 6
"""Positions on either side of a first guess whose columns the relaxation begins with."""


@dataclass(frozen=True, eq=False)
class _Relaxed:
    value: float
    columns: Floats
    of_jobs: Floats
    reduced: Floats


@dataclass(frozen=True, eq=False)
class _Whole:
    value: float
    columns: Floats
    bound: float


class _Positions:
    """Columns (job, type, position) and rows: one position per job, F GPUs per type and position."""

    def __init__(self, p: Floats, F: Ints, s: Ints, levels: Ints) -> None:
        job, kind = np.nonzero(np.isfinite(p))
        repeats = levels[kind]
        self.job, self.type = np.repeat(job, repeats), np.repeat(kind, repeats)
        within = np.arange(len(self.job)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        self.level = within + 1
        self.cost = self.level * p[self.job, self.type]
        self.gang, self.slot = s[self.job].astype(np.float64), (np.cumsum(levels) - levels)[self.type] + within
        self.n_jobs = len(p)
        C, each = len(self.job), np.arange(len(self.job))
        rows = RowBuilder(C)
        rows.add(self.n_jobs, [(self.job, each, 1.0)], 1.0, 1.0)
        rows.add(int(levels.sum()), [(self.slot, each, self.gang)], -np.inf, np.repeat(F, levels))
        self.program = rows.program(self.cost, np.zeros(C), np.ones(C), np.ones(C, dtype=bool))

    def relaxed(self, guess: Ints) -> _Relaxed:
        """Value, prices of the jobs' rows and reduced costs without whole numbers.

        Begins with the columns near a `guess` (jobs,) of positions and adds those that the prices ask for.
        """
        inside = np.abs(self.level - guess[self.job]) <= _FIRST_POSITIONS
        while True:
            columns = np.flatnonzero(inside)
            found = solve_linear(self.program.of_columns(columns))
            if found.columns is None or found.row_duals is None:
                raise RuntimeError(f"HiGHS stopped with status {found.note}")
            prices = found.row_duals
            reduced = self.cost - prices[self.job] - self.gang * prices[self.n_jobs + self.slot]
            asked = ~inside & (reduced < -_ROUNDING * self.cost)
            if not asked.any():
                break
            inside |= asked
        amounts = np.zeros(len(self.job))
        amounts[columns] = found.columns
        return _Relaxed(found.bound, amounts, prices[: self.n_jobs], np.maximum(reduced, 0.0))

    def whole(self, columns: Positions, precision: float) -> _Whole | None:
        """The integer program over some of the columns; None where they hold no assignment."""
        found = solve_mixed(self.program.of_columns(columns), "highs", StopRule(precision, 0.0, math.inf))
        if found.columns is None:
            return None
        return _Whole(dot(self.cost[columns], np.rint(found.columns)), found.columns, found.bound)
