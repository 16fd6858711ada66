"""Linear-fractional programs: the most throughput per dollar, where an allocation costs dollars per hour.

Dinkelbach's method (Management Science 13(7), 1967): the ratio N(x) / D(x) is at most r exactly when no x is worth
more than 0 in ``N(x) - r D(x)``, a linear program. Its optimum at the ratio found so far has a better ratio, and the
steps are Newton's on a convex function, so a few programs suffice. Weak duality turns the prices and multipliers of
any one of them into a bound on the ratio, the one that the dual of the transformation of Charnes and Cooper (Naval
Research Logistics Quarterly 9, 1962) would give.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np
from numpy.typing import ArrayLike, NDArray

from formulations.core.objectives import relative_gap
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer, Attempt, Solution
from formulations.floors.worth import Reduced, maximise_worth, priced, reduce_with_floors, solve_reduced
from formulations.solving.absent_types import prices_of_none
from formulations.solving.solver import TOLERANCE
from throughputs import InputError, PlainColumns
from throughputs.numerics import dot

__all__ = ["MOST_RATIOS", "NEGLIGIBLE_SPENDING", "SAME_RATIO", "maximise_ratio"]

Array = NDArray[np.float64]

MOST_RATIOS = 40
"""Programs of the sequence at most."""

NEGLIGIBLE_SPENDING = 1e-9
"""Part of what is spent up to which GPUs and floors are worth nothing."""

SAME_RATIO = 1e-12
"""Relative distance below which two columns have the same ratio."""


def maximise_ratio(
    polytope: Polytope,
    gains: ArrayLike,
    cost: ArrayLike,
    floors: ArrayLike | None = None,
    *,
    unit: str = "",
    solver: str = "auto",
    tolerance: float = TOLERANCE,
) -> Solution:
    """The largest gain per cost at which every job keeps its throughput::

        max_x  sum_ij g_i T_ij x_ij / sum_ij d_ij x_ij      x in the polytope, not 0,   sum_j T_ij x_ij >= f_i

    Without floors a ratio of sums is largest where its best column is, ``r = max_ij g_i T_ij / d_ij``: the optimum
    runs nothing but the columns of that ratio. Of all such shares those of the largest gain are returned.

    Parameters
    ----------
    polytope : over N jobs and M types, with rates T.
    gains : (N,) g, positive: worth of a step.
    cost : (N, M) d, positive: cost of a column while it runs, per hour for instance.
    floors : (N,) f in steps/s, attainable together; none when omitted.
    unit : unit of the ratio.
    solver : as in `formulations.floors.worth.maximise_worth`.

    Returns the shares with the ratio as objective, its proven bound and gap, the improvement of the ratio per GPU of
    each type, and the multipliers of the floors in the same unit.

    Raises
    ------
    InputError
        A gain or cost is not positive, or a floor as in `reduce_with_floors`.
    SolverError
        No path returned shares that keep the floors.
    """
    started = perf_counter()
    worth, costs = _checked(polytope, gains, cost)
    reduced, (numerator, denominator) = reduce_with_floors(polytope, floors, worth, costs)
    shape = polytope.rates.shape
    if not len(reduced.jobs) or not reduced.floors.any():
        return _without_floors(polytope, worth, costs, unit, solver, started)
    runs = reduced.polytope.rates > 0
    # a column without a rate gains nothing and costs nothing: it is never used
    numerator, denominator = np.where(runs, numerator, 0.0), np.where(runs, denominator, 0.0)
    most = float((numerator / np.where(runs, denominator, 1.0)).max())
    ratio, bound = 0.0, most
    attempts: list[Attempt] = []
    best: tuple[float, Answer, str] | None = None
    # with nothing paid for GPUs and floors no ratio is better than the best column's
    proof = Answer(np.zeros(runs.shape), np.zeros(len(runs)), np.zeros(runs.shape[1]))
    for _ in range(MOST_RATIOS):
        program = replace(reduced, worth=numerator - ratio * denominator)
        answer, path, tried = solve_reduced(program, solver=solver, tolerance=tolerance)
        attempts += tried
        attained = _total(reduced, numerator, answer.shares) / _total(reduced, denominator, answer.shares)
        if best is not None and attained <= best[0] * (1.0 + 1e-14):
            proven = _bound(reduced, numerator, denominator, answer, best[0])
            bound, proof = (proven, answer) if proven < bound else (bound, proof)
            break
        best, ratio = (attained, answer, path), attained
        proven = _bound(reduced, numerator, denominator, answer, attained)
        bound, proof = (proven, answer) if proven < bound else (bound, proof)
        if bound <= attained * (1.0 + 1e-11):
            break
    assert best is not None
    value, chosen, path = best
    gap = relative_gap(value, bound) if value < bound else 0.0
    spent = _total(reduced, denominator, chosen.shares)
    # the ratio improves by 1 / D for each unit of N - r D; the prices are those that prove the bound
    paid = np.add.reduce(proof.prices * reduced.polytope.capacity) + np.add.reduce(proof.multipliers * reduced.floors)
    if paid <= NEGLIGIBLE_SPENDING * value * spent:
        # neither GPUs nor floors are worth anything: the same ratio is attained with no more than the floors
        spent = _least_cost(reduced, denominator)
    scaled = replace(chosen, multipliers=proof.multipliers / spent, prices=proof.prices / spent)
    solution = reduced.solution(
        replace(scaled, iterations=len(attempts)),
        shape,
        status="optimal" if gap <= tolerance else "feasible",
        objective=value,
        bound=max(bound, value),
        gap=gap,
        efficiency_gap=np.nan,
        unit=unit,
        solver=path,
        seconds=perf_counter() - started,
        attempts=tuple(attempts),
    )
    return replace(solution, prices=priced(polytope, (worth - value * costs) / spent, solution))


def _checked(polytope: Polytope, gains: ArrayLike, cost: ArrayLike) -> tuple[Array, Array]:
    """(N, M) gain and cost of each column."""
    g, d = np.asarray(gains, dtype=np.float64), np.asarray(cost, dtype=np.float64)
    for name, values, expected in (("gains", g, (polytope.n_jobs,)), ("cost", d, polytope.rates.shape)):
        if values.shape != expected or not (np.isfinite(values) & (values > 0)).all():
            wanted = f"positive numbers of shape {expected}"
            raise InputError("linear-fractional program", field=name, found=values.tolist(), expected=wanted)
    return g[:, None] * polytope.rates, d


def _without_floors(polytope: Polytope, worth: Array, cost: Array, unit: str, solver: str, started: float) -> Solution:
    """The best columns, as much of them as the cluster has room for."""
    usable = np.where(polytope.capacity > 0, worth / cost, 0.0)
    most = float(usable.max(initial=0.0))
    chosen = (usable >= most * (1.0 - SAME_RATIO)) & (usable > 0)
    best = PlainColumns(polytope.columns.matrix.with_rates(np.where(chosen, polytope.rates, 0.0)))
    part = Polytope(best, polytope.capacity, polytope.counts)
    filled = maximise_worth(part, np.where(chosen, worth, 0.0), evenness=1e-7, solver=solver)
    if filled.status == "empty":
        return replace(filled, prices=prices_of_none(polytope.rates), unit=unit)
    shares = filled.shares
    spent = dot(polytope.counts, (cost * shares).sum(axis=1))
    value = dot(polytope.counts, (worth * shares).sum(axis=1)) / spent
    gap = relative_gap(value, most) if value < most else 0.0
    served: NDArray[np.bool_] = np.asarray((worth[:, polytope.capacity > 0] > 0).any(axis=1))
    return replace(
        filled,
        status="optimal" if gap <= TOLERANCE else "feasible",
        objective=value,
        bound=max(most, value),
        gap=gap,
        # more GPUs let more run, at the same ratio; of a better type the first would change it at once
        prices=np.where(~(polytope.capacity > 0) & (worth / cost > most).any(axis=0), np.nan, 0.0),
        multipliers=np.zeros(polytope.n_jobs),
        served=served,
        unit=unit,
        seconds=perf_counter() - started,
    )


def _total(reduced: Reduced, columns: Array, shares: Array) -> float:
    return dot(reduced.polytope.counts, (columns * shares).sum(axis=1))


def _least_cost(reduced: Reduced, denominator: Array) -> float:
    """What the floors cost at least, each step in the cheapest column."""
    program = reduced.polytope
    each = np.divide(denominator, program.rates, out=np.full(denominator.shape, np.inf), where=program.rates > 0)
    return float(np.add.reduce(program.counts * reduced.floors * each.min(axis=1)))


def _bound(reduced: Reduced, numerator: Array, denominator: Array, answer: Answer, ratio: float) -> float:
    """The least r at which prices and multipliers prove that nothing is worth more than 0; inf for none.

    What they leave, ``sum_i max(0, max_j (N_ij + l_i T_ij - r D_ij - s_i p_j)) + c . p - l . f``, is convex and
    decreasing in r, with finitely many slopes: Newton's steps from the left end at its root. Rounding may leave it
    without one; as the floors cost at least D whatever is done, what is left at r proves ``r + left / D`` too.
    """
    program = reduced.polytope
    multipliers = np.where(reduced.floors > 0, np.clip(np.nan_to_num(answer.multipliers), 0.0, None), 0.0)
    prices = np.clip(np.nan_to_num(answer.prices), 0.0, None)
    fixed = dot(program.capacity, prices) - dot(program.counts * multipliers, reduced.floors)
    earned = numerator + multipliers[:, None] * program.rates - program.scale_factors[:, None] * prices
    rows = np.arange(len(earned))
    least, bound = _least_cost(reduced, denominator), np.inf
    for _ in range(200):
        profit = earned - ratio * denominator
        best = profit.argmax(axis=1)
        gained = profit[rows, best]
        left = dot(program.counts, np.maximum(gained, 0.0)) + fixed
        if left <= 0:
            return min(bound, ratio)
        bound = min(bound, ratio + left / least)
        slope = dot(program.counts, np.where(gained > 0, denominator[rows, best], 0.0))
        if slope <= 0:
            return bound
        step = left / slope
        if step <= 1e-15 * ratio:
            return min(bound, ratio + step * 2.0)
        ratio += step
    return bound
