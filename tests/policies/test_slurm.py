"""Multifactor priority, fair shares by account and preemption, computed by hand; and what backfilling promises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from allocator import Cluster, ClusterState, get_policy, simulate
from allocator.policies.orders.slurm import Slurm, Usage
from allocator.presets import preset
from allocator.testing import check_policy
from throughputs import ThroughputMatrix, Trace

NO_COSTS = preset("default").replace(restart_penalty_seconds=0.0, restart_penalty_by_gpus=())
DAY = 86400.0


def state_of(sizes: list[int], cluster: str = "v:8", **views: Any) -> ClusterState:
    names = Cluster.parse(cluster).accelerators
    matrix = ThroughputMatrix(np.ones((len(sizes), len(names))), range(len(sizes)), names, sizes)
    return ClusterState(Cluster.parse(cluster), matrix, **views)


def test_priority_is_the_weighted_sum_of_its_factors() -> None:
    state = state_of(
        [1, 4, 8], elapsed_seconds=[DAY, 14 * DAY, 3.5 * DAY], priority_weights=[1.0, 4.0, 2.0], account=["a", "b", "a"]
    )
    used = Usage(seconds={"a": 300.0, "b": 100.0})
    by = {
        "age_weight": [1 / 7, 1.0, 0.5],
        "size_weight": [1 / 8, 0.5, 1.0],
        "priority_weight": [0.25, 1.0, 0.5],
        # a has had three quarters where half is its due
        "fairshare_weight": [2**-1.5, 2**-0.5, 2**-1.5],
    }
    for name, factor in by.items():
        np.testing.assert_allclose(Slurm(**{name: 3.0}).priorities(state, used), 3.0 * np.array(factor))
    together = Slurm(age_weight=1.0, size_weight=2.0, priority_weight=3.0, fairshare_weight=4.0)
    expected = np.array([1.0, 2.0, 3.0, 4.0]) @ np.array(list(by.values()))
    np.testing.assert_allclose(together.priorities(state, used), expected)
    assert not Slurm().priorities(state, used).any()


def test_use_decays_by_its_half_life() -> None:
    usage = Usage(running={"a": 2.0})
    usage.until(100.0, half_life=1e9)
    assert usage.seconds["a"] == pytest.approx(200.0, rel=1e-6)
    usage.running = {}
    usage.until(100.0 + 1e9, half_life=1e9)
    assert usage.seconds["a"] == pytest.approx(100.0, rel=1e-6)


def run(policy: Slurm, rows: list[tuple[float, int, float]], cluster: str = "v:4", **columns: Any) -> Any:
    arrival, gpus, seconds = map(list, zip(*rows, strict=True))
    trace = Trace(["job"] * len(rows), gpus, seconds, arrival, duration=seconds, **columns)
    return simulate(trace, cluster, policy, preset=NO_COSTS).jobs


def test_who_has_had_less_goes_first() -> None:
    """Ann has had the cluster for 10 s when a job of hers and one of Bob's, who came later, wait."""
    rows = [(0.0, 4, 10.0), (1.0, 4, 5.0), (2.0, 4, 5.0)]
    first = run(Slurm(fairshare_weight=1.0), rows, user=["ann", "ann", "bob"])
    assert first["start_time"].tolist() == [0.0, 15.0, 10.0]
    # accounts, where there are any, stand for their users
    of_accounts = run(Slurm(fairshare_weight=1.0), rows, user=["ann", "bob", "bob"], entity=["x", "y", "x"])
    assert of_accounts["start_time"].tolist() == [0.0, 10.0, 15.0]


def test_age_counts_up_to_its_most() -> None:
    """A wide job outranks an older one once age counts no more."""
    rows = [(0.0, 4, 10.0), (1.0, 1, 5.0), (2.0, 4, 5.0)]
    for days, starts in ((7.0, [0.0, 15.0, 10.0]), (2.0 / DAY, [0.0, 15.0, 10.0])):
        jobs = run(Slurm(age_weight=1.0, size_weight=0.5, max_age_days=days), rows)
        assert jobs["start_time"].tolist() == starts
    older = run(Slurm(age_weight=1.0, size_weight=0.01, max_age_days=10.0 / DAY), rows)
    assert older["start_time"].tolist() == [0.0, 10.0, 15.0]


def test_weight_preempts_less_weight_and_no_more_than_it_needs() -> None:
    rows = [(0.0, 2, 100.0), (1.0, 1, 100.0), (2.0, 1, 100.0), (10.0, 2, 20.0)]
    weights = [1.0, 1.0, 1.0, 4.0]
    jobs = run(Slurm(priority_weight=1.0, preempts=True), rows, priority_weight=weights)
    # the two that have run least stop
    assert jobs["preemptions"].tolist() == [0, 1, 1, 0]
    assert jobs["completion_time"].tolist() == [100.0, 121.0, 122.0, 30.0]
    kept = run(Slurm(priority_weight=1.0), rows, priority_weight=weights)
    assert kept["preemptions"].tolist() == [0, 0, 0, 0]
    # a gang for which all of less weight are not enough stops nobody
    wide = run(Slurm(priority_weight=1.0, preempts=True), [(0.0, 2, 50.0), (1.0, 2, 49.0), (5.0, 4, 9.0)],
               priority_weight=[4.0, 1.0, 4.0])  # fmt: skip
    assert wide["preemptions"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("seed", range(6))
def test_with_true_limits_conservative_backfilling_delays_nobody(seed: int) -> None:
    """Every job starts no later than where nobody may pass another, and the cluster idles no longer."""
    rng = np.random.default_rng(seed)
    n = 40
    arrivals = np.sort(rng.uniform(0, 300, n)).round()
    rows = list(
        zip(arrivals.tolist(), rng.choice([1, 1, 2, 3, 4], n).tolist(), rng.integers(5, 60, n).tolist(), strict=True)
    )
    strict = run(get_policy("fcfs"), rows)["start_time"].to_numpy()
    conservative = run(Slurm(reservations=1000), rows)["start_time"].to_numpy()
    assert (conservative <= strict + 1e-9).all()
    assert conservative.sum() < strict.sum()


def test_a_long_line_is_looked_at_up_to_its_depth() -> None:
    rows = [(0.0, 4, 10.0), (1.0, 4, 5.0), (2.0, 3, 5.0), (3.0, 1, 1.0)]
    state = replace(Slurm(), depth=1)
    assert run(state, [(0.0, 3, 10.0), *rows[1:]])["start_time"].tolist() == [0.0, 10.0, 15.0, 20.0]
    assert run(Slurm(), [(0.0, 3, 10.0), *rows[1:]])["start_time"].tolist() == [0.0, 10.0, 15.0, 3.0]


def test_it_conforms() -> None:
    check_policy(Slurm(age_weight=1.0, fairshare_weight=2.0, size_weight=1.0, priority_weight=1.0, preempts=True))


def test_explains_who_would_be_delayed() -> None:
    state = state_of([3, 4, 2], "v:4", predicted_seconds=[10.0, 10.0, 90.0])
    policy = Slurm()
    first = policy.plan(state, policy.new_memory()).steps[0].assignment
    assert first.jobs.tolist() == [0]
    told = policy.hindrance(state, 2)
    assert told is not None
    assert told.reason in ("queue_blocked", "ranked_behind")
    assert "place 3" in told.text
