"""Workloads of Pollux and Sia as traces: every column, and what is said of bad ones."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from throughputs import InputError, Trace, read_trace, write_trace
from throughputs.goodput.profiles import default_profiles
from throughputs.traces import named_format

HEADER = "name,time,application,num_replicas,batch_size"


def write(folder: Path, header: str, *rows: str) -> Path:
    path = folder / "jobs.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_a_workload_of_pollux(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER, "b,207.5,bert,8,384", "a,107,cifar10,6,2048", "c,300,ncf,1,32768")
    assert named_format(path) == "pollux"
    trace = read_trace(path)
    names = ["cifar10 (batch size 2048)", "bert (batch size 384)", "ncf (batch size 32768)"]
    assert trace.job_type.tolist() == names
    assert trace.scale_factor.tolist() == [6, 8, 1]
    assert trace.arrival_time.tolist() == [107, 207.5, 300]
    assert trace.category.tolist() == ["adaptive"] * 3
    assert np.isnan(trace.deadline).all()
    profiles = default_profiles()
    assert trace.total_steps[1] == profiles.find("bert").steps(384)
    rate = profiles.goodput(["cifar10"], "t4").throughput.throughput([2], [6], [342])[0, 0]
    assert trace.duration[0] == pytest.approx(trace.total_steps[0] * 2048 / rate, rel=2e-3)
    assert read_trace(path, time_unit_seconds=60).arrival_time.tolist() == [6420, 12450, 18000]


def test_categories_of_sia(tmp_path: Path) -> None:
    rows = ("a,1,bert,8,384,rigid", "b,2,bert,8,384,scale-gpus", "c,3,bert,8,384,", "d,4,bert,8,384,adaptive")
    trace = read_trace(write(tmp_path, f"{HEADER},category", *rows))
    assert trace.category.tolist() == ["rigid", "scale-gpus", "adaptive", "adaptive"]
    write_trace(trace, tmp_path / "copy.csv")
    assert read_trace(tmp_path / "copy.csv").category.tolist() == trace.category.tolist()
    with pytest.raises(InputError, match="field 'category'"):
        write_trace(trace, tmp_path / "copy.trace", "gavel", lossy=False)


def test_deadlines_and_samples_of_elasticflow(tmp_path: Path) -> None:
    rows = ("a,10,cifar10,4,1024,1500,600064", "b,20,of_mine,2,100,,5000")
    trace = read_trace(write(tmp_path, f"{HEADER},ddl,max_sample", *rows))
    assert np.array_equal(trace.deadline, [1500, np.nan], equal_nan=True)
    assert trace.total_steps.tolist() == [586, 50]
    assert np.isnan(trace.duration).tolist() == [False, True]
    assert read_trace(write(tmp_path, f"{HEADER},samples", "a,1,of_mine,1,10,55")).total_steps.tolist() == [5.5]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,-1,bert,8,384,adaptive", "jobs.csv:3: field 'time': found -1.0, expected seconds, at least 0"),
        ("a,x,bert,8,384,adaptive", "jobs.csv:3: field 'time': found 'x', expected a number"),
        ("a,1,bart,8,384,adaptive", "jobs.csv:3: field 'application': found 'bart', expected one of cifar10, "),
        ("a,1,,8,384,adaptive", "jobs.csv:3: field 'application': found nothing, expected text"),
        ("a,1,bert,0,384,adaptive", "jobs.csv:3: field 'num_replicas': found 0, expected at least 1 GPU"),
        ("a,1,bert,8,0,adaptive", "jobs.csv:3: field 'batch_size': found 0, expected a batch size of at least 1"),
        ("a,1,bert,8,1.5,adaptive", "jobs.csv:3: field 'batch_size': found 1.5, expected a whole number"),
        ("a,1,bert,8,384,rigit", "field 'category': found 'rigit', expected one of adaptive, scale-gpus, rigid, or"),
    ],
)
def test_bad_rows(row: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"{HEADER},category", "a,0,bert,8,384,adaptive", row)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert message in str(caught.value)


def test_a_hint_at_the_name_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"or a column max_sample \(did you mean 'yolov3'\?\)"):
        read_trace(write(tmp_path, HEADER, "a,0,yolov,8,64"))
    with pytest.raises(InputError, match=r"\(did you mean 'rigid'\?\)"):
        Trace(["a"], [1], [1.0], [0.0], category=["riged"])


def test_all_published_workloads(public_data: Callable[[str], Path], tmp_path: Path) -> None:
    jobs = 0
    for archive in ("osdi21_workloads.tar.xz", "sia_workloads.tar.xz"):
        with tarfile.open(public_data(f"pollux_sia/{archive}")) as tar:
            tar.extractall(tmp_path, filter="data")
    files = sorted(tmp_path.rglob("*.csv"))
    for path in files:
        trace = read_trace(path)
        jobs += len(trace)
        assert (trace.category == "adaptive").all()
        assert np.isfinite(trace.duration).all()
    assert (len(files), jobs) == (120, 37600)


def deadline_trace(**columns: object) -> Trace:
    given: dict[str, object] = {"deadline": [1000.0, np.nan, 900.5]}
    return Trace(
        ["bert (batch size 64)", "inception3 (batch size 32)", "bert (batch size 12)"],
        [2, 4, 1],
        [100.0, 7.0, 2.5],
        [100.0, 160.0, 180.0],
        **given | columns,  # type: ignore[arg-type]
    )


def test_a_trace_with_deadlines_as_a_workload_of_pollux(tmp_path: Path) -> None:
    trace, path = deadline_trace(category=["adaptive", "rigid", "rigid"]), tmp_path / "pollux.csv"
    write_trace(trace, path, "pollux", start=100.0, rename={"inception3": "inceptionv3"})
    assert path.read_text().splitlines() == [
        "name,time,application,num_replicas,batch_size,category,ddl,max_sample,samples",
        "bert-0,0,bert,2,64,adaptive,900.0,6400,6400",
        "inceptionv3-1,60,inceptionv3,4,32,rigid,,224,224",
        "bert-2,80,bert,1,12,rigid,800.5,30,30",
    ]
    again = read_trace(path)
    assert again.total_steps.tolist() == trace.total_steps.tolist()
    assert (again.deadline + 100 == trace.deadline).tolist() == [True, False, True]
    write_trace(read_trace(path), tmp_path / "again.csv", "pollux")
    assert (tmp_path / "again.csv").read_text() == path.read_text()


def test_slos_become_deadlines_by_the_durations(tmp_path: Path) -> None:
    slos = deadline_trace(deadline=None, slo=[2.0, np.nan, 1.5], duration=[50.0, np.nan, 20.0])
    write_trace(slos, tmp_path / "pollux.csv", "pollux")
    assert read_trace(tmp_path / "pollux.csv").deadline[[0, 2]].tolist() == [200.0, 210.0]
    with pytest.raises(InputError, match=r"trace:1: field 'slo': found 2.0, expected a deadline, or a duration"):
        write_trace(deadline_trace(deadline=None, slo=[2.0, np.nan, 1.5]), tmp_path / "none.csv", "pollux")
    assert not (tmp_path / "none.csv").exists()


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, {"start": 120.0}, "trace:1: field 'arrival_time': found 100.0, expected at least the start, 120.0 s"),
        ({}, {"rename": {"bart": "bert"}}, "field 'rename': found 'bart', expected one of bert, inception3"),
        (
            {"user": ["ann", "", ""]},
            {},
            "field 'user': found 'ann', expected '', as the format pollux has no such field",
        ),
        (
            {"deadline": None, "deadline_options": [(), ((200.0, 2.0), (300.0, 1.0)), ()]},
            {},
            "field 'deadline_options'",
        ),
    ],
)
def test_what_a_workload_of_pollux_cannot_hold(
    columns: dict[str, object], options: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        write_trace(deadline_trace(**columns), tmp_path / "none.csv", "pollux", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "none.csv").exists()


def test_job_types_of_a_workload_of_pollux_have_batch_sizes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="field 'job_type': found 'A3C', expected a type with its batch size"):
        write_trace(Trace(["A3C"], [1], [1.0], [0.0]), tmp_path / "none.csv", "pollux")
    with pytest.raises(InputError, match="expected pollux, with another start or other names"):
        write_trace(deadline_trace(), tmp_path / "none.csv", "table", start=5.0)


def test_the_comparison_of_elasticflow_with_pollux(public_data: Callable[[str], Path], tmp_path: Path) -> None:
    trace = read_trace(public_data("elasticflow/traces/elasticVpollux_e.csv"))
    write_trace(trace, tmp_path / "p.csv", "pollux", start=float(trace.arrival_time[0]))
    written = [line.rpartition(",")[0] for line in (tmp_path / "p.csv").read_text().splitlines()]
    assert written == public_data("pollux_sia/elasticVpollux_p_rebuilt.csv").read_text().splitlines()
