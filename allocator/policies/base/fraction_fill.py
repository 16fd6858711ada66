"""Gang fill where jobs share GPUs in fractions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator.fractions import FreeFractions, SharedGpus
from allocator.room import CountedGpus

_Ids = NDArray[np.int64]


def fill_with_fractions(
    order: _Ids, gpus: NDArray[Any], rates: NDArray[np.float64], capacity: _Ids, strict: bool = False
) -> tuple[_Ids, _Ids]:
    """Who runs, and on which pool: as `fill_in_order`, with fractions of at most one in sum on a GPU, best fit.

    GPUs are filled from empty ones, in the order of the jobs. Placement keeps those in place who go on, as long as all
    find room that way.

    Parameters
    ----------
    order, rates, capacity, strict : as there.
    gpus : (N,) GPUs of each gang, or the fraction of a GPU that a job asks for.
    """
    free = [FreeFractions(CountedGpus(count), SharedGpus()) for count in capacity.tolist()]
    usable = rates.take(order, axis=0)
    by_rate, able = (-usable).argsort(axis=1, kind="stable").tolist(), (usable > 0).sum(axis=1).tolist()
    chosen: list[int] = []
    picked: list[int] = []
    for job, size, pools, count in zip(order.tolist(), gpus.take(order).tolist(), by_rate, able, strict=True):
        pool = next((pool for pool in pools[:count] if free[pool].take(size)), -1)
        if pool >= 0:
            chosen.append(job)
            picked.append(pool)
        elif strict and count:
            break
    return np.array(chosen, dtype=np.int64), np.array(picked, dtype=np.int64)
