"""Priorities, gang fill and the decision core, on examples worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.mechanism.core import DecisionCore
from allocator.mechanism.gang_packing import Rows, Vacancies, pack_best_type, pack_global, pack_per_type, preference
from allocator.mechanism.ledger import TimeLedger
from allocator.mechanism.queues import Queues
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Trigger
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import InputError


def make_ledger(
    shares: list[list[float]], late: bool = False, sizes: list[int] | None = None, **settings: Any
) -> TimeLedger:
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


def per_type(ledger: TimeLedger, clock: float, **settings: object) -> list[list[int]]:
    return Queues(ledger, ledger.can_run, MechanismSettings(**settings)).per_type(clock)  # type: ignore[arg-type]


def test_time_fraction_is_share_over_fraction_of_type_time() -> None:
    ledger = make_ledger([[0.5], [0.3], [0.2]])
    rule = {"priority": "time_fraction"}
    # Theta is 540, every tau 180: priorities are 3 x.
    assert per_type(ledger, 0.0, **rule) == [[0, 1, 2]]
    ledger.record(Assignment.of([0], [0], [1]), np.array([360.0]))
    # Theta 900; tau 540, 180, 180: 0.5 / 0.6, 0.3 / 0.2, 0.2 / 0.2.
    assert ledger.type_time.tolist() == [900.0]
    assert per_type(ledger, 360.0, **rule) == [[1, 2, 0]]


def test_deficit_is_gpu_time_owed_and_outlives_the_decision() -> None:
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


def test_a_gang_is_owed_the_time_of_all_its_gpus() -> None:
    """Of two jobs that are owed alike, the gang comes first, and credit for time before the first round is no time."""
    ledger = make_ledger([[0.5], [0.25], [0.0]], sizes=[1, 4, *[1] * 10])
    ledger.deficits[:] = [[10.0, -20.0, 0.0]]
    ledger.record(Assignment.of([0], [0], [1]), np.array([60.0]))
    queues = Queues(ledger, ledger.can_run, MechanismSettings(round_seconds=360.0))
    # 10 + 0.5 (60 + 360) - 60, and 4 (-20 + 0.25 (60 + 360)); the last one has no share
    assert queues.priorities(60.0).tolist() == [[160.0, 340.0, -np.inf]]


def test_time_that_counts_since_arrival_outlives_decisions_and_jobs() -> None:
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


def test_shares_are_rounded_before_they_count() -> None:
    ledger = make_ledger([[0.123456], [1.0000004], [-1e-9]], share_decimals=5)
    assert ledger.shares.tolist() == [[0.12346, 1.0, 0.0]]
    with pytest.raises(InputError, match=r"share_decimals.*1 to 17"):
        MechanismSettings(share_decimals=0)


def test_ties_go_by_deficit_then_share_then_job_id() -> None:
    ledger = make_ledger([[0.0], [0.0], [0.0], [0.4]])
    ledger.deficits[:] = [[0.0, 5.0, 0.0, 0.0]]
    assert per_type(ledger, 0.0, priority="time_fraction") == [[3, 1, 0, 2]]
    assert per_type(ledger, 0.0, priority="time_fraction", tie_breaks=()) == [[3, 0, 1, 2]]


def test_rows_without_share_come_last_under_either_rule() -> None:
    ledger = make_ledger([[0.0], [0.5]])
    ledger.deficits[:] = [[0.0, -1e6]]
    for rule in ("deficit", "time_fraction"):
        assert per_type(ledger, 0.0, priority=rule) == [[1, 0]]


def test_rounded_priorities_forget_the_last_digits() -> None:
    ledger = make_ledger([[0.3 - 1e-12], [0.3]])
    rule = {"priority": "time_fraction", "tie_breaks": ()}
    assert per_type(ledger, 0.0, **rule) == [[1, 0]]
    assert per_type(ledger, 0.0, **rule, priority_digits=9) == [[0, 1]]


def test_merged_queue_visits_equal_rows_in_the_order_of_the_types() -> None:
    ledger = make_ledger([[0.5, 0.5], [0.5, 0.5]])
    queues = Queues(ledger, ledger.can_run, MechanismSettings())
    assert queues.merged(0.0, [1, 0]) == ([0, 1, 0, 1], [1, 1, 0, 0])


@pytest.mark.parametrize(("late", "expected"), [(False, 360.0), (True, 540.0)])
def test_time_of_the_type_when_jobs_arrive_late(late: bool, expected: float) -> None:
    ledger = make_ledger([[0.5], [0.5]], late)
    ledger.add(np.array([7]), np.ones((1, 1), dtype=bool))
    assert ledger.type_time.tolist() == [expected]
    assert ledger.received.tolist() == [[180.0] * 3]
    ledger.remove(np.array([0, 7]))
    assert ledger.active.tolist() == [1]
    assert ledger.type_time.tolist() == [expected]


def test_ledger_keeps_ids_ascending_and_refuses_strangers() -> None:
    ledger = make_ledger([[0.5], [0.5]])
    ledger.remove(np.array([0]))
    ledger.add(np.array([5, 0]), np.ones((1, 2), dtype=bool))
    assert ledger.active.tolist() == [0, 1, 5]
    assert ledger.shares.tolist() == [[0.0, 0.5, 0.0]]
    with pytest.raises(InputError, match="active"):
        ledger.add(np.array([5]), np.ones((1, 1), dtype=bool))
    for stranger in (3, 9):
        with pytest.raises(InputError, match="active jobs"):
            ledger.remove(np.array([stranger]))


def alone(gpus: list[int]) -> Rows:
    """A row for each job, alone."""
    return Rows(list(range(len(gpus))), [-1] * len(gpus), gpus)


def test_gangs_that_do_not_fit_let_smaller_ones_pass() -> None:
    left = Vacancies([4, 2], 5)
    rows = pack_per_type([[0, 1, 2, 3], [1, 2, 3, 4]], [0, 1], alone([3, 4, 1, 2, 8]), left)
    assert rows == [[0, 2], [3]]
    assert (left.free, list(left.taken), left.waiting) == ([0, 0], [1, 0, 1, 1, 0], 2)


def test_a_strict_queue_lets_nobody_pass() -> None:
    left = Vacancies([4, 2], 5)
    assert pack_per_type([[0, 1, 2, 3], [3, 2]], [0, 1], alone([3, 4, 1, 2, 8]), left, strict=True) == [[0], [3]]
    left = Vacancies([4], 5)
    assert pack_global([(0, 0), (1, 0), (2, 0)], alone([3, 4, 1, 2, 8]), left, strict=True) == [[0]]


def test_the_global_queue_takes_each_job_once() -> None:
    left = Vacancies([2, 2], 3)
    rows = pack_global([(0, 1), (0, 0), (1, 1), (2, 1), (2, 0)], alone([1, 2, 1]), left)
    assert rows == [[], [0, 2]]
    assert (left.free, list(left.taken), left.waiting) == ([2, 0], [1, 0, 1], 1)


def test_best_type_is_the_fastest_with_room() -> None:
    preferred = preference(np.array([[1.0, 3.0, 3.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]))
    assert preferred == [[1, 2, 0], [1], []]
    free = [5, 1, 1]
    assert pack_best_type([0, 1, 2], preferred.__getitem__, [1, 1, 1], free) == [(0, 1)]
    assert free == [5, 0, 1]
    assert pack_best_type([0], preferred.__getitem__, [2], [5, 1, 1]) == [(0, 0)]


def make_core(policy: SharesPolicy, cluster: Cluster, sizes: list[int], **settings: object) -> DecisionCore:
    trace = make_trace([1e6] * len(sizes), sizes)
    jobs = JobTable(trace, np.ones((len(sizes), len(cluster.accelerators))), cluster)
    return DecisionCore(policy, cluster, jobs, MechanismSettings(**settings))  # type: ignore[arg-type]


def served(policy: SharesPolicy, rounds: int, n: int, cluster: Cluster, **settings: object) -> np.ndarray:
    """Fraction of rounds that each of n single-GPU jobs spent on each type."""
    core = make_core(policy, cluster, [1] * n, **settings)
    core.arrive(range(n))
    count = np.zeros((n, len(cluster.accelerators)))
    for k in range(rounds):
        decision = core.next(360.0 * k)
        count[decision.jobs, decision.assignment.pool] += 1
        core.record(decision, np.full(len(decision.jobs), 360.0))
    return count / rounds


@pytest.mark.parametrize("priority", ["deficit", "time_fraction"])
@pytest.mark.parametrize("queue", ["per_type", "global"])
def test_time_received_approaches_the_shares(priority: str, queue: str) -> None:
    shares = np.array([[0.7, 0.3], [0.2, 0.5], [0.1, 0.2]])
    got = served(
        SharesPolicy(lambda _: shares, fills_idle_gpus=False),
        400,
        3,
        Cluster({"a": 1, "b": 1}),
        priority=priority,
        queue=queue,
    )
    assert got == pytest.approx(shares, abs=0.06)


def test_small_shares_are_served_even_if_every_round_brings_a_change() -> None:
    shares = np.array([[0.8], [0.2]])
    core = make_core(SharesPolicy(lambda _: shares), Cluster({"a": 1}), [1, 1])
    core.arrive([0, 1])
    count = np.zeros(2)
    for k in range(100):
        core.tell(Trigger.TROUBLE)
        decision = core.next(360.0 * k)
        assert decision.recomputed
        count[decision.jobs] += 1
        core.record(decision, np.full(len(decision.jobs), 360.0))
    assert count.tolist() == [80, 20]


def test_a_job_that_had_the_idle_cluster_does_not_starve_when_another_comes() -> None:
    core = make_core(SharesPolicy(lambda state: np.full((state.n_jobs, 1), 0.5)), Cluster({"a": 1}), [1, 1])
    core.arrive([0])
    order: list[int] = []
    for k in range(120):
        if k == 100:
            core.arrive([1])
        decision = core.next(360.0 * k)
        order += decision.jobs.tolist()
        core.record(decision, np.full(len(decision.jobs), 360.0))
    # 50 rounds too many, of which 3 are held against job 0.
    assert order[:100] == [0] * 100
    assert order[100:].count(0) == 8
    assert 0 in order[100:108]


def test_undecided_jobs_block_gpus_only_when_told_to() -> None:
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


def test_waiting_jobs_are_decided_early_when_nothing_runs() -> None:
    core = make_core(SharesPolicy(), Cluster({"a": 1}), [1, 1], recompute_interval_seconds=1920.0, idle_fill="off")
    core.arrive([0])
    core.next(10.0)
    core.complete([0])
    core.arrive([1])
    decision = core.next(370.0)
    assert (decision.jobs.tolist(), decision.recomputed, core.policy_calls) == ([1], True, 2)


def test_a_policy_may_forbid_filling_idle_gpus() -> None:
    for fills, expected in ((True, [0, 1]), (False, [0])):
        policy = SharesPolicy(lambda _: np.array([[1.0], [0.0]]), fills_idle_gpus=fills)
        core = make_core(policy, Cluster({"a": 2}), [1, 1])
        core.arrive([0, 1])
        assert core.next(0.0).jobs.tolist() == expected


def test_types_choose_in_the_order_given() -> None:
    cluster = Cluster({"a": 1, "b": 1, "c": 1})
    assert MechanismSettings().visit_order(cluster.accelerators) == [0, 1, 2]
    assert MechanismSettings(accelerator_order=("c", "zz", "a")).visit_order(cluster.accelerators) == [2, 0, 1]


def test_repeated_rounds_share_their_arrays() -> None:
    core = make_core(SharesPolicy(), Cluster({"a": 2}), [1, 1])
    core.arrive([0, 1])
    first, second, third = (core.next(360.0 * k) for k in range(3))
    assert first.recomputed
    assert not second.recomputed
    assert first.jobs is second.jobs
    assert second is not first
    assert third.gpus == first.gpus
