"""The schedule that a trace records, beside runs of policies."""

from __future__ import annotations

import json

import numpy as np
import pytest

from allocator import Cluster, InputError, Trace, get_policy, recorded_schedule, simulate
from allocator.presets import preset as find_preset


def trace_of(**changes):
    columns = {
        "job_type": ["a", "b", "c", "d"],
        "scale_factor": [2, 1, 2, 9],
        "total_steps": [100.0, 50.0, 40.0, 10.0],
        "arrival_time": [0.0, 10.0, 20.0, 30.0],
        "duration": [100.0, 50.0, 40.0, 10.0],
        "user": ["ann", "bob", "ann", "eve"],
        "recorded_start_seconds": [0.0, 100.0, 150.0, 30.0],
        "recorded_end_seconds": [100.0, 150.0, 200.0, 40.0],
    }
    return Trace(**columns | changes)


def test_figures_are_those_of_the_log():
    result = recorded_schedule(trace_of(), "gpu:2", preset="default")
    summary, jobs = result.summary(), result.jobs
    assert jobs["start_time"].tolist()[:3] == [0.0, 100.0, 150.0]
    assert jobs["jct"].tolist()[:3] == [100.0, 140.0, 180.0]
    assert jobs["queueing_time"].tolist()[:3] == [0.0, 90.0, 130.0]
    assert jobs["status"].tolist() == ["completed"] * 3 + ["unserved"]  # nine GPUs are more than there are
    assert (summary.average_jct, summary.makespan, summary.completed_jobs) == (140.0, 200.0, 3)
    assert summary.utilization == pytest.approx((200 + 50 + 100) / 400)
    assert jobs["gpu_seconds"].tolist() == [200.0, 50.0, 100.0, 0.0]
    assert summary.by_user is not None
    queue = result.timeline
    assert queue["queued_jobs"].max() == 2
    for name in ("preemptions", "migrations", "restart_gpu_hours", "policy_seconds", "lease_extension_rate"):
        assert getattr(summary, name) is None, name
    assert "preemptions" not in str(summary)
    json.dumps(dict(summary), allow_nan=False)


def test_a_run_written_down_as_a_log_is_that_run():
    rng = np.random.default_rng(3)
    n = 60
    lasting = rng.integers(10, 500, n).astype(np.float64)
    columns = {
        "job_type": ["job"] * n,
        "scale_factor": rng.choice([1, 2, 4], n),
        "total_steps": lasting,
        "arrival_time": np.sort(rng.integers(0, 3000, n)).astype(np.float64),
        "duration": lasting,
    }
    cluster, free = Cluster.parse("gpu:8"), {"restart_penalty_seconds": 0.0}
    preset = find_preset("default").replace(**free)
    simulated = simulate(Trace(**columns), cluster, get_policy("fifo"), [[1.0]] * n, preset=preset)
    jobs = simulated.jobs
    told = Trace(
        **columns,
        recorded_start_seconds=jobs["start_time"].to_numpy(),
        recorded_end_seconds=jobs["completion_time"].to_numpy(),
    )
    again = recorded_schedule(told, cluster, [[1.0]] * n)
    assert again.jobs["jct"].tolist() == jobs["jct"].tolist()
    assert again.jobs["rho"].tolist() == jobs["rho"].tolist()
    assert again.makespan == simulated.makespan
    assert again.summary().average_rho == simulated.summary().average_rho


def test_of_several_types_the_partition_says_where_a_job_ran():
    with pytest.raises(InputError, match=r"found .*no partition 3\).*is one of a100, v100"):
        recorded_schedule(trace_of(), "a100:2,v100:2", preset=by_duration())
    placed = trace_of(partition=["a100", "v100", "a100", "a100"])
    result = recorded_schedule(placed, "a100:2,v100:2", preset=by_duration(), prices={"a100": 36.0, "v100": 3.6})
    assert result.rounds["accelerator"].tolist() == ["a100", "v100", "a100"]
    assert result.summary().cost == pytest.approx(0.01 * 300 + 0.001 * 50)
    typed = trace_of(partition=["gpu"] * 4, gpu_type=["a100", "v100", "a100", "a100"])
    again = recorded_schedule(typed, "a100:2,v100:2", preset=by_duration())
    assert again.rounds["accelerator"].tolist() == ["a100", "v100", "a100"]
    assert (again.status_detail, again.jobs["gpu_type"].tolist()) == ("", typed.gpu_type.tolist())
    with pytest.raises(InputError, match="found 'no recorded schedule'"):
        recorded_schedule(placed.at_load(2.0), "a100:2,v100:2", preset=by_duration())


def by_duration():
    return find_preset("default").replace(gang_rates="duration")
