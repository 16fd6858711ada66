"""Jobs that choose their batch size, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from allocator.cli.app import app
from allocator.cluster import Cluster
from allocator.sweep.jobs import trainings_for
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


@pytest.mark.usefixtures("workload")
def test_what_cannot_be_is_said():
    common = ("--trace", "workload.csv", "--policy", "sia", "--out", "out")
    done = invoke("simulate", *common, "--throughputs", "goodput", "--cluster", "v100:4")
    assert done.exit_code != 0
    assert "found 'v100', expected a type that there are figures for in default profiles: t4" in str(done.exception)
    assert not Path("out").exists()
    asked = ("--job-type", "ncf", "--steps", "10", "--deadline", "100")
    done = invoke("admit", "--throughputs", "goodput", "--cluster", "t4:4", *asked)
    assert "expected a throughput table" in str(done.exception)


@pytest.mark.usefixtures("workload")
@pytest.mark.parametrize(
    "command",
    [("simulate", "--policy"), ("compare", "--policies"), ("whatif", "--policies"), ("sweep", "trace", "--policies")],
)
def test_settings_by_model_are_pairs(command):
    common = ("--trace", "workload.csv", "--throughputs", "goodput", "--cluster", "t4:8", "--out", "out")
    for setting, *told in (
        ("goodput_slowdown=bert:1.2,cifar10:fast", "'goodput_slowdown'", "'fast'", "NAME:NUMBER"),
        ("goodput_slowdown=bert:0", "goodput_slowdown of bert"),
        ("goodput_slowdown=bert:1.2,bert:1.3", "goodput_slowdown", "each name once"),
        ("restart_penalty_by_job_type=bert:-3", "restart_penalty_by_job_type of bert", "-3.0", "at least 0"),
        ("policy.restart_seconds_of_type=bert:-1", "restart_seconds_of_type of bert"),
    ):
        refused = str(invoke(*command, "sia", *common, "--set", setting).exception)
        for each in told:
            assert each in refused
    assert not list(Path("out").rglob("jobs.csv"))


@pytest.mark.usefixtures("workload")
def test_measured_models_are_a_folder_of_folders():
    model = Path("models/net")
    model.mkdir(parents=True)
    steps = "placement,local_bsz,step_time,sync_time\n"
    for size in (16, 32):
        (model / f"validation-{size}.csv").write_text(
            "progress,iteration,metric,grad_sqr,grad_var\n10,10,0.1,1,1\n20,20,0.2,1,1\n"
        )
    Path("net.csv").write_text("name,time,application,num_replicas,batch_size,max_sample\na,0,net,1,16,320\n")
    common = ("--trace", "net.csv", "--policy", "sia", "--throughputs", "models", "--cluster", "gpu:2")
    common = (*common, "--gpus-per-server", "gpu:2")
    for written, told in (
        (None, "a file placements-TYPE.csv, with the accelerator type in its name"),
        (steps, "placements-gpu.csv: found 'no row', expected at least one measured step"),
    ):
        if written is not None:
            (model / "placements-gpu.csv").write_text(written)
        done = invoke("simulate", *common, "--out", "none")
        assert told in str(done.exception)
    (model / "placements-gpu.csv").write_text(steps + "1,8,0.1,0.0\n1,32,0.2,0.0\n")
    done = invoke("simulate", *common, "--out", "none")
    assert "model net: field 'step time': found '2 GPUs of gpu', expected a placement that was" in str(done.exception)
    (model / "placements-gpu.csv").write_text(steps + "1,8,0.1,0.0\n1,32,0.2,0.0\n2,8,0.1,0.0\n2,32,0.2,0.0\n")
    done = invoke("simulate", *common, "--out", "some")
    assert done.exit_code == 0, (done.output, done.exception)
    assert pd.read_csv("some/jobs.csv")["status"].tolist() == ["completed"]


POINT = ("--cluster", "t4:16", "--gpus-per-server", "t4:4")


def drawn(*more):
    """What `trace generate` says; the trace is drawn.csv."""
    done = invoke("trace", "generate", "--throughputs", "goodput", "--jobs", "40", "--out", "drawn.csv", *more)
    return done.output + str(done.exception or "")


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
    expected = trainings_for(cluster, 40, 600.0, np.random.default_rng(3), profiles)
    assert asked["of 16"].scale_factor.tolist() == expected.scale_factor.tolist()
    assert np.array_equal(asked["of 16"].arrival_time, expected.arrival_time)
    assert asked["of 16"].scale_factor.max() <= 16 < asked["of none"].scale_factor.max()
    assert set(asked["of one"].scale_factor) == {1}


@pytest.mark.usefixtures("workload")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--preset", "gavel"), "--preset: found 'gavel', expected nothing with jobs that choose their batch size"),
        (("--duration", "40"), "--duration: found 40.0, expected nothing with jobs"),
        (("--priorities",), "--priorities: found True, expected nothing with jobs"),
        (("--gpus-per-server", "t4:4"), "--gpus-per-server: found 't4:4', expected nothing with no --cluster"),
        (("--cluster", "v100:4"), "found 'v100', expected a type that there are figures for in default profiles: t4"),
    ],
)
def test_options_that_mean_nothing_for_drawn_trainings_are_refused(options, said):
    assert said in drawn(*options)
    assert not Path("drawn.csv").exists()


@pytest.mark.usefixtures("workload")
def test_nodes_that_nobody_spoke_of_are_told():
    """With one GPU each, so that whoever forgot --gpus-per-server sees why jobs are slow."""
    said = "each GPU is a node of its own, so all synchronisation is across nodes (--gpus-per-server t4:4)"
    common = ("simulate", "--trace", "workload.csv", "--policy", "optimus", "--throughputs", "goodput", "--out", "out")
    for cluster, told in (("t4:8", True), ("t4:8 --gpus-per-server t4:4", False), ("t4:1", False)):
        done = invoke(*common, "--max-clock", "100", "--cluster", *cluster.split())
        assert (said in done.stderr) == told
