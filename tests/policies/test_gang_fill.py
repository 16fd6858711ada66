"""Gang fill beside a plain loop: one job after the other, each on the fastest pool that has room."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from allocator.policies.base import fill_in_order


def one_by_one(
    order: list[int], gpus: list[int], rates: NDArray[np.float64], capacity: list[int], strict: bool
) -> list[tuple[int, int]]:
    free, chosen = list(capacity), []
    for job in order:
        room = [j for j, count in enumerate(free) if rates[job, j] > 0 and gpus[job] <= count]
        if room:
            pool = max(room, key=lambda j: (rates[job, j], -j))
            free[pool] -= gpus[job]
            chosen.append((job, pool))
        elif strict and (rates[job] > 0).any():
            break
    return chosen


@given(data=st.data(), n=st.integers(0, 30), m=st.integers(1, 4), strict=st.booleans())
def test_the_same_jobs_on_the_same_pools_in_the_same_order(data: st.DataObject, n: int, m: int, strict: bool) -> None:
    gpus = data.draw(st.lists(st.sampled_from([1, 1, 2, 4, 8]), min_size=n, max_size=n))
    capacity = data.draw(st.lists(st.integers(0, 12), min_size=m, max_size=m))
    rows = st.lists(st.sampled_from([0.0, 1.0, 1.0, 2.5, 3.0]), min_size=m, max_size=m)
    rates = np.array(data.draw(st.lists(rows, min_size=n, max_size=n))).reshape(n, m)
    order = data.draw(st.permutations(range(n)))
    jobs, pools = fill_in_order(
        np.array(order, dtype=np.int64), np.array(gpus, dtype=np.int64), rates, np.array(capacity), strict
    )
    assert list(zip(jobs.tolist(), pools.tolist(), strict=True)) == one_by_one(order, gpus, rates, capacity, strict)
