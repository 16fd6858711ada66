"""Logs of virtual clusters, and predictions in files of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from throughputs import InputError, Trace, read_trace, write_trace

HEADER = "job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,duration,dataset,model,batchsize,amp"


def log(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "cluster_full_log.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


JOBS = (
    "907,ann,vcA,x,8,32,FAILED,2020-09-01 00:01:00,100,ImageNet,ResNet50,64,1",
    "905,bob,vcB,y,1,4,COMPLETED,2020-09-01 00:00:10,50,LSUN,DCGAN,128,0",
    "906,bob,vcB,y,0,4,COMPLETED,2020-09-01 00:00:00,50,LSUN,DCGAN,128,0",
)


def test_jobs_come_by_submission_counted_from_the_first(tmp_path: Path) -> None:
    trace = read_trace(log(tmp_path, *JOBS))
    assert trace.arrival_time.tolist() == [0.0, 50.0]  # the one without GPUs is left out
    assert trace.partition.tolist() == ["vcB", "vcA"]
    assert trace.user.tolist() == ["bob", "ann"]
    assert trace.scale_factor.tolist() == [1, 8]
    assert trace.job_type.tolist() == ["DCGAN on LSUN (batch size 128)", "ResNet50 on ImageNet (batch size 64, amp)"]
    assert trace.duration.tolist() == trace.total_steps.tolist() == [50.0, 100.0]
    assert np.isnan(trace.predicted_seconds).all()


def test_submissions_may_be_seconds(tmp_path: Path) -> None:
    row = "1,ann,vcA,x,8,32,FAILED,{},100,ImageNet,ResNet50,64,1"
    assert read_trace(log(tmp_path, row.format(70), row.format(20))).arrival_time.tolist() == [0.0, 50.0]


def test_measured_use_of_gpus_is_in_percent(tmp_path: Path) -> None:
    rows = [f"{row},{used}" for row, used in zip(JOBS, ("35.5", "", "80"), strict=True)]
    trace = read_trace(log(tmp_path, *rows, header=f"{HEADER},gpu_util"))
    assert np.isnan(trace.gpu_utilization[0])
    assert trace.gpu_utilization[1] == 0.355
    with pytest.raises(InputError, match=r"cluster_full_log.csv:2: field 'gpu_util'.*at most 1"):
        read_trace(log(tmp_path, f"{JOBS[0]},180", header=f"{HEADER},gpu_util"))


def test_predictions_by_job_id(tmp_path: Path) -> None:
    path, predictions = log(tmp_path, *JOBS), tmp_path / "lgb.csv"
    predictions.write_text("job_id,priority\n907,-3\n905,12.5\n1,7\n")
    assert read_trace(path, predictions=predictions).predicted_seconds.tolist() == [12.5, 1000.0]
    predictions.write_text("job_id,predicted_seconds\n907,3\n")
    found = read_trace(path, predictions=predictions).predicted_seconds
    assert np.isnan(found[0])
    assert found[1] == 3.0


def test_predictions_are_a_column_of_traces(tmp_path: Path) -> None:
    trace = Trace(["a", "b"], [1, 1], [1.0, 2.0], [0.0, 0.0], predicted_seconds=[5.0, np.nan])
    write_trace(trace, tmp_path / "jobs.csv")
    assert read_trace(tmp_path / "jobs.csv").predicted_seconds[0] == 5.0
    with pytest.raises(InputError, match="predicted_seconds"):
        write_trace(trace, tmp_path / "jobs.trace", format="gavel")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("1,a,vcA,x,1,1,s,yesterday,5,d,m,1,0", "csv:2: field 'submit_time': found 'yesterday', expected a date"),
        ("1,a,vcA,x,1,1,s,2020-09-01 00:00:00,0,d,m,1,0", "csv:2: field 'duration': found 0.0"),
        ("1,a,,x,1,1,s,2020-09-01 00:00:00,5,d,m,1,0", "csv:2: field 'vc'"),
        ("1,a,vcA,x,-1,1,s,2020-09-01 00:00:00,5,d,m,1,0", "csv:2: field 'gpu_num'"),
        ("1,a,vcA,x,1,1,s,2020-09-01 00:00:00,5,d,m,1.5,0", "csv:2: field 'batchsize'"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, row: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(log(tmp_path, row))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("job_id,priority\n905,1\n905,2\n", "csv:3: field 'job_id': found '905', expected each job once"),
        ("job_id,priority\n905,soon\n", "csv:2: field 'priority': found 'soon', expected a number"),
        ("job_id,priority\n1,2\n", "none of its jobs"),
        ("job_id,seconds\n905,2\n", "field 'seconds'"),
    ],
)
def test_predictions_that_cannot_be_used_are_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "lgb.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        read_trace(log(tmp_path, *JOBS), predictions=tmp_path / "lgb.csv")
    assert told in str(caught.value)


def test_a_text_format_takes_no_predictions(tmp_path: Path) -> None:
    (tmp_path / "jobs.trace").write_text("")
    with pytest.raises(InputError, match="job_id"):
        read_trace(tmp_path / "jobs.trace", predictions=tmp_path / "lgb.csv")
