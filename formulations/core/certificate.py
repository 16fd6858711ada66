"""The judge of every backend: feasibility, a bound and a gap, from products that no backend had a hand in.

Shares are scaled into the polytope and the objective is evaluated at them. By weak duality any multipliers
``lambda >= 0`` and prices ``p >= 0`` bound the optimum, since a job that pays ``s_i p_j`` for a type earns at most

    m_i = max(0, max_j (lambda_i T_ij - s_i p_j))        the cluster ``supply = sum_i n_i m_i + c . p``

    sum           sum_i n_i g_i u_i         <=  supply(g, p)
    level         no t is feasible with sum_i n_i lambda_i demand_i(t)  >  supply(lambda, p)
    logarithms    sum_i n_i B_i log u_i     <=  sum_i n_i (B_i log(B_i / lambda_i) - B_i)  +  supply(lambda, p)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from formulations.core.polytope import ROUNDED_UP, Polytope
from formulations.core.solution import Answer
from throughputs.arrays import Floats
from throughputs.numerics import dot, log

if TYPE_CHECKING:
    from formulations.core.objective import Threshold
    from formulations.core.objectives import MaxSum, NashWelfare


_NEGLIGIBLE_WORTH = 1e-9
"""Part of what the cluster can earn below which the worth of a type's capacity is taken for nothing."""

_SAME_BOUND = 1e-10
"""Relative distance up to which a bound from one job alone says no more than that of the multipliers."""

_ACCEPTED_GAP = 1e-9
"""Gap per budget at which no better multipliers are looked for."""

_LARGEST = float(np.finfo(np.float64).max)
"""In place of infinity."""

_ROUNDED_DOWN = 1.0 - 4.0 * float(np.finfo(np.float64).eps)
"""A multiplier this much smaller costs nothing, and rounding cannot push its job above a price it just meets."""


def relative_gap(value: float, bound: float) -> float:
    """Distance of a value from its bound, relative to the larger; inf where either is not finite."""
    if not (np.isfinite(value) and np.isfinite(bound)):
        return np.inf
    return abs(value - bound) / max(abs(value), abs(bound), 1e-300) if value != bound else 0.0


@dataclass(frozen=True, eq=False)
class Certificate:
    """Feasible shares with what is proven about them.

    Attributes
    ----------
    shares, objective, bound, gap : what was found, and how good it is.
    multipliers, prices : (N,) and (M,), which prove the bound; multipliers are 0 where there are no demands.
    time : (N,) what a unit of a job's time is worth in the same unit, where it does not follow from prices.
    solver, iterations : of the backend whose answer it was.
    """

    shares: Floats
    objective: float
    bound: float
    gap: float
    multipliers: Floats
    prices: Floats
    time: Floats = field(default_factory=lambda: np.zeros(0))
    solver: str = ""
    iterations: int = 0


def made_feasible(polytope: Polytope, answer: Answer) -> tuple[Floats, Floats, Floats, Floats]:
    """Shares in the polytope; multipliers, prices and worth of time of at least 0."""
    shares = polytope.repaired(answer.shares)
    multipliers, prices, time = (
        # maxima that mind no NaN
        np.fmin(np.fmax(each, 0.0), _LARGEST)
        for each in (answer.multipliers, answer.prices, answer.time)
    )
    return shares, multipliers, prices, time


def without_negligible(polytope: Polytope, multipliers: Floats, prices: Floats, time: Floats) -> tuple[Floats, float]:
    """Prices with zeros for negligible ones, and the supply at these prices."""
    supply = polytope.supply_at(multipliers, prices, time)
    significant = np.where(prices * polytope.capacity <= _NEGLIGIBLE_WORTH * supply, 0.0, prices)
    without = polytope.supply_at(multipliers, significant, time)
    # a type of next to no capacity may be worth much to the job that would have it for nothing
    return (significant if without <= supply * (1.0 + _NEGLIGIBLE_WORTH) else prices), min(supply, without)


def certify_sum(polytope: Polytope, objective: MaxSum, answer: Answer) -> Certificate:
    """Of a sum, by what the cluster earns where a unit of throughput is worth the gains."""
    shares, _, prices, time = made_feasible(polytope, answer)
    value = objective.value(polytope.throughput(shares))
    prices, bound = without_negligible(polytope, objective.gains, prices, time)
    return Certificate(shares, value, bound, relative_gap(value, bound), np.zeros(len(objective.gains)), prices, time)


def certify_level(polytope: Polytope, objective: Threshold, answer: Answer) -> Certificate:
    """Of a level, by `Threshold.bound`, or by what the hardest job can have alone with all of its time.

    Multipliers are scaled so that an improvement of the level by 1 costs 1.
    """
    shares, multipliers, prices, time = made_feasible(polytope, answer)
    level = objective.level(polytope.throughput(shares))
    prices, supply = without_negligible(polytope, multipliers, prices, time)
    bound = objective.bound(polytope.counts * multipliers, supply)
    alone = objective.easiest_level(polytope.fastest)
    if objective.worse(alone, bound) != bound:
        if relative_gap(alone, bound) > _SAME_BOUND:
            multipliers, prices = objective.held_alone(polytope.fastest) / polytope.counts, np.zeros_like(prices)
            time = multipliers * polytope.fastest
        bound = alone
    with np.errstate(all="ignore"):
        scale = dot(polytope.counts * multipliers, objective.slope(level)) if np.isfinite(level) else np.inf
    if scale > 0 and np.isfinite(scale):
        multipliers, prices, time = multipliers / scale, prices / scale, time / scale
    value, limit = objective.report(level), objective.report(bound)
    return Certificate(shares, value, limit, objective.gap(value, limit), multipliers, prices, time)


def certify_log(polytope: Polytope, objective: NashWelfare, answer: Answer) -> Certificate:
    """Of a sum of logarithms, by the multipliers ``B / u`` of the optimum, or by those that prove most at the prices.

    The value at feasible shares is subtracted job by job, so the difference is as exact when utilities are huge as
    when they are small. It is reported relative to the total budget, ``gap = (bound - value) / sum_i n_i B_i``: this
    changes neither with the unit of any job's throughput nor with the unit of budgets. A job without throughput makes
    the value -inf and the gap inf.
    """
    shares, _, prices, time = made_feasible(polytope, answer)
    u, n, B = polytope.throughput(shares), polytope.counts, objective.budgets
    if not (u > 0).all():
        return Certificate(shares, -np.inf, np.inf, np.inf, np.zeros(polytope.n_jobs), prices)
    total, multipliers = dot(n, B), B / u
    prices, supply = without_negligible(polytope, multipliers, prices, time)
    excess = supply - total
    if excess > _ACCEPTED_GAP * total:
        best = _best_multipliers(polytope, B, prices)
        surplus = polytope.profits(multipliers, prices)
        with np.errstate(all="ignore"):
            at_best = B * log(multipliers / best) + polytope.profits(best, prices)
        # weak duality holds for any multiplier: where rounding spoils the best one, the other will do
        multipliers = np.where(at_best <= surplus, best, multipliers)
        excess = dot(polytope.capacity, prices * ROUNDED_UP) + dot(n, np.fmin(at_best, surplus) - B)
    # rounding may leave a value above its own bound by as much
    excess, value = max(excess, 0.0), objective.value(u)
    return Certificate(shares, value, value + excess, excess / total, multipliers, prices)


def _best_multipliers(polytope: Polytope, budgets: Floats, prices: Floats) -> Floats:
    """(N,) where ``B log(B / l) + max_j (T_j l - s p_j)`` is least.

    Per GPU it is the least over types of what the budget buys there, or the steepest way to there from idleness or a
    cheaper type.
    """
    s = polytope.scale_factors.astype(np.float64)
    a, b = np.ascontiguousarray(polytope.rates.T), budgets / s
    best = np.full(len(b), np.inf)
    order = np.argsort(prices, kind="stable")
    with np.errstate(all="ignore"):
        for r, k in enumerate(order):
            value = np.maximum(b, prices[k]) / a[k]
            for j in order[:r]:
                if prices[j] < prices[k]:
                    value = np.maximum(value, (prices[k] - prices[j]) / (a[k] - a[j]))
            best = np.minimum(best, value)
    return best * s * _ROUNDED_DOWN
