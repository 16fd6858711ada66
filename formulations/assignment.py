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

from formulations.arguments import described, figures
from formulations.reference.mixed_integer import MixedProgram, RowBuilder, solve_linear, solve_mixed
from formulations.reference.stopping import StopRule
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints


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
    p = np.asarray(seconds, dtype=np.float64)
    if p.ndim != 2 or not (p > 0).all():
        raise InputError(
            "assignment", field="seconds", found=described(seconds), expected="(jobs, types) times above 0"
        )
    F = figures("assignment", "gpus", gpus, p.shape[1:], "numbers of at least 0").astype(np.int64)
    sizes = np.ones(len(p)) if scale_factors is None else scale_factors
    s = figures("assignment", "scale_factors", sizes, (len(p),)).astype(np.int64)
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
    return Line(accelerator, position, total, min(bound, total), solver)


def _single(p: Floats, F: Ints) -> tuple[Ints, Ints, float, str]:
    from scipy.optimize import linear_sum_assignment

    m = len(p)
    levels = np.where(F > 0, -(-m // np.maximum(F, 1)), 0)
    j = np.repeat(np.arange(len(F)), F * levels)
    k = np.concatenate([np.repeat(np.arange(1, level + 1), count) for level, count in zip(levels, F, strict=True)])
    _, column = linear_sum_assignment(p[:, j] * k)
    return j[column].astype(np.int64), k[column].astype(np.int64), math.inf, "linear_sum_assignment"


def _gangs(p: Floats, F: Ints, s: Ints, precision: float) -> tuple[Ints, Ints, float, str]:
    """The integer program over the positions and columns that can matter.

    Two neighbouring positions that a type uses hold more than F GPUs together (else they were one), so twice the GPUs
    asked for over F are always enough. Gangs put into the first positions with room, on the types that the relaxation
    gives them, are often within `precision` of its value. If not, a column whose reduced cost exceeds the distance of
    that assignment from that value is in no better one and is left out.
    """
    unit = float(np.median(p[np.isfinite(p)]))
    positions = np.where(F > 0, np.minimum(len(p), 2 * -(-int(s.sum()) // np.maximum(F, 1))), 0)
    runs, on = np.nonzero(np.isfinite(p))
    job, type_ = np.repeat(runs, positions[on]), np.repeat(on, positions[on])
    level = 1 + np.concatenate([np.arange(count) for count in positions[on]])
    slot = (np.cumsum(positions) - positions)[type_] + level - 1
    cost, each = level * p[job, type_] / unit, np.arange(len(job))
    rows = RowBuilder(len(job))
    rows.add(len(p), [(job, each, 1.0)], 1.0, 1.0)
    rows.add(int(positions.sum()), [(slot, each, s[job])], -np.inf, np.repeat(F, positions))
    program = rows.program(cost, 0.0, 1.0, True)

    # the longest per GPU are at the end of the line
    order = np.argsort(-(p.min(axis=1) / s), kind="stable")
    guess = np.zeros(len(p))
    guess[order] = 1 + (np.cumsum(s[order]) - s[order]) // F.sum()
    shares, value, reduced = _relaxed(program, np.abs(level - guess[job]) <= _FIRST_POSITIONS)
    on_type = np.zeros(p.shape)
    np.add.at(on_type, (job, type_), shares)
    kind = on_type.argmax(axis=1)
    place = _first_fit(p, F, s, kind)
    best = float((place * p[np.arange(len(p)), kind]).sum()) / unit
    bound = value
    for reach in (0.1 * precision * value, best - value):
        if best - bound <= precision * value:
            break
        columns = np.flatnonzero(reduced <= reach * (1.0 + _ROUNDING))
        found = solve_mixed(program.of_columns(columns), "highs", StopRule(precision, 0.0, math.inf))
        chosen = columns[:0] if found.columns is None else columns[found.columns > 0.5]
        if len(chosen) and float(np.add.reduce(cost[chosen])) < best:
            best = float(np.add.reduce(cost[chosen]))
            kind[job[chosen]], place[job[chosen]] = type_[chosen], level[chosen]
        bound = max(value, min(found.bound, value + reach))
    return kind, place, bound * unit, "highs"


def _relaxed(program: MixedProgram, inside: Flags) -> tuple[Floats, float, Floats]:
    """Shares of columns without whole numbers, their cost, and reduced costs.

    Begins with some of the columns and adds those that the prices ask for.
    """
    while True:
        columns = np.flatnonzero(inside)
        found = solve_linear(program.of_columns(columns))
        if found.columns is None or found.row_duals is None:
            raise RuntimeError(f"HiGHS stopped with status {found.note}")
        reduced = program.cost - program.matrix.T.dot(found.row_duals)
        asked = ~inside & (reduced < -_ROUNDING * program.cost)
        if not asked.any():
            break
        inside |= asked
    shares = np.zeros(len(inside))
    shares[columns] = found.columns
    return shares, found.bound, np.maximum(reduced, 0.0)


def _first_fit(p: Floats, F: Ints, s: Ints, kind: Ints) -> Ints:
    """Position of each job on its type: the longest per GPU first, each as far at the end as there is room."""
    place = np.zeros(len(p), dtype=np.int64)
    left = np.tile(F, (len(p), 1))
    for i in np.argsort(-(p[np.arange(len(p)), kind] / s), kind="stable"):
        at = int((left[:, kind[i]] >= s[i]).argmax())
        left[at, kind[i]] -= s[i]
        place[i] = at + 1
    return place


_ROUNDING = 1e-9
"""Relative slack of reduced costs that is rounding, not an improvement."""

_FIRST_POSITIONS = 6
"""Positions on either side of a first guess whose columns the relaxation begins with."""
