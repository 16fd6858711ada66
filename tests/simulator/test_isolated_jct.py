"""Isolated completion times against a step-by-step integration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allocator
from allocator.results.fairness import isolated_jct
from throughputs import Trace


def one_by_one(arrival, leave, steps, sizes, rates, capacity, allowed):
    """The same by walking from event to event for each job."""
    gpus = allowed @ capacity
    events = np.unique(np.concatenate([arrival, leave[np.isfinite(leave)]]))
    result = []
    for i in range(len(arrival)):
        clock, left = arrival[i], steps[i]
        counted = (allowed & allowed[i]) @ capacity / gpus
        while True:
            n = max(counted[(arrival <= clock) & (clock < leave)].sum(), 1)
            rate = rates[i] @ capacity / max(n * sizes[i], gpus[i])
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


@settings(max_examples=30)
@given(
    jobs=st.lists(
        st.tuples(
            st.integers(0, 50),
            st.integers(1, 50),
            st.integers(1, 500),
            st.sampled_from([1, 2, 4]),
            st.sampled_from([0.0, 0.5, 2.0]),
            st.sampled_from([(1, 1), (1, 0), (0, 1)]),
        ),
        min_size=1,
        max_size=8,
    ),
    one_never_leaves=st.booleans(),
)
def test_agrees_with_walking_the_events(jobs, one_never_leaves):
    *columns, types = zip(*jobs, strict=True)
    arrival, stay, steps, sizes, rate = (np.array(column, dtype=float) for column in columns)
    allowed = np.array(types, dtype=bool)
    leave = arrival + stay
    if one_never_leaves:
        leave[0] = np.inf
    rates = np.column_stack([rate, rate / 2]) * allowed
    capacity = np.array([2, 3])
    given = (arrival, leave, steps, sizes.astype(np.int64), rates, capacity)
    assert isolated_jct(*given, allowed) == pytest.approx(one_by_one(*given, allowed), rel=1e-9)
    everywhere = np.ones_like(allowed)
    assert isolated_jct(*given).tolist() == isolated_jct(*given, everywhere).tolist()
    assert isolated_jct(*given) == pytest.approx(one_by_one(*given, everywhere), rel=1e-9)


def test_a_job_alone_in_its_virtual_cluster_has_rho_1_whatever_others_do_elsewhere():
    trace = Trace(
        ["job"] * 5,
        scale_factor=[2, 1, 1, 1, 1],
        total_steps=[3600.0] * 5,
        arrival_time=[0.0] * 5,
        duration=[3600.0] * 5,
        partition=["small", "large", "large", "large", "large"],
    )
    result = allocator.simulate(trace, "small:2,large:38", allocator.get_policy("max_min_fairness"))
    assert result.jobs["rho"].to_numpy() == pytest.approx(1.0, rel=1e-12)
