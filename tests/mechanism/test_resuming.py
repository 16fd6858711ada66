"""Cores that go on where others were: with other numbers of GPUs, and with jobs that hold GPUs already."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.mechanism.core import DecisionCore
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.registry import get_policy
from tests.simulator.worlds import SharesPolicy
from throughputs import Trace


def table(n, cluster, gpus=None):
    trace = Trace(["x"] * n, gpus or [1] * n, [1e6] * n, [0.0] * n)
    return JobTable.from_trace(trace, np.tile([3.0, 1.0], (n, 1)), cluster)


def core_on(cluster, jobs, policy, placement="consolidated"):
    settings = MechanismSettings(placement=placement)
    return DecisionCore(get_policy(policy), cluster, jobs, settings)


def rounds(core, count, clock=0.0):
    for _ in range(count):
        decision = core.next(clock)
        core.record(decision, np.full(len(decision.jobs), 360.0))
        clock += 360.0
    return clock


@pytest.mark.parametrize("policy", ["max_min_fairness_perf", "fifo_perf", "max_min_fairness"])
def test_what_jobs_are_owed_outlives_a_change_of_capacity(policy):
    cluster = Cluster({"v100": 2, "k80": 2})
    jobs = table(6, cluster)
    core = core_on(cluster, jobs, policy)
    core.arrive(np.arange(6))
    clock = rounds(core, 5)
    owed = core._executor.ledger.deficits.copy()
    received = core._executor.ledger.received.copy()
    smaller = Cluster({"v100": 1, "k80": 0})
    later = core_on(smaller, jobs, policy)
    later.resume(core.state(), Assignment.of([3], [0], [1]), [(0,)])
    ledger = later._executor.ledger
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


def test_a_core_goes_on_from_its_state_as_it_would_have():
    """Under a policy that has its types drawn in every round."""
    cluster = Cluster({"v100": 2, "k80": 2})
    jobs, policy = table(6, cluster), SharesPolicy(heterogeneity_aware=False)
    one, other = (DecisionCore(policy, cluster, jobs, MechanismSettings()) for _ in range(2))
    one.arrive(np.arange(6))
    clock = rounds(one, 5)
    other.restore(copy.deepcopy(one.state()), one.allocation)

    def played(core):
        found = []
        for number in range(20):
            decision = core.next(clock + 360.0 * number)
            core.record(decision, np.full(len(decision.jobs), 360.0))
            found.append((decision.jobs.tolist(), decision.assignment.pool.tolist()))
        return found

    assert played(one) == played(other)


def test_the_gpus_of_who_left_before_a_checkpoint_are_free_after_it():
    cluster = Cluster({"v100": 8, "k80": 0}, {"v100": 8, "k80": 8})
    jobs = table(2, cluster, [8, 8])
    one, other = (core_on(cluster, jobs, "fcfs", "best_fit") for _ in range(2))
    one.arrive(np.arange(2))
    assert one.next(0.0).jobs.tolist() == [0]
    one.complete([0])
    other.restore(copy.deepcopy(one.state()), None)
    assert one.next(10.0).jobs.tolist() == other.next(10.0).jobs.tolist() == [1]
