"""What jobs ask of a cluster: by size, by pool and over time; and how the command says it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from allocator.cli.app import app
from throughputs import InputError, ThroughputTable, Trace, default_table, describe_trace, gavel_trace


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
    assert [row["partition"] for row in pools] == ["y", "", "x|y", "x"]
    assert {row["partition"]: row["cluster_gpus"] for row in pools} == {"y": 4, "": None, "x|y": 6, "x": 2}
    assert {row["partition"]: row["n_jobs_impossible"] for row in pools} == {"y": 1, "": 0, "x|y": 0, "x": 0}
    assert {row["partition"]: row["demand"] for row in pools} == {"y": 1.0, "": None, "x|y": 0.125, "x": 0.25}
    assert describe_trace(jobs(), capacity={"x": 2, "y": 4})["n_jobs_impossible"] == 1
    # each job fits a type if it may use it: three GPUs are on none of these
    small = describe_trace(jobs(), capacity={"x": 2, "y": 2, "z": 100})
    assert {row["partition"]: row["n_jobs_impossible"] for row in small["pools"]} == {"y": 1, "": 0, "x|y": 1, "x": 0}
    assert "cluster_gpus" not in describe_trace(jobs())["pools"][0]


def test_by_type_of_gpu():
    types = describe_trace(jobs(gpu_type=["x", "", "x|y", "x"]))["types"]
    hours = describe_trace(jobs())["gpu_hours"]
    assert {row["gpu_type"]: row["jobs"] for row in types} == {"x": 2, "": 1, "x|y": 1}
    assert sum(row["gpu_hours"] for row in types) == pytest.approx(hours)
    assert [row["gpu_hours"] for row in types] == sorted((row["gpu_hours"] for row in types), reverse=True)
    assert describe_trace(jobs())["types"] == []


def test_over_time():
    found = describe_trace(
        jobs(recorded_start_seconds=[0, 7200, 3600, 9e3], recorded_end_seconds=[3600, 9e3, 7200, 1e4])
    )
    over_time = found["demand_over_time"]
    assert over_time["interval_s"] == 120.0
    assert len(over_time["start_s"]) == 60
    np.testing.assert_allclose(over_time["gpus_asked"], [1.0] * 30 + [10.0] * 30)
    np.testing.assert_allclose(over_time["gpus_recorded"], [1.0] * 30 + [8.0] * 30)
    assert found["n_jobs_recorded"] == 4
    assert describe_trace(jobs())["demand_over_time"]["gpus_recorded"] is None
    at_once = describe_trace(Trace(["a"], [1], [1.0], [5.0], duration=[9.0]))
    assert at_once["demand_over_time"] is None
    assert describe_trace(jobs(duration=None))["demand_over_time"] is None


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
    assert [(row["gpus"], row["jobs"], row["gpu_hours"]) for row in found["sizes"]] == [
        ("less than 1", 1, 0.25),
        ("1", 1, pytest.approx(last)),
        ("3-4", 1, 4.0),
    ]
    assert {row["partition"]: row["gpu_hours"] for row in found["pools"]} == {"x": pytest.approx(4 + last), "y": 0.25}
    over_time = found["demand_over_time"]
    for counted in ("gpus_asked", "gpus_recorded"):
        np.testing.assert_allclose(over_time[counted], [4.0] * 30 + [0.25] * 30)
    assert found["gpu_hours_sharing"] == 1.0
    assert describe_trace(trace.with_whole_gpus())["gpu_hours"] == pytest.approx(5 + last)


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
    assert on_v100["n_jobs"] == 3
    assert on_v100["arrivals_per_hour"] == 1.0
    assert on_v100["job_types"] == {"A3C": 2, "ResNet-50 (batch size 128)": 1}
    assert on_v100["scale_factors"] == {1: 2, 2: 1}
    assert on_v100["priority_weights"] == {1.0: 2, 5.0: 1}
    assert on_v100["n_jobs_with_slo"] == 1
    assert on_v100["gpu_hours"] == pytest.approx((2 * 10000 + 3600 + 7200) / 3600)
    assert on_v100["duration_quantiles_s"][0.5] == 7200
    on_k80 = describe_trace(trace, table, "k80")
    assert on_k80["n_jobs_not_runnable"] == 1
    assert on_k80["gpu_hours"] == pytest.approx(6.0)
    bare = describe_trace(trace)
    assert (bare["gpu_hours"], bare["duration_quantiles_s"]) == (None, None)
    json.dumps(on_v100)


def test_description_of_nothing_and_of_all_at_once():
    empty = describe_trace(Trace([], [], [], []), default_table())
    assert (empty["n_jobs"], empty["first_arrival_s"], empty["gpu_hours"]) == (0, None, None)
    at_once = describe_trace(gavel_trace(5, 0.0))
    assert at_once["arrivals_per_hour"] is None
    assert at_once["gpu_hours"] == pytest.approx(gavel_trace(5, 0.0).duration.sum() / 3600)


def jobs_of_two(**columns):
    return Trace(["a", "b", "a"], [1, 2, 1], [10.0, 20.0, 30.0], [0.0, 5.0, 7.0], **columns)


def test_deadlines_in_figures():
    soft = (((100.0, 10.0), (200.0, 8.0), (300.0, 2.0)), (), ((50.0, 3.0),))
    table = ThroughputTable([("a", 1)], ["a100"], [[2.0]])
    made = jobs_of_two(deadline=[20.0, np.nan, np.nan], deadline_options=[(), *soft[1:]], duration=[7.0, 8.0, 9.0])
    found = describe_trace(made)
    assert (found["n_jobs_with_deadline"], found["n_jobs_with_deadline_options"], found["n_jobs_not_profiled"]) == (
        2,
        0,
        0,
    )
    assert found["deadline_quantiles"][0.0] == pytest.approx(20 / 7)
    assert found["deadline_quantiles"][1.0] == pytest.approx(43 / 9)
    found = describe_trace(made, table)
    # b is not in the table: its duration is that of the trace
    assert (found["n_jobs_not_profiled"], found["duration_quantiles_s"][0.0]) == (1, 5.0)
    assert found["deadline_quantiles"][0.0] == pytest.approx(43 / 15)
    assert describe_trace(jobs_of_two())["deadline_quantiles"] is None
    with pytest.raises(InputError, match="'b'"):
        describe_trace(jobs_of_two(), table)


HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,uann,vcone,1,1,1,COMPLETED,2020-05-11 18:00:00,2020-05-11 18:00:00,2020-05-12 04:00:00,36000,0
2,ubob,vctwo,4,16,1,FAILED,2020-05-11 19:00:00,2020-05-11 20:00:00,2020-05-11 21:00:00,3600,3600
3,ueve,vcone,16,1,2,COMPLETED,2020-05-11 20:00:00,2020-05-11 20:00:00,2020-05-11 22:00:00,7200,0
4,ueve,vctri,0,1,1,CANCELLED,2020-05-11 20:00:00,2020-05-11 20:00:00,2020-05-19 14:15:21,675000,0
"""


def describe(*arguments):
    ran = CliRunner().invoke(app, ["trace", "describe", *arguments], env={"COLUMNS": "120"})
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_the_command_audits_a_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster_log.csv").write_text(HELIOS)
    told = describe("cluster_log.csv", "--cluster", "vcone:8,vctwo:4")
    assert told.startswith("cluster_log.csv: 4 jobs of helios; second 0 of the trace is 2020-05-11T10:00:00+00:00\n")
    assert "left out: 1 job (no GPUs 1)" in told
    assert "note: dates without a zone are taken for Asia/Shanghai (trace import --zone says otherwise)" in told
    lines = [line.split() for line in told.splitlines()]
    assert ["vcone", "2", "42", "16", "8", "2.62", "1"] in lines
    assert ["vctwo", "1", "4.00", "4", "4", "0.50", "0"] in lines
    assert ["9-16", "1", "32"] in lines
    assert "─ the 12 of the cluster" in told
    assert "in use as recorded, up to" in told
    found = json.loads(describe("cluster_log.csv", "--json"))
    assert found["log"]["dropped"] == {"no GPUs": 1}
    assert found["n_jobs"] == found["n_jobs_recorded"] == 3
    assert len(found["demand_over_time"]["gpus_asked"]) == 60
