"""Cores that go on where others were: with other numbers of GPUs, and with jobs that hold GPUs already."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.mechanism.core import DecisionCore
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.registry import get_policy
from throughputs import Trace

TYPES = ("v100", "k80")
RULES = ("in_order", "consolidated", "buddy", "local_search", "anew")


def table(n, cluster, gpus=None):
    trace = Trace(["x"] * n, gpus or [1] * n, [1e6] * n, [0.0] * n)
    return JobTable(trace, np.tile([3.0, 1.0], (n, 1)), cluster)


def core_on(cluster, jobs, policy, placement="consolidated"):
    settings = MechanismSettings(placement=placement)
    return DecisionCore(get_policy(policy), cluster, jobs, settings)


def rounds(core, count, clock=0.0):
    for _ in range(count):
        decision = core.next(clock)
        core.record(decision, np.full(len(decision.jobs), 360.0))
        clock += 360.0
    return clock


@pytest.mark.parametrize("rule", RULES)
def test_jobs_that_hold_gpus_keep_them(rule):
    """Under first-fit rules with free choice only who is placed anew moves; nobody who was adopted does."""
    cluster = Cluster({"v100": 8, "k80": 8}, {"v100": 4, "k80": 4})
    jobs = table(4, cluster, [2, 1, 4, 1])
    core = core_on(cluster, jobs, "srtf", rule)
    core.arrive(np.arange(4))
    running = Assignment.of([0, 1, 2], [0, 0, 1], [2, 1, 4])
    held = [(2, 3), (7,), (8, 9, 10, 11)]
    core.adopt(running, held)
    assert [core.gpus_of(job) for job in range(3)] == held
    placement = core._placement
    if rule != "anew":
        more = Assignment.of([0, 1, 2, 3], [0, 0, 1, 0], [2, 1, 4, 1])
        placed = placement.place(more)
        assert list(placed[:3]) == held
        assert len(set(placed[3]) & {2, 3, 7}) == 0


@pytest.mark.parametrize("policy", ["max_min_fairness_perf", "fifo_perf", "max_min_fairness"])
def test_what_jobs_are_owed_outlives_a_change_of_capacity(policy):
    cluster = Cluster({"v100": 2, "k80": 2})
    jobs = table(6, cluster)
    core = core_on(cluster, jobs, policy)
    core.arrive(np.arange(6))
    clock = rounds(core, 5)
    owed = core._executor._ledger.deficits.copy()
    received = core._executor._ledger.received.copy()
    smaller = Cluster({"v100": 1, "k80": 0})
    later = core_on(smaller, jobs, policy)
    later.resume(core.state(), Assignment.of([3], [0], [1]), [(0,)])
    ledger = later._executor._ledger
    assert np.array_equal(ledger.deficits, owed)
    assert np.array_equal(ledger.received, received)
    decision = later.next(clock)
    assert decision.recomputed
    decision.assignment.check(smaller.capacity, "test")
    assert len(decision.jobs) == 1
    # everybody has a turn on the one GPU that is left
    seen = set()
    for _ in range(60):
        decision = later.next(clock)
        later.record(decision, np.full(len(decision.jobs), 360.0))
        seen |= set(decision.jobs.tolist())
        clock += 360.0
    assert seen == (set(range(6)) if policy != "fifo_perf" else {0})


def test_the_memory_of_a_planner_goes_on():
    cluster = Cluster({"k80": 2})
    trace = Trace(["x"] * 2, [1, 1], [100.0, 100.0], [0.0, 0.0], deadline=[200.0, 150.0])
    jobs = JobTable(trace, np.ones((2, 1)), cluster)
    core = core_on(cluster, jobs, "elasticflow")
    core.arrive(np.arange(2))
    assert len(core.next(0.0).rejected) == 0
    later = core_on(cluster, jobs, "elasticflow")
    later.resume(core.state(), Assignment.of([0, 1], [0, 0], [1, 1]), [(0,), (1,)])
    assert later._executor._memory.promised.keys() == core._executor._memory.promised.keys()
    assert len(later._executor._memory.promised) == 2


def test_planners_of_deadlines_hear_of_other_rates():
    cluster = Cluster({"k80": 1})
    trace = Trace(["x"], [1], [100.0], [0.0], deadline=[150.0])
    jobs = JobTable(trace, np.ones((1, 1)), cluster)
    core = core_on(cluster, jobs, "edf")
    core.arrive([0])
    core.next(0.0)
    before = core._executor._memory.curves[0].rates
    jobs.rates[0] = 7.0
    core.rates_changed(np.array([0]))
    core.next(1.0)
    assert (before, core._executor._memory.curves[0].rates) == ([1.0], [7.0])
