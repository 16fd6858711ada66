"""Programs in which jobs have a throughput to keep: the most worth, or the most steps per cost; alone and in pairs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from time import perf_counter

import numpy as np
from numpy.typing import ArrayLike

from formulations.arguments import figures
from formulations.columns.objectives import NEGLIGIBLE_SPENDING, largest_ratio
from formulations.core.certificate import Certificate, relative_gap
from formulations.core.objectives import MaxSum
from formulations.core.polytope import Polytope
from formulations.core.solution import TOLERANCE, Attempt, Solution, SolverError
from formulations.interior_point.structured import solve_with_floors
from formulations.packed.class_pairs import ENGINES, NAME, known_engine
from formulations.packed.levels import ACCEPTED_SHORTFALL, solve_for_sum
from formulations.packed.polytope import PackedPolytope, check_polytope
from formulations.packed.program import Goal, PackedProgram, useful_pairs
from formulations.packed.reduction import PackedReduction, ReductionWithoutPairs, reduced
from formulations.solving.backends import get_backend
from formulations.solving.solver import solve
from formulations.solving.uniqueness import is_unique
from throughputs import InputError, PlainColumns
from throughputs.arrays import Flags, Floats
from throughputs.numerics import dot

_SAME_RATIO = 1e-12
"""Relative distance below which two columns have the same ratio."""

_HOLDING_MULTIPLIER = 1e-7
"""Worth of a floor, relative to that of the job's columns, from which it holds the job's throughput."""

_RELAXATION = 1e-10
"""Fraction by which floors are relaxed so that even shares have an interior to be searched in."""

_NEGLIGIBLE_SHARE = 1e-9
"""Part of a job's largest share below which a share is taken for none."""

_Reduced = PackedReduction | ReductionWithoutPairs


def maximise_worth(
    polytope: Polytope | PackedPolytope,
    gains: ArrayLike,
    floors: ArrayLike | None = None,
    *,
    evenness: float = 0.0,
    unit: str = "",
    solver: str = "auto",
) -> Solution:
    """Shares of the largest worth at which every job keeps its throughput::

        max  sum_ij g_ij u_ij       x, z in the polytope,   sum_j u_ij >= f_i

    u_ij: throughput of job i on type j, alone and in pairs.

    Parameters
    ----------
    polytope : over N jobs and M types.
    gains : (N,) or by type (N, M), g, of any sign.
    floors : (N,) f in steps/s, which must be attainable together (`formulations.floors.attainable`); none when omitted.
    evenness : e > 0 makes the shares the unique ones that maximise ``q . x - e/2 sum_i max_j |q_ij| |x_i|^2``, q the
        worth of shares, at a loss of at most e/2 of the worth. Where the optimum is the only one it is returned as it
        is. Without pairs only.
    unit : unit of the worth.
    solver : "auto", "class_pairs" or "highs", which are the same engine (`formulations.packed.class_pairs`).

    Raises
    ------
    InputError
        A gain is not finite, a floor is negative or not finite, or a job with a floor gains nothing anywhere.
    SolverError
        No shares that keep the floors were found, or the solver takes no floors.
    """
    started = perf_counter()
    check_polytope("maximise_worth", polytope)
    g, rates = np.asarray(gains, dtype=np.float64), polytope.columns.rates
    g = figures("maximise_worth", "gains", g, (rates.shape if g.ndim == 2 else (len(rates),)), "numbers")
    reduction, f = _reduced(polytope, floors, g, solver)
    g = g if g.ndim == 2 else np.repeat(g[:, None], rates.shape[1], axis=1)
    if not len(reduction.jobs):
        nothing = np.zeros(0)
        prices = reduction.all_prices(g, np.zeros(len(reduction.types)), nothing)
        return Solution.empty(polytope.n_jobs, prices, unit=unit, seconds=0.0)
    by_class = g[np.ix_(reduction.first, reduction.types)]
    proof = solve_for_sum(reduction.program, Goal(floors=f if f.any() else None, gains=by_class))
    if evenness > 0 and isinstance(reduction, ReductionWithoutPairs):
        proof = _evened(reduction.program.alone, by_class * reduction.program.rates, f, proof, evenness)
    multipliers = reduction.of_jobs(proof.multipliers)
    prices = reduction.all_prices(g + multipliers[:, None], proof.prices, proof.time)
    figures_ = proof.objective, proof.bound
    return _solution(reduction, proof.shares, figures_, prices, multipliers, unit=unit, started=started)


def maximise_ratio(
    polytope: Polytope | PackedPolytope,
    gpu_cost: ArrayLike,
    floors: ArrayLike | None = None,
    *,
    unit: str = "",
    solver: str = "auto",
) -> Solution:
    """The most steps per cost at which every job keeps its throughput::

        max  sum_ij u_ij / sum_j d_j v_j      x, z in the polytope, not 0,   sum_j u_ij >= f_i

    u_ij: throughput of job i on type j; v_j: GPUs of type j in use, those of a pair counted once. By the sequence of
    `formulations.columns.objectives`: at a ratio r and multipliers whose bound on ``u - r d.v`` is e, no ratio
    exceeds ``r + e / D``, where D is the least that the floors can cost: each step at the lowest cost of any column,
    half a pair's for each of its two jobs. Without floors a ratio of sums is largest where its best column is: nothing
    else runs, as much of it as there is room for.

    Parameters
    ----------
    gpu_cost : (M,) d, positive: cost of one GPU per second in use.
    floors, unit, solver : as in `maximise_worth`; without floors `solver` is any of `solve`.

    Returns the shares with the ratio as objective, its proven bound and gap, the improvement of the ratio per GPU of
    each type, and the multipliers of the floors in the same unit.

    Raises
    ------
    InputError, SolverError
        As in `maximise_worth`; or a cost is not positive.
    """
    started = perf_counter()
    check_polytope("maximise_ratio", polytope)
    d = figures("maximise_ratio", "gpu_cost", gpu_cost, polytope.capacity.shape)
    reduction, f = _reduced(polytope, floors, np.ones(polytope.n_jobs), solver)
    if not len(reduction.jobs):
        return Solution.empty(polytope.n_jobs, reduction.prices_of_others(), unit=unit, seconds=0.0)
    if not f.any():
        found = _without_floors(polytope, d, reduction.served, solver)
        return replace(found, unit=unit, seconds=perf_counter() - started)
    program, cost = reduction.program, d[reduction.types]
    least = dot(program.counts * f, _least_cost(program, cost))

    def at(ratio: float) -> tuple[Certificate, float, float]:
        proof = solve_for_sum(reduction.program, Goal(floors=f, gains=np.ones((1, 1)), gpu_cost=ratio * cost))
        attained = dot(program.counts, program.throughput(proof.shares)) / dot(cost, program.used(proof.shares))
        return proof, attained, proof.bound

    largest = largest_ratio(at, 0.0, least)
    proof, shares = largest.proof, largest.best.shares
    spent = dot(cost, program.used(shares))
    # the ratio improves by 1 / D for each unit of N - r D; the prices are those at the last ratio
    paid = np.add.reduce(proof.prices * program.capacity) + np.add.reduce(program.counts * proof.multipliers * f)
    if paid <= NEGLIGIBLE_SPENDING * largest.ratio * spent:
        # where neither GPUs nor floors are worth anything, the same ratio is attained with no more than the floors
        spent = least
    multipliers = reduction.of_jobs(proof.multipliers)
    worth = np.repeat(1.0 + multipliers[:, None], len(d), axis=1)
    prices = reduction.all_prices(worth, proof.prices, proof.time, largest.proven_at * d) / spent
    ratio = largest.ratio, largest.bound
    return _solution(reduction, shares, ratio, prices, multipliers / spent, unit=unit, started=started)


def _reduced(
    polytope: Polytope | PackedPolytope, floors: ArrayLike | None, gains: Floats, solver: str
) -> tuple[_Reduced, Floats]:
    """Classes of the jobs that agree in floors and gains, in an order that depends on content alone, and their floors.

    Raises
    ------
    InputError
        A floor is negative or not finite, or one is that of a job which cannot run anywhere.
    SolverError
        The solver takes no floors.
    """
    if isinstance(polytope, PackedPolytope):
        known_engine(solver)
    elif floors is not None and solver not in ENGINES:
        get_backend(solver)
        raise SolverError(f"{solver}: takes no floors; {', '.join(ENGINES)} do")
    N = polytope.n_jobs
    needed = np.zeros(N) if floors is None else figures("floors", "floors", floors, (N,), "numbers of at least 0")
    key = np.column_stack([needed, gains])
    reduction = reduced(polytope, key)
    idle = ~reduction.served & (needed > 0)
    if idle.any():
        job = polytope.columns.jobs[int(np.argmax(idle))]
        raise InputError("floors", field=f"floor of job {job!r}", found="nothing it runs on", expected="a floor of 0")
    return reduction, needed[reduction.first]


def _solution(
    reduction: _Reduced,
    found: Floats,
    figures: tuple[float, float],
    prices: Floats,
    multipliers: Floats,
    *,
    unit: str,
    started: float,
) -> Solution:
    """For all jobs, with value and bound, prices (M,) of all types, and multipliers (N,)."""
    shares, pairs = reduction.allocation(found)
    value, bound = figures
    gap = relative_gap(value, bound) if value < bound else 0.0
    seconds = perf_counter() - started
    return Solution(
        shares=shares,
        status="optimal" if gap <= TOLERANCE else "feasible",
        objective=value,
        bound=max(bound, value),
        gap=gap,
        efficiency_gap=np.nan,
        prices=prices,
        multipliers=multipliers,
        served=reduction.served,
        unit=unit,
        solver=NAME,
        seconds=seconds,
        attempts=(Attempt(NAME, gap, seconds),),
        pairs=pairs,
    )


def _least_cost(program: PackedProgram, cost: Floats) -> Floats:
    """(K,) cost of a step in the cheapest column, inf for none."""
    with np.errstate(divide="ignore"):
        alone = (cost / program.rates).min(axis=1)
        paired = (0.5 * cost / program.partner_rates).min(axis=(1, 2))
    return np.asarray(program.scale_factors * np.minimum(alone, paired))


def _evened(part: Polytope, worth: Floats, floors: Floats, best: Certificate, evenness: float) -> Certificate:
    """The same worth (K, M) to e/2 with shares as even as possible; those at hand where they are the only ones."""
    from_floors = best.multipliers[:, None] * part.rates
    held = from_floors.max(axis=1) > _HOLDING_MULTIPLIER * np.abs(worth).max(axis=1)
    if relative_gap(best.objective, best.bound) > TOLERANCE or is_unique(part, worth + from_floors, best.prices, held):
        return best
    at_hand, most = best.shares.reshape(worth.shape), np.abs(worth).max(axis=1, initial=0.0)
    # the most valuable GPUs' worth
    room = part.capacity.sum() / part.scale_factors
    scale = max(float((most * np.minimum(part.counts, room)).max()), 1e-300)
    needed = np.minimum(floors, part.throughput(at_hand))
    relaxed = needed * (1.0 - _RELAXATION) if needed.any() else None
    with suppress(RuntimeError):
        even = solve_with_floors(part, worth / scale, relaxed, evenness, start=at_hand, precision=1e-13).shares
        shares = part.repaired(np.nan_to_num(even))
        shares = np.where(shares < _NEGLIGIBLE_SHARE * shares.max(axis=1, keepdims=True), 0.0, shares)
        value = dot(part.counts, (worth * shares).sum(axis=1))
        kept = (part.throughput(shares) >= floors * (1.0 - ACCEPTED_SHORTFALL)).all()
        if kept and (value >= best.bound or relative_gap(value, best.bound) <= TOLERANCE):
            return replace(best, shares=shares.ravel(), objective=value)
    return best


def _without_floors(polytope: Polytope | PackedPolytope, cost: Floats, served: Flags, solver: str) -> Solution:
    """The best columns, as much of them as the cluster has room for."""
    open_, columns = polytope.capacity > 0, polytope.columns
    if isinstance(columns, PlainColumns):
        alone = together = columns.rates / (columns.scale_factors[:, None] * cost)
    else:
        jobs, price = (
            np.bincount(columns.group, minlength=len(columns.alone)),
            columns.group_scale_factors[:, None] * cost,
        )
        useful = useful_pairs(columns.alone, columns.together, columns.group_scale_factors, jobs)
        alone = np.where((jobs > 0)[:, None], columns.alone / price, 0.0)
        together = np.where(useful, columns.together + columns.together.transpose(1, 0, 2), 0.0) / price[:, None]
    by_type = np.maximum(alone.max(axis=0), together.max(axis=tuple(range(together.ndim - 1))))
    most = float(by_type[open_].max())
    limit = np.where(open_, most * (1.0 - _SAME_RATIO), np.inf)
    part: Polytope | PackedPolytope
    if isinstance(polytope, Polytope):
        best = polytope.columns.matrix.with_rates(np.where(alone >= limit, polytope.rates, 0.0))
        part = Polytope(PlainColumns(best), polytope.capacity, polytope.counts)
    else:
        kept = np.where(alone >= limit, polytope.columns.alone, 0.0)
        shared = np.where(together >= limit, polytope.columns.together, 0.0)
        part = PackedPolytope(replace(polytope.columns, alone=kept, together=shared), polytope.capacity)
    filled = solve(part, MaxSum(np.ones(polytope.n_jobs)), solver=solver)
    return replace(
        filled,
        status="optimal",
        objective=most,
        bound=most,
        gap=0.0,
        # more GPUs let more run, at the same ratio; of a better type the first would change it at once
        prices=np.where(~open_ & (by_type > most), np.nan, 0.0),
        multipliers=np.zeros(len(served)),
        served=served,
    )
