"""Lucid's profiler on the command line: who ends there, who is left to the cluster, and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from typer.testing import CliRunner

from allocator.cli.app import app

LOG = """\
job_id,user,vc,gpu_num,submit_time,duration,dataset,model,batchsize,amp
1,u,vcA,8,0,873,ImageNet,ResNet50,64,1
2,u,vcB,1,41,32,LSUN,DCGAN,128,0
3,u,vcB,1,44,3200,LSUN,DCGAN,128,0
4,u,vcA,8,48,3200,LSUN,DCGAN,128,0
"""


def run(folder: Path, profiler: str | None, *more: str, policy: str = "lucid", log: str = LOG) -> Result:
    (folder / "log.csv").write_text(log)
    (folder / "vc.csv").write_text("vc,node num\nvcA,2\nvcB,1\n")
    given = ["--trace", str(folder / "log.csv"), "--cluster", str(folder / "vc.csv"), "--out", str(folder / "out")]
    option = [] if profiler is None else ["--profiler", profiler]
    return CliRunner().invoke(app, ["simulate", "--preset", "lucid", "--policy", policy, *given, *option, *more])


def test_short_jobs_end_in_the_profiler_and_the_others_come_at_their_submission(tmp_path: Path) -> None:
    result = run(tmp_path, "from=vcA", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    table = pd.read_csv(tmp_path / "out" / "profiler.csv")
    jobs = pd.read_csv(tmp_path / "out" / "jobs.csv")
    assert summary["cluster"] == "vcA:8,vcB:8"
    # One server: the first job has it for 200 s, then the two small ones, then the last.
    assert table["profiler_queueing_time"].tolist() == [0.0, 159.0, 156.0, 352.0]
    assert table["ended_in_profiler"].tolist() == [False, True, False, False]
    assert table["job_in_cluster"].tolist() == [0, -1, 1, 2]
    assert jobs["arrival_time"].tolist() == [0.0, 44.0, 48.0]
    assert table["completion_time"][1] == 232.0
    assert np.array_equal(table["completion_time"].drop(1), jobs["completion_time"])
    of_all = {"servers": 1, "jobs": 4, "profiled": 4, "ended": 1, "average_jct": table["jct"].mean()}
    assert summary["profiler"] == pytest.approx(of_all | {"average_queueing_time": 166.75})


def test_the_profiler_is_told_and_its_table_goes_with_it(tmp_path: Path) -> None:
    said = " ".join(run(tmp_path, "default").stdout.split())
    assert "profiler on 2 servers: 4 of 4 jobs profiled" in said
    assert "The tables are of the others; profiler.csv has all." in said
    assert run(tmp_path, None).exit_code == 0
    assert not (tmp_path / "out" / "profiler.csv").exists()


@pytest.mark.parametrize(
    ("profiler", "policy", "message"),
    [
        ("default", "qssf", "found 'policy qssf', expected lucid or lucid_program"),
        ("default", "lucid:profiling_pool=vcB", "'profiling_pool': found 'vcB', expected no profiling_pool"),
        ("servers", "lucid", "found 'servers', expected default, or SETTING=VALUE, as in servers=2"),
        ("servers=x", "lucid", "field 'servers': found 'x', expected a whole number"),
        ("servers=0", "lucid", "'servers': found 0, expected above 0"),
        ("elastic=1", "lucid", "'elastic': found '1', expected one of servers, limit_seconds, largest_gang, from"),
        ("from=vcB", "lucid", "found 'vcB with 8 GPUs', expected one with more than a server"),
        ("from=vcX", "lucid", "'from': found 'vcX', expected"),
        ("servers=2,from=vcA", "lucid", "expected 2 virtual clusters, one for each of its servers"),
        ("limit_seconds=5000", "lucid", "expected jobs that run for more than 5000 s: all end in the profiler"),
    ],
)
def test_what_cannot_be_profiled_is_told(tmp_path: Path, profiler: str, policy: str, message: str) -> None:
    result = run(tmp_path, profiler, policy=policy)
    assert message in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_times_are_whole_seconds(tmp_path: Path) -> None:
    result = run(tmp_path, "default", log=LOG.replace(",873,", ",873.5,"))
    assert "log.csv: field 'duration': found 'a part of a second', expected whole seconds" in str(result.exception)
