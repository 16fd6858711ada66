"""Which of many optima is the published one, and what one decision leaves for the next."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import formulations
from allocator import Cluster, ClusterState, default_table, get_policy, simulate
from allocator.policies.base import programs
from formulations import isolated_throughput
from throughputs import ThroughputMatrix, gavel_trace

BLIND = ("max_min_fairness", "finish_time_fairness")
PERF = ("max_min_fairness_perf", "max_sum_throughput_perf", "min_total_duration_perf", "finish_time_fairness_perf")
LISTED = ("v100", "p100", "k80")


def state_listing(types, n_jobs=12, seed=3):
    """Twelve jobs, gangs and weights, on a cluster that lists its types in the given order."""
    rng = np.random.default_rng(seed)
    order = [LISTED.index(name) for name in types]
    rates = rng.uniform(0.5, 1, (n_jobs, 1)) * rng.uniform(1, 4, (n_jobs, 3)) * 10.0 ** rng.uniform(-1, 1, (n_jobs, 1))
    return ClusterState(
        Cluster({name: 3 + LISTED.index(name) for name in types}),
        ThroughputMatrix(rates[:, order], range(n_jobs), types, rng.choice([1, 2], n_jobs)),
        priority_weights=rng.choice([1.0, 5.0], n_jobs),
        steps_remaining=rng.uniform(1e3, 1e5, n_jobs),
        elapsed_seconds=rng.uniform(0, 1e4, n_jobs),
        isolated_seconds=rng.uniform(0, 1e4, n_jobs),
    )


@pytest.mark.parametrize("name", [*BLIND, *PERF])
@pytest.mark.parametrize("solver", ["auto", "ecos"])
def test_a_published_point_does_not_depend_on_the_order_in_which_types_are_listed(name, solver):
    if solver == "ecos":
        pytest.importorskip("ecos", reason="ECOS is an extra: pip install cluster-allocator[ecos]")
    policy, types = get_policy(name, choice="published", solver=solver), ("k80", "v100", "p100")
    one, other = (policy.allocate(state_listing(listed)) for listed in (LISTED, types))
    back = [types.index(accelerator) for accelerator in LISTED]
    np.testing.assert_array_equal(other.shares[:, back], one.shares)
    np.testing.assert_array_equal(other.prices[back], one.prices)
    assert other.objective == one.objective


def test_blind_finish_time_fairness_is_blind_to_the_past_too():
    """Steps done are reckoned at isolated rates of the reference type, as those to come are.

    Half of each type: a did 100 s at (4 + 1) / 2 = 2.5 steps/s, which at 4 steps/s are 62.5 s.
    """
    rates = np.array([[4.0, 1.0], [3.0, 3.0]])
    past = {"steps_remaining": np.array([1000.0, 600.0]), "isolated_seconds": np.array([100.0, 50.0])}
    state = ClusterState(Cluster({"v100": 1, "k80": 1}), ThroughputMatrix(rates, "ab", ["v100", "k80"]), **past)
    alone = isolated_throughput(rates, state.scale_factors, state.capacity)
    for name, isolated in (
        ("finish_time_fairness", [62.5 + 1000 / 4, 50.0 + 600 / 3]),
        ("finish_time_fairness_perf", state.isolated_seconds + state.steps_remaining / alone),
    ):
        policy = get_policy(name)
        found = policy.objective(state, policy.believed_rates(state)).isolated
        np.testing.assert_allclose(found, isolated, rtol=1e-12)


def test_without_a_v100_the_reference_is_the_type_that_is_fastest_on_the_average() -> None:
    state = ClusterState(Cluster({"a": 1, "b": 1}), ThroughputMatrix([[1.0, 3.0], [2.0, 1.0]], "xy", ["a", "b"]))
    assert get_policy("finish_time_fairness").believed_rates(state).tolist() == [[3.0, 3.0], [1.0, 1.0]]


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


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    [
        "max_min_fairness_perf",
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in ("finish_time_fairness_perf", "max_min_fairness_water_filling_perf")
        ),
    ],
)
def test_a_simulation_is_the_same_with_and_without_warm_starts(name, starts_used):
    trace, cluster = gavel_trace(10, 300.0, seed=3), Cluster({"v100": 3, "p100": 3, "k80": 3})
    results = {}
    for warm_starts in (True, False):
        starts_used.clear()
        results[warm_starts] = simulate(trace, cluster, get_policy(name, warm_starts=warm_starts), default_table())
        assert any(start is not None for start in starts_used) == warm_starts
    pd.testing.assert_frame_equal(results[True].jobs, results[False].jobs)


def test_only_where_nobody_asked_for_a_solver_or_the_published_point(starts_used):
    last = get_policy("finish_time_fairness_perf").allocate(state_listing(LISTED, 40))
    assert last.warm_start is not None
    state = state_listing(LISTED, 40, seed=4).having(warm_start=last.warm_start)
    assert state.warm_start is state.take(np.arange(5)).warm_start is last.warm_start
    for settings in ({}, {"solver": "structured"}, {"choice": "published"}, {"warm_starts": False}):
        get_policy("finish_time_fairness_perf", **settings).allocate(state)
    assert [start is not None for start in starts_used] == [False, True, False, False, False]
    assert get_policy("isolated").allocate(state).warm_start is None
