"""Programs with space sharing in which jobs have a throughput to keep: the worth of the shares is maximised."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np
from numpy.typing import ArrayLike

from formulations.arguments import figures, instance
from formulations.columns.objectives import NEGLIGIBLE_SPENDING, largest_ratio
from formulations.core.objectives import MaxSum, relative_gap
from formulations.core.solution import TOLERANCE
from formulations.floors.worth import SAME_RATIO, checked_floors, with_ratio
from formulations.packed.certificate import with_absent_types
from formulations.packed.class_pairs import ClassPairs
from formulations.packed.expansion import of_jobs
from formulations.packed.levels import Proof, solve_for_sum
from formulations.packed.polytope import PackedPolytope
from formulations.packed.program import Goal, PackedPoint, PackedProgram
from formulations.packed.reduction import Reduction, reduce
from formulations.packed.solver import PackedSolution, no_jobs, packed_solution, solve_packed
from throughputs import InputError, PackedColumns
from throughputs.arrays import Floats
from throughputs.numerics import dot


def maximise_packed_worth(
    polytope: PackedPolytope,
    gains: ArrayLike,
    floors: ArrayLike | None = None,
    *,
    unit: str = "",
    solver: str = "auto",
) -> PackedSolution:
    """Shares of the largest worth at which every job keeps its throughput::

        max  sum_ij g_ij u_ij       x, z in the packed polytope,   sum_j u_ij >= f_i

    u_ij: throughput of job i on type j, alone and in pairs.

    Parameters
    ----------
    gains : (N,) or by type (N, M), g, at least 0.
    floors : (N,) f in steps/s, attainable together (`formulations.floors.attainable`); none when omitted.
    unit : unit of the worth.
    solver : as in `formulations.packed.solve_packed`.

    Raises
    ------
    InputError
        A gain or floor is negative or not finite, or a job with a floor gains nothing anywhere.
    SolverError
        No allocation was found that keeps the floors.
    """
    started = perf_counter()
    instance("maximise_packed_worth", "polytope", polytope, PackedPolytope, "PackedPolytope(columns, capacity)")
    g = np.asarray(gains, dtype=np.float64)
    shapes = ((polytope.n_jobs,), polytope.columns.rates.shape)
    if g.shape not in shapes or not (np.isfinite(g) & (g >= 0)).all():
        raise InputError(
            "packed program", field="gains", found=g.tolist(), expected=f"shape {shapes[0]} or {shapes[1]}"
        )
    reduction, f = _reduced(polytope, floors, g)
    if reduction.program is None:
        return no_jobs(polytope, reduction, unit=unit, seconds=0.0)
    g = g[reduction.first]
    at_all = g if g.ndim == 2 else np.repeat(g[:, None], len(polytope.capacity), axis=1)
    goal = Goal(floors=f if f.any() else None, gains=at_all[:, reduction.types])
    proof = solve_for_sum(ClassPairs(reduction.program, solver), goal)
    held, time, dual_prices = proof.proving
    prices = with_absent_types(polytope, reduction, at_all + held[:, None], time, dual_prices)
    found = _solution(polytope, reduction, proof.point, (proof.objective, proof.bound), prices, held)
    return replace(found, unit=unit, seconds=perf_counter() - started)


def maximise_packed_ratio(
    polytope: PackedPolytope,
    gpu_cost: ArrayLike,
    floors: ArrayLike | None = None,
    *,
    unit: str = "",
    solver: str = "auto",
) -> PackedSolution:
    """The most steps per cost at which every job keeps its throughput::

        max  sum_ij u_ij / sum_j d_j v_j      x, z in the packed polytope, not 0,   sum_j u_ij >= f_i

    u_ij: throughput of job i on type j; v_j: GPUs of type j in use, those of a pair counted once. By the sequence of
    `formulations.columns.objectives`: at a ratio r and multipliers whose bound on ``u - r d.v`` is e, no ratio
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
    instance("maximise_packed_ratio", "polytope", polytope, PackedPolytope, "PackedPolytope(columns, capacity)")
    d = figures("maximise_packed_ratio", "gpu_cost", gpu_cost, polytope.capacity.shape)
    reduction, f = _reduced(polytope, floors, np.ones(polytope.n_jobs))
    program = reduction.program
    if program is None:
        return no_jobs(polytope, reduction, unit=unit, seconds=0.0)
    if not f.any():
        solution = _without_floors(polytope, d, solver)
        return replace(solution, unit=unit, seconds=perf_counter() - started)
    cost, ones = d[reduction.types], np.ones(program.rates.shape)
    least = dot(program.counts * f, _least_cost(program, cost))
    pairs = ClassPairs(program, solver)

    def at(ratio: float) -> tuple[Proof, float, float]:
        proof = solve_for_sum(pairs, Goal(floors=f, gains=ones, gpu_cost=ratio * cost))
        attained = dot(program.counts, proof.throughput) / dot(cost, program.used(proof.point))
        return proof, attained, proof.bound

    largest = largest_ratio(at, 0.0, least)
    held, time, dual_prices = largest.proof.proving
    spent = dot(cost, program.used(largest.best.point))
    # the ratio improves by 1 / D for each unit of N - r D; the prices are those at the last ratio
    paid = np.add.reduce(dual_prices * program.capacity) + np.add.reduce(program.counts * held * f)
    if paid <= NEGLIGIBLE_SPENDING * largest.ratio * spent:
        # where neither GPUs nor floors are worth anything, the same ratio is attained with no more than the floors
        spent = least
    prices = with_absent_types(polytope, reduction, 1.0 + held, time, dual_prices, largest.proven_at * d) / spent
    ratio = largest.ratio, largest.bound
    found = _solution(polytope, reduction, largest.best.point, ratio, prices, held / spent)
    return replace(found, unit=unit, seconds=perf_counter() - started)


def _solution(
    polytope: PackedPolytope,
    reduction: Reduction,
    point: PackedPoint,
    figures: tuple[float, float],
    prices: Floats,
    multipliers: Floats,
) -> PackedSolution:
    """For all jobs, with value and bound, prices (M,) of all types, and multipliers by class."""
    shares, pairs = of_jobs(reduction, point, len(polytope.capacity))
    value, bound = figures
    gap = relative_gap(value, bound) if value < bound else 0.0
    return packed_solution(
        polytope,
        reduction,
        shares,
        pairs,
        status="optimal" if gap <= TOLERANCE else "feasible",
        objective=value,
        bound=bound,
        gap=gap,
        efficiency_gap=np.nan,
        prices=prices,
        multipliers=multipliers,
        unit="",
        seconds=0.0,
        iterations=point.iterations,
    )


def _least_cost(program: PackedProgram, cost: Floats) -> Floats:
    """(K,) cost of a step in the cheapest column, inf for none."""
    with np.errstate(divide="ignore"):
        alone = (cost / program.rates).min(axis=1)
        paired = (0.5 * cost / program.partner_rates).min(axis=(1, 2))
    return np.asarray(program.gangs * np.minimum(alone, paired))


def _reduced(polytope: PackedPolytope, floors: ArrayLike | None, gains: Floats) -> tuple[Reduction, Floats]:
    """Classes of the jobs that agree in floors and gains, and their floors."""
    anyone = np.ones(polytope.n_jobs, dtype=bool)
    needed = checked_floors(floors, anyone, polytope.columns.jobs)
    reduction = reduce(polytope, np.column_stack([needed, gains]))
    checked_floors(needed, reduction.served, polytope.columns.jobs)
    return reduction, needed[reduction.first]


def _without_floors(polytope: PackedPolytope, cost: Floats, solver: str) -> PackedSolution:
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
    part = PackedPolytope(best, polytope.capacity)
    filled = solve_packed(part, MaxSum(np.ones(polytope.n_jobs)), solver=solver)
    gained = float(polytope.throughput(filled.shares, filled.pairs).sum())
    value = gained / dot(cost, polytope.used(filled.shares, filled.pairs))
    served = reduce(polytope, np.zeros((polytope.n_jobs, 1))).served
    return with_ratio(filled, value, most, served, better)
