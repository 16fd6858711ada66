"""The judge of every backend: feasibility, a bound and a gap, from products that no backend had a hand in.

*Dual repair* makes prices and multipliers that prove more than those found, from the shares found with them.
Any prices and multipliers prove a bound, and what is missing at good ones is rounding. Where capacity is next to
nothing, or some jobs' demands are a millionth of others', rounding is not small: a share's reduced cost is found to
the precision of what the share is worth, and the bound pays for it as if the job had the whole of its time.
Complementary slackness says what the figures should be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from throughputs.arrays import Floats
from throughputs.numerics import dot

if TYPE_CHECKING:
    from formulations.core.objective import Objective, Threshold


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

    `time` is what a unit of a job's time is worth (N,), where it does not follow from prices.

    `proving` are multipliers and prices that prove the bound, in the same units as `multipliers` and `dual_prices`,
    where those do not.
    """

    shares: Floats
    objective: float
    bound: float
    gap: float
    prices: Floats
    multipliers: Floats
    dual_prices: Floats = field(default_factory=lambda: np.zeros(0))
    proving: tuple[Floats, Floats] | None = None
    time: Floats = field(default_factory=lambda: np.zeros(0))


def certify(polytope: Polytope, objective: Objective, answer: Answer) -> Certificate:
    """Scale the answer into the polytope, evaluate it, and bound the optimum by weak duality.

    How is the objective's (`Objective.certify`). For any ``lambda, p >= 0`` the cluster earns at most
    ``supply(lambda a, p)``; levels and sums are bounded by that.
    """
    return objective.certify(polytope, answer)


def certify_sum(polytope: Polytope, objective: Objective, gains: Floats, answer: Answer) -> Certificate:
    """Of a sum in which a unit of throughput is worth `gains` (N,): it is at most ``supply(gains a, p)``."""
    shares = polytope.repaired(answer.shares)
    prices, time = (np.clip(np.nan_to_num(each), 0.0, None) for each in (answer.prices, answer.time))
    prices, bound = without_negligible(polytope.capacity, prices, lambda p: polytope.supply_at(gains, p, time))
    value = objective.value(polytope.throughput(shares))
    if polytope.time_follows and relative_gap(value, bound) > _GAP_WITHOUT_REPAIR:
        _, higher = repair_duals(polytope, shares, gains, prices, given=True)
        at_higher = polytope.supply_at(gains, higher)
        prices, bound = (higher, at_higher) if at_higher < bound else (prices, bound)
    return Certificate(shares, value, bound, relative_gap(value, bound), prices, np.zeros(0), prices, time=time)


def certify_level(polytope: Polytope, objective: Threshold, answer: Answer) -> Certificate:
    """Of a level: where the weighted demand exceeds ``supply(lambda a, p)`` none is feasible (`Threshold.bound`)."""
    shares = polytope.repaired(answer.shares)
    u = polytope.throughput(shares)
    prices, time = (np.clip(np.nan_to_num(each), 0.0, None) for each in (answer.prices, answer.time))
    multipliers = np.nan_to_num(answer.multipliers)
    np.maximum(multipliers, 0.0, out=multipliers)
    level = objective.level(u)
    prices, supply = without_negligible(polytope.capacity, prices, lambda p: polytope.supply_at(multipliers, p, time))
    bound = objective.bound(polytope.counts * multipliers, supply)
    if polytope.time_follows and relative_gap(level, bound) > _GAP_WITHOUT_REPAIR:
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
        multipliers, prices, time = multipliers / scale, prices / scale, time / scale
    value, limit = objective.report(level), objective.report(bound)
    gap = objective.gap(value, limit)
    paid = objective.report_price(prices, level)
    return Certificate(shares, value, limit, gap, paid, multipliers, prices, proving, time)


def without_negligible(capacity: Floats, prices: Floats, supply_at: Callable[[Floats], float]) -> tuple[Floats, float]:
    """Prices with zeros for negligible ones, and the supply at these prices."""
    supply = supply_at(prices)
    negligible = prices * capacity <= _NEGLIGIBLE_WORTH * supply
    if not (prices[negligible] > 0).any():
        return prices, supply
    significant = np.where(negligible, 0.0, prices)
    without = supply_at(significant)
    # a type of next to no capacity may be worth much to the job that would have it for nothing
    return (significant if without <= supply * (1.0 + _NEGLIGIBLE_WORTH) else prices), min(supply, without)


_SPARE = 1e-6
"""Part of its time from which a job has some to spare."""

_IN_USE = 1e-3
"""Part of a job's largest share from which a share counts as in use."""


def repair_duals(
    polytope: Polytope, shares: Floats, multipliers: Floats, prices: Floats, *, given: bool = False
) -> tuple[Floats, Floats]:
    """Multipliers (N,) and prices (M,) for which the same shares are as good, with less left by rounding.

    The time of a job that has some to spare is worth nothing; other time is worth what the job's shares in use earn. No
    share may earn more than the time and the GPUs that it takes. Where one does, either the type's price rises, which
    costs as much as there are GPUs, or the job bears it: one with time to spare by a multiplier that makes its
    throughput worth what its GPUs cost, others by time that is worth more. Each price rises to where both cost the
    same. Where multipliers are `given`, only prices change.
    """
    s, worth = polytope.scale_factors[:, None], multipliers[:, None] * polytope.rates
    spare = 1.0 - np.einsum("ij->i", shares) > _SPARE
    in_use = shares > _IN_USE * shares.max(axis=1, keepdims=True)
    of_time = np.where(in_use, worth - s * prices, 0.0).max(axis=1)
    of_time[spare] = 0.0
    beyond = np.maximum((worth - of_time[:, None]) / s - prices, 0.0)
    # GPUs of each type that a job would take for its throughput, or all the time
    u = polytope.throughput(shares)
    takes = np.divide(u[:, None], polytope.rates, out=np.ones(shares.shape), where=polytope.rates > 0)
    takes[~spare | given] = 1.0
    takes *= polytope.loads[:, None]
    order = np.argsort(-beyond, axis=0, kind="stable")
    covered = np.cumsum(np.take_along_axis(takes, order, axis=0), axis=0) <= polytope.capacity
    sorted_ = np.append(np.take_along_axis(beyond, order, axis=0), np.zeros((1, len(prices))), axis=0)
    prices = prices + np.take_along_axis(sorted_, covered.sum(axis=0)[None], axis=0)[0]
    if given:
        return multipliers, prices
    cost = np.divide(s * prices, polytope.rates, out=np.full(shares.shape, np.inf), where=polytope.rates > 0)
    return np.where(spare, cost.min(axis=1), multipliers), prices
