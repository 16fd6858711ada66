"""Gang fill where no job can choose between pools is that of one look at each job."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocator.policies.base.ordering import fill_in_order


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(-1, 2), st.integers(0, 5)), max_size=30),
    st.lists(st.integers(0, 12), min_size=3, max_size=3),
    st.booleans(),
)
def test_own_pools_are_filled_job_by_job(jobs: list[tuple[int, int, int]], capacity: list[int], strict: bool) -> None:
    gpus = np.array([size for size, _, _ in jobs], dtype=np.int64)
    rates = np.zeros((len(jobs), 3))
    for job, (_, pool, _) in enumerate(jobs):
        if pool >= 0:
            rates[job, pool] = 1.0
    order = np.argsort([rank for _, _, rank in jobs], kind="stable").astype(np.int64)

    found, pools = fill_in_order(order, gpus, rates, np.array(capacity, dtype=np.int64), strict)

    free, expected = capacity.copy(), []
    for job in order.tolist():
        size, pool, _ = jobs[job]
        if pool >= 0 and size <= free[pool]:
            free[pool] -= size
            expected.append((job, pool))
        elif pool >= 0 and strict:
            break
    assert list(zip(found.tolist(), pools.tolist(), strict=True)) == expected
