"""The judge of logarithmic utilities: feasibility, a bound and a gap, from products that no backend had a hand in.

For any prices ``p >= 0`` and multipliers ``lambda > 0`` weak duality gives::

    max_x  sum_i n_i B_i log(a_i . x_i)
        <=  sum_i n_i [ B_i log(B_i / lambda_i) - B_i + max(0, max_j (a_ij lambda_i - s_i p_j)) ]  +  c . p

The value at feasible shares is subtracted job by job, so the difference is as exact when utilities are huge as when
they are small. It is reported relative to the total budget, ``gap = (bound - value) / sum_i n_i B_i``: this changes
neither with the unit of any job's throughput nor with the unit of budgets, and the weighted geometric mean of the
throughputs is within a factor exp(-gap) of the best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from formulations.core.certificate import Certificate
from formulations.core.polytope import Polytope, parts
from formulations.core.solution import Answer
from throughputs.arrays import Floats, Ints, Positions
from throughputs.numerics import dot, log

if TYPE_CHECKING:
    from formulations.core.objectives import NashWelfare


_NEGLIGIBLE_WORTH = 1e-9
"""Part of all budgets below which the worth of a type's capacity is taken for nothing."""

_ACCEPTED_GAP = 1e-9
"""Gap per budget at which no better multipliers are looked for."""

_ROUNDED_DOWN = 1.0 - 4.0 * float(np.finfo(np.float64).eps)
"""A multiplier this much smaller costs nothing, and rounding cannot push its job above a price it just meets."""


def certify_log(polytope: Polytope, objective: NashWelfare, answer: Answer) -> Certificate:
    """Scale the answer into the polytope, evaluate it, and bound the optimum by weak duality.

    Prices are in units of the objective per GPU, multipliers are ``B_i / u_i``. A job without throughput makes the
    value -inf and the gap inf.
    """
    shares = polytope.repaired(answer.shares)
    prices = np.clip(np.nan_to_num(answer.prices), 0.0, None)
    budgets, total = objective.budgets, _total(objective.budgets, polytope.counts)
    u = polytope.throughput(shares)
    if not (u > 0).all():
        return Certificate(shares, -np.inf, np.inf, np.inf, prices, np.zeros(polytope.n_jobs), prices)
    value = objective.value(u)
    excess, multipliers = _proof(polytope, budgets, u, prices)
    significant = np.where(prices * polytope.capacity <= _NEGLIGIBLE_WORTH * total, 0.0, prices)
    if (significant != prices).any():
        # zeros for the negligible prices of an interior point, unless that proves less
        excess_significant, multipliers_significant = _proof(polytope, budgets, u, significant)
        if excess_significant <= max(excess, _ACCEPTED_GAP * total):
            excess, prices, multipliers = excess_significant, significant, multipliers_significant
    # rounding may leave a value above its own bound by as much
    gap = max(excess, 0.0) / total
    proving = None if multipliers is None else (multipliers, prices)
    return Certificate(shares, value, value + max(excess, 0.0), gap, prices, budgets / u, prices, proving)


def _proof(polytope: Polytope, budgets: Floats, u: Floats, prices: Floats) -> tuple[float, Floats | None]:
    """``bound - value`` at throughputs `u` (N,), proven by `prices` (M,), and the multipliers (N,) that prove it.

    These are ``B / u`` (None). Where they prove little, as they do where a job takes turns and u is not exact, the best
    ones at these prices are taken.
    """
    excess = dot(polytope.capacity, prices)
    for part in parts(len(u)):
        a, B = np.ascontiguousarray(polytope.rates[part].T), budgets[part]
        excess += _total(polytope.counts[part], _surplus(a, B / u[part], polytope.scale_factors[part], prices) - B)
    if excess <= _ACCEPTED_GAP * _total(polytope.counts, budgets):
        return excess, None
    excess, order = dot(polytope.capacity, prices), np.argsort(prices, kind="stable")
    multipliers = np.empty(len(u))
    for part in parts(len(u)):
        a, B = np.ascontiguousarray(polytope.rates[part].T), budgets[part]
        s = polytope.scale_factors[part].astype(np.float64)
        best = _best_multiplier(a, B / s, prices, order) * s * _ROUNDED_DOWN
        with np.errstate(all="ignore"):
            at_best = B * log(B / (best * u[part])) + _surplus(a, best, s, prices)
        # weak duality holds for any multiplier: where rounding spoils the best one, the other will do
        at_other = _surplus(a, B / u[part], s, prices)
        multipliers[part] = np.where(at_best <= at_other, best, B / u[part])
        excess += _total(polytope.counts[part], np.fmin(at_best, at_other) - B)
    return excess, multipliers


def _total(weights: Floats, values: Floats) -> float:
    """``weights . values`` by pairwise summation on one thread, the same whatever the machine."""
    return float(np.add.reduce(weights * values))


def _surplus(a: Floats, multipliers: Floats, s: Floats | Ints, prices: Floats) -> Floats:
    """``max(0, max_j (a_ij lambda_i - s_i p_j))`` for rates a (M, K)."""
    surplus = np.zeros(a.shape[1])
    for rate, price in zip(a, prices, strict=True):
        np.maximum(surplus, rate * multipliers - s * price, out=surplus)
    return surplus


def _best_multiplier(a: Floats, b: Floats, prices: Floats, order: Positions) -> Floats:
    """(K,) per GPU, for rates a (M, K) and budgets per GPU b: where ``b log(b / l) + max_j (a_j l - p_j)`` is least.

    The least over types of: what the budget buys there, or the steepest way to there from idleness or a cheaper type.
    """
    best = np.full(a.shape[1], np.inf)
    with np.errstate(all="ignore"):
        for r, k in enumerate(order):
            value = np.maximum(b, prices[k]) / a[k]
            for j in order[:r]:
                if prices[j] < prices[k]:
                    value = np.maximum(value, (prices[k] - prices[j]) / (a[k] - a[j]))
            best = np.minimum(best, value)
    return best
