"""Priorities, gang fill and the decision core, on examples worked by hand."""

from __future__ import annotations

import numpy as np

from allocator.cluster import Cluster
from allocator.mechanism.core import DecisionCore
from allocator.mechanism.deficit import DeficitQueue
from allocator.mechanism.gang_packing import Rows, Vacancies, pack
from allocator.mechanism.rounds import Queues, Rounds
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Need, Trigger
from tests.simulator.worlds import SharesPolicy, make_trace


def start(discipline, shares, sizes=None):
    """The discipline with n jobs of constant (n, M) `shares`, counting from 0 with 180 s of credit."""
    values = np.array(shares)
    cluster = Cluster({f"type{j}": 8 for j in range(values.shape[1])})
    jobs = JobTable.from_trace(make_trace([1.0] * 12, sizes), np.ones((12, values.shape[1])), cluster)
    run = Rounds(SharesPolicy(heterogeneity_aware=True), cluster, jobs, seconds=360.0)
    mechanism = discipline.start(run)
    mechanism.arrived(np.arange(len(values)))
    mechanism.decided(0.0, values)
    return mechanism


def order(mechanism, clock):
    """Jobs by priority on the first type; those that may not run are left out."""
    priorities = mechanism.priorities(clock, Assignment.none())[0]
    ranked = np.lexsort((np.arange(len(priorities)), -priorities))
    return [job for job in ranked.tolist() if priorities[job] > -np.inf]


def test_deficit_is_gpu_time_owed_and_outlives_the_decision():
    mechanism = start(DeficitQueue(), [[0.5], [0.3], [0.2]])
    mechanism.record(Assignment.of([0], [0], [1]), np.array([360.0]))
    # Owed at 720 s: 0.5 * 720 - 360, 0.3 * 720, 0.2 * 720.
    assert order(mechanism, 360.0) == [1, 2, 0]
    mechanism.decided(360.0, np.array([[0.5], [0.3], [0.2]]))
    assert mechanism.ledger.deficits.tolist() == [[-180.0, 108.0, 72.0]]
    assert order(mechanism, 360.0) == [1, 2, 0]
    assert mechanism.ledger.owed(360.0).tolist() == [-180.0, 108.0, 72.0]


def test_rows_without_share_do_not_queue():
    mechanism = start(DeficitQueue(), [[0.0], [0.5]])
    mechanism.ledger.deficits[:] = [[0.0, -1e6]]
    assert order(mechanism, 0.0) == [1]


def test_the_same_rows_are_looked_up_anew_when_others_have_left():
    ledger, second = start(DeficitQueue(), [[0.5], [0.5]]).ledger, Assignment.of([1], [0], [1])
    ledger.record(second, np.array([360.0]))
    ledger.remove(np.array([0]))
    ledger.record(second, np.array([360.0]))
    assert ledger.received.tolist() == [[180.0 + 720.0]]


def test_queues_break_ties_by_the_last_key_then_by_the_one_before_and_the_job():
    share = -np.array([[0.2, 0.4, 0.4, 0.1]])
    negated = np.array([[-1.0, -1.0, -1.0, -2.0]])
    assert Queues((share,)).per_type(negated) == [[3, 1, 2, 0]]
    deficit = -np.array([[5.0, 0.0, 0.0, 0.0]])
    assert Queues((share, deficit)).per_type(negated) == [[3, 0, 1, 2]]
    negated[0, 1] = np.inf
    assert Queues((share, deficit)).per_type(negated) == [[3, 0, 2]]


def test_merged_queue_visits_equal_rows_in_the_order_of_the_types():
    queues = Queues((np.zeros((2, 2)),))
    assert queues.merged(np.full((2, 2), -1.0), [1, 0]) == ([0, 1, 0, 1], [1, 1, 0, 0])


def alone(gpus):
    """A row for each job, alone."""
    return Rows(list(range(len(gpus))), [-1] * len(gpus), gpus)


def test_a_strict_queue_lets_nobody_pass():
    left = Vacancies([4], 5)
    assert pack([(0, 0), (1, 0), (2, 0)], alone([3, 4, 1, 2, 8]), left, strict=True) == [[0]]


def make_core(policy, cluster, sizes, **settings):
    trace = make_trace([1e6] * len(sizes), sizes)
    jobs = JobTable.from_trace(trace, np.ones((len(sizes), len(cluster.accelerators))), cluster)
    return DecisionCore(policy, cluster, jobs, MechanismSettings(**settings))


def test_isolated_time_and_service_are_those_of_gangs():
    """Two jobs have 1.5 of three GPUs each; for a gang of two that is three quarters of its time."""
    policy = SharesPolicy(needs=Need.ISOLATED_TIME | Need.SERVICE)
    core = make_core(policy, Cluster({"a": 3}), [2, 1])
    core.arrive([0, 1])
    decision = core.next(0.0)
    core.record(decision, np.full(2, 360.0))
    core.jobs.steps_done[:] = [360.0, 36.0]
    core.tell(Trigger.TROUBLE)
    core.next(360.0)
    assert policy.states[-1].isolated_seconds.tolist() == [480.0, 36.0]
    assert policy.states[-1].gpu_seconds.tolist() == [720.0, 360.0]
    # steps of half the size: twice as many are left, and are done at twice the rate
    core.rates_changed(np.array([0]), np.array([2.0]))
    core.jobs.total_steps[0] *= 2.0
    core.jobs.steps_done[0] = 2 * 360.0 + 75.0
    core.tell(Trigger.TROUBLE)
    core.next(720.0)
    assert policy.states[-1].isolated_seconds.tolist() == [480.0 + 75.0 / 1.5, 36.0]


def test_waiting_jobs_are_decided_early_when_nothing_runs():
    settings = {"recompute_interval_seconds": 1920.0, "discipline": DeficitQueue(idle_fill="off")}
    core = make_core(SharesPolicy(), Cluster({"a": 1}), [1, 1], **settings)
    core.arrive([0])
    core.next(10.0)
    core.complete([0])
    core.arrive([1])
    decision = core.next(370.0)
    assert (decision.jobs.tolist(), decision.recomputed, core.policy_calls) == ([1], True, 2)


def test_the_least_interval_between_decisions_is_over_at_its_end():
    core = make_core(SharesPolicy(), Cluster({"a": 1}), [1, 1], recompute_interval_seconds=720.0)
    core.arrive([0])
    core.next(0.0)
    core.arrive([1])
    assert [core.next(clock).recomputed for clock in (360.0, 720.0)] == [False, True]


def test_a_gang_of_all_gpus_has_an_isolated_share_of_them():
    """Beside another job half of the time: a rate of a half; it did 360 steps."""
    policy = SharesPolicy()
    core = make_core(policy, Cluster({"a": 2}), [2, 1])
    core.arrive([0, 1])
    decision = core.next(0.0)
    core.record(decision, np.full(len(decision.jobs), 360.0))
    core.jobs.steps_done[0] = 360.0
    core.tell(Trigger.TROUBLE)
    core.next(360.0)
    assert policy.states[-1].isolated_seconds.tolist() == [720.0, 0.0]
