"""Priorities, gang fill and the decision core, on examples worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.mechanism.core import DecisionCore
from allocator.mechanism.gang_packing import Rows, Vacancies, pack_global, pack_per_type
from allocator.mechanism.ledger import TimeLedger
from allocator.mechanism.queues import Queues
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Need, Trigger
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import InputError


def make_ledger(shares, late=False, sizes=None, **settings):
    """Ledger of n jobs with (n, M) `shares`, counting from 0 with 180 s of credit."""
    values = np.array(shares)
    types = values.shape[1]
    cluster = Cluster({f"type{j}": 8 for j in range(types)})
    jobs = JobTable(make_trace([1.0] * 12, sizes), np.ones((12, types)), cluster)
    ledger = TimeLedger(jobs, types, MechanismSettings(late_jobs_add_type_time=late, **settings))
    ledger.add(np.arange(len(values)), np.ones(values.T.shape, dtype=bool))
    ledger.start_count(0.0)
    ledger.set_shares(values)
    return ledger


def per_type(ledger, clock, **settings):
    return Queues(ledger, ledger.can_run, MechanismSettings(**settings)).per_type(clock)


def test_deficit_is_gpu_time_owed_and_outlives_the_decision():
    ledger = make_ledger([[0.5], [0.3], [0.2]])
    ledger.record(Assignment.of([0], [0], [1]), np.array([360.0]))
    # Owed at 720 s: 0.5 * 720 - 360, 0.3 * 720, 0.2 * 720.
    assert per_type(ledger, 360.0) == [[1, 2, 0]]
    ledger.start_count(360.0)
    ledger.set_shares(np.array([[0.5], [0.3], [0.2]]))
    assert ledger.deficits.tolist() == [[-180.0, 108.0, 72.0]]
    assert per_type(ledger, 360.0) == [[1, 2, 0]]
    assert ledger.owed(360.0).tolist() == [-180.0, 108.0, 72.0]
    # The fraction of time starts anew.
    assert per_type(ledger, 360.0, priority="time_fraction") == [[0, 1, 2]]


def test_time_that_counts_since_arrival_outlives_decisions_and_jobs():
    """As in Sia's simulator: a decision forgets nothing, and the time of who has left stays with the type."""
    settings = {"priority": "time_fraction", "time_counted": "since_arrival"}
    ledger = make_ledger([[0.5], [0.3], [0.2]], late=True, **settings)
    assert ledger.type_time.tolist() == [720.0]
    ledger.record(Assignment.of([0], [0], [1]), np.array([360.0]))
    ledger.start_count(360.0)
    ledger.set_shares(np.array([[0.5], [0.3], [0.2]]))
    assert (ledger.received.tolist(), ledger.type_time.tolist()) == ([[540.0, 180.0, 180.0]], [1080.0])
    # 0.5 / 540, 0.3 / 180, 0.2 / 180
    assert per_type(ledger, 360.0, **settings) == [[1, 2, 0]]
    assert ledger.deficits.tolist() == [[0.0, 0.0, 0.0]]
    ledger.remove(np.array([0]))
    ledger.start_count(720.0)
    assert ledger.type_time.tolist() == [1080.0]
    with pytest.raises(InputError, match=r'time_counted.*priority "time_fraction"'):
        MechanismSettings(time_counted="since_arrival")


def test_rows_without_share_come_last_under_either_rule():
    ledger = make_ledger([[0.0], [0.5]])
    ledger.deficits[:] = [[0.0, -1e6]]
    for rule in ("deficit", "time_fraction"):
        assert per_type(ledger, 0.0, priority=rule) == [[1, 0]]


def test_ties_are_broken_by_the_first_key_then_by_the_next():
    """0.8 and 0.82 are equal to one digit; the larger share and the larger debt are of different rows."""
    ledger = make_ledger([[0.4], [0.41]])
    ledger.deficits[:] = [[100.0, 0.0]]
    for keys, order in ((("share", "deficit"), [1, 0]), (("deficit", "share"), [0, 1])):
        assert per_type(ledger, 0.0, priority="time_fraction", priority_digits=1, tie_breaks=keys) == [order]


@pytest.mark.parametrize(("late", "expected"), [(False, 360.0), (True, 540.0)])
def test_the_time_of_a_type_counts_the_credit_of_who_was_there(late, expected):
    ledger = make_ledger([[0.5], [0.5]], late)
    ledger.add(np.array([7]), np.ones((1, 1), dtype=bool))
    assert ledger.type_time.tolist() == [expected]


def test_the_same_rows_are_looked_up_anew_when_others_have_left():
    ledger, second = make_ledger([[0.5], [0.5]]), Assignment.of([1], [0], [1])
    ledger.record(second, np.array([360.0]))
    ledger.remove(np.array([0]))
    ledger.record(second, np.array([360.0]))
    assert ledger.received.tolist() == [[180.0 + 720.0]]


def test_merged_queue_visits_equal_rows_in_the_order_of_the_types():
    ledger = make_ledger([[0.5, 0.5], [0.5, 0.5]])
    queues = Queues(ledger, ledger.can_run, MechanismSettings())
    assert queues.merged(0.0, [1, 0]) == ([0, 1, 0, 1], [1, 1, 0, 0])


def alone(gpus):
    """A row for each job, alone."""
    return Rows(list(range(len(gpus))), [-1] * len(gpus), gpus)


def test_a_strict_queue_lets_nobody_pass():
    left = Vacancies([4, 2], 5)
    assert pack_per_type([[0, 1, 2, 3], [3, 2]], [0, 1], alone([3, 4, 1, 2, 8]), left, strict=True) == [[0], [3]]
    left = Vacancies([4], 5)
    assert pack_global([(0, 0), (1, 0), (2, 0)], alone([3, 4, 1, 2, 8]), left, strict=True) == [[0]]


def make_core(policy, cluster, sizes, **settings):
    trace = make_trace([1e6] * len(sizes), sizes)
    jobs = JobTable(trace, np.ones((len(sizes), len(cluster.accelerators))), cluster)
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


def test_undecided_jobs_block_gpus_only_when_told_to():
    for blocks, expected in ((True, []), (False, [1])):
        core = make_core(
            SharesPolicy(),
            Cluster({"a": 1}),
            [1, 1],
            recompute_interval_seconds=1920.0,
            idle_fill="queue_order",
            undecided_jobs_block_gpus=blocks,
            decide_early_when_idle=False,
        )
        core.arrive([0])
        assert core.next(10.0).jobs.tolist() == [0]
        core.complete([0])
        core.arrive([1])
        assert core.next(370.0).jobs.tolist() == expected
        assert core.next(1930.0).jobs.tolist() == [1]


def test_waiting_jobs_are_decided_early_when_nothing_runs():
    core = make_core(SharesPolicy(), Cluster({"a": 1}), [1, 1], recompute_interval_seconds=1920.0, idle_fill="off")
    core.arrive([0])
    core.next(10.0)
    core.complete([0])
    core.arrive([1])
    decision = core.next(370.0)
    assert (decision.jobs.tolist(), decision.recomputed, core.policy_calls) == ([1], True, 2)
