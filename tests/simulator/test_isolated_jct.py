"""Isolated completion times against a step-by-step integration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.results.fairness import isolated_jct


def one_by_one(arrival, leave, steps, sizes, rates, capacity) -> list[float]:
    """The same by walking from event to event for each job."""
    events = np.unique(np.concatenate([arrival, leave[np.isfinite(leave)]]))
    result = []
    for i in range(len(arrival)):
        clock, left = arrival[i], steps[i]
        while True:
            n = max(int(((arrival <= clock) & (clock < leave)).sum()), 1)
            rate = rates[i] @ capacity / max(n * sizes[i], capacity.sum())
            if rate == 0:
                clock = np.inf
                break
            later = events[events > clock]
            end = clock + left / rate
            if not len(later) or end <= later[0]:
                clock = end
                break
            left -= rate * (later[0] - clock)
            clock = later[0]
        result.append(clock - arrival[i])
    return result


@given(
    jobs=st.lists(
        st.tuples(
            st.integers(0, 50),
            st.integers(1, 50),
            st.integers(1, 500),
            st.sampled_from([1, 2, 4]),
            st.sampled_from([0.0, 0.5, 2.0]),
        ),
        min_size=1,
        max_size=8,
    ),
    one_never_leaves=st.booleans(),
)
def test_agrees_with_walking_the_events(jobs: list[tuple[int, int, int, int, float]], one_never_leaves: bool) -> None:
    arrival, stay, steps, sizes, rate = (np.array(column, dtype=float) for column in zip(*jobs, strict=True))
    leave = arrival + stay
    if one_never_leaves:
        leave[0] = np.inf
    rates = np.column_stack([rate, rate / 2])
    capacity = np.array([2, 3])
    ours = isolated_jct(arrival, leave, steps, sizes.astype(np.int64), rates, capacity)
    assert ours == pytest.approx(one_by_one(arrival, leave, steps, sizes, rates, capacity), rel=1e-9)
