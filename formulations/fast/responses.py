"""The filling of `formulations.backends.responses.Responses`, compiled. Importing it imports numba."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from os import cpu_count

import numpy as np
from numpy.typing import NDArray

from formulations.backends import responses as original
from formulations.fast.mixes import cheapest_mixes

__all__ = ["fill"]

Array = NDArray[np.float64]

_NONE = np.empty(0)


def fill(answer: original.Responses, prices: Array, demand: Array | None, gain: Array | None) -> None:
    """Write cost, mix, theta and distance of every job into `answer`; two threads share many jobs."""
    rates, K = np.ascontiguousarray(answer.rates, dtype=np.float64), answer.rates.shape[1]
    p, need, wage = (
        _NONE if part is None else np.ascontiguousarray(part, dtype=float) for part in (prices, demand, gain)
    )
    cost, mix, theta, decided = answer.cost, answer.mix, answer.theta, answer.decided

    def part(start: int, stop: int) -> None:
        cheapest_mixes(rates, p, need, wage, original._ROUNDING, start, stop, cost, mix, theta, decided)

    if K >= original._THREADED and (cpu_count() or 1) > 1:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(part, (0, K // 2), (K // 2, K)))
    else:
        part(0, K)
