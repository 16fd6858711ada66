"""Policies that decide at events, on examples worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.protocol import ClusterState, Plan
from allocator.simulator import SimulationResult, SimulationStalledError, preset, simulate
from tests.simulator.event_policies import (
    AtArrivalsAndTrouble,
    AtArrivalsOnly,
    EveryThirtySeconds,
    OrderPolicy,
    Pairing,
    Selective,
    Timetable,
    in_turn,
)
from tests.simulator.worlds import make_trace
from throughputs import PackedColumns
from throughputs.prices import PriceTable

ONE_GPU, TWO_GPUS = Cluster({"v100": 1}), Cluster({"v100": 2})


def leases(result: SimulationResult) -> list[tuple[int, float, float, float]]:
    """(job, start, end, steps) of each lease, in the order in which they ended."""
    rows = result.rounds
    return list(zip(rows["job_id"], rows["start_time"], rows["end_time"], rows["steps"], strict=True))


def stretches(result: SimulationResult) -> list[tuple[float, float, int, int, int]]:
    """(start, end, active, running, busy GPUs) of each stretch."""
    t = result.timeline
    columns = ("start_time", "end_time", "active_jobs", "running_jobs", "busy_gpus")
    return list(zip(*(t[c] for c in columns), strict=True))


def run(policy: OrderPolicy, steps: list[float], **changes: Any) -> SimulationResult:
    """Jobs of one GPU at 1 step/s, on one GPU unless `cluster` says otherwise."""
    sizes, arrivals = changes.pop("sizes", None), changes.pop("arrivals", None)
    cluster, rates = changes.pop("cluster", ONE_GPU), changes.pop("rates", None)
    rates = np.ones((len(steps), len(cluster.accelerators))) if rates is None else rates
    options = {key: changes.pop(key) for key in ("prices",) if key in changes}
    chosen = preset("default").replace(**changes)
    return simulate(make_trace(steps, sizes, arrivals), cluster, policy, rates, preset=chosen, **options)


def test_a_shorter_job_takes_over_when_it_arrives_and_the_longer_one_goes_on_when_it_is_through() -> None:
    policy = OrderPolicy()
    result = run(policy, [100.0, 30.0], arrivals=[0.0, 20.0])
    assert leases(result) == [(0, 0.0, 20.0, 20.0), (1, 20.0, 50.0, 30.0), (0, 50.0, 130.0, 80.0)]
    assert result.jobs["completion_time"].tolist() == [130.0, 50.0]
    assert result.jobs["preemptions"].tolist() == [1, 0]
    assert result.jobs["rounds_run"].tolist() == [2, 1]
    assert result.jobs["gpu_seconds"].tolist() == [100.0, 30.0]
    assert stretches(result) == [(0.0, 20.0, 1, 1, 1), (20.0, 50.0, 2, 1, 1), (50.0, 130.0, 1, 1, 1)]
    # Asked at arrivals and completions; of the last completion there is nobody left to ask about.
    assert policy.asked == [0.0, 20.0, 50.0]
    summary = result.summary()
    assert (summary["makespan"], summary["utilization"], summary["migrations"]) == (130.0, 1.0, 0)


def test_a_job_that_runs_on_has_one_lease_however_often_the_policy_is_asked() -> None:
    result = run(OrderPolicy(), [500.0, 30.0, 40.0], cluster=TWO_GPUS, arrivals=[0.0, 100.0, 200.0])
    assert leases(result) == [(1, 100.0, 130.0, 30.0), (2, 200.0, 240.0, 40.0), (0, 0.0, 500.0, 500.0)]
    assert result.jobs["preemptions"].tolist() == [0, 0, 0]
    assert result.rounds["gpus"].tolist() == ["1", "1", "0"]
    assert [row[1:] for row in stretches(result)] == [
        (100.0, 1, 1, 1), (130.0, 2, 2, 2), (200.0, 1, 1, 1), (240.0, 2, 2, 2), (500.0, 1, 1, 1),
    ]  # fmt: skip


def test_the_cluster_waits_for_the_next_job() -> None:
    result = run(OrderPolicy(), [10.0, 10.0], arrivals=[5.0, 100.0])
    assert leases(result) == [(0, 5.0, 15.0, 10.0), (1, 100.0, 110.0, 10.0)]
    assert result.summary()["utilization"] == pytest.approx(20 / 110)


def test_a_move_to_another_pool_is_a_migration() -> None:
    """Job 0 has the fast GPU until job 1, which is shorter, takes it; the slow one is what is left."""
    cluster, rates = Cluster({"slow": 1, "fast": 1}), [[1.0, 2.0], [1.0, 2.0]]
    result = run(OrderPolicy(), [200.0, 40.0], cluster=cluster, rates=rates, arrivals=[0.0, 50.0])
    # 100 steps by 50 s; 20 more by 70 s on the slow one; the other 80 at 2 steps/s until 110 s.
    assert leases(result) == [
        (0, 0.0, 50.0, 100.0), (1, 50.0, 70.0, 40.0), (0, 50.0, 70.0, 20.0), (0, 70.0, 110.0, 80.0),
    ]  # fmt: skip
    assert result.rounds["accelerator"].tolist() == ["fast", "fast", "slow", "fast"]
    assert result.jobs["preemptions"].tolist() == [2, 0]
    assert result.summary()["migrations"] == 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # 15 of 100 steps by 20 s; job 1 from 25 to 55 s; 85 steps from 60 s on.
        ({"restart_penalty_seconds": 5.0}, [145.0, 55.0]),
        # A gang costs what the largest number that it reaches costs.
        ({"restart_penalty_by_gpus": ((1, 2.0), (2, 7.0), (4, 90.0))}, [151.0, 57.0]),
        ({"restart_penalty_seconds": 5.0, "restart_penalty_by_job_type": (("job", 1.0),)}, [133.0, 51.0]),
        # Nothing is done before the next job takes over.
        ({"restart_penalty_seconds": 25.0}, [200.0, 75.0]),
    ],
)
def test_starts_cost_time(changes: dict[str, Any], expected: list[float]) -> None:
    result = run(OrderPolicy(), [100.0, 30.0], sizes=[2, 2], cluster=TWO_GPUS, arrivals=[0.0, 20.0], **changes)
    assert result.jobs["completion_time"].tolist() == expected
    # GPUs are busy while a gang starts.
    assert result.jobs["gpu_seconds"].sum() == 2 * expected[0]


@pytest.mark.parametrize(("moves", "expected"), [(False, [117.5, 75.0]), (True, [125.0, 75.0])])
def test_moves_cost_time_on_request(moves: bool, expected: list[float]) -> None:
    cluster, rates = Cluster({"slow": 1, "fast": 1}), [[1.0, 2.0], [1.0, 2.0]]
    result = run(
        OrderPolicy(), [200.0, 40.0], cluster=cluster, rates=rates, arrivals=[0.0, 50.0],
        restart_penalty_seconds=5.0, restart_when_moved=moves,
    )  # fmt: skip
    # 90 steps by 50 s; job 1 from 55 to 75 s. Job 0 does 25 (20) on the slow GPU, and 85 (90) from 75 (80) s on.
    assert result.jobs["completion_time"].tolist() == expected


def test_a_job_that_runs_on_through_a_decision_does_not_start_again() -> None:
    result = run(OrderPolicy(), [50.0, 10.0], cluster=TWO_GPUS, arrivals=[0.0, 3.0], restart_penalty_seconds=5.0)
    # Also not when the decision falls into its start.
    assert result.jobs["completion_time"].tolist() == [55.0, 18.0]


def test_rejected_jobs_leave_and_are_told() -> None:
    result = run(Selective(most_seconds=60.0), [50.0, 100.0, 60.0], arrivals=[0.0, 10.0, 20.0])
    assert result.jobs["status"].tolist() == ["completed", "rejected", "completed"]
    assert leases(result) == [(0, 0.0, 50.0, 50.0), (2, 50.0, 110.0, 60.0)]
    assert np.isnan(result.jobs["completion_time"][1])
    assert np.isnan(result.jobs["start_time"][1])
    assert result.summary()["rejected_jobs"] == 1
    assert result.summary()["unfinished_jobs"] == 0


def test_the_gpus_of_a_running_job_that_is_rejected_are_free_at_once() -> None:
    policy = Selective(most_elapsed=30.0)
    policy.period_seconds = 30.0  # type: ignore[misc]
    result = run(policy, [100.0, 10.0], arrivals=[0.0, 500.0])
    assert result.jobs["status"].tolist() == ["rejected", "completed"]
    assert leases(result) == [(0, 0.0, 30.0, 30.0), (1, 500.0, 510.0, 10.0)]
    assert result.jobs["gpu_seconds"].tolist() == [30.0, 10.0]
    # Also at the end of the run, and while another one waits.
    result = run(policy, [100.0])
    assert leases(result) == [(0, 0.0, 30.0, 30.0)]
    policy.most_elapsed = 40.0
    result = run(policy, [100.0, 15.0], arrivals=[0.0, 20.0])
    assert leases(result) == [(0, 0.0, 50.0, 50.0), (1, 50.0, 65.0, 15.0)]


def test_two_jobs_share_a_gpu_until_one_is_through() -> None:
    columns = PackedColumns([0, 0], [[1.0]], [[[0.5]]], accelerators=["v100"])
    result = simulate(make_trace([100.0, 50.0]), ONE_GPU, Pairing(), columns)
    assert result.jobs["completion_time"].tolist() == [150.0, 100.0]
    # Of leases that end together, those of jobs that are through come first.
    assert leases(result) == [(1, 0.0, 100.0, 50.0), (0, 0.0, 100.0, 50.0), (0, 100.0, 150.0, 50.0)]
    assert result.rounds["partner"].tolist()[:2] == [0, 1]
    assert result.rounds["partner"].isna().tolist() == [False, False, True]
    assert result.rounds["gpus"].tolist() == ["0", "0", "0"]
    # Of GPUs that two share, each is put down for half; who goes on alone on them was not preempted.
    assert result.jobs["gpu_seconds"].tolist() == [100.0, 50.0]
    assert result.jobs["preemptions"].tolist() == [0, 0]
    assert [row[3:] for row in stretches(result)] == [(2, 1), (1, 1)]
    assert result.summary()["utilization"] == 1.0


def test_another_partner_is_another_lease() -> None:
    columns = PackedColumns([0, 0, 0], [[1.0]], [[[0.5]]], accelerators=["v100"])
    result = simulate(make_trace([100.0, 25.0, 25.0]), ONE_GPU, Pairing(), columns)
    # Job 2 takes the place of job 1 at 50 s, and job 0 has 50 of its steps left at 100 s.
    assert result.jobs["completion_time"].tolist() == [150.0, 50.0, 100.0]
    mine = result.rounds[result.rounds["job_id"] == 0]
    assert mine["start_time"].tolist() == [0.0, 50.0, 100.0]
    assert mine["partner"].tolist()[:2] == [1, 2]


def test_a_policy_may_ask_to_be_asked_regularly() -> None:
    policy = EveryThirtySeconds()
    result = run(policy, [100.0, 10.0], arrivals=[0.0, 45.0])
    assert policy.asked == [0.0, 30.0, 45.0, 75.0, 105.0]
    # Nobody is told of the completion at 55 s; the GPU idles until the next call.
    assert leases(result) == [(0, 0.0, 45.0, 45.0), (1, 45.0, 55.0, 10.0), (0, 75.0, 130.0, 55.0)]


def test_steps_of_a_plan_follow_each_other_and_arrivals_end_them() -> None:
    policy = Timetable([(0, 10.0), (1, 20.0), (0, 15.0), (1, np.inf)])
    result = run(policy, [30.0, 40.0])
    # The last step lasts for want of another; then nobody would run, and that is told.
    assert policy.asked == [0.0, 65.0]
    assert leases(result) == [
        (0, 0.0, 10.0, 10.0), (1, 10.0, 30.0, 20.0), (0, 30.0, 45.0, 15.0), (1, 45.0, 65.0, 20.0), (0, 65.0, 70.0, 5.0),
    ]  # fmt: skip
    late = Timetable([(0, 10.0), (1, 20.0), (0, np.inf)])
    result = run(late, [30.0, 15.0], arrivals=[0.0, 4.0])
    assert late.asked == [0.0, 4.0]
    assert leases(result) == [(0, 0.0, 14.0, 14.0), (1, 14.0, 29.0, 15.0), (0, 34.0, 50.0, 16.0)]


def test_a_policy_that_does_not_want_to_hear_of_completions_leaves_gpus_idle() -> None:
    policy = AtArrivalsOnly(in_turn)
    steps, arrivals = [100.0, 10.0, 10.0, 500.0], [0.0, 0.0, 0.0, 40.0]
    with pytest.raises(SimulationStalledError, match=r"1 active jobs: 3"):
        run(policy, steps, cluster=TWO_GPUS, arrivals=arrivals)
    assert policy.asked == [0.0, 40.0]
    policy = AtArrivalsAndTrouble(in_turn)
    result = run(policy, steps, cluster=TWO_GPUS, arrivals=arrivals)
    assert policy.asked == [0.0, 40.0, 100.0]
    assert result.jobs["completion_time"].tolist() == [100.0, 10.0, 50.0, 600.0]


def test_a_long_start_is_no_stall_however_often_the_world_looks() -> None:
    """Looks every 2 s at a start of 600 s: three times as many as a standstill may have."""
    policy = Timetable([(0, 2.0)])
    result = run(policy, [30.0], restart_penalty_seconds=600.0)
    assert len(policy.asked) == 315
    assert result.jobs["completion_time"].tolist() == [630.0]


def test_a_policy_that_lets_nobody_get_going_is_stalled() -> None:
    """Each job starts for 20 s and has 10: the looks between its beginnings are no progress."""
    turns = [(0, 5.0), (0, 5.0), (1, 5.0), (1, 5.0)]
    with pytest.raises(SimulationStalledError, match=r"in 100 rounds up to 990 s; 2 active jobs: 0, 1"):
        run(Timetable(turns), [30.0, 30.0], restart_penalty_seconds=20.0)


def test_a_plan_of_finite_steps_is_renewed_at_its_end() -> None:
    policy = Timetable([(0, 10.0), (1, 20.0)])
    result = run(policy, [30.0, 40.0])
    # Job 1 is through in its second turn, and job 0 goes on alone.
    assert policy.asked == [0.0, 30.0, 60.0]
    assert leases(result) == [
        (0, 0.0, 10.0, 10.0), (1, 10.0, 30.0, 20.0), (0, 30.0, 40.0, 10.0), (1, 40.0, 60.0, 20.0),
        (0, 60.0, 70.0, 10.0),
    ]  # fmt: skip


def test_the_policy_sees_who_runs() -> None:
    seen = []

    class Looks(OrderPolicy):
        def decide(self, state: ClusterState) -> Plan:
            running = state.running
            ids = [state.throughputs.jobs[i] for i in running.jobs]
            seen.append((ids, running.pool.tolist(), running.gpus.tolist()))
            return super().decide(state)

    cluster, rates = Cluster({"slow": 1, "fast": 2}), [[1.0, 2.0], [1.0, 2.0]]
    run(Looks(), [200.0, 40.0], sizes=[1, 2], cluster=cluster, rates=rates, arrivals=[0.0, 50.0])
    # Who is through does not run any more.
    assert seen == [([], [], []), ([0], [1], [1]), ([0], [0], [1])]


def test_costs_follow_the_prices_of_the_moment() -> None:
    prices = PriceTable({"v100": ([0.0, 20.0, 100.0], [3.6, 36.0, 360.0])})
    result = run(OrderPolicy(), [100.0, 30.0], arrivals=[0.0, 20.0], prices=prices)
    # Job 0: 20 s, then 50 s from 50 s on, then 30 s; job 1: 30 s.
    assert result.jobs["cost"].tolist() == pytest.approx([0.02 + 0.5 + 3.0, 0.3])


def test_policies_see_what_the_last_decision_cost() -> None:
    """Starts take 30 s. The short job ends in between, and nobody is asked: what the long one lost stays."""
    lost = []

    class Looking(AtArrivalsOnly):
        def decide(self, state: ClusterState) -> Plan:
            lost.append((state.clock, state.lost_seconds.tolist()))
            return super().decide(state)

    trace = make_trace([200, 10, 10], arrivals=[0, 0, 60])
    settings = preset("default").replace(restart_penalty_seconds=30.0)
    simulate(trace, TWO_GPUS, Looking(in_turn), np.ones((3, 1)), preset=settings)
    assert lost == [(0.0, [0.0, 0.0]), (60.0, [30.0, 0.0])]
