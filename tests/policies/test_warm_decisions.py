"""What one decision leaves for the next, through policies and the decision core."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import formulations
from allocator import Cluster, default_table, get_policy, simulate
from allocator.policies.base import programs
from allocator.protocol import ClusterState
from throughputs import ThroughputMatrix, gavel_trace

CLUSTER = Cluster({"v100": 6, "p100": 6, "k80": 6})
POLICIES = (
    "max_min_fairness_perf",
    "finish_time_fairness_perf",
    "min_total_duration_perf",
    "max_min_fairness_water_filling_perf",
    "nash_welfare",
)


@pytest.fixture
def starts_used(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What `formulations.solve` was given to start from, call by call."""
    used: list[object] = []
    honest = formulations.solve

    def solve(*args: object, warm: object = None, **settings: object) -> object:
        used.append(warm)
        return honest(*args, warm=warm, **settings)

    monkeypatch.setattr(programs, "solve", solve)
    return used


@pytest.mark.parametrize(
    "name", [*POLICIES[:2], *(pytest.param(name, marks=pytest.mark.exhaustive) for name in POLICIES[2:])]
)
def test_a_simulation_is_the_same_with_and_without(name, starts_used):
    trace = gavel_trace(60, 300.0, seed=3)
    results = {}
    for warm_starts in (True, False):
        starts_used.clear()
        results[warm_starts] = simulate(trace, CLUSTER, get_policy(name, warm_starts=warm_starts), default_table())
        given = [start is not None for start in starts_used]
        assert any(given) == warm_starts
    pd.testing.assert_frame_equal(results[True].jobs, results[False].jobs)


def state_of(seed: int) -> ClusterState:
    rates = np.random.default_rng(seed).uniform(1, 10, (40, 3))
    return ClusterState(CLUSTER, ThroughputMatrix(rates, range(40), CLUSTER.accelerators))


def test_only_where_nobody_asked_for_a_solver_or_the_published_point(starts_used):
    last = get_policy("finish_time_fairness_perf").allocate(state_of(0))
    assert last.warm_start is not None
    state = state_of(1).after(last)
    assert state.warm_start is last.warm_start
    for settings in ({}, {"solver": "structured"}, {"choice": "published"}, {"warm_starts": False}):
        get_policy("finish_time_fairness_perf", **settings).allocate(state)
    assert [start is not None for start in starts_used] == [False, True, False, False, False]


def test_part_of_a_state_keeps_what_was_left_for_it():
    last = get_policy("max_min_fairness_perf").allocate(state_of(0))
    assert state_of(1).after(last).subset(np.arange(5)).warm_start is last.warm_start
    assert state_of(1).after(None).warm_start is None
    assert state_of(1).after(get_policy("isolated").allocate(state_of(0))).warm_start is None
