"""Multifactor priority, fair shares by account and preemption, computed by hand; and what backfilling promises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from allocator import Cluster, ClusterState, get_policy, simulate
from allocator.policies.orders.slurm import Slurm, Usage, _parts_due
from allocator.presets import preset
from allocator.protocol.entities import Entities, Membership
from allocator.protocol.policy import Past
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


def test_use_of_all_jobs_of_an_account_counts_and_is_forgotten() -> None:
    """Ann has two jobs where Bob has one; and what is long ago counts no more, but where nothing is forgotten."""
    rows = [(0.0, 1, 10.0), (0.0, 1, 10.0), (0.0, 2, 10.0), (1.0, 4, 5.0), (2.0, 4, 5.0)]
    summed = run(Slurm(fairshare_weight=1.0), [*rows[:2], (0.0, 1, 10.0), *rows[3:]], user=[*"aabab"])
    assert summed["start_time"].tolist() == [0.0, 0.0, 0.0, 15.0, 10.0]
    rows = [(0.0, 4, 20.0), (1.0, 4, 10.0), (21.0, 4, 5.0), (22.0, 4, 5.0)]
    for half_life, starts in ((2.0 / DAY, [0.0, 20.0, 35.0, 30.0]), (0.0, [0.0, 20.0, 30.0, 35.0])):
        jobs = run(Slurm(fairshare_weight=1.0, half_life_days=half_life), rows, user=["a", "b", "b", "a"])
        assert jobs["start_time"].tolist() == starts


def test_shares_go_down_the_tree_of_entities() -> None:
    """Vision is all of research, which is due twice what production is; both have had as much."""
    tree = Entities.parse([{"name": "research", "weight": 2.0}, {"name": "production"},
                           {"name": "vision", "parent": "research"}])  # fmt: skip
    state = state_of([1, 1], membership=Membership(tree, np.array([2, 1])))
    due = _parts_due(["vision", "production", "guest"], state)
    assert due["vision"] == due["research"] == 2 / 4
    assert (due["production"], due["guest"]) == (1 / 4, 1 / 4)


def test_size_is_of_the_whole_cluster() -> None:
    state = state_of([4, 8], "v:8,k:8")
    np.testing.assert_allclose(Slurm(size_weight=1.0).priorities(state, Usage()), [0.25, 0.5])


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


def test_of_two_types_it_preempts_where_the_least_weight_is() -> None:
    rows = [(0.0, 4, 100.0), (1.0, 4, 100.0), (2.0, 4, 10.0)]
    jobs = run(Slurm(preempts=True, priority_weight=1.0), rows, "a:4,b:4", priority_weight=[2.0, 1.0, 4.0])
    assert jobs["preemptions"].tolist() == [0, 1, 0]
    assert jobs["start_time"].tolist() == [0.0, 1.0, 2.0]


def test_it_stops_nobody_where_the_gang_finds_no_room_as_gpus_lie() -> None:
    """Halves of both GPUs are of less weight, and no whole GPU; where one job of less weight is enough, one stops."""
    rows = [(float(i), 1, 100.0) for i in range(4)]
    policy = Slurm(preempts=True, priority_weight=1.0)
    halves = run(policy, [*rows, (10.0, 1, 20.0)], "v:2", gpu_fraction=[0.5, 0.5, 0.5, 0.5, 1.0],
                 priority_weight=[1.0, 9.0, 1.0, 9.0, 4.0])  # fmt: skip
    assert halves["preemptions"].sum() == 0
    one = run(policy, [*rows[:3], (10.0, 1, 20.0)], "v:2", gpu_fraction=[0.6, 0.6, 0.4, 1.0],
              priority_weight=[9.0, 1.0, 9.0, 4.0])  # fmt: skip
    assert one["preemptions"].tolist() == [0, 1, 0, 0]


def test_preemption_keeps_what_was_promised() -> None:
    """A wide job is first in line; one of the same weight takes the GPU of a light one, and not its turn."""
    rows = [(0.0, 3, 50.0), (0.0, 1, 500.0), (1.0, 4, 5.0), (2.0, 1, 20.0)]
    jobs = run(Slurm(preempts=True), rows, priority_weight=[4.0, 1.0, 4.0, 4.0])
    # it goes on at 22, and makes room for the wide one
    assert jobs["preemptions"].tolist() == [0, 2, 0, 0]
    assert jobs["start_time"].tolist()[2:] == [50.0, 2.0]


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


@pytest.mark.parametrize("days", [0.0, 1.0 / 864])
def test_what_accounts_had_is_known_afterwards(days: float) -> None:
    """From rows of a run as from what is counted while it lasts."""
    policy, counted = Slurm(fairshare_weight=1.0, half_life_days=days), Usage()
    for clock, running in ((10.0, {"a": 2.0}), (60.0, {"a": 2.0, "b": 1.0}), (110.0, {"b": 1.0})):
        counted.until(clock, days * DAY or np.inf)
        counted.running = running
    counted.until(150.0, days * DAY or np.inf)
    past = Past(150.0, np.array([*"aab"], dtype=object), np.array([1.0, 1.0, 1.0]), np.array([10.0, 10.0, 60.0]),
                np.array([110.0, 110.0, 400.0]))  # fmt: skip
    found = policy.memory_at({}, past)
    assert (found.clock, found.running) == (150.0, {"b": 1.0})
    assert found.seconds == pytest.approx(counted.seconds)


def test_explanations_try_changes_under_fair_shares_and_limits() -> None:
    """Ann has had the cluster; with two more GPUs, or a gang of two, her job would have run beside Bob's."""
    rows = [(0.0, 4, 100.0), (1.0, 4, 50.0), (2.0, 2, 50.0)]
    arrival, gpus, seconds = map(list, zip(*rows, strict=True))
    trace = Trace(["job"] * 3, gpus, seconds, arrival, duration=seconds, user=["ann", "ann", "bob"],
                  predicted_seconds=[120.0, 60.0, 60.0])  # fmt: skip
    result = simulate(trace, "v:4", Slurm(fairshare_weight=1.0), preset=NO_COSTS)
    assert result.jobs["start_time"].tolist() == [0.0, 150.0, 100.0]
    assert result.jobs["predicted_seconds"].tolist() == [120.0, 60.0, 60.0]
    moment = result.explain(1, at=120.0).waits[0].moment
    changes = {(change.kind, change.gpus) for change in moment.changes}
    assert {("gpus", 2), ("gang", 2)} <= changes
