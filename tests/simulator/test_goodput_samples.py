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
from tests.simulator.goodput_worlds import StopAt, profile, trainings
from tests.simulator.test_goodput_world import OnGpus, run
from throughputs import Trace

FREE = preset("default").replace(restart_penalty_seconds=0.0, goodput_work="samples")


def job(steps: float, batch: int = 16, gpus: int = 1) -> Trace:
    return Trace([f"net (batch size {batch})"], [gpus], [steps], [0.0], category=["adaptive"])


def test_samples_count_whatever_they_are_worth() -> None:
    """Of 6,400 samples each takes a hundredth of a second on one GPU, in batches of any size."""
    for noise in ((1e-9,), (16.0, 16.0), (1e9,) * 10):
        result = run(OnGpus(1), job(400.0), trainings(net=profile(noise=noise)), settings=FREE)
        assert result.jobs["jct"][0] == pytest.approx(64.0, rel=1e-6)
        assert result.jobs["status"][0] == "completed"


def test_the_samples_are_the_steps_of_the_trace_times_the_batch_size_asked_for() -> None:
    result = run(OnGpus(1), job(100.0, batch=64), settings=FREE)
    assert result.jobs["jct"][0] == pytest.approx(64.0, rel=1e-6)


def test_larger_batches_count_in_full() -> None:
    """From the second epoch on batches are larger, as synchronisation takes 0.1 s; none is worth more than 16 samples.

    A tenth of the training, 100 steps of 16 samples, is over before the batch size changes.
    """
    models = trainings(net=profile(noise=(1e9,) * 10, sync=0.1))
    usual = run(OnGpus(4), job(400.0, gpus=4), models, settings=FREE)
    assert usual.jobs["jct"][0] == pytest.approx(100 * 0.14 + (6400 - 1600) / 256 * 0.74, rel=0.02)


def test_a_training_that_is_over_first_ends_the_job() -> None:
    models = trainings(net=profile(noise=(1e-9,), steps=100.0))
    assert run(OnGpus(1), job(1e6), models, settings=FREE).jobs["jct"][0] == pytest.approx(16.0)


def test_fairness_is_judged_by_the_samples() -> None:
    """A job alone on the cluster is as fast as on its isolated share, be its training as long as it may."""
    models = trainings(net=profile(noise=(1e-9,), steps=1000.0))
    one = allocator.Cluster({"gpu": 1}, gpus_per_server={"gpu": 4})
    jobs = run(OnGpus(1), job(250.0), models, one, FREE).jobs
    assert jobs["isolated_jct"][0] == pytest.approx(40.0, rel=1e-6)
    assert jobs["rho"][0] == pytest.approx(1.0, rel=1e-6)
    whole = run(OnGpus(1), job(1e6), models, one, FREE).jobs
    assert whole["isolated_jct"][0] == pytest.approx(160.0, rel=1e-6)


def test_published_steps_are_whole() -> None:
    """6,390 samples are 400 steps of 16. The start takes 30 s; in the 30 s up to the next decision fit 187 and a half.

    The half is lost, so that 213 are left.
    """
    models = trainings(net=profile(noise=(1e-9,), steps=1000.0))
    chosen = preset("pollux").replace(goodput_work="samples")
    ended = run(OnGpus(1), job(399.4), models, settings=chosen).jobs["jct"][0]
    assert ended == pytest.approx(60.0 + 213 * 0.16, abs=1e-3)
    assert run(OnGpus(1), job(399.4), models, settings=FREE).jobs["jct"][0] == pytest.approx(63.904)


def test_deadlines_are_judged_afterwards() -> None:
    """Nobody is turned away: one of two jobs on the same GPU comes too late."""
    trace = Trace(["net (batch size 16)"] * 2, [1, 1], [400.0] * 2, [0.0, 0.0], deadline=[70.0, 100.0])
    one = allocator.Cluster({"gpu": 1}, gpus_per_server={"gpu": 4})
    result = run(OnGpus(1), trace, cluster=one, settings=FREE)
    assert result.jobs["jct"].tolist() == pytest.approx([64.0, 128.0])
    assert result.jobs["met"].tolist() == [True, False]
    summary = result.summary()
    assert (summary["deadline_ratio"], summary["admitted"], summary["late"]) == (0.5, 2, 1)


def test_rounds_do_the_samples_as_asked_for() -> None:
    policy = allocator.get_policy("max_min_fairness_perf")
    result = run(policy, job(100.0, batch=64), settings=FREE)
    assert result.jobs["jct"][0] == pytest.approx(64.0, rel=1e-6)


def test_a_run_that_is_taken_up_again_knows_what_samples_are_left(tmp_path: Path) -> None:
    trace = Trace(["net (batch size 16)"] * 3, [1] * 3, [400.0, 800.0, 300.0], [0.0, 20.0, 90.0])
    models, policy = trainings(net=profile(noise=(1e9,) * 10, sync=0.05)), allocator.get_policy("sia")
    cluster = allocator.Cluster({"gpu": 8}, gpus_per_server={"gpu": 4})
    whole = allocator.simulate(trace, cluster, policy, models, preset=FREE)
    path = tmp_path / "state"

    with pytest.raises(StopAt.StopError):
        allocator.simulate(
            trace, cluster, policy, models, preset=FREE, checkpoint=path, checkpoint_every=3, observers=(StopAt(6),)
        )
    again = allocator.simulate(trace, cluster, policy, models, preset=FREE, checkpoint=path, resume=True)
    assert again.jobs.equals(whole.jobs)


def test_a_workload_with_deadlines_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
