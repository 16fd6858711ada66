"""Which of many optima is the published one: types by name, rows and yardsticks as the published systems have them."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, ClusterState, get_policy
from formulations import MaxMin, Polytope, isolated_throughput, proportional_throughput
from formulations.reference import convex
from throughputs import PlainColumns, ThroughputMatrix

PROGRAMS = (
    "max_min_fairness",
    "max_min_fairness_perf",
    "max_sum_throughput_perf",
    "min_total_duration_perf",
    "finish_time_fairness",
    "finish_time_fairness_perf",
)
LISTED = ("v100", "p100", "k80")


def state_listing(types, n_jobs=12, seed=3):
    """Twelve jobs, gangs and weights, on a cluster that lists its types in the given order."""
    rng = np.random.default_rng(seed)
    order = [LISTED.index(name) for name in types]
    rates = rng.uniform(0.5, 1, (n_jobs, 1)) * rng.uniform(1, 4, (n_jobs, 3)) * 10.0 ** rng.uniform(-1, 1, (n_jobs, 1))
    gpus = np.array([3, 4, 5])
    return ClusterState(
        Cluster({name: int(gpus[j]) for name, j in zip(types, order, strict=True)}),
        ThroughputMatrix(rates[:, order], range(n_jobs), types, rng.choice([1, 2], n_jobs)),
        priority_weights=rng.choice([1.0, 5.0], n_jobs),
        steps_remaining=rng.uniform(1e3, 1e5, n_jobs),
        elapsed_seconds=rng.uniform(0, 1e4, n_jobs),
        isolated_seconds=rng.uniform(0, 1e4, n_jobs),
    )


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("solver", ["auto", "ecos"])
def test_a_published_point_does_not_depend_on_the_order_in_which_types_are_listed(name, solver):
    if solver == "ecos":
        pytest.importorskip("ecos", reason="ECOS is an extra: pip install cluster-allocator[ecos]")
    policy = get_policy(name, choice="published", solver=solver)
    one = policy.allocate(state_listing(LISTED))
    for types in (("k80", "p100", "v100"), ("p100", "v100", "k80")):
        other = policy.allocate(state_listing(types))
        back = [types.index(accelerator) for accelerator in LISTED]
        np.testing.assert_array_equal(other.shares[:, back], one.shares)
        np.testing.assert_array_equal(other.prices[back], one.prices)
        assert other.objective == one.objective


@pytest.mark.parametrize(("solver", "explicit"), [("ECOS", True), ("CLARABEL", False)])
def test_ecos_is_given_the_sign_of_shares_as_the_first_row(solver, explicit):
    matrix = ThroughputMatrix([[4.0, 1.0], [2.0, 1.0]], ["a", "b"], ["k80", "v100"])
    problem, x = convex.state(Polytope(PlainColumns(matrix), [1, 1]), MaxMin(np.ones(2)), solver)
    assert x.is_nonneg() != explicit
    assert len(problem.constraints) == (3 if explicit else 2)
    if explicit:
        assert problem.constraints[0].shape == x.shape
        assert [row.shape for row in problem.constraints[1:]] == [(2,), (2,)]


def test_yardstick_of_published_points_divides_gpus_by_jobs_first():
    """Equal but for last digits, and those are the published system's: ``(c_j / N) / sum_k (c_k / N)``."""
    rates, capacity, n = np.array([[1.1, 3.3, 7.7]] * 7), np.array([36, 12, 5]), 7
    each = capacity / n
    np.testing.assert_array_equal(
        proportional_throughput(rates, capacity, n), (rates * (each / each.sum())).sum(axis=1)
    )
    np.testing.assert_allclose(proportional_throughput(rates, capacity, n), proportional_throughput(rates, capacity))


def test_blind_finish_time_fairness_is_blind_to_the_past_too():
    """Steps done are reckoned at isolated rates of the reference type, as those to come are."""
    rates = np.array([[4.0, 1.0], [3.0, 3.0]])
    state = ClusterState(
        Cluster({"v100": 1, "k80": 1}),
        ThroughputMatrix(rates, ["a", "b"], ["v100", "k80"]),
        steps_remaining=np.array([1000.0, 600.0]),
        isolated_seconds=np.array([100.0, 50.0]),
    )
    policy = get_policy("finish_time_fairness")
    objective = policy.objective(state, policy.believed_rates(state))
    # half of each type: a did 100 s at (4 + 1) / 2 = 2.5 steps/s, which at 4 steps/s are 62.5 s
    np.testing.assert_allclose(objective.isolated, [62.5 + 1000 / 4, 50.0 + 600 / 3], rtol=1e-12)
    aware = get_policy("finish_time_fairness_perf")
    objective = aware.objective(state, aware.believed_rates(state))
    alone = isolated_throughput(rates, state.scale_factors, state.capacity)
    np.testing.assert_array_equal(objective.isolated, state.isolated_seconds + state.steps_remaining / alone)
