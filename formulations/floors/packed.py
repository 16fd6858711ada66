"""Programs with space sharing in which jobs have a throughput to keep: the worth of the shares is maximised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import ArrayLike, NDArray

from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.core.objectives import relative_gap
from formulations.core.solution import Attempt
from formulations.floors.worth import ACCEPTED_SHORTFALL, SAME_RATIO, checked_floors
from formulations.packed.absent_types import prices_of_nobody, with_absent_types
from formulations.packed.certificate import dual_bound, repaired
from formulations.packed.engines import Engine, Solve, engines_of
from formulations.packed.expansion import of_jobs
from formulations.packed.polytope import PackedPolytope
from formulations.packed.program import Goal, PackedPoint, PackedProgram
from formulations.packed.reduction import Reduction, reduce
from formulations.packed.solver import PackedSolution, no_jobs
from formulations.solving.solver import TOLERANCE
from throughputs import InputError, PackedColumns
from throughputs.numerics import dot, matmul

__all__ = ["maximise_packed_ratio", "maximise_packed_worth"]

Array = NDArray[np.float64]


def maximise_packed_worth(
    polytope: PackedPolytope,
    gains: ArrayLike,
    floors: ArrayLike | None = None,
    *,
    unit: str = "",
    solver: str = "auto",
    tolerance: float = TOLERANCE,
) -> PackedSolution:
    """Shares of the largest worth at which every job keeps its throughput::

        max  sum_ij g_ij u_ij       x, z in the packed polytope,   sum_j u_ij >= f_i

    u_ij: throughput of job i on type j, alone and in pairs.

    Parameters
    ----------
    gains : (N,) or by type (N, M), g, at least 0.
    floors : (N,) f in steps/s, attainable together (`formulations.floors.packed_attainable`); none when omitted.
    unit : unit of the worth.
    solver : "auto" or an engine of `formulations.packed.engines`.

    Raises
    ------
    InputError
        A gain or floor is negative or not finite, or a job with a floor gains nothing anywhere.
    SolverError
        No engine found an allocation that keeps the floors.
    """
    started = perf_counter()
    g = np.asarray(gains, dtype=np.float64)
    shapes = ((polytope.n_jobs,), polytope.columns.rates.shape)
    if g.shape not in shapes or not (np.isfinite(g) & (g >= 0)).all():
        raise InputError(
            "packed program", field="gains", found=g.tolist(), expected=f"shape {shapes[0]} or {shapes[1]}"
        )
    reduction, f = _reduced(polytope, floors, g)
    program = reduction.program
    if program is None:
        return no_jobs(polytope, reduction, unit, efficiency_gap=np.nan, seconds=0.0)
    g = g[reduction.first]
    at_all = g if g.ndim == 2 else np.repeat(g[:, None], len(polytope.capacity), axis=1)
    g = at_all[:, reduction.types]
    search = _Search(program, f, solver, tolerance)
    found = search.best(g, np.zeros(len(program.capacity)))
    gap = relative_gap(found.value, found.bound) if found.value < found.bound else 0.0
    prices = with_absent_types(polytope, reduction, at_all + found.multipliers[:, None], found.time, found.prices)
    figures = _Figures(found.value, found.bound, gap, prices, found.multipliers)
    return _solution(polytope, reduction, search, found, figures, unit, started, tolerance)


def maximise_packed_ratio(
    polytope: PackedPolytope,
    gpu_cost: ArrayLike,
    floors: ArrayLike | None = None,
    *,
    unit: str = "",
    solver: str = "auto",
    tolerance: float = TOLERANCE,
) -> PackedSolution:
    """The most steps per cost at which every job keeps its throughput::

        max  sum_ij u_ij / sum_j d_j v_j      x, z in the packed polytope, not 0,   sum_j u_ij >= f_i

    u_ij: throughput of job i on type j; v_j: GPUs of type j in use, those of a pair counted once. Dinkelbach's method,
    as in `linear_fractional`. At a ratio r and multipliers whose bound on ``u - r d.v`` is e, no ratio
    exceeds ``r + e / D``, where D is the least that the floors can cost: each step at the lowest cost of any column,
    half a pair's for each of its two jobs. Without floors the best column is all that runs, as much of it as there is
    room for.

    Parameters
    ----------
    gpu_cost : (M,) d, positive: cost of one GPU per second in use.
    floors, unit, solver : as in `maximise_packed_worth`.

    Raises
    ------
    InputError, SolverError
        As in `maximise_packed_worth`; or a cost is not positive.
    """
    started = perf_counter()
    d = np.asarray(gpu_cost, dtype=np.float64)
    if d.shape != polytope.capacity.shape or not (np.isfinite(d) & (d > 0)).all():
        expected = f"{len(polytope.capacity)} positive numbers"
        raise InputError("packed program", field="gpu_cost", found=d.tolist(), expected=expected)
    reduction, f = _reduced(polytope, floors, np.ones(polytope.n_jobs))
    program = reduction.program
    if program is None:
        return no_jobs(polytope, reduction, unit, efficiency_gap=np.nan, seconds=0.0)
    if not f.any():
        return _without_floors(polytope, d, unit, solver, tolerance, started)
    cost = d[reduction.types]
    least = dot(program.counts * f, _least_cost(program, cost))
    search = _Search(program, f, solver, tolerance)
    ones, ratio, bound, proof_ratio = np.ones(program.rates.shape), 0.0, np.inf, 0.0
    best: tuple[float, _Found] | None = None
    for _ in range(_MOST_RATIOS):
        found = search.best(ones, ratio * cost)
        proven = ratio + max(found.bound, 0.0) / least
        if proven < bound:
            bound, proof, proof_ratio = proven, found, ratio
        attained = dot(program.counts, program.throughput(found.point)) / dot(cost, _in_use(program, found.point))
        if best is not None and attained <= best[0] * (1.0 + 1e-14):
            break
        best, ratio = (attained, found), attained
        if bound <= attained * (1.0 + 1e-11):
            break
    assert best is not None
    value, chosen = best
    spent = dot(cost, _in_use(program, chosen.point))
    gap = relative_gap(value, bound) if value < bound else 0.0
    # the ratio improves by 1 / D for each unit of N - r D; the prices are those at the last ratio
    paid = np.add.reduce(proof.prices * program.capacity) + np.add.reduce(program.counts * proof.multipliers * f)
    if paid <= _NEGLIGIBLE_SPENDING * value * spent:
        # where neither GPUs nor floors are worth anything, the same ratio is attained with no more than the floors
        spent = least
    prices = with_absent_types(polytope, reduction, 1.0 + proof.multipliers, proof.time, proof.prices, proof_ratio * d)
    figures = _Figures(value, max(bound, value), gap, prices / spent, proof.multipliers / spent)
    return _solution(polytope, reduction, search, chosen, figures, unit, started, tolerance)


_MOST_RATIOS = 40
"""Programs of the sequence at most."""

_NEGLIGIBLE_SPENDING = 1e-9
"""Part of what is spent up to which GPUs and floors are worth nothing."""


@dataclass(frozen=True, eq=False)
class _Found:
    """A feasible point that keeps the floors, over classes, with its worth and what is proven about it."""

    point: PackedPoint
    value: float
    bound: float
    gap: float
    prices: Array
    time: Array
    multipliers: Array
    solver: str


@dataclass(frozen=True, eq=False)
class _Figures:
    """What is reported; prices over all types, multipliers over classes."""

    objective: float
    bound: float
    gap: float
    prices: Array
    multipliers: Array


class _Search:
    """Engines that go on from one goal to the next, all with the same floors (K,)."""

    def __init__(self, program: PackedProgram, floors: Array, solver: str, tolerance: float) -> None:
        self.program, self.floors, self.enough = program, floors, tolerance
        self.engines = engines_of(solver)
        self.running: dict[str, Solve] = {}
        self.attempts: list[Attempt] = []

    def best(self, gains: Array, cost: Array) -> _Found:
        """Point of the most ``sum_kj n_k g_kj u_kj - d.v``: the first that is proven, else that of the smallest gap."""
        turns = [Turn(engine.name, partial(self._attempt, engine, gains, cost)) for engine in self.engines]
        return solve_in_turn(turns, self.enough, self.attempts, declining_counts=True)[0]

    def _attempt(self, engine: Engine, gains: Array, cost: Array) -> Judged[_Found]:
        program, f = self.program, self.floors
        floors = f if f.any() else None
        if engine.name not in self.running:
            self.running[engine.name] = engine.start(program)
        goal = Goal(floors=floors, gains=gains, gpu_cost=cost)
        answer = _solved(self.running[engine.name], goal)
        point = repaired(program, answer)
        if (program.throughput(point) < f * (1.0 - ACCEPTED_SHORTFALL)).any():
            raise RuntimeError("missed a floor")
        multipliers = np.where(f > 0, np.clip(np.nan_to_num(answer.demand_multipliers), 0.0, None), 0.0)
        dual = dual_bound(program, gains + multipliers[:, None], answer.time_multipliers, answer.prices, cost)
        bound = dual.supply - dot(program.counts * multipliers, f)
        earned = dot(program.counts, (gains * _by_type(program, point)).sum(axis=1))
        value = earned - dot(cost, _in_use(program, point))
        gap = max(bound - value, 0.0) / max(earned, 1e-300)
        found = _Found(point, value, max(bound, value), gap, dual.prices, dual.time, multipliers, engine.name)
        return Judged(found, gap)


def _solved(solve: Solve, goal: Goal) -> PackedPoint:
    """Answer of an engine; where it starts from few pairs it may have to find those first that keep the floors."""
    try:
        return solve(goal)
    except RuntimeError:
        if goal.floors is None:
            raise
        solve(Goal(slopes=goal.floors))
        return solve(goal)


def _by_type(program: PackedProgram, point: PackedPoint) -> Array:
    """(K, M) throughput of one job of each class on each type."""
    return np.asarray(program.rates * point.alone + (program.partner_rates * point.shared).sum(axis=1))


def _in_use(program: PackedProgram, point: PackedPoint) -> Array:
    """(M,) GPUs in use."""
    return np.asarray(matmul(program.counts * program.gangs, point.alone + 0.5 * point.shared.sum(axis=1)))


def _least_cost(program: PackedProgram, cost: Array) -> Array:
    """(K,) cost of a step in the cheapest column, inf for none."""
    with np.errstate(divide="ignore"):
        alone = (cost / program.rates).min(axis=1)
        paired = (0.5 * cost / program.partner_rates).min(axis=(1, 2))
    return np.asarray(program.gangs * np.minimum(alone, paired))


def _reduced(polytope: PackedPolytope, floors: ArrayLike | None, gains: Array) -> tuple[Reduction, Array]:
    """Classes of the jobs that agree in floors and gains, and their floors."""
    anyone = np.ones(polytope.n_jobs, dtype=bool)
    needed = checked_floors(floors, anyone, polytope.columns.jobs)
    reduction = reduce(polytope, np.column_stack([needed, gains]))
    checked_floors(needed, reduction.served, polytope.columns.jobs)
    return reduction, needed[reduction.first]


def _without_floors(
    polytope: PackedPolytope, cost: Array, unit: str, solver: str, tolerance: float, started: float
) -> PackedSolution:
    """The best columns, as much of them as the cluster has room for."""
    columns = polytope.columns
    jobs = np.bincount(columns.group, minlength=len(columns.alone))
    enough = (jobs[:, None] > 0) & (jobs > 0)
    np.fill_diagonal(enough, jobs > 1)
    open_ = polytope.capacity > 0
    price = columns.group_scale_factors[:, None] * cost
    alone = np.where((jobs > 0)[:, None], columns.alone / price, 0.0)
    both = columns.together + columns.together.transpose(1, 0, 2)
    together = np.where(enough[:, :, None], both / price[:, None, :], 0.0)
    by_type = np.maximum(alone.max(axis=0), together.max(axis=(0, 1)))
    most = float(by_type[open_].max())
    better = ~open_ & (by_type > most)
    alone, together = np.where(open_, alone, 0.0), np.where(open_, together, 0.0)
    limit = most * (1.0 - SAME_RATIO)
    best = PackedColumns(
        columns.group,
        np.where(alone >= limit, columns.alone, 0.0),
        np.where(together >= limit, columns.together, 0.0),
        columns.group_scale_factors,
        jobs=columns.jobs,
        accelerators=columns.accelerators,
    )
    filled = maximise_packed_worth(
        PackedPolytope(best, polytope.capacity), np.ones(polytope.n_jobs), solver=solver, tolerance=tolerance
    )
    sizes, pairs = columns.scale_factors, filled.pairs
    used = matmul(sizes, filled.shares) + np.bincount(
        pairs.accelerator, sizes[pairs.first] * pairs.share, minlength=len(cost)
    )
    value = float(polytope.throughput(filled.shares, pairs).sum()) / dot(cost, used)
    gap = relative_gap(value, most) if value < most else 0.0
    return replace(
        filled,
        status="optimal" if gap <= tolerance else "feasible",
        objective=value,
        bound=max(most, value),
        gap=gap,
        # more GPUs let more run, at the same ratio; of a better type the first would change it at once
        prices=np.where(better, np.nan, 0.0),
        multipliers=np.zeros(polytope.n_jobs),
        served=reduce(polytope, np.zeros((polytope.n_jobs, 1))).served,
        unit=unit,
        seconds=perf_counter() - started,
    )


def _solution(
    polytope: PackedPolytope,
    reduction: Reduction,
    search: _Search,
    found: _Found,
    figures: _Figures,
    unit: str,
    started: float,
    tolerance: float,
) -> PackedSolution:
    """From classes to jobs."""
    shares, pairs = of_jobs(reduction, found.point, len(polytope.capacity))
    multipliers = np.zeros(polytope.n_jobs)
    multipliers[reduction.jobs] = figures.multipliers[reduction.of]
    return PackedSolution(
        shares=shares,
        pairs=pairs,
        status="optimal" if figures.gap <= tolerance else "feasible",
        objective=figures.objective,
        bound=figures.bound,
        gap=figures.gap,
        efficiency_gap=np.nan,
        prices=figures.prices + prices_of_nobody(polytope, reduction.served),
        multipliers=multipliers,
        served=reduction.served,
        unit=unit,
        solver=found.solver,
        seconds=perf_counter() - started,
        iterations=found.point.iterations,
        attempts=tuple(search.attempts),
    )
