"""Traces of ElasticFlow and Chronus: every column, both spellings, and what is said of bad ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from throughputs import InputError, read_trace, write_trace

ARTIFACT = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration"
PUBLIC = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration"
CHRONUS = (
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,expect_value_list,"
    "best_effort,job_type"
)


def write(folder: Path, header: str, *rows: str) -> Path:
    path = folder / "jobs.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.mark.parametrize("header", [ARTIFACT, PUBLIC])
def test_both_spellings(header: str, tmp_path: Path) -> None:
    rows = ("5dc7-2f,0,7246,resnet50,5896,256,2,3930", "b,4686,19793,gpt2,11932,128,1,4830")
    trace = read_trace(write(tmp_path, header, *rows))
    assert trace.job_type.tolist() == ["resnet50 (batch size 256)", "gpt2 (batch size 128)"]
    assert trace.scale_factor.tolist() == [2, 1]
    assert trace.total_steps.tolist() == [7246, 19793]
    assert trace.arrival_time.tolist() == [0, 4686]
    assert trace.deadline.tolist() == [5896, 11932]
    assert trace.duration.tolist() == [3930, 4830]
    assert np.isnan(trace.slo).all()
    assert trace.deadline_options.tolist() == [(), ()]
    minutes = read_trace(tmp_path / "jobs.csv", time_unit_seconds=60)
    assert (minutes.arrival_time[1], minutes.deadline[1], minutes.duration[1]) == (281160, 715920, 289800)


def test_best_effort_and_no_deadline(tmp_path: Path) -> None:
    rows = ("0,0,9,m,50,8,1,9,0", "1,0,9,m,50,8,1,9,1", f"2,0,9,m,{2**63 - 1},8,1,9,0", "3,0,9,m,,8,1,9,")
    trace = read_trace(write(tmp_path, f"{ARTIFACT},best_effort", *rows))
    assert np.array_equal(trace.deadline, [50, np.nan, np.nan, np.nan], equal_nan=True)


def test_rows_come_in_order_of_submission(tmp_path: Path) -> None:
    rows = ("0,9,1,a,50,8,1,9", "1,3,2,b,50,8,1,9", "2,3,3,c,50,8,1,9")
    trace = read_trace(write(tmp_path, ARTIFACT, *rows))
    assert trace.total_steps.tolist() == [2, 3, 1]
    bad = ("0,9,1,a,50,8,1,9", "1,3,2,b,50,8,1,0", "2,3,3,c,50,8,1,9")
    with pytest.raises(InputError, match=r"jobs\.csv:3: field 'duration': found 0\.0"):
        read_trace(write(tmp_path, ARTIFACT, *bad))


def test_columns_of_the_philly_trace(tmp_path: Path) -> None:
    header = "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration"
    trace = read_trace(write(tmp_path, header, "0,0,7,vgg16,771220,256,1,8,976570,1282877"))
    assert (trace.total_steps[0], trace.duration[0]) == (1282877, 976570)


@pytest.mark.parametrize(
    ("field", "cells", "expected"),
    [
        ("submit_time", ("x", "", "-1", "inf", "nan"), ""),
        ("iteration", ("x", "", "0", "-3", "inf"), ""),
        ("model_name", ("",), "text"),
        ("ddl", ("x", "2", "inf2", "nan"), ""),
        ("batch_size", ("x", "", "0", "-8", "2.5"), ""),
        ("num_gpu", ("x", "", "0", "-8", "2.5"), ""),
        ("duration", ("x", "", "0", "-8", "inf"), ""),
        ("best_effort", ("2", "x", "0.5"), "0 or 1"),
    ],
)
@pytest.mark.parametrize("spelling", [ARTIFACT, PUBLIC])
def test_bad_cells_of_elasticflow(
    spelling: str, field: str, cells: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    names = [*ARTIFACT.split(","), "best_effort"]
    good = ["0", "9", "5", "m", "50", "8", "1", "9", "0"]
    shown = [*spelling.split(","), "best_effort"][names.index(field)]
    for cell in cells:
        bad = good.copy()
        bad[names.index(field)] = cell
        path = write(tmp_path, f"{spelling},best_effort", ",".join(good), ",".join(bad))
        with pytest.raises(InputError, match=rf"jobs\.csv:3: field '{shown}': .*{expected}"):
            read_trace(path)


@pytest.mark.parametrize("header", [ARTIFACT, PUBLIC, CHRONUS])
def test_missing_and_unknown_columns(header: str, tmp_path: Path) -> None:
    names = header.split(",")
    told = ("submit_time", "submission_time", "expect_time_list")  # by which the formats are known
    optional = ("job_id", "user", "interval", "job_type", *told)
    for name in names:
        if name not in optional:
            rest = ",".join(other for other in names if other != name)
            with pytest.raises(InputError, match=f"field '{name}'.*this column to be present"):
                read_trace(write(tmp_path, rest))
    with pytest.raises(InputError, match="field 'modle'"):
        read_trace(write(tmp_path, f"{header},modle"))


def test_chronus(tmp_path: Path) -> None:
    rows = (
        "2622,vc_0,2,1,4146,alexnet,174,25,239,10,0,strict",
        "11,vc_1,0,1,1,alexnet,9,25,239,10,0,strict",
        "7245,vc_1,1,2,8446,inception_v3,173,5,299-319-379-419,10-8-5-2,0,soft",
        "9,vc_1,1,3,84,inception_v3,17,5,3,10,1,best",
    )
    trace = read_trace(write(tmp_path, CHRONUS, *rows))
    assert trace.job_type.tolist() == ["alexnet", "inception_v3", "inception_v3"]
    assert trace.scale_factor.tolist() == [2, 1, 1]
    assert trace.arrival_time.tolist() == [60, 120, 180]
    assert trace.duration.tolist() == [174 * 60, 173 * 60, 17 * 60]
    assert trace.entity.tolist() == ["vc_0", "vc_1", "vc_1"]
    assert np.array_equal(trace.deadline, [240 * 60, 301 * 60, np.nan], equal_nan=True)
    soft = ((18060.0, 10.0), (19260.0, 8.0), (22860.0, 5.0), (25260.0, 2.0))
    assert trace.deadline_options.tolist() == [((14400.0, 10.0),), soft, ()]
    assert read_trace(tmp_path / "jobs.csv", "chronus", time_unit_seconds=1).deadline[0] == 240


def test_chronus_with_batch_sizes_counts_seconds(tmp_path: Path) -> None:
    header = CHRONUS.replace("num_gpu", "num_gpu,batch_size")
    trace = read_trace(write(tmp_path, header, "0,user0,1,256,7,7246,resnet50,3930,0,5896,10,0,strict"))
    assert trace.job_type.tolist() == ["resnet50 (batch size 256)"]
    assert (trace.arrival_time[0], trace.deadline[0], trace.duration[0]) == (7, 5903, 3930)


@pytest.mark.parametrize(
    ("field", "cells"),
    [
        ("num_gpu", ("x", "", "-1", "1.5")),
        ("submit_time", ("x", "", "-1", "inf")),
        ("iterations", ("x", "", "0", "-1")),
        ("model_name", ("",)),
        ("duration", ("x", "", "0", "-1")),
        ("expect_time_list", ("x", "", "0", "5-", "-5", "5--7", "nan", "inf", "5-6-7")),
        ("expect_value_list", ("x", "", "0", "5-", "nan", "10-8-5")),
        ("best_effort", ("x", "2")),
    ],
)
def test_bad_cells_of_chronus(field: str, cells: tuple[str, ...], tmp_path: Path) -> None:
    names, good = CHRONUS.split(","), ["0", "u", "1", "1", "5", "m", "9", "0", "50-60", "10-8", "0", "soft"]
    for cell in cells:
        bad = good.copy()
        bad[names.index(field)] = cell
        with pytest.raises(InputError, match=rf"jobs\.csv:3: field '.*(expect_|{field})"):
            read_trace(write(tmp_path, CHRONUS, ",".join(good), ",".join(bad)))
    for times, values in (("60-50", "10-8"), ("50-50", "10-8"), ("50-60", "8-10")):
        with pytest.raises(InputError, match=r"jobs\.csv:2: field 'expect_time_list, expect_value_list'"):
            read_trace(write(tmp_path, CHRONUS, f"0,u,1,1,5,m,9,0,{times},{values},0,soft"))


def test_as_many_values_as_deadlines(tmp_path: Path) -> None:
    for values, found in (("10", "10"), ("10-8-5", "10-8-5")):
        path = write(tmp_path, CHRONUS, f"0,u,1,1,5,m,9,0,50-60,{values},0,soft")
        told = rf"jobs\.csv:2: field 'expect_value_list': found '{found}', expected 2 values, as many as deadlines"
        with pytest.raises(InputError, match=told):
            read_trace(path)


def test_bad_units_and_formats(tmp_path: Path) -> None:
    path = write(tmp_path, ARTIFACT, "0,0,1,m,50,8,1,9")
    for unit in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(InputError, match="time_unit_seconds"):
            read_trace(path, time_unit_seconds=unit)
    with pytest.raises(InputError, match="did you mean 'chronus'"):
        read_trace(path, "cronus")
    with pytest.raises(InputError, match="format"):
        write_trace(read_trace(path), tmp_path / "other.csv", "elasticflow")
    with pytest.raises(InputError, match="did you mean 'iterations'"):
        read_trace(path, "chronus")


@pytest.mark.filterwarnings("error")
def test_times_beyond_all_numbers_are_refused_without_a_warning(tmp_path: Path) -> None:
    minutes = write(tmp_path, CHRONUS, "1,u,1,1e307,9,m,9,9,9,9,0,strict")
    with pytest.raises(InputError, match=r"expect_time_list.*inf"):
        read_trace(minutes)
    seconds = write(tmp_path, ARTIFACT, "0,0,9,m,50,8,1,9")
    with pytest.raises(InputError, match="found inf"):
        read_trace(seconds, time_unit_seconds=1e308)


PUBLIC_TRACES = {
    "elasticflow/traces/100jobs_1500lam.csv": (100, 100),
    "elasticflow/traces/200jobs_900lam_0.9.csv": (200, 24),
    "elasticflow/traces/elasticVpollux_e.csv": (195, 195),
    "elasticflow/traces/philly_103959.csv": (876, 876),
    "chronus/traces/MIX2_first150.csv": (150, 134),
    "chronus/traces/SLO_thin150.csv": (205, 205),
    "chronus/traces/elasticVpollux_e.chronus.csv": (195, 195),
}


@pytest.mark.parametrize("relative", PUBLIC_TRACES)
def test_public_traces(relative: str, public_data, tmp_path: Path) -> None:
    trace = read_trace(public_data(relative))
    assert (len(trace), int((~np.isnan(trace.deadline)).sum())) == PUBLIC_TRACES[relative]
    write_trace(trace, tmp_path / "own.csv")
    again = read_trace(tmp_path / "own.csv")
    for name in trace.column_names():
        np.testing.assert_array_equal(getattr(again, name), getattr(trace, name), name)


def test_the_two_systems_say_the_same_of_one_trace(public_data) -> None:
    one = read_trace(public_data("chronus/traces/100jobs_1500lam.elasticflow.csv"))
    other = read_trace(public_data("chronus/traces/100jobs_1500lam.chronus.csv"))
    for name in ("job_type", "scale_factor", "total_steps", "arrival_time", "deadline", "duration"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
