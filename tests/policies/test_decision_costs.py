"""What decisions cost: learned from what jobs lost, kept in reserve, and no reason to decide more often."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, ClusterState, ThroughputMatrix, get_policy
from allocator.policies.deadlines.costs import DecisionCosts
from allocator.presets import preset
from allocator.protocol import Assignment
from allocator.simulator import simulate
from formulations.deadlines import Filling, JobPlan
from throughputs import deadline_trace, default_table

CLUSTER = Cluster({"v100": 16}, gpus_per_server={"v100": 8})
TABLE = default_table()


def state_of(lost, clock, labels=None, running=None):
    rates = np.ones((len(lost), 1))
    return ClusterState(
        Cluster({"a100": 4}),
        ThroughputMatrix(rates, labels or range(len(lost)), ["a100"]),
        lost_seconds=np.array(lost),
        clock=clock,
        running=running,
    )


def test_starts_and_decisions_that_change_nothing_are_told_apart():
    costs = DecisionCosts()
    costs.learn(state_of([5.0, 5.0], 10.0))
    assert (costs.restart_seconds, costs.lost_share) == (0.0, 0.0)
    costs.note(10.0, started=[0, 1], resized=[], kept=[2])
    costs.learn(state_of([30.0, 10.0, 4.0, 99.0], 110.0))
    assert (costs.restart_seconds, costs.lost_share) == (30.0, 0.04)
    # at the same instant nothing is learned anew, and who has left tells nothing
    costs.learn(state_of([70.0, 70.0, 70.0], 110.0))
    costs.note(110.0, started=[4], resized=[], kept=[0, 1])
    costs.learn(state_of([0.0, 0.0], 210.0))
    assert (costs.restart_seconds, costs.lost_share) == (30.0, pytest.approx(4 / 300))


def test_who_runs_on_other_gpus_than_were_given_is_not_getting_going_on_them():
    """A world that takes GPUs away has started the job anew."""
    policy = get_policy("elasticflow")
    memory = policy.new_memory()
    memory.starting = {0: (2, 130.0), 1: (2, 130.0)}
    running = Assignment.of(np.arange(2), np.zeros(2, dtype=np.int64), np.array([2, 1]))
    state = state_of([0.0, 0.0], 100.0, running=running)
    jobs, _ = policy.jobs(state, memory, 0)
    assert {job.label: (job.held, job.starting) for job in jobs} == {0: (2, 30.0), 1: (1, 0.0)}


def test_a_decision_is_learned_from_once_and_takes_half_of_the_time_at_most():
    costs = DecisionCosts()
    costs.note(0.0, started=[0], resized=[], kept=[1])
    for clock in (10.0, 30.0):
        costs.learn(state_of([8.0, 60.0], clock))
        assert (len(costs.start_seconds), costs.restart_seconds, costs.lost_share) == (1, 8.0, 0.5)


@pytest.mark.parametrize("dear", ["started", "resized"])
def test_what_is_cheap_and_frequent_does_not_hide_what_is_dear(dear):
    """Of starts the dearest counts, whatever it costs to change the number of GPUs, and the other way around."""
    cheap = "resized" if dear == "started" else "started"
    costs = DecisionCosts()

    def decision(kind, seconds, clock):
        costs.note(clock, **{"started": [], "resized": [], "kept": [], kind: [0]})
        costs.learn(state_of([seconds], clock + 1.0))

    decision(dear, 60.0, 0.0)
    for clock in range(1, 2000):
        decision(cheap, 0.0, float(clock))
    assert costs.restart_seconds == 60.0
    # it is forgotten after a thousand that were cheaper
    for clock in range(2000, 3000):
        assert costs.restart_seconds == 60.0
        decision(dear, 7.0, float(clock))
    assert costs.restart_seconds == 7.0


def test_what_was_learned_comes_back():
    costs, again = DecisionCosts(), DecisionCosts()
    costs.note(0.0, started=[0], resized=[2], kept=[1])
    costs.learn(state_of([8.0, 2.0, 3.0], 50.0))
    costs.note(50.0, started=[1], resized=[2], kept=[0])
    again.restore(costs.state())
    for each in (costs, again):
        each.learn(state_of([1.0, 6.0, 9.0], 90.0))
    assert again.state() == costs.state()
    assert (again.restart_seconds, again.lost_share) == (9.0, 3 / 90)


@pytest.mark.parametrize(("published", "patience"), [(False, 71.0), (True, np.inf)])
def test_what_is_planned_for_the_end_of_a_job_waits_for_it(published, patience):
    policy = get_policy("elasticflow", published_list=published)
    ends = JobPlan([0.0], [4], 100.0, 95.0, met=True, charged_until=100.0)
    follows = JobPlan([0.0, 100.0], [0, 4], 150.0, 150.0, met=True, charged_until=150.0)
    sooner = JobPlan([0.0, 60.0], [0, 1], 150.0, 150.0, met=True, charged_until=150.0)
    filling = Filling(slot_seconds=60.0, restart_seconds=10.0)
    assert policy.next_change(filling, [ends, follows]) == 100.0 + patience
    assert policy.next_change(filling, [ends, follows, sooner]) == 60.0
    assert policy.next_change(filling, [ends]) == np.inf


@pytest.mark.parametrize("overhead", ["off", "starts", "running"])
def test_no_world_makes_it_break_more_promises_than_the_published_rules(overhead):
    """Where a decision costs everybody, one that brings nothing is a loss, and short jobs could be kept from ending."""
    published = preset("elasticflow").settings_of_policy("elasticflow", CLUSTER) | {"slot_seconds": 240.0}
    trace = deadline_trace(60, 500.0, rng=np.random.default_rng(3))
    ours, theirs = (outcome(trace, overhead, **settings) for settings in ({}, published))
    assert ours["deadline_ratio"] >= theirs["deadline_ratio"]
    assert ours["late"] <= theirs["late"]
    assert ours["policy_calls"] <= 2 * len(trace) + 2


@pytest.mark.parametrize("overhead", ["off", "starts"])
def test_repair_keeps_promises_where_decisions_are_slots_apart(overhead):
    traces = [deadline_trace(80, 300.0, rng=np.random.default_rng(seed)) for seed in range(3)]
    let_in, late = (
        {
            admission: sum(outcome(trace, overhead, admission=admission)[figure] for trace in traces)
            for admission in ("each", "repair")
        }
        for figure in ("admitted", "late")
    )
    assert let_in["repair"] > 1.05 * let_in["each"]
    assert late["repair"] <= late["each"] <= 2


def outcome(trace, overhead, **settings):
    """What comes of the jobs in the published world, slots of 240 s."""
    world = preset("elasticflow").replace(slot_seconds=240.0, overhead=overhead)
    return simulate(trace, CLUSTER, get_policy("elasticflow", **settings), TABLE, preset=world).summary()


@pytest.mark.parametrize("admission", ["each", "repair"])
@pytest.mark.parametrize("resizes_cost", [False, True])
def test_promises_are_kept_where_starts_cost_at_once(admission, resizes_cost):
    """What a start costs is known from the first one on; it stays known where most changes of GPUs cost nothing."""
    admitted = 0
    for seed in range(3):
        world = preset("default").replace(restart_penalty_seconds=60.0, restart_when_moved=resizes_cost)
        trace = deadline_trace(90, 60.0, rng=np.random.default_rng(seed))
        jobs = simulate(trace, CLUSTER, get_policy("elasticflow", admission=admission), TABLE, preset=world).jobs
        admitted += (jobs["status"] == "completed").sum()
        late = (jobs["completion_time"] > jobs["deadline"]) & (jobs["arrival_time"] > jobs["arrival_time"].min())
        assert not late.any()
    assert admitted > 90
