"""Nash welfare, and the discounts that make it strategy-proof."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, ClusterState, ThroughputMatrix, get_policy
from formulations import NashWelfare, Polytope, proportional_shares, solve
from throughputs import InputError, PlainColumns

TYPES = ["v100", "p100", "k80"]
AWARE, BLIND = "max_min_fairness_strategy_proof_perf", "max_min_fairness_strategy_proof"


def draw(seed, n=9, cluster="v100:2,p100:2,k80:2"):
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.05, 1.0, (n, 3)) * 10.0 ** rng.uniform(-1, 2, (n, 1))
    rates[rng.random((n, 3)) < 0.15] = 0.0
    rates[~(rates > 0).any(axis=1), 2] = 1.0
    if seed % 3 == 0:
        rates[1::3] = rates[0]
    matrix = ThroughputMatrix(rates, range(n), TYPES, rng.choice([1, 1, 2], n))
    return ClusterState(Cluster.parse(cluster), matrix, priority_weights=rng.choice([1.0, 3.0], n))


def discounts_by_definition(state, budgets):
    """N + 1 programs through the general solver."""
    polytope = Polytope(PlainColumns(state.throughputs), state.capacity)
    everyone = np.arange(state.n_jobs)
    u = polytope.throughput(solve(polytope, NashWelfare(budgets)).shares)
    factors = np.ones(state.n_jobs)
    for i in everyone:
        others = np.delete(everyone, i)
        part = polytope.restricted(others, np.arange(3))
        without = part.throughput(solve(part, NashWelfare(budgets[others])).shares)
        factors[i] = np.exp((budgets[others] @ np.log(u[others] / without)) / budgets[i])
    return factors, u


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("budgets", ["equal", "priority"])
def test_discounts_are_those_of_the_definition(seed, budgets):
    state = draw(seed)
    weights = np.ones(state.n_jobs) if budgets == "equal" else state.priority_weights
    factors, u = discounts_by_definition(state, weights)
    policy = get_policy(AWARE, budgets=budgets)
    found = policy.discounts(state)
    np.testing.assert_allclose(found.factors, np.minimum(factors, 1.0), rtol=1e-6)
    allocation = policy.allocate(state)
    np.testing.assert_allclose(allocation.effective_throughput, found.factors * u, rtol=1e-6)
    assert allocation.status == "optimal"
    assert found.gap <= allocation.gap <= 1e-7


@pytest.mark.parametrize("name", [AWARE, BLIND])
def test_discounts_leave_at_least_one_in_e(name):
    for seed in range(10):
        factors = get_policy(name).discounts(draw(seed, n=20)).factors
        assert (factors <= 1.0).all()
        assert (factors >= np.exp(-1.0) - 1e-6).all()


@pytest.mark.parametrize("seed", range(6))
def test_no_misreport_gains(seed):
    state, rng = draw(seed, n=6), np.random.default_rng(seed)
    policy = get_policy(AWARE)
    honest = policy.allocate(state).effective_throughput
    gained = []
    for _ in range(20):
        i = int(rng.integers(state.n_jobs))
        claimed = state.rates.copy()
        claimed[i] *= 5.0 ** rng.uniform(-1, 1, 3)
        told = ClusterState(state.cluster, state.throughputs.with_rates(claimed))
        gained.append(state.rates[i] @ policy.allocate(told).shares[i] / honest[i] - 1)
    assert max(gained) <= 1e-6


def test_without_discounts_a_misreport_gains():
    """The same search finds gains under plain Nash welfare, so it can fail."""
    best = 0.0
    for seed in range(6):
        state, rng = draw(seed, n=3, cluster="v100:1,p100:1,k80:1"), np.random.default_rng(seed)
        policy = get_policy("nash_welfare")
        honest = policy.allocate(state).effective_throughput
        for _ in range(20):
            i = int(rng.choice(np.flatnonzero(honest > 0)))
            claimed = state.rates.copy()
            claimed[i] *= 5.0 ** rng.uniform(-1, 1, 3)
            told = ClusterState(
                state.cluster, state.throughputs.with_rates(claimed), priority_weights=state.priority_weights
            )
            best = max(best, state.rates[i] @ policy.allocate(told).shares[i] / honest[i] - 1)
    assert best > 1e-3


def test_one_job_has_the_cluster():
    matrix = ThroughputMatrix([[3.0, 2.0, 1.0]], ["only"], TYPES)
    for name in (AWARE, BLIND):
        allocation = get_policy(name).allocate(ClusterState(Cluster.parse("v100:1,p100:1,k80:1"), matrix))
        assert allocation.shares.sum() == pytest.approx(1.0)


def test_a_job_that_nobody_suffers_from_keeps_everything():
    """Two jobs and a GPU of its favourite type for each."""
    matrix = ThroughputMatrix([[3.0, 1.0], [1.0, 3.0]], ["a", "b"], ["v100", "p100"])
    state = ClusterState(Cluster.parse("v100:1,p100:1"), matrix)
    np.testing.assert_allclose(get_policy(AWARE).discounts(state).factors, 1.0, rtol=1e-6)


def test_identical_jobs_get_identical_shares_from_fewer_programs():
    matrix = ThroughputMatrix([[3.0, 2.0, 1.0]] * 5 + [[1.0, 1.0, 1.0]], range(6), TYPES)
    state = ClusterState(Cluster.parse("v100:1,p100:1,k80:1"), matrix)
    found = get_policy(AWARE).discounts(state)
    assert found.programs == 3
    assert len(set(found.factors[:5])) == 1


def test_bad_budgets_say_so():
    with pytest.raises(InputError, match="equal, priority"):
        get_policy(AWARE, budgets="mine")


@pytest.mark.parametrize("seed", range(6))
def test_nash_welfare_is_proportionally_fair(seed):
    """No allocation gains more per cent, by weight, than it loses; so nobody is below its part of the cluster."""
    state, rng = draw(seed), np.random.default_rng(seed)
    allocation = get_policy("nash_welfare").allocate(state)
    u, w = allocation.effective_throughput, state.priority_weights
    assert allocation.status == "optimal"
    for _ in range(50):
        other = rng.dirichlet(np.ones(3), state.n_jobs) * rng.random((state.n_jobs, 1))
        other /= np.maximum((state.scale_factors @ other / state.capacity).max(), 1.0)
        change = (state.rates * other).sum(axis=1) / u - 1.0
        assert w @ change <= 1e-5 * w.sum()
    part = w / w.sum() / state.scale_factors
    own = part[:, None] * state.capacity
    own /= np.maximum(own.sum(axis=1, keepdims=True), 1.0)
    if len(set(w / state.scale_factors)) == 1:
        assert (u >= (state.rates * own).sum(axis=1) * (1 - 1e-6)).all()


def test_nash_welfare_of_alike_jobs_is_proportional():
    matrix = ThroughputMatrix([[4.0, 2.0, 1.0]] * 6, range(6), TYPES)
    state = ClusterState(Cluster.parse("v100:2,p100:2,k80:2"), matrix)
    shares = get_policy("nash_welfare").allocate(state).shares
    np.testing.assert_allclose(shares, proportional_shares(6, state.capacity), rtol=1e-5)
