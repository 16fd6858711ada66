"""Which of many optima is the published one."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, ClusterState, get_policy
from formulations import isolated_throughput
from throughputs import ThroughputMatrix

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
