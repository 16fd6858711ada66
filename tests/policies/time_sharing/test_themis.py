"""Themis: leases in the order of finish-time fairness."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from allocator import Cluster, ClusterState, ThroughputMatrix, get_policy
from allocator.policies.time_sharing import themis
from formulations.solving.backends import BACKENDS
from tests.policies.time_sharing.runs import decide, state_of
from throughputs import InputError

TWO = Cluster({"a100": 2}, {"a100": 2})
EIGHT = Cluster({"a100": 8}, {"a100": 8})


def rho(share, elapsed, left, isolated):
    return (elapsed + left / share) / isolated


def test_where_there_is_room_all_run_until_something_happens():
    policy, state = get_policy("themis"), state_of([1, 2], [1, 1], TWO)
    plan = policy.plan(state, policy.new_memory())
    assert plan.steps[0].assignment.jobs.tolist() == [0, 1]
    assert plan.steps[0].seconds == np.inf


def test_who_has_waited_longest_for_its_length_is_first():
    policy = get_policy("themis", lease_seconds=100.0)
    columns = {"steps_remaining": [1000.0] * 3, "elapsed_seconds": [50.0, 900.0, 10.0]}
    plan = policy.plan(state_of([1, 2, 3], [1, 1, 1], TWO, **columns), policy.new_memory())
    assert plan.steps[0].assignment.jobs.tolist() == [1, 0]
    assert plan.steps[0].seconds == 100.0


def test_a_gang_that_does_not_fit_lets_smaller_ones_pass():
    columns = {"steps_remaining": [1000.0] * 4, "elapsed_seconds": [20000.0, 300.0, 200.0, 100.0]}
    state = state_of([1, 2, 3, 4], [6, 4, 1, 1], EIGHT, **columns)
    policy = get_policy("themis")
    assert decide(policy, policy.new_memory(), state) == [1, 3, 4]


@pytest.mark.parametrize("seed", range(8))
def test_shares_lower_the_worst_rho_as_far_as_it_goes(seed):
    rng = np.random.default_rng(seed)
    n = 12
    gpus, left, elapsed = rng.choice([1, 2, 4], n), rng.uniform(100, 9000, n), rng.uniform(0, 5000, n)
    rates = rng.uniform(0.5, 3.0, n)
    state = state_of(range(n), gpus, EIGHT, rates=rates, steps_remaining=left, elapsed_seconds=elapsed)
    policy, memory = get_policy("themis"), get_policy("themis").new_memory()
    policy.plan(state, memory)
    isolated = left / (rates * np.minimum(1.0, np.ceil(8 / n) / gpus))
    assert memory.isolated_rate == pytest.approx(left / isolated)
    shares = policy._shares(state, memory, np.arange(n), 0)
    assert gpus @ shares <= 8 * (1 + 1e-9)
    worst = rho(shares, elapsed, left / rates, isolated).max()
    # nobody can have less than any lower level asks for
    level = worst * (1 - 1e-6)
    wanted = left / rates / np.maximum(level * isolated - elapsed, 1e-12)
    assert (wanted > 1.0).any() or gpus @ wanted > 8


def test_work_done_counts_by_the_isolated_share_of_its_time():
    policy = get_policy("themis")
    memory = policy.new_memory()
    decide(policy, memory, state_of([1], [2], TWO, steps_remaining=[1000.0]))
    # alone it has both GPUs; among three one GPU, which is half of its gang
    decide(policy, memory, state_of([1, 2, 3], [2, 1, 1], TWO, clock=100.0, steps_remaining=[900.0, 500.0, 500.0]))
    assert memory.isolated_seconds.tolist() == [100.0, 0.0, 0.0]
    decide(policy, memory, state_of([1, 2, 3], [2, 1, 1], TWO, clock=200.0, steps_remaining=[800.0, 500.0, 500.0]))
    assert memory.isolated_seconds.tolist() == [300.0, 0.0, 0.0]


def test_published_fairness_takes_shares_for_rates_and_stops_the_clock_between_changes():
    policy = get_policy("themis", published_fairness=True)
    memory = policy.new_memory()
    decide(policy, memory, state_of([1], [2], TWO, rates=[5.0], clock=30.0))
    assert memory.isolated_rate.tolist() == [1.0]
    assert memory.changed == 30.0
    decide(policy, memory, state_of([1], [2], TWO, rates=[5.0], clock=90.0))
    assert memory.changed == 30.0
    decide(policy, memory, state_of([1, 2], [2, 1], TWO, rates=[5.0, 5.0], clock=120.0))
    assert memory.changed == 120.0


def test_equals_keep_their_places():
    policy = get_policy("themis")
    memory = policy.new_memory()
    alike = {"steps_remaining": [500.0] * 3, "elapsed_seconds": [10.0] * 3}
    first = decide(policy, memory, state_of([1, 2, 3], [1, 1, 1], TWO, **alike))
    assert first == decide(policy, memory, state_of([1, 2, 3], [1, 1, 1], TWO, **alike)) == [1, 2]


def test_without_the_published_solver_it_says_so(monkeypatch):
    policy = get_policy("themis", choice="published")
    monkeypatch.setattr(themis, "BACKENDS", {"ecos_direct": replace(BACKENDS["ecos_direct"], requires=("not_there",))})
    with pytest.warns(UserWarning, match="some jobs may run in another order"):
        policy.prepare()


def test_wrong_settings():
    with pytest.raises(InputError, match="lease_seconds"):
        get_policy("themis", lease_seconds=0.0)


def test_one_type_of_accelerator():
    cluster = Cluster({"a100": 2, "t4": 2})
    state = ClusterState(cluster, ThroughputMatrix([[1.0, 1.0]], ["job"], ["a100", "t4"]))
    with pytest.raises(InputError, match="GPUs of one type"):
        get_policy("themis").allocate(state)
