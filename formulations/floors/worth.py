"""Programs in which jobs have a throughput to keep: the most worth, or the most worth per cost."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from formulations.arguments import figures, instance
from formulations.columns import ColumnProgram, ColumnSolution, Objective, Ratio, Total, solve_columns
from formulations.columns.engines import ENGINES
from formulations.core.objectives import MaxSum, relative_gap
from formulations.core.polytope import Polytope
from formulations.core.reductions import Classes, classes_of
from formulations.core.solution import TOLERANCE, Solution, SolverError
from formulations.interior_point.structured import solve_with_floors
from formulations.packed.levels import ACCEPTED_SHORTFALL
from formulations.solving.absent_types import prices_of_none, with_absent_types
from formulations.solving.backends import get_backend
from formulations.solving.solver import solve
from formulations.solving.uniqueness import is_unique
from throughputs import Configurations, InputError, PlainColumns
from throughputs.arrays import Flags, Floats, Positions
from throughputs.numerics import dot

SAME_RATIO = 1e-12
"""Relative distance below which two columns have the same ratio."""

_HOLDING_MULTIPLIER = 1e-7
"""Worth of a floor, relative to that of the job's columns, from which it holds the job's throughput."""

_RELAXATIONS = (1e-10, 1e-9)
"""Fractions by which floors are relaxed so that even shares have an interior to be searched in, tried in turn."""

_NEGLIGIBLE_SHARE = 1e-9
"""Part of a job's largest share below which a share is taken for none."""


def maximise_worth(
    polytope: Polytope,
    worth: Floats,
    floors: ArrayLike | None = None,
    *,
    evenness: float = 0.0,
    unit: str = "",
    solver: str = "auto",
) -> Solution:
    """Shares of the largest worth at which every job keeps its throughput::

        max_x  sum_ij q_ij x_ij        x in the polytope,   sum_j T_ij x_ij >= f_i

    Parameters
    ----------
    polytope : over N jobs and M types, with rates T.
    worth : (N, M) q, of any sign.
    floors : (N,) f in steps/s, which must be attainable together (`formulations.floors.attainable`); none when omitted.
    evenness : e > 0 makes the shares the unique ones that maximise ``q . x - e/2 sum_i max_j |q_ij| |x_i|^2``, at a
        loss of at most e/2 of the worth. Where the optimum is the only one it is returned as it is.
    unit : unit of the worth.
    solver : "auto" or an engine of `formulations.columns`.

    Raises
    ------
    InputError
        A floor is negative or not finite, or a job with a floor gains nothing anywhere.
    SolverError
        No shares that keep the floors were found, or the solver takes no floors.
    """
    started = perf_counter()
    instance("maximise_worth", "polytope", polytope, Polytope, "Polytope(PlainColumns(matrix), capacity)")
    q = figures("maximise_worth", "worth", worth, polytope.rates.shape, "numbers")
    reduced = _reduced(polytope, floors, np.where(polytope.rates > 0, q, np.minimum(q, 0.0)))
    if not len(reduced.jobs):
        prices = _with_absent_types(polytope, q, np.zeros(polytope.n_jobs), np.zeros(len(polytope.capacity)))
        return Solution.empty(polytope.n_jobs, prices, unit=unit, seconds=0.0)
    (value,) = reduced.columns
    found = reduced.solve(Total(reduced.of_classes(value)), solver)
    shares = reduced.feasible(found)
    attained = reduced.total(value, shares)
    if evenness > 0 and found.status == "optimal" and not reduced.settled(value, found):
        even = _evened(reduced, value, shares, evenness)
        at_even = reduced.total(value, even)
        if at_even >= found.bound or relative_gap(at_even, found.bound) <= TOLERANCE:
            shares, attained = even, at_even
    solution = reduced.solution(polytope, found, shares, attained, q)
    return replace(solution, unit=unit, seconds=perf_counter() - started)


def maximise_ratio(
    polytope: Polytope,
    gains: ArrayLike,
    cost: ArrayLike,
    floors: ArrayLike | None = None,
    *,
    unit: str = "",
    solver: str = "auto",
) -> Solution:
    """The largest gain per cost at which every job keeps its throughput::

        max_x  sum_ij g_i T_ij x_ij / sum_ij d_ij x_ij      x in the polytope, not 0,   sum_j T_ij x_ij >= f_i

    A linear-fractional program over columns (`formulations.columns.Ratio`). Without floors a ratio of sums is largest
    where its best column is, ``r = max_ij g_i T_ij / d_ij``: the optimum runs nothing but the columns of that ratio. Of
    all such shares those of the largest gain are returned.

    Parameters
    ----------
    polytope : over N jobs and M types, with rates T.
    gains : (N,) g, positive: worth of a step.
    cost : (N, M) d, positive: cost of a column while it runs, per hour for instance.
    floors, unit, solver : as in `maximise_worth`; `unit` is that of the ratio, `solver` without floors any of `solve`.

    Returns the shares with the ratio as objective, its proven bound and gap, the improvement of the ratio per GPU of
    each type, and the multipliers of the floors in the same unit.

    Raises
    ------
    InputError
        A gain or cost is not positive, or a floor as in `maximise_worth`.
    SolverError
        As in `maximise_worth`.
    """
    started = perf_counter()
    instance("maximise_ratio", "polytope", polytope, Polytope, "Polytope(PlainColumns(matrix), capacity)")
    g = figures("maximise_ratio", "gains", gains, (polytope.n_jobs,))
    d = figures("maximise_ratio", "cost", cost, polytope.rates.shape)
    worth = g[:, None] * polytope.rates
    reduced = _reduced(polytope, floors, worth, d)
    if not reduced.floors.any():
        solution = _without_floors(polytope, g, d, solver)
    else:
        numerator, denominator = reduced.columns
        goal = Ratio(reduced.of_classes(numerator), reduced.of_classes(denominator))
        found = reduced.solve(goal, solver)
        shares = reduced.feasible(found)
        value = reduced.total(numerator, shares) / reduced.total(denominator, shares)
        left = (worth - value * d) / found.stages[0].unit
        solution = reduced.solution(polytope, found, shares, value, left)
    return replace(solution, unit=unit, seconds=perf_counter() - started)


@dataclass(frozen=True, eq=False)
class _Reduced:
    """A program with floors over classes of identical jobs; jobs that gain nothing anywhere take no part.

    Attributes
    ----------
    part : the polytope over K classes and the types with GPUs.
    columns : figures (K, types) of the columns. floors : (K,) throughput to keep.
    jobs, types, classes : the jobs and types that take part, and the class of each of these jobs.
    """

    part: Polytope
    columns: list[Floats]
    floors: Floats
    jobs: Positions
    types: Positions
    classes: Classes

    def of_classes(self, figures: Floats) -> Floats:
        """(K types,) what all jobs of a class together come to in each column."""
        return np.ravel(self.part.counts[:, None] * figures)

    def total(self, figures: Floats, shares: Floats) -> float:
        """The sum over all jobs."""
        return dot(self.part.counts, (figures * shares).sum(axis=1))

    def solve(self, goal: Objective, solver: str) -> ColumnSolution:
        """The program over columns."""
        if solver not in ("auto", *ENGINES):
            get_backend(solver)
            raise SolverError(f"{solver}: takes no floors; auto, {', '.join(ENGINES)} do")
        part = self.part
        columns = Configurations.from_matrix(part.columns.matrix)
        program = ColumnProgram(columns, part.capacity, floors=self.floors, counts=part.counts)
        return solve_columns(program, goal, solver=solver)

    def feasible(self, found: ColumnSolution) -> Floats:
        """(K, types) shares without the excess that solvers leave; SolverError where they miss a floor."""
        shares = self.part.repaired(found.x.reshape(self.part.rates.shape))
        if not self.keeps(shares):
            raise SolverError("; ".join(f"{attempt.solver}: missed a floor" for attempt in found.attempts))
        return shares

    def settled(self, worth: Floats, found: ColumnSolution) -> bool:
        """Whether prices and multipliers prove that no other shares are worth as much."""
        multipliers, prices = self.marginals(found)
        from_floors = multipliers[:, None] * self.part.rates
        held = from_floors.max(axis=1) > _HOLDING_MULTIPLIER * np.abs(worth).max(axis=1)
        return is_unique(self.part, worth + from_floors, prices, held)

    def marginals(self, found: ColumnSolution) -> tuple[Floats, Floats]:
        """(K,) multipliers of the floor of one job of each class, and prices of the types."""
        stage = found.stages[0]
        # a floor of a class is one for each of its jobs
        return np.nan_to_num(stage.multipliers) / self.part.counts, np.nan_to_num(stage.prices)

    def keeps(self, shares: Floats) -> bool:
        """Whether shares of the classes keep all floors."""
        return bool((self.part.throughput(shares) >= self.floors * (1.0 - ACCEPTED_SHORTFALL)).all())

    def solution(
        self, polytope: Polytope, found: ColumnSolution, shares: Floats, value: float, worth: Floats
    ) -> Solution:
        """For all jobs; `worth` (N, M) of the columns in units of the objective prices types without GPUs."""
        N, M = polytope.rates.shape
        whole, prices, multipliers, served = np.zeros((N, M)), np.zeros(M), np.zeros(N), np.zeros(N, dtype=bool)
        whole[np.ix_(self.jobs, self.types)] = np.where(self.part.rates > 0, shares, 0.0)[self.classes.of]
        of_classes, prices[self.types] = self.marginals(found)
        multipliers[self.jobs] = of_classes[self.classes.of]
        served[self.jobs] = True
        gap = relative_gap(value, found.bound) if value < found.bound else 0.0
        return Solution(
            shares=whole,
            status="optimal" if gap <= TOLERANCE else "feasible",
            objective=value,
            bound=max(found.bound, value),
            gap=gap,
            efficiency_gap=np.nan,
            prices=_with_absent_types(polytope, worth, multipliers, prices),
            multipliers=multipliers,
            served=served,
            unit="",
            solver=found.solver,
            seconds=found.seconds,
            attempts=found.attempts,
        )


def _reduced(polytope: Polytope, floors: ArrayLike | None, *columns: Floats) -> _Reduced:
    """Classes of the jobs that agree in rates, gang, floor and `columns` (N, M).

    The order of the classes depends on their content alone, so an answer does not depend on the order of the jobs.
    """
    types = np.flatnonzero(polytope.capacity > 0)
    able = np.asarray((polytope.rates[:, types] > 0).any(axis=1))
    needed = checked_floors(floors, able, polytope.columns.matrix.jobs)
    jobs = np.flatnonzero(able)
    figures = [*polytope.rates.T[types], polytope.scale_factors.astype(np.float64), polytope.counts, needed]
    figures += [column for table in columns for column in table.T]
    classes = classes_of([figure[jobs] for figure in figures]) if len(jobs) else Classes.single(0)
    first = jobs[classes.first]
    part = polytope.restricted(first, types, classes.counts * polytope.counts[first])
    return _Reduced(part, [table[np.ix_(first, types)] for table in columns], needed[first], jobs, types, classes)


def checked_floors(floors: ArrayLike | None, able: Flags, labels: Sequence[Hashable]) -> Floats:
    """(N,) throughput that each job has to keep, 0 where `floors` is None.

    Raises
    ------
    InputError
        A floor is negative or not finite, or one is that of a job which is not `able` (N,) to run anywhere.
    """
    N = len(able)
    needed = np.zeros(N) if floors is None else figures("floors", "floors", floors, (N,), "numbers of at least 0")
    idle = ~able & (needed > 0)
    if idle.any():
        job = labels[int(np.argmax(idle))]
        raise InputError("floors", field=f"floor of job {job!r}", found="nothing it runs on", expected="a floor of 0")
    return needed


def _with_absent_types(polytope: Polytope, worth: Floats, multipliers: Floats, prices: Floats) -> Floats:
    """`prices` (M,) completed by those of types without GPUs, where columns are of `worth` (N, M)."""
    if (polytope.capacity > 0).all():
        return prices
    earned = np.where(polytope.rates > 0, worth + multipliers[:, None] * polytope.rates, 0.0)
    return with_absent_types(earned, polytope.scale_factors, prices, polytope.capacity)


def _evened(reduced: _Reduced, worth: Floats, best: Floats, evenness: float) -> Floats:
    """The same worth to e/2 with shares as even as possible; those at hand where that is not found."""
    part, value = reduced.part, reduced.total(worth, best)
    most = np.abs(worth).max(axis=1, initial=0.0)
    # the most valuable GPUs' worth
    scale = max(float((most * np.minimum(part.counts, part.capacity.sum() / part.scale_factors)).max()), 1e-300)
    needed = np.minimum(reduced.floors, part.throughput(best))
    for relaxation in _RELAXATIONS:
        floors = needed * (1.0 - relaxation) if needed.any() else None
        try:
            even = solve_with_floors(part, worth / scale, floors, evenness, start=best, precision=1e-13).shares
        except RuntimeError:
            continue
        shares = part.repaired(np.nan_to_num(even))
        shares = np.where(shares < _NEGLIGIBLE_SHARE * shares.max(axis=1, keepdims=True), 0.0, shares)
        if value - reduced.total(worth, shares) <= evenness * scale and reduced.keeps(shares):
            return shares
    return best


def _without_floors(polytope: Polytope, gains: Floats, cost: Floats, solver: str) -> Solution:
    """The best columns, as much of them as the cluster has room for."""
    worth = gains[:, None] * polytope.rates
    usable = np.where(polytope.capacity > 0, worth / cost, 0.0)
    most = float(usable.max(initial=0.0))
    chosen = (usable >= most * (1.0 - SAME_RATIO)) & (usable > 0)
    best = PlainColumns(polytope.columns.matrix.with_rates(np.where(chosen, polytope.rates, 0.0)))
    filled = solve(Polytope(best, polytope.capacity, polytope.counts), MaxSum(gains), solver=solver)
    if filled.status == "empty":
        return replace(filled, prices=prices_of_none(polytope.rates))
    spent, gained = (dot(polytope.counts, (each * filled.shares).sum(axis=1)) for each in (cost, worth))
    served = np.asarray((worth[:, polytope.capacity > 0] > 0).any(axis=1))
    better = ~(polytope.capacity > 0) & (worth / cost > most).any(axis=0)
    return with_ratio(filled, gained / spent, most, served, better)


S = TypeVar("S", bound=Solution)


def with_ratio(filled: S, value: float, most: float, served: Flags, better: Flags) -> S:
    """The solution that runs nothing but the best columns, with its ratio `value` as objective; none exceeds `most`.

    Parameters
    ----------
    served : (N,) jobs that gain something somewhere.
    better : (M,) types without GPUs on which there are better columns.
    """
    gap = relative_gap(value, most) if value < most else 0.0
    return replace(
        filled,
        status="optimal" if gap <= TOLERANCE else "feasible",
        objective=value,
        bound=max(most, value),
        gap=gap,
        # more GPUs let more run, at the same ratio; of a better type the first would change it at once
        prices=np.where(better, np.nan, 0.0),
        multipliers=np.zeros(len(served)),
        served=served,
    )
