"""Programs in which jobs have a throughput to keep: the worth of the shares is maximised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from formulations.columns import ColumnProgram, Total, solve_columns
from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.core.objectives import relative_gap
from formulations.core.polytope import Polytope
from formulations.core.reductions import Classes, classes_of
from formulations.core.solution import Answer, Attempt, Solution, SolverError
from formulations.interior_point.compiled import compiled_engine
from formulations.interior_point.method import solve_structured
from formulations.interior_point.structured import solve_with_floors
from formulations.solving.absent_types import with_absent_types
from formulations.solving.solver import TOLERANCE
from throughputs import Configurations, InputError
from throughputs.numerics import dot

__all__ = [
    "ACCEPTED_SHORTFALL",
    "RELAXATIONS",
    "Reduced",
    "maximise_worth",
    "priced",
    "reduce_with_floors",
    "solve_reduced",
    "worth_bound",
]

Array = NDArray[np.float64]

RELAXATIONS = (0.0, 1e-10, 1e-9)
"""Fractions by which floors are relaxed so that there is an interior to search, tried in turn."""

_NEGLIGIBLE_SHARE = 1e-9
"""Part of a job's largest share below which a share is taken for none."""

_AIMED_GAP = 1e-8
"""Gap, as a part of the most worth, that all paths are tried for."""

ACCEPTED_SHORTFALL = 1e-7
"""Fraction of a floor that shares may miss."""


@dataclass(frozen=True, eq=False)
class Reduced:
    """A program with floors over classes of identical jobs; jobs that gain nothing anywhere take no part.

    Attributes
    ----------
    polytope : over K classes and the types with GPUs.
    worth : (K, types) of the columns.
    floors : (K,) throughput to keep.
    jobs, types, classes : the jobs and types that take part, and the class of each of these jobs.
    """

    polytope: Polytope
    worth: Array
    floors: Array
    jobs: NDArray[np.intp]
    types: NDArray[np.intp]
    classes: Classes

    def multipliers(self, answer: Answer) -> Array:
        """(K,) multipliers of the floors, at least 0; those of other jobs are 0."""
        return np.where(self.floors > 0, np.clip(np.nan_to_num(answer.multipliers), 0.0, None), 0.0)

    def expand(self, shares: Array, shape: tuple[int, ...]) -> Array:
        """Shares (N, M) of all jobs from those of the classes."""
        whole = np.zeros(shape)
        whole[np.ix_(self.jobs, self.types)] = np.where(self.polytope.rates > 0, shares, 0.0)[self.classes.of]
        return whole

    def solution(self, answer: Answer, shape: tuple[int, ...], **figures: Any) -> Solution:
        """The answer for all jobs; `figures` are the other fields of `Solution`."""
        prices, multipliers, served = np.zeros(shape[1]), np.zeros(shape[0]), np.zeros(shape[0], dtype=bool)
        prices[self.types] = np.clip(np.nan_to_num(answer.prices), 0.0, None)
        multipliers[self.jobs] = self.multipliers(answer)[self.classes.of]
        served[self.jobs] = True
        return Solution(
            shares=self.expand(answer.shares, shape),
            prices=prices,
            multipliers=multipliers,
            served=served,
            iterations=answer.iterations,
            **figures,
        )


def reduce_with_floors(polytope: Polytope, floors: ArrayLike | None, *columns: Array) -> tuple[Reduced, list[Array]]:
    """Classes of the jobs that agree in rates, gang, floor and `columns` (N, k); and the columns by classes.

    The order of the classes depends on their content alone, so an answer does not depend on the order of the jobs.

    Raises
    ------
    InputError
        A floor is negative or not finite, or a job with a floor gains nothing anywhere.
    """
    needed = np.zeros(polytope.n_jobs) if floors is None else np.asarray(floors, dtype=np.float64)
    if needed.shape != (polytope.n_jobs,) or not (np.isfinite(needed) & (needed >= 0)).all():
        expected = f"{polytope.n_jobs} finite throughputs, at least 0"
        raise InputError("floors", field="floors", found=needed.tolist(), expected=expected)
    types = np.flatnonzero(polytope.capacity > 0)
    able = (polytope.rates[:, types] > 0).any(axis=1)
    if (needed[~able] > 0).any():
        job = polytope.columns.matrix.jobs[int(np.argmax(~able & (needed > 0)))]
        raise InputError("floors", field=f"floor of job {job!r}", found="no type it runs on", expected="a floor of 0")
    jobs = np.flatnonzero(able)
    figures = [*polytope.rates.T[types], polytope.scale_factors.astype(np.float64), polytope.counts, needed]
    figures += [column for table in columns for column in np.reshape(table, (polytope.n_jobs, -1)).T]
    classes = classes_of([figure[jobs] for figure in figures]) if len(jobs) else Classes.single(0)
    first = jobs[classes.first]
    part = polytope.restricted(first, types, classes.counts * polytope.counts[first])
    reduced = Reduced(part, np.zeros(part.rates.shape), needed[first], jobs, types, classes)
    return reduced, [table[np.ix_(first, types)] if table.ndim == 2 else table[first] for table in columns]


def maximise_worth(
    polytope: Polytope,
    worth: Array,
    floors: ArrayLike | None = None,
    *,
    evenness: float = 0.0,
    unit: str = "",
    solver: str = "auto",
    tolerance: float = TOLERANCE,
) -> Solution:
    """Shares of the largest worth at which every job keeps its throughput::

        max_x  sum_ij q_ij x_ij        x in the polytope,   sum_j T_ij x_ij >= f_i

    Parameters
    ----------
    polytope : over N jobs and M types, with rates T.
    worth : (N, M) q, of any sign.
    floors : (N,) f in steps/s, which must be attainable together (`formulations.floors.attainable`); none when omitted.
    evenness : e > 0 makes the shares the unique ones that maximise ``q . x - e/2 sum_i max_j |q_ij| |x_i|^2``, at a
        loss of at most e/2 of the worth.
    unit : unit of the worth.
    solver : "auto" (the first path proven to be within tolerance), "compiled", "structured" or "highs".

    The bound holds for any prices p and multipliers l of the floors, by weak duality::

        q . x  <=  sum_i max(0, max_j (q_ij + l_i T_ij - s_i p_j))  +  c . p  -  l . f

    Raises
    ------
    InputError
        As `reduce_with_floors`.
    SolverError
        No path returned shares that keep the floors.
    """
    started = perf_counter()
    shape = polytope.rates.shape
    reduced, (columns,) = reduce_with_floors(polytope, floors, np.asarray(worth, dtype=np.float64))
    reduced = replace(reduced, worth=np.where(reduced.polytope.rates > 0, columns, np.minimum(columns, 0.0)))
    if not len(reduced.jobs):
        nothing = Answer(np.zeros(reduced.worth.shape), np.zeros(0), np.zeros(len(reduced.types)))
        figures: dict[str, Any] = {"status": "empty", "objective": np.nan, "bound": np.nan, "gap": 0.0, "solver": ""}
        empty = reduced.solution(nothing, shape, efficiency_gap=np.nan, unit=unit, seconds=0.0, **figures)
        return replace(empty, prices=priced(polytope, np.asarray(worth, dtype=np.float64), empty))
    best, path, attempts = solve_reduced(reduced, solver=solver, tolerance=tolerance)
    value, bound = _value(reduced, best.shares), worth_bound(reduced, best)
    gap = relative_gap(value, bound) if value < bound else 0.0
    if evenness > 0 and gap <= tolerance:
        even = _evened(reduced, best, value, evenness)
        at_even = _value(reduced, even.shares)
        gap_at_even = relative_gap(at_even, bound) if at_even < bound else 0.0
        if gap_at_even <= tolerance:
            best, value, gap = even, at_even, gap_at_even
    solution = reduced.solution(
        best,
        shape,
        status="optimal" if gap <= tolerance else "feasible",
        objective=value,
        bound=max(bound, value),
        gap=gap,
        efficiency_gap=np.nan,
        unit=unit,
        solver=path,
        seconds=perf_counter() - started,
        attempts=attempts,
    )
    return replace(solution, prices=priced(polytope, np.asarray(worth, dtype=np.float64), solution))


def priced(polytope: Polytope, worth: Array, solution: Solution) -> Array:
    """(M,) prices of all types, given those of the types with GPUs, where columns are of `worth` (N, M)."""
    if (polytope.capacity > 0).all():
        return solution.prices
    earned = np.where(polytope.rates > 0, worth + solution.multipliers[:, None] * polytope.rates, 0.0)
    return with_absent_types(earned, polytope.scale_factors, solution.prices, polytope.capacity)


def solve_reduced(
    reduced: Reduced, *, solver: str = "auto", tolerance: float = TOLERANCE
) -> tuple[Answer, str, tuple[Attempt, ...]]:
    """Best answer over classes, the path that found it, and all attempts; the first within `tolerance` is taken."""
    paths = [(name, path) for name, path in _PATHS if solver in ("auto", name)]
    if not paths:
        known = ", ".join(name for name, _ in _PATHS)
        raise SolverError(f"{solver}: takes no floors; auto, {known} do")

    def turn(name: str, path: Callable[[Reduced], Answer]) -> Turn[Answer]:
        def run() -> Judged[Answer]:
            answer = path(reduced)
            if not _keeps(reduced, answer.shares):
                # shares that miss a floor may be worth more than those that keep them
                raise RuntimeError("missed a floor")
            missing = worth_bound(reduced, answer) - _value(reduced, answer.shares)
            return Judged(answer, max(missing / max(_scale(reduced), 1e-300), 0.0))

        return Turn(name, run)

    attempts: list[Attempt] = []
    turns = [turn(name, path) for name, path in paths]
    answer, path = solve_in_turn(turns, min(tolerance, _AIMED_GAP), attempts, declining_counts=True)
    return answer, path, tuple(attempts)


def worth_bound(reduced: Reduced, answer: Answer) -> float:
    """Most that any shares which keep the floors are worth, proven by the prices and multipliers of `answer`."""
    program = reduced.polytope
    multipliers = reduced.multipliers(answer)
    prices = np.clip(np.nan_to_num(answer.prices), 0.0, None)
    owed = dot(program.counts * multipliers, reduced.floors)
    return program.supply(reduced.worth + multipliers[:, None] * program.rates, prices) - owed


def _by_engine(engine: Callable[..., Any]) -> Callable[[Reduced], Answer]:
    def run(reduced: Reduced) -> Answer:
        scale = _scale(reduced)
        floors = reduced.floors if reduced.floors.any() else None
        last: Exception = RuntimeError("no attempt")
        relaxations = RELAXATIONS if floors is not None else (0.0,)
        for relaxation in relaxations:
            needed = None if floors is None else floors * (1.0 - relaxation)
            try:
                answer = solve_with_floors(reduced.polytope, reduced.worth / scale, needed, 0.0, engine=engine)
            except RuntimeError as error:
                last = error
                continue
            shares = _without_negligible(reduced.polytope.repaired(np.nan_to_num(answer.shares)))
            found = Answer(shares, answer.multipliers * scale, answer.prices * scale, answer.iterations)
            proven = worth_bound(reduced, found) - _value(reduced, shares) <= 1e-9 * scale
            if (proven and _keeps(reduced, shares)) or relaxation == relaxations[-1]:
                return found
        raise last

    return run


def _by_simplex(reduced: Reduced) -> Answer:
    """The program over columns, in HiGHS."""
    program = reduced.polytope
    columns = Configurations.from_matrix(program.columns.matrix)
    stated = ColumnProgram(columns, program.capacity, floors=reduced.floors, counts=program.counts)
    value = (program.counts[:, None] * reduced.worth).ravel()
    found = solve_columns(stated, Total(value), solver="highs")
    stage = found.stages[0]
    # a floor of a class is one for each of its jobs
    return Answer(found.x.reshape(reduced.worth.shape), stage.multipliers / program.counts, stage.prices, 1)


_PATHS: tuple[tuple[str, Callable[[Reduced], Answer]], ...] = (
    ("compiled", _by_engine(compiled_engine)),
    ("structured", _by_engine(solve_structured)),
    ("highs", _by_simplex),
)


def _evened(reduced: Reduced, best: Answer, value: float, evenness: float) -> Answer:
    """The same worth to e/2 with shares as even as possible; the answer itself where that is not found."""
    program, scale = reduced.polytope, _scale(reduced)
    needed = np.minimum(reduced.floors, program.throughput(best.shares))
    for engine, relaxation in product((compiled_engine, solve_structured), RELAXATIONS[1:]):
        floors = needed * (1.0 - relaxation) if needed.any() else None
        try:
            even = solve_with_floors(
                program, reduced.worth / scale, floors, evenness, start=best.shares, precision=1e-13, engine=engine
            )
        except RuntimeError:
            continue
        shares = _without_negligible(program.repaired(np.nan_to_num(even.shares)))
        if value - _value(reduced, shares) <= evenness * scale and _keeps(reduced, shares):
            return replace(best, shares=shares)
    return best


def _value(reduced: Reduced, shares: Array) -> float:
    return dot(reduced.polytope.counts, (reduced.worth * shares).sum(axis=1))


def _scale(reduced: Reduced) -> float:
    """What the worth is measured by: the most valuable GPUs' worth of it."""
    program = reduced.polytope
    most = np.abs(reduced.worth).max(axis=1, initial=0.0)
    busy = np.minimum(program.counts, program.capacity.sum() / program.scale_factors)
    return max(float((most * busy).max(initial=0.0)), 1e-300)


def _keeps(reduced: Reduced, shares: Array) -> bool:
    return bool((reduced.polytope.throughput(shares) >= reduced.floors * (1.0 - ACCEPTED_SHORTFALL)).all())


def _without_negligible(shares: Array) -> Array:
    return np.where(shares < _NEGLIGIBLE_SHARE * shares.max(axis=1, keepdims=True, initial=0.0), 0.0, shares)
