"""What decisions cost: learned from what jobs lost, kept in reserve, and no reason to decide more often."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, ClusterState, ThroughputMatrix, get_policy
from allocator.checkpoint.state_file import Part
from allocator.policies.deadlines.memory import DecisionCosts
from allocator.presets import preset
from allocator.simulator import simulate
from throughputs import deadline_trace, default_table

CLUSTER = Cluster({"v100": 16}, gpus_per_server={"v100": 8})
TABLE = default_table()


def state_of(lost, clock, running=None):
    matrix = ThroughputMatrix(np.ones((len(lost), 1)), range(len(lost)), ["a100"])
    return ClusterState(Cluster({"a100": 4}), matrix, lost_seconds=np.array(lost), clock=clock, running=running)


GIVEN = {"started": (0, 1), "resized": (1, 2), "kept": (1, 1)}
"""GPUs before and after."""


def learned(costs, lost, clock, **note):
    """Learn from what jobs lost until `clock`, then note a decision."""
    costs.learn(state_of(lost, clock))
    found = costs.restart_seconds, costs.lost_share
    costs.note(clock, {job: GIVEN[what] for what, jobs in note.items() for job in jobs})
    return found


def test_starts_and_decisions_that_change_nothing_are_told_apart():
    costs = DecisionCosts()
    assert learned(costs, [5.0, 5.0], 10.0, started=[0, 1], kept=[2]) == (0.0, 0.0)
    costs.learn(state_of([30.0, 10.0, 4.0, 99.0], 110.0))
    # at the same instant nothing is learned anew, and who has left tells nothing
    assert learned(costs, [70.0, 70.0, 70.0], 110.0, started=[4], kept=[0, 1]) == (30.0, 0.04)
    assert learned(costs, [0.0, 0.0], 210.0) == (30.0, pytest.approx(4 / 300))


def test_a_decision_is_learned_from_once_and_takes_half_of_the_time_at_most():
    costs = DecisionCosts()
    costs.note(0.0, {0: (0, 1), 1: (1, 1)})
    for clock in (10.0, 30.0):
        costs.learn(state_of([8.0, 60.0], clock))
        assert (len(costs.start_seconds), costs.restart_seconds, costs.lost_share) == (1, 8.0, 0.5)


@pytest.mark.parametrize(
    ("dear", "cheap"), [("started", "resized"), pytest.param("resized", "started", marks=pytest.mark.exhaustive)]
)
def test_what_is_cheap_and_frequent_does_not_hide_what_is_dear(dear, cheap):
    """The dearest counts until a thousand of its kind were cheaper, whatever the other kind costs."""
    costs = DecisionCosts()
    learned(costs, [0.0], 0.0, **{dear: [0]})
    assert learned(costs, [60.0], 1.0, **{cheap: [0]})[0] == 60.0
    for clock in range(2, 1100):
        learned(costs, [0.0], float(clock), **{cheap: [0]})
    learned(costs, [0.0], 1100.0, **{dear: [0]})
    for clock in range(1101, 2101):
        assert costs.restart_seconds == 60.0
        learned(costs, [7.0], float(clock), **{dear: [0]})
    assert costs.restart_seconds == 7.0


def test_what_was_learned_comes_back():
    costs, again = DecisionCosts(), DecisionCosts()
    costs.note(0.0, {0: (0, 1), 1: (1, 1), 2: (1, 2)})
    learned(costs, [8.0, 2.0, 3.0], 50.0, started=[1], resized=[2], kept=[0])
    again.restore(Part.of(costs.state()).tree())
    for each in (costs, again):
        assert learned(each, [1.0, 6.0, 9.0], 90.0) == (9.0, 3 / 90)
    assert Part.of(again.state()).data == Part.of(costs.state()).data


@pytest.mark.parametrize(("admission", "resizes_cost"), [("each", True), ("repair", False)])
def test_promises_are_kept_where_starts_cost_at_once(admission, resizes_cost):
    """What a start costs is known from the first one on; it stays known where most changes of GPUs cost nothing."""
    world = preset("default").replace(restart_penalty_seconds=60.0, restart_when_moved=resizes_cost)
    trace = deadline_trace(40, 60.0, rng=np.random.default_rng(0))
    jobs = simulate(trace, CLUSTER, get_policy("elasticflow", admission=admission), TABLE, preset=world).jobs
    assert (jobs["status"] == "completed").sum() > 12
    late = (jobs["completion_time"] > jobs["deadline"]) & (jobs["arrival_time"] > jobs["arrival_time"].min())
    assert not late.any()
