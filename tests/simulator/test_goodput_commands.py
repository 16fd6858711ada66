"""Jobs that choose their batch size, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from allocator.cli.app import app
from allocator.cluster import Cluster
from allocator.experiments.workloads import Draw, TrainingWorkload
from throughputs import read_trace
from throughputs.goodput.profiles import default_profiles
from throughputs.goodput.trainings import trainings_of

WORKLOAD = """name,time,application,num_replicas,batch_size
a,0,cifar10,2,512
b,30,cifar10,4,1024
c,60,ncf,1,4096
d,90,bert,8,96
"""

runner = CliRunner()


@pytest.fixture
def workload(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "workload.csv"
    path.write_text(WORKLOAD)
    return path


def invoke(*words):
    return runner.invoke(app, list(words))


@pytest.mark.exhaustive
@pytest.mark.usefixtures("workload")
def test_the_command_of_the_page():
    page = (Path(__file__).resolve().parents[2] / "docs" / "goodput.md").read_text()
    command = page.split("tests/simulator/test_goodput_commands.py -->\n```sh\n")[1].split("```")[0]
    words = command.replace("\\\n", " ").split()
    assert words.pop(0) == "allocator"
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    for name in ("sia", "pollux", "optimus", "max_min_fairness_perf"):
        found = json.loads((Path("goodput-results") / name / "summary.json").read_text())
        assert (found["status"], found["jobs"], found["unfinished_jobs"]) == ("completed", 4, 0)
    assert Path("goodput-results/report.html").exists()


POINT = ("--cluster", "t4:16", "--gpus-per-server", "t4:4")


def drawn(*more):
    """What `trace generate` says; the trace is drawn.csv."""
    done = invoke("trace", "generate", "--throughputs", "goodput", "--jobs", "40", "--out", "drawn.csv", *more)
    return done.output + str(done.exception or "")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("workload")
def test_jobs_are_drawn_for_the_cluster_that_they_are_to_run_on():
    asked = {}
    for name, more in {"of 16": POINT, "of none": (), "of one": (*POINT, "--single-gpu")}.items():
        assert "drawn.csv: 40 jobs" in drawn(*more, "--seed", "3")
        jobs = read_trace("drawn.csv")
        assert set(jobs.category) == {"adaptive"}
        asked[name] = jobs
    cluster = Cluster({"t4": 16}, {"t4": 4})
    profiles = trainings_of(default_profiles())
    expected = TrainingWorkload(multi_gpu=True).jobs(Draw(40, 600.0, 3, profiles, cluster, grows=False))
    assert asked["of 16"].scale_factor.tolist() == expected.scale_factor.tolist()
    assert np.array_equal(asked["of 16"].arrival_time, expected.arrival_time)
    assert asked["of 16"].scale_factor.max() <= 16 < asked["of none"].scale_factor.max()
    assert set(asked["of one"].scale_factor) == {1}
