"""Figures of runs of two or three jobs, in rounds of 100 s with free restarts, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Assignment, Cluster, Plan, PlanPolicy, get_policy, simulate
from allocator.presets import preset
from allocator.results.fairness import pairwise_envy
from allocator.results.measures.cost import average_prices
from tests.explanations.worlds import run_of, trace_of
from throughputs import Configurations, Trace

NAN = np.nan


def test_turns() -> None:
    """Two jobs of 300 s on one GPU, and one that fits nowhere."""
    result = run_of(trace_of([300, 300, 300], [1, 1, 9]), "v100:1", "max_min_fairness_perf")
    jobs, summary = result.jobs, result.summary()
    assert jobs["start_time"].tolist()[:2] == [0.0, 100.0]
    assert jobs["preemptions"].tolist() == [2, 2, 0]
    assert summary.restarts_per_job == 2.0
    assert summary.migrations == 0


def test_one_after_the_other() -> None:
    """Where starts take 30 s, they do so on all GPUs; ten thousand rounds that are taken at once are as many."""
    waits = run_of(trace_of([1000, 100], [1, 1]), "v100:1", "fcfs").summary()
    assert waits.average_queue == pytest.approx(1000 / 1100)
    assert run_of(trace_of([1e6], [1]), "v100:1", "fifo").record.rounds_present().tolist() == [10_000]
    dear = run_of(trace_of([100, 100], [2, 1]), "v100:2", "fifo", restart_penalty_seconds=30)
    assert dear.summary().restart_gpu_hours == pytest.approx((2 + 1) * 30 / 3600)


def test_envy_is_the_mean_difference_of_two() -> None:
    assert pairwise_envy(np.array([0.5, 1.0, 0.0])) == pytest.approx((2 / 3, 1.0))


def test_isolated_shares_follow_the_jobs_that_are_there() -> None:
    """Two gangs of four on four GPUs: half of them until the first is through at 100 s, all from then on."""
    jobs = run_of(trace_of([100, 100], [4, 4]), "v100:4", "fifo").jobs
    assert jobs["rho"].tolist() == pytest.approx([100 / 150, 200 / 150])


def test_what_was_promised_ends_with_the_job() -> None:
    """The first is through in the midst of the second round, before shares are decided anew."""
    jobs = run_of(trace_of([150, 300], [1, 1]), "v100:2", "max_min_fairness_perf").jobs
    assert jobs["promised_time"].tolist() == pytest.approx([150.0, 300.0])


class Rejects(PlanPolicy):
    """Runs the first job and turns the others away."""

    name = "rejects"

    def plan(self, state, memory):  # noqa: ARG002
        return Plan.until_next_event(Assignment.of([0], [0], [1]), np.arange(1, state.n_jobs))


def test_deadlines() -> None:
    """One is met to the second; of two that are turned away one had a deadline."""
    summary = run_of(trace_of([100, 100, 100], [1, 1, 1], deadline=[100.0, 500.0, NAN]), "v100:1", Rejects()).summary()
    assert (summary.met, summary.late, summary.rejected, summary.admitted) == (1, 0, 1, 1)
    assert summary.deadline_ratio == 1 / 2


def test_efficiency_is_over_the_throughput_on_one_gpu() -> None:
    """A job that is alone has both GPUs, on which it is 1.5 times as fast as on one."""
    ways = Configurations([0, 0], [0, 0], [1, 2], [1.0, 1.5], jobs=[0], pools=["a100"])
    trace = Trace(["job"], [1], [300.0], [0.0], duration=[300.0], deadline=[900.0])
    free = preset("default").replace(restart_penalty_seconds=0.0)
    result = simulate(trace, Cluster({"a100": 2}), get_policy("elasticflow"), ways, preset=free)
    assert result.makespan == pytest.approx(200.0)
    assert result.summary().cluster_efficiency == pytest.approx(1.5 / 2)


def test_shares_of_entities_are_of_the_jobs_that_are_measured() -> None:
    trace = trace_of([100, 200, 500], [1, 1, 1], entity=["a", "b", "b"])
    policy = get_policy("fifo_perf")
    result = simulate(trace, "v100:1", policy, np.ones((3, 1)), entities={"a": 1, "b": 1}, window=(1, 3))
    rows = result.summary()["by_entity"]
    for share in ("gpu_share", "throughput_share"):
        assert sum(row[share] for row in rows) == pytest.approx(1.0)


def test_prices_hold_from_their_decision_on() -> None:
    """Rounds one by one, each with the prices of the last decision up to its beginning."""
    trace = trace_of([300, 300, 500, 200], [1, 1, 1, 1], [0, 0, 100, 300])
    result = run_of(trace, "v100:1", "max_sum_throughput_perf", np.array([[2.0], [2.0], [3.0], [7.0]]))
    total = seconds = 0.0
    for row in result.timeline.itertuples():
        price = [a.prices[0] for _, clock, a in result.decisions if clock <= row.start_time][-1]
        total, seconds = total + price * (row.end_time - row.start_time), seconds + row.end_time - row.start_time
    found = average_prices(result.decisions, result.timeline)
    assert found["average_prices"]["v100"] == pytest.approx(total / seconds)
    assert len({a.prices[0] for _, _, a in result.decisions}) > 1
