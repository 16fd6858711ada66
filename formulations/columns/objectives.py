"""Objectives over configurations; a new one is one class that says what it adds to the matrices.

The largest ratio of two sums is found by a sequence of programs with one sum, by Dinkelbach's method (Management
Science 13(7), 1967): a ratio N(x) / D(x) with D > 0 is at most r exactly when no x is
worth more than 0 in ``N(x) - r D(x)``. The optimum of that at the ratio found so far has a better ratio, and the steps
are Newton's on a convex function, so a few programs suffice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from formulations.arguments import figures
from formulations.columns.program import ColumnProgram
from throughputs import Configurations, InputError
from throughputs.arrays import Flags, Floats


@dataclass(frozen=True, eq=False)
class Terms:
    """An objective in matrices: ``cost x + extra_cost e`` with E variables e of its own and R rows::

    rows x + extra_rows e >= 0,   least <= e <= most,   e_k whole where `whole`

    Of a ratio `cost` is the numerator, and `denominator` (C S,) what it is divided by; None: a linear objective. One
    number, in place of E or C S, stands for all; without variables of its own it has no rows.
    """

    cost: ArrayLike
    extra_cost: Floats = field(default_factory=lambda: np.zeros(0))
    rows: Any = None
    extra_rows: Any = None
    least: ArrayLike = 0.0
    most: ArrayLike = 1.0
    whole: ArrayLike = False
    denominator: Floats | None = None


class Objective(ABC):
    """What is made as large as possible, or as small where `maximise` is False."""

    maximise: bool = True

    @abstractmethod
    def terms(self, program: ColumnProgram) -> Terms:
        """The objective in matrices; InputError where it does not fit the program."""

    @abstractmethod
    def value(self, program: ColumnProgram, x: Floats) -> float:
        """The objective at shares `x` (C S,), from them alone."""

    def compares(self, program: ColumnProgram) -> tuple[list[Floats], bool] | None:
        """What tells columns of one job and pool apart under this objective.

        Figures (C S,), of which more is never worse, and whether more throughput of a job is never worse either.
        None: columns cannot be compared one by one.
        """
        del program
        return None


@dataclass(frozen=True, eq=False)
class Total(Objective):
    """The total value of the columns, per share of time::

        max_x  sum_c v_c x_c

    Parameters
    ----------
    values : (C,) v, of any sign, or (C, S) by slot.
    maximise : False for costs.
    """

    values: ArrayLike
    maximise: bool = field(default=True, kw_only=True)

    def terms(self, program: ColumnProgram) -> Terms:
        """The values."""
        return Terms(program.spread("values", self.values))

    def value(self, program: ColumnProgram, x: Floats) -> float:
        """Their sum."""
        return float(np.add.reduce(program.spread("values", self.values) * x))

    def compares(self, program: ColumnProgram) -> tuple[list[Floats], bool] | None:
        """By value; throughput does not count."""
        values = program.spread("values", self.values)
        return [values if self.maximise else -values], False


@dataclass(frozen=True, eq=False)
class Ratio(Objective):
    """Value by cost, where no allowed shares cost nothing: floors, for instance, see to that::

        max_x  sum_c v_c x_c / sum_c d_c x_c

    A sequence of sums ``sum_c (v_c - r d_c) x_c`` (`formulations.columns.objectives`).

    Parameters
    ----------
    values : (C,) v, or (C, S) by slot.
    costs : d, at least 0, in the same shape.
    """

    values: ArrayLike
    costs: ArrayLike

    def terms(self, program: ColumnProgram) -> Terms:
        """Both sums."""
        costs = program.spread("costs", self.costs)
        if (costs < 0).any():
            raise InputError("objective", field="costs", found=float(costs.min()), expected="at least 0")
        return Terms(program.spread("values", self.values), denominator=costs)

    def value(self, program: ColumnProgram, x: Floats) -> float:
        """The ratio of the sums."""
        values, costs = program.spread("values", self.values), program.spread("costs", self.costs)
        return float(np.add.reduce(values * x)) / float(np.add.reduce(costs * x))

    def compares(self, program: ColumnProgram) -> tuple[list[Floats], bool] | None:
        """By value, and by cost."""
        return [program.spread("values", self.values), -program.spread("costs", self.costs)], False


@dataclass(frozen=True, eq=False)
class Least(Objective):
    """``min_r (A x)_r``, to be made as large as possible; max-min fairness where A x are normalised throughputs.

    An extra variable t with ``A x >= t`` makes it linear (its epigraph).

    Parameters
    ----------
    matrix : A (R, C S), at least 0, at least one row.
    """

    matrix: Any

    @classmethod
    def of_throughput(cls, columns: Configurations, weights: ArrayLike) -> Least:
        """``min_i w_i u_i`` over the jobs with a weight above 0.

        Parameters
        ----------
        weights : (N,) w, at least 0.
        """
        from scipy.sparse import diags_array

        w = figures("objective", "weights", weights, (columns.n_jobs,), "numbers of at least 0")
        rows = (diags_array(w) @ columns.rates).tocsr()[np.flatnonzero(w > 0)]
        return cls(rows)

    def terms(self, program: ColumnProgram) -> Terms:
        """``A x - t >= 0``."""
        from scipy.sparse import csr_array

        rows = csr_array(self._rows(program))
        down = csr_array(np.full((rows.shape[0], 1), -1.0))
        return Terms(0.0, np.ones(1), rows, down, most=np.min(_most_of_rows(program, rows)))

    def value(self, program: ColumnProgram, x: Floats) -> float:
        """The least row."""
        return float(np.min(self._rows(program) @ x))

    def _rows(self, program: ColumnProgram) -> Any:
        from scipy.sparse import csr_array, hstack

        rows = csr_array(self.matrix, dtype=np.float64)
        if program.n_slots > 1 and rows.shape[1] == program.columns.n_columns:
            rows = csr_array(hstack([rows] * program.n_slots, format="csr"))
        R, C = rows.shape
        if program.n_variables != C or not R or not (np.isfinite(rows.data) & (rows.data >= 0)).all():
            expected = f"at least one row of {program.n_variables} finite numbers, at least 0"
            raise InputError("objective", field="rows of Least", found=rows.shape, expected=expected)
        return rows


@dataclass(frozen=True, eq=False)
class MostFloors(Objective):
    """The number of floors that are kept: ``sum_i y_i`` with ``u_i >= f_i y_i``, y_i in {0, 1}.

    Parameters
    ----------
    floors : (N,) f in steps/s, finite; 0 for jobs without.
    """

    floors: Floats

    def terms(self, program: ColumnProgram) -> Terms:
        """``u_i / f_i - y_i >= 0``."""
        from scipy.sparse import csr_array, diags_array, hstack

        f = figures("objective", "floors", self.floors, (program.columns.n_jobs,), "numbers of at least 0")
        held = np.flatnonzero(f > 0)
        E = len(held)
        rows = diags_array(1.0 / f[held]) @ program.columns.rates.tocsr()[held]
        every = csr_array(hstack([rows] * program.n_slots, format="csr"))
        return Terms(0.0, np.ones(E), every, csr_array(diags_array(-np.ones(E))), whole=True)

    def kept(self, program: ColumnProgram, x: Floats) -> Flags:
        """(N,) whose floor is kept by `x` (C S,), but for one part in a million."""
        f = np.asarray(self.floors, dtype=np.float64)
        shares = x.reshape(program.n_slots, -1).sum(axis=0)
        return (f > 0) & (program.columns.throughput(shares) >= f * (1.0 - 1e-6))

    def value(self, program: ColumnProgram, x: Floats) -> float:
        """How many are kept."""
        return float(self.kept(program, x).sum())

    def compares(self, program: ColumnProgram) -> tuple[list[Floats], bool] | None:
        """By throughput."""
        del program
        return [], True


def _most_of_rows(program: ColumnProgram, rows: Any) -> Floats:
    """(R,) what no row exceeds: in each slot each job has one share of time, at best all in its best column."""
    entries = rows.tocoo()
    row, variable = entries.coords
    C = program.columns.n_columns
    job, slot = program.columns.job[variable % C], variable // C
    life = (row * program.columns.n_jobs + job) * program.n_slots + slot
    order = np.lexsort((entries.data, life))
    last = np.flatnonzero(np.diff(life[order], append=-1))
    best = order[last]
    return np.asarray(np.bincount(row[best], entries.data[best], minlength=rows.shape[0]), dtype=np.float64)


T = TypeVar("T")

NEGLIGIBLE_SPENDING = 1e-9
"""Part of what is gained up to which limits are worth nothing."""

_MOST_PROGRAMS = 40

_SAME, _PROVEN = 1e-14, 1e-11
"""Relative improvement of a ratio that is none, and distance from its bound at which it is the largest."""


@dataclass(frozen=True, eq=False)
class LargestRatio(Generic[T]):
    """The answer of the largest `ratio`, and the answer `proof`, at the ratio `proven_at`, that proves its `bound`."""

    best: T
    ratio: float
    bound: float
    proof: T
    proven_at: float


def largest_ratio(at: Callable[[float], tuple[T, float, float]], start: float, least: float) -> LargestRatio[T]:
    """The largest ratio N / D.

    Parameters
    ----------
    at : for a ratio r the optimum of ``N - r D``, the ratio N / D there, and a bound b on ``N - r D``, which proves
        that no ratio exceeds ``r + b / least``.
    start : a ratio to begin at, no larger than the largest.
    least : above 0, at most D at any point.
    """
    ratio, bound = start, float("inf")
    best: T | None = None
    for _ in range(_MOST_PROGRAMS):
        answer, attained, left = at(ratio)
        proven = ratio + max(left, 0.0) / least
        if proven < bound or best is None:
            bound, proof, proven_at = proven, answer, ratio
        if best is not None and attained <= ratio + _SAME * abs(ratio):
            break
        best, ratio = answer, attained
        if bound <= ratio + _PROVEN * abs(ratio):
            break
    assert best is not None
    return LargestRatio(best, ratio, max(bound, ratio), proof, proven_at)
