"""The search for the cheapest mix of types (`formulations.backends.responses`), compiled.

The same comparisons in the same order, so that answers are the same to the last bit. All of a block of jobs is done
before the next, in loops that each write one array, which run on vectors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.fast.compiler import entry

__all__ = ["cheapest_mixes"]

Array = NDArray[np.float64]

_BLOCK = 256

_SOURCE = "Array(float64, {0}, 'C', readonly=True)"


@entry(
    f"void({_SOURCE.format(2)}, {', '.join([_SOURCE.format(1)] * 3)}, float64, int64, int64, "
    "float64[::1], int16[::1], float64[::1], float64[::1])"
)
def cheapest_mixes(
    rates: Array,
    prices: Array,
    demand: Array,
    gain: Array,
    rounding: float,
    start: int,
    stop: int,
    cost: Array,
    mix: NDArray[np.int16],
    theta: Array,
    decided: Array,
) -> None:
    """Fill the last four arrays for the jobs from `start` up to `stop`; `demand` or `gain` may have no elements."""
    M = len(rates)
    pairs = M + M * (M - 1) // 2
    needs, paid = demand.size > 0, gain.size > 0
    share, price, span = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    for first in range(start, stop, _BLOCK):
        last = min(first + _BLOCK, stop)
        b = last - first
        best, chosen, part, second_best = cost[first:last], mix[first:last], theta[first:last], decided[first:last]
        for i in range(b):
            best[i] = np.inf if needs else 0.0
        for i in range(b):
            part[i] = 0.0
        for i in range(b):
            chosen[i] = 0 if needs else pairs + M
        for i in range(b):
            second_best[i] = np.inf
        number = 0
        # with demands: pairs with idle time (j = -1), then pairs of types
        for j in range(-1, M if needs else -1):
            need = demand[first:last]
            for k in range(j + 1, M):
                fast = rates[k, first:last]
                if j < 0:
                    for i in range(b):
                        share[i] = need[i] / fast[i]
                    for i in range(b):
                        price[i] = np.inf if share[i] > 1.0 + rounding else share[i] * prices[k]
                else:
                    slow, step = rates[j, first:last], prices[k] - prices[j]
                    for i in range(b):
                        share[i] = (need[i] - slow[i]) / (fast[i] - slow[i])
                    for i in range(b):
                        within = (share[i] <= 1.0 + rounding) & (share[i] >= -rounding)
                        price[i] = share[i] * step + prices[j] if within else np.inf
                for i in range(b):
                    dearer = price[i] if price[i] > best[i] else best[i]
                    second_best[i] = dearer if dearer < second_best[i] else second_best[i]
                for i in range(b):
                    part[i] = share[i] if price[i] < best[i] else part[i]
                for i in range(b):
                    chosen[i] = number if price[i] < best[i] else chosen[i]
                if not paid:
                    if j < 0:
                        for i in range(b):
                            span[i] = fast[i] if price[i] < best[i] else span[i]
                    else:
                        slow = rates[j, first:last]
                        for i in range(b):
                            span[i] = fast[i] - slow[i] if price[i] < best[i] else span[i]
                for i in range(b):
                    best[i] = price[i] if price[i] < best[i] else best[i]
                number += 1
        for i in range(b):
            part[i] = min(max(part[i], 0.0), 1.0)
        if paid:
            wage = gain[first:last]
            if needs:
                # pairs give just the demand: all of them are paid the same
                need = demand[first:last]
                for i in range(b):
                    price[i] = wage[i] * need[i]
                for i in range(b):
                    best[i] -= price[i]
                for i in range(b):
                    second_best[i] -= price[i]
            for k in range(M):
                fast = rates[k, first:last]
                for i in range(b):
                    price[i] = prices[k] - wage[i] * fast[i]
                if needs:
                    need = demand[first:last]
                    for i in range(b):
                        price[i] = np.inf if fast[i] < need[i] else price[i]
                for i in range(b):
                    dearer = price[i] if price[i] > best[i] else best[i]
                    second_best[i] = dearer if dearer < second_best[i] else second_best[i]
                for i in range(b):
                    part[i] = 1.0 if price[i] < best[i] else part[i]
                for i in range(b):
                    chosen[i] = pairs + k if price[i] < best[i] else chosen[i]
                for i in range(b):
                    best[i] = price[i] if price[i] < best[i] else best[i]
        # by which part prices may move before the runner-up is cheaper
        for i in range(b):
            price[i] = abs(second_best[i]) + abs(best[i])
        if paid:
            wage = gain[first:last]
            for i in range(b):
                price[i] += wage[i]
        for i in range(b):
            apart = (second_best[i] - best[i]) / price[i]
            second_best[i] = apart if second_best[i] < np.inf else 1.0
        if needs and not paid:
            # or the demand before it leaves the mix; idle time is no end: a demand does not fall to nothing
            need = demand[first:last]
            for i in range(b):
                to_end = 1.0 - part[i]
                share[i] = part[i] if chosen[i] >= M and part[i] < to_end else to_end
            for i in range(b):
                share[i] = share[i] * abs(span[i]) / need[i]
            for i in range(b):
                apart = second_best[i]
                second_best[i] = share[i] if (share[i] < apart) | (apart != apart) else apart
        for i in range(b):
            second_best[i] = second_best[i] if abs(best[i]) < np.inf else 0.0
