"""Worked examples by hand, and properties that hold for every run."""

from __future__ import annotations

import numpy as np

from allocator import recorded_schedule
from allocator.cluster import Cluster
from allocator.simulator import simulate
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import Trace

ONE_GPU = Cluster({"v100": 1})


def test_isolated_seconds_grow_by_progress_at_the_isolated_rate():
    policy = SharesPolicy()
    trace = make_trace([7200, 7200], arrivals=[0.0, 700.0])
    simulate(trace, Cluster({"v100": 2}), policy, [[1.0], [1.0]])
    second, third = policy.states[1], policy.states[2]
    # Alone until 720 s, at the isolated rate 1: 720 steps, 720 s.
    assert second.clock == 720.0
    assert second.isolated_seconds.tolist() == [720.0, 0.0]
    assert second.steps_remaining.tolist() == [6480.0, 7200.0]
    assert second.elapsed_seconds.tolist() == [720.0, 20.0]
    # Two jobs on two GPUs: each has one GPU of its own, still rate 1.
    assert third.clock == 7200.0
    assert third.throughputs.jobs == (1,)
    assert third.isolated_seconds.tolist() == [6480.0]


def test_a_policy_without_preemption_sees_what_it_gave():
    policy = SharesPolicy(lambda state: np.eye(2)[[1] * state.n_jobs], preemptive=False)
    simulate(make_trace([3600, 100]), Cluster({"a": 2, "b": 2}), policy, np.ones((2, 2)))
    assert [state.current_accelerator.tolist() for state in policy.states] == [[-1, -1], [1]]


def test_observers_and_progress_see_the_run():
    class Watcher:
        def __init__(self):
            self.seen = []

        def decided(self, index, clock, allocation):
            self.seen.append((index, clock, allocation.policy))

        def round_ended(self, outcome):
            self.seen.append((outcome.index, outcome.end_time))

    watcher, calls = Watcher(), []
    trace = make_trace([720])
    simulate(trace, ONE_GPU, SharesPolicy(), [[1.0]], observers=[watcher], progress=lambda *args: calls.append(args))
    assert watcher.seen == [(0, 0.0, "shares"), (0, 360.0), (1, 720.0)]
    assert calls == [(720.0, 1, 1)]


def test_a_recorded_lease_of_no_time_is_part_of_the_schedule():
    """Nobody runs up to 5 s, when a job begins and ends; the other has its GPU from 20 s to 30 s."""
    begins, ends = [5.0, 20.0], [5.0, 30.0]
    times = {"recorded_start_seconds": begins, "recorded_end_seconds": ends}
    trace = Trace(["job"] * 2, [1, 1], [10.0, 10.0], [0.0, 0.0], duration=[10.0, 10.0], **times)
    result = recorded_schedule(trace, ONE_GPU)
    assert result.rounds["job_id"].tolist() == [0, 1]
    assert result.timeline["end_time"].tolist() == ends
