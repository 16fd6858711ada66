"""What jobs ask of a cluster: by size, by pool and over time; and how the command says it."""

from __future__ import annotations

import numpy as np
import pytest

from throughputs import InputError, ThroughputTable, Trace, describe_trace


def jobs(**columns):
    return Trace(
        ["a", "b", "c", "d"],
        scale_factor=[1, 2, 8, 3],
        total_steps=[1.0] * 4,
        arrival_time=[0.0, 3600.0, 3600.0, 7200.0],
        **{"duration": [3600.0, 7200.0, 3600.0, 1800.0], "partition": ["x", "", "y", "x|y"]} | columns,
    )


def test_by_size():
    assert describe_trace(jobs())["sizes"] == [
        {"gpus": "1", "jobs": 1, "gpu_hours": 1.0},
        {"gpus": "2", "jobs": 1, "gpu_hours": 4.0},
        {"gpus": "3-4", "jobs": 1, "gpu_hours": 1.5},
        {"gpus": "5-8", "jobs": 1, "gpu_hours": 8.0},
    ]


def test_by_pool_with_jobs_that_do_not_fit():
    pools = describe_trace(jobs(), capacity={"x": 2, "y": 4})["pools"]
    figures = [
        tuple(row[name] for name in ("partition", "cluster_gpus", "n_jobs_impossible", "demand")) for row in pools
    ]
    assert figures == [("y", 4, 1, 0.0), ("", None, 0, None), ("x|y", 6, 0, 0.125), ("x", 2, 0, 0.25)]
    found = describe_trace(jobs(), capacity={"x": 2, "y": 4})
    assert (found["demand"], found["least_hours"]) == (6.5 / 6 / 2, 6.5 / 6)  # without the 8 GPU hours of a gang of 8
    # each job fits a type if it may use it: three GPUs are on none of these
    small = describe_trace(jobs(), capacity={"x": 2, "y": 2, "z": 100})
    assert [row["n_jobs_impossible"] for row in small["pools"]] == [1, 0, 1, 0]
    types = describe_trace(jobs(gpu_type=["x", "", "x|y", "x"]))["types"]
    assert [(row["gpu_type"], row["jobs"], row["gpu_hours"]) for row in types] == [
        ("x|y", 1, 8.0), ("", 1, 4.0), ("x", 2, 2.5),
    ]  # fmt: skip


def test_over_time():
    found = describe_trace(
        jobs(recorded_start_seconds=[0, 7200, 3600, 9e3], recorded_end_seconds=[3600, 9e3, 7200, 1e4])
    )
    over_time = found["demand_over_time"]
    assert (over_time["interval_s"], len(over_time["start_s"]), found["n_jobs_recorded"]) == (120.0, 60, 4)
    np.testing.assert_allclose(over_time["gpus_asked"], [1.0] * 30 + [10.0] * 30)
    np.testing.assert_allclose(over_time["gpus_recorded"], [1.0] * 30 + [8.0] * 30)
    assert over_time["most_gpus_recorded"] == 8.0
    # at a time, however short, and not on average
    brief = jobs(recorded_start_seconds=[0, 3600, 3600, 9e3], recorded_end_seconds=[3601, 7200, 7200, 1e4])
    assert describe_trace(brief)["demand_over_time"]["most_gpus_recorded"] == brief.scale_factor[:3].sum()
    assert describe_trace(jobs())["demand_over_time"]["gpus_recorded"] is None
    at_once = describe_trace(Trace(["a"], [1], [1.0], [5.0], duration=[9.0]))
    assert (at_once["demand_over_time"], at_once["arrivals_per_hour"]) == (None, None)
    empty = describe_trace(Trace([], [], [], []))
    assert (empty["n_jobs"], empty["first_arrival_s"], empty["gpu_hours"]) == (0, None, None)


def test_over_time_is_the_sum_over_jobs():
    rng = np.random.default_rng(2)
    n = 200
    trace = Trace(
        ["job"] * n,
        scale_factor=rng.integers(1, 9, n),
        total_steps=[1.0] * n,
        arrival_time=np.sort(rng.random(n)) * 1e5,
        duration=rng.random(n) * 3e4 + 1,
    )
    edges = np.linspace(trace.arrival_time[0], trace.arrival_time[-1], 61)
    first, last = trace.arrival_time[:, None], (trace.arrival_time + trace.duration)[:, None]
    overlap = np.clip(np.minimum(last, edges[1:]) - np.maximum(first, edges[:-1]), 0, None)
    expected = (overlap * trace.scale_factor[:, None]).sum(axis=0) / np.diff(edges)
    np.testing.assert_allclose(describe_trace(trace)["demand_over_time"]["gpus_asked"], expected, rtol=1e-9)


def test_parts_of_a_gpu_count_alike_in_every_figure():
    """A job of 4 GPUs and one of a quarter, an hour each, one after the other."""
    trace = Trace(
        ["a", "b", "c"], [4, 1, 1], [1.0] * 3, [0.0, 3600.0, 7200.0], duration=[3600.0, 3600.0, 1.0],
        gpu_fraction=[1.0, 0.25, 1.0], partition=["x", "y", "x"], recorded_start_seconds=[0.0, 3600.0, np.nan],
        recorded_end_seconds=[3600.0, 7200.0, np.nan],
    )  # fmt: skip
    found = describe_trace(trace, capacity={"x": 4, "y": 1})
    last = 1 / 3600
    assert found["gpu_hours"] == pytest.approx(4.25 + last)
    assert found["least_hours"] == pytest.approx((4.25 + last) / 5)
    assert [row["gpu_hours"] for row in found["sizes"]] == pytest.approx([0.25, last, 4.0])
    assert [row["gpu_hours"] for row in found["pools"]] == pytest.approx([4 + last, 0.25])
    over_time = found["demand_over_time"]
    for counted in ("gpus_asked", "gpus_recorded"):
        np.testing.assert_allclose(over_time[counted], [4.0] * 30 + [0.25] * 30)
    assert found["gpu_hours_sharing"] == 1.0


def test_description_in_figures():
    trace = Trace(
        ["ResNet-50 (batch size 128)", "A3C", "A3C"],
        [2, 1, 1],
        [100.0, 72.0, 144.0],
        [0.0, 1800.0, 7200.0],
        priority_weight=[5, 1, 1],
        slo=[2, np.nan, np.nan],
    )
    table = ThroughputTable(
        [("ResNet-50 (batch size 128)", 2), ("A3C", 1)], ["v100", "k80"], [[0.01, 0.0], [0.02, 0.01]]
    )
    on_v100 = describe_trace(trace, table)
    expected = {
        "n_jobs": 3, "arrivals_per_hour": 1.0, "job_types": {"A3C": 2, "ResNet-50 (batch size 128)": 1},
        "scale_factors": {1: 2, 2: 1}, "priority_weights": {1.0: 2, 5.0: 1}, "n_jobs_with_slo": 1,
    }  # fmt: skip
    assert on_v100.items() >= expected.items()
    assert on_v100["gpu_hours"] == pytest.approx((2 * 10000 + 3600 + 7200) / 3600)
    assert on_v100["duration_quantiles_s"][0.5] == 7200
    on_k80 = describe_trace(trace, table, "k80")
    assert (on_k80["n_jobs_not_runnable"], on_k80["gpu_hours"]) == (1, pytest.approx(6.0))
    assert describe_trace(trace)["gpu_hours"] is None


def jobs_of_two(**columns):
    return Trace(["a", "b", "a"], [1, 2, 1], [10.0, 20.0, 30.0], [0.0, 5.0, 7.0], **columns)


def test_deadlines_in_figures():
    soft = (((100.0, 10.0), (200.0, 8.0), (300.0, 2.0)), (), ((50.0, 3.0),))
    table = ThroughputTable([("a", 1)], ["a100"], [[2.0]])
    made = jobs_of_two(deadline=[20.0, np.nan, np.nan], deadline_options=[(), *soft[1:]], duration=[7.0, 8.0, 9.0])
    found = describe_trace(made)
    assert found["n_jobs_with_deadline"] == 2
    assert [found["deadline_over_duration_quantiles"][q] for q in (0.0, 1.0)] == pytest.approx([20 / 7, 43 / 9])
    found = describe_trace(made, table)
    # b is not in the table: its duration is that of the trace
    assert (found["n_jobs_not_profiled"], found["duration_quantiles_s"][0.0]) == (1, 5.0)
    assert found["deadline_over_duration_quantiles"][0.0] == pytest.approx(43 / 15)
    with pytest.raises(InputError, match="'b'"):
        describe_trace(jobs_of_two(), table)
