"""Jobs that are through after so many samples, as ElasticFlow has Pollux run jobs with deadlines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import allocator
from allocator.cli.app import app
from allocator.presets import preset
from tests.simulator.goodput_worlds import profile, trainings
from tests.simulator.test_goodput_world import OnGpus, run
from throughputs import Trace

FREE = preset("default").replace(restart_penalty_seconds=0.0, goodput_work="samples")


def job(steps, batch=16, gpus=1):
    return Trace([f"net (batch size {batch})"], [gpus], [steps], [0.0], category=["adaptive"])


def test_fairness_is_judged_by_the_samples():
    """A job alone on the cluster is as fast as on its isolated share, be its training as long as it may."""
    models = trainings(net=profile(noise=(1e-9,), steps=1000.0))
    one = allocator.Cluster({"gpu": 1}, gpus_per_server={"gpu": 4})
    jobs = run(OnGpus(1), job(250.0), models, one, FREE).jobs
    assert jobs["isolated_jct"][0] == pytest.approx(40.0, rel=1e-6)
    assert jobs["rho"][0] == pytest.approx(1.0, rel=1e-6)
    whole = run(OnGpus(1), job(1e6), models, one, FREE).jobs
    assert whole["isolated_jct"][0] == pytest.approx(160.0, rel=1e-6)


def test_deadlines_are_judged_afterwards():
    """Nobody is turned away: one of two jobs on the same GPU comes too late."""
    trace = Trace(["net (batch size 16)"] * 2, [1, 1], [400.0] * 2, [0.0, 0.0], deadline=[70.0, 100.0])
    one = allocator.Cluster({"gpu": 1}, gpus_per_server={"gpu": 4})
    result = run(OnGpus(1), trace, cluster=one, settings=FREE)
    assert result.jobs["jct"].tolist() == pytest.approx([64.0, 128.0])
    assert result.jobs["met"].tolist() == [True, False]
    summary = result.summary()
    assert (summary["deadline_ratio"], summary["admitted"], summary["late"]) == (0.5, 2, 1)


def test_a_workload_with_deadlines_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["name,time,application,num_replicas,batch_size,ddl,max_sample", "a,10,cifar10,4,1024,1500,600000"]
    Path("deadlines.csv").write_text("\n".join([*rows, "b,70,ncf,2,32768,90,6000000", ""]))
    page = (Path(__file__).resolve().parents[2] / "docs" / "goodput.md").read_text()
    command = page.split("tests/simulator/test_goodput_samples.py -->\n```sh\n")[1].split("```")[0]
    words = command.replace("\\\n", " ").split()
    assert words.pop(0) == "allocator"
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    found = json.loads(Path("deadline-results/summary.json").read_text())
    assert (found["deadline_jobs"], found["met"], found["late"]) == (2, 1, 1)
    assert np.isclose(found["deadline_ratio"], 0.5)
