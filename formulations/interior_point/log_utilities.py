"""Logarithmic utilities on the structure: an interior point method, or prices first where jobs are many."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.core.objective import Objective
from formulations.core.objectives import NashWelfare
from formulations.core.polytope import Polytope
from formulations.core.reductions import Classes, classes_of
from formulations.core.solution import Answer
from formulations.interior_point.method import StructuredProgram, solve_structured
from formulations.prices.log_responses import Market
from formulations.prices.log_search import solve_by_prices

Array = NDArray[np.float64]

_PRECISION = 1e-11
"""Relative gap that the interior point method is run to."""
_LEAST_FOR_PRICES = 3000
"""Number of classes from which prices come first."""

_PROBED_JOBS = 4096
"""Jobs that are compared first, to see whether classes are worth looking for among all."""
_SAME_DECIMALS = 12
"""Decimals to which two jobs' relative rates must agree to be one class."""


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Solve `NashWelfare`; rows without a positive rate and types without capacity are not allowed here.

    TypeError for another objective.
    """
    if not isinstance(objective, NashWelfare):
        raise TypeError(f"logarithmic utilities are not those of {type(objective).__name__}")
    return solve_log(polytope.rates, polytope.scale_factors, objective.budgets, polytope.counts, polytope.capacity)


def solve_log(
    rates: Array,
    scale_factors: NDArray[np.int64] | Array,
    budgets: Array,
    counts: Array,
    capacity: Array,
) -> Answer:
    """Maximise ``sum_i n_i B_i log(sum_j T_ij x_ij)`` over the polytope.

    Parameters
    ----------
    rates : (N, M) T, a positive one in every row.
    scale_factors, budgets, counts : (N,) s, B and n.
    capacity : (M,) c, positive.

    Returns the shares (N, M), the multipliers ``B_i / u_i`` of throughput, and the prices.
    """
    types = _merge_types(rates, capacity)
    relative = np.ascontiguousarray(rates[:, types.first].T, dtype=np.float64)
    fastest = relative.max(axis=0)
    relative /= fastest
    market = Market(relative, np.asarray(scale_factors, dtype=np.float64), budgets, counts, types.capacity)
    classes = _merge_jobs(market)
    if classes is None:
        answer = _solve(market)
        shares, multipliers, prices = answer.shares, answer.multipliers, answer.prices
    else:
        together = np.bincount(classes.of, counts, len(classes.first)).astype(np.float64)
        answer = _solve(market.take(classes.first, together))
        shares, multipliers, prices = answer.shares[classes.of], answer.multipliers[classes.of], answer.prices
    if len(types.first) < len(capacity):
        shares, prices = shares[:, types.of] * types.part, prices[types.of]
    return Answer(shares, multipliers / fastest, prices, answer.iterations, answer.solver)


def _solve(market: Market) -> Answer:
    """Of the market's K jobs, with its iterations or passes."""
    if len(market.budgets) > _LEAST_FOR_PRICES:
        with suppress(RuntimeError):
            return solve_by_prices(market)
    program = StructuredProgram(
        rates=market.rates,
        scale_factors=market.scale_factors,
        counts=market.counts,
        capacity=market.capacity,
        budgets=market.budgets,
    )
    point = solve_structured(program, _PRECISION)
    return Answer(point.shares.T, point.demand_multipliers, point.prices, point.iterations, "structured")


@dataclass(frozen=True, eq=False)
class _Types:
    """Types on which every job runs alike, as one: `first` of each, capacity together, which one each type is `of`
    and its part (M,) of the capacity."""

    first: NDArray[np.intp]
    capacity: Array
    of: NDArray[np.intp]
    part: Array


def _merge_types(rates: Array, capacity: Array) -> _Types:
    """Only the sum of a job's shares of equal types matters: they are one type with all their GPUs."""
    of = np.arange(rates.shape[1])
    for k in range(1, len(of)):
        for j in range(k):
            if (
                of[j] == j
                and np.array_equal(rates[:_PROBED_JOBS, j], rates[:_PROBED_JOBS, k])
                and (rates[:, j] == rates[:, k]).all()
            ):
                of[k] = j
                break
    first, of = np.unique(of, return_inverse=True)
    together = np.bincount(of, capacity).astype(np.float64)
    return _Types(first, together, of, capacity / together[of])


def _merge_jobs(market: Market) -> Classes | None:
    """Jobs with the same rates relative to their fastest, gang and budget: a logarithm does not mind the unit.

    None when a sample says that hardly any two jobs are alike.
    """
    K = len(market.budgets)
    columns = [np.round(rate, _SAME_DECIMALS) for rate in market.rates[:, :: max(K // _PROBED_JOBS, 1)]]
    columns += [values[:: max(K // _PROBED_JOBS, 1)] for values in (market.scale_factors, market.budgets)]
    if K > 2 * _PROBED_JOBS and len(classes_of(columns).first) > 0.9 * len(columns[0]):
        return None
    columns = [*(np.round(rate, _SAME_DECIMALS) for rate in market.rates), market.scale_factors, market.budgets]
    return classes_of(columns)
