"""The judge of every backend: feasibility, a bound and a gap, from products that no backend had a hand in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from formulations.core.dual_repair import repair_duals
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from throughputs.numerics import dot

if TYPE_CHECKING:
    from formulations.core.objective import Objective, Threshold

Array = NDArray[np.float64]


_NEGLIGIBLE_WORTH = 1e-9
"""Part of what the cluster can earn below which the worth of a type's capacity is taken for nothing."""


_GAP_WITHOUT_REPAIR = 1e-10
"""Relative gap up to which nothing is done to prove a smaller one."""


def relative_gap(value: float, bound: float) -> float:
    """Distance of a value from its bound, relative to the larger; inf where either is not finite."""
    if not (np.isfinite(value) and np.isfinite(bound)):
        return np.inf
    return abs(value - bound) / max(abs(value), abs(bound), 1e-300) if value != bound else 0.0


@dataclass(frozen=True, eq=False)
class Certificate:
    """Feasible shares with what is proven about them.

    `prices` are in units of the objective per GPU; `dual_prices` in units of the multipliers (N,), which are those of
    the level. Multipliers are empty where there is no level.

    `proving` are multipliers and prices that prove the bound, in the same units as `multipliers` and `dual_prices`,
    where those do not.
    """

    shares: Array
    objective: float
    bound: float
    gap: float
    prices: Array
    multipliers: Array
    dual_prices: Array = field(default_factory=lambda: np.zeros(0))
    proving: tuple[Array, Array] | None = None


def certify(polytope: Polytope, objective: Objective, answer: Answer) -> Certificate:
    """Scale the answer into the polytope, evaluate it, and bound the optimum by weak duality.

    How is the objective's (`Objective.certify`). For any ``lambda, p >= 0`` the cluster earns at most
    ``supply(lambda a, p)``; levels and sums are bounded by that.
    """
    return objective.certify(polytope, answer)


def certify_sum(polytope: Polytope, objective: Objective, gains: Array, answer: Answer) -> Certificate:
    """Of a sum in which a unit of throughput is worth `gains` (N,): it is at most ``supply(gains a, p)``."""
    shares = polytope.repaired(answer.shares)
    prices = np.clip(np.nan_to_num(answer.prices), 0.0, None)
    prices, bound = _without_negligible(polytope, gains, prices)
    value = objective.value(polytope.throughput(shares))
    if relative_gap(value, bound) > _GAP_WITHOUT_REPAIR:
        _, higher = repair_duals(polytope, shares, gains, prices, given=True)
        at_higher = polytope.supply_at(gains, higher)
        prices, bound = (higher, at_higher) if at_higher < bound else (prices, bound)
    return Certificate(shares, value, bound, relative_gap(value, bound), prices, np.zeros(0), prices)


def certify_level(polytope: Polytope, objective: Threshold, answer: Answer) -> Certificate:
    """Of a level: where the weighted demand exceeds ``supply(lambda a, p)`` none is feasible (`Threshold.bound`)."""
    shares = polytope.repaired(answer.shares)
    u = polytope.throughput(shares)
    prices = np.clip(np.nan_to_num(answer.prices), 0.0, None)
    multipliers = np.nan_to_num(answer.multipliers)
    np.maximum(multipliers, 0.0, out=multipliers)
    level = objective.level(u)
    prices, supply = _without_negligible(polytope, multipliers, prices)
    bound = objective.bound(polytope.counts * multipliers, supply)
    if relative_gap(level, bound) > _GAP_WITHOUT_REPAIR:
        exact, higher = repair_duals(polytope, shares, multipliers, prices)
        proven = objective.bound(polytope.counts * exact, polytope.supply_at(exact, higher))
        if objective.worse(proven, bound) != bound:
            multipliers, prices, bound = exact, higher, proven
    alone, proving = objective.easiest_level(polytope.fastest), None
    if objective.worse(alone, bound) != bound:
        if relative_gap(alone, bound) > _GAP_WITHOUT_REPAIR:
            proving = objective.held_alone(polytope.fastest) / polytope.counts, np.zeros_like(prices)
        bound = alone
    with np.errstate(all="ignore"):
        scale = dot(polytope.counts * multipliers, objective.slope(level)) if np.isfinite(level) else np.inf
    if scale > 0 and np.isfinite(scale):
        multipliers, prices = multipliers / scale, prices / scale
    value, limit = objective.report(level), objective.report(bound)
    gap = objective.gap(value, limit)
    return Certificate(shares, value, limit, gap, objective.report_price(prices, level), multipliers, prices, proving)


def _without_negligible(polytope: Polytope, multipliers: Array, prices: Array) -> tuple[Array, float]:
    """Prices with zeros for negligible ones, and the supply at these prices and `multipliers` (N,)."""
    supply = polytope.supply_at(multipliers, prices)
    negligible = prices * polytope.capacity <= _NEGLIGIBLE_WORTH * supply
    if not (prices[negligible] > 0).any():
        return prices, supply
    significant = np.where(negligible, 0.0, prices)
    without = polytope.supply_at(multipliers, significant)
    # a type of next to no capacity may be worth much to the job that would have it for nothing
    return (significant if without <= supply * (1.0 + _NEGLIGIBLE_WORTH) else prices), min(supply, without)
