"""Jobs that choose their batch size, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from allocator.cli.app import app

WORKLOAD = """name,time,application,num_replicas,batch_size
a,0,cifar10,2,512
b,30,cifar10,4,1024
c,60,ncf,1,4096
d,90,bert,8,96
"""

runner = CliRunner()


@pytest.fixture
def workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "workload.csv"
    path.write_text(WORKLOAD)
    return path


def invoke(*words: str):
    return runner.invoke(app, list(words))


@pytest.mark.usefixtures("workload")
def test_the_command_of_the_page() -> None:
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
def test_profiles_in_a_file_are_those_that_come_with_the_package() -> None:
    from importlib.resources import files

    copy = Path("mine.toml")
    copy.write_text((files("throughputs") / "goodput" / "data" / "adaptdl_t4.toml").read_text())
    common = ("--trace", "workload.csv", "--policy", "sia", "--cluster", "t4:16", "--gpus-per-server", "t4:4")
    for source, out in (("goodput", "one"), ("mine.toml", "other")):
        done = invoke("simulate", *common, "--throughputs", source, "--out", out)
        assert done.exit_code == 0, done.output
    one, other = (pd.read_csv(Path(name) / "jobs.csv") for name in ("one", "other"))
    np.testing.assert_array_equal(one["jct"], other["jct"])
    assert (one["status"] == "completed").all()


@pytest.mark.usefixtures("workload")
def test_what_cannot_be_is_said() -> None:
    common = ("--trace", "workload.csv", "--policy", "sia", "--out", "out")
    done = invoke("simulate", *common, "--throughputs", "goodput", "--cluster", "v100:4")
    assert done.exit_code != 0
    assert "found 'v100', expected one of t4" in str(done.exception)
    assert not Path("out").exists()
    asked = ("--job-type", "ncf", "--steps", "10", "--deadline", "100")
    done = invoke("admit", "--throughputs", "goodput", "--cluster", "t4:4", *asked)
    assert "expected a throughput table" in str(done.exception)


@pytest.mark.usefixtures("workload")
@pytest.mark.parametrize(
    "command",
    [("simulate", "--policy"), ("compare", "--policies"), ("whatif", "--policies"), ("sweep", "trace", "--policies")],
)
def test_settings_by_model_are_pairs(command: tuple[str, ...]) -> None:
    common = ("--trace", "workload.csv", "--throughputs", "goodput", "--cluster", "t4:8", "--out", "out")
    refused = invoke(*command, "sia", *common, "--set", "goodput_slowdown=bert:1.2,cifar10:fast")
    assert "field 'goodput_slowdown': found 'fast', expected a list of NAME:NUMBER" in str(refused.exception)
    refused = invoke(*command, "sia", *common, "--set", "goodput_slowdown=bert:0")
    assert "goodput_slowdown of bert" in str(refused.exception)
    refused = invoke(*command, "sia", *common, "--set", "goodput_slowdown=bert:1.2,bert:1.3")
    assert "goodput_slowdown" in str(refused.exception)
    assert "each name once" in str(refused.exception)
    refused = invoke(*command, "sia", *common, "--set", "restart_penalty_by_job_type=bert:-3")
    assert "restart_penalty_by_job_type of bert" in str(refused.exception)
    assert "found -3.0" in str(refused.exception)
    assert "seconds of at least 0" in str(refused.exception)
    refused = invoke(*command, "sia", *common, "--set", "policy.restart_seconds_of_type=bert:-1")
    assert "restart_seconds_of_type of bert" in str(refused.exception)
    assert not Path("out").exists()
    done = invoke(*command, "sia", *common, "--set", "goodput_slowdown=bert:1.2,cifar10:1.1")
    assert done.exit_code == 0, (done.output, done.exception)


@pytest.mark.usefixtures("workload")
def test_slower_steps_and_fewer_gpus_of_a_model_show_in_its_jobs() -> None:
    common = ("--trace", "workload.csv", "--policy", "sia", "--throughputs", "goodput", "--cluster", "t4:64")
    jct = {}
    for name, words in (
        ("usual", ()),
        ("slow", ("--set", "goodput_slowdown=ncf:2")),
        ("one", ("--set", "goodput_most_gpus_of_model=bert:1,cifar10:64")),
    ):
        done = invoke("simulate", *common, *words, "--gpus-per-server", "t4:4", "--out", name)
        assert done.exit_code == 0, done.output
        jct[name] = pd.read_csv(Path(name) / "jobs.csv")["jct"].to_numpy()
    assert jct["slow"][2] > 1.5 * jct["usual"][2]
    assert jct["one"][3] > 2 * jct["usual"][3]
    wrong = invoke("simulate", *common, "--set", "goodput_most_gpus_of_model=bret:1", "--out", "wrong")
    assert "field 'goodput_most_gpus_of_model': found 'bret', expected a known name (did you mean 'bert'?)" in str(
        wrong.exception
    )


@pytest.mark.usefixtures("workload")
def test_questions_and_sweeps_know_the_embedded_profiles() -> None:
    common = ("--trace", "workload.csv", "--policies", "sia", "--throughputs", "goodput", "--cluster", "t4:8")
    for command in (("whatif", "--next-gpus", "0"), ("sweep", "trace")):
        done = invoke(*command, *common, "--out", command[0])
        assert done.exit_code == 0, (done.output, done.exception)
    assert Path("whatif/whatif.html").exists()


@pytest.mark.usefixtures("workload")
def test_measured_models_are_a_folder_of_folders() -> None:
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


@pytest.mark.usefixtures("workload")
def test_a_trace_is_not_written_onto_itself() -> None:
    before = Path("workload.csv").read_text()
    done = invoke("trace", "convert", "workload.csv", "workload.csv", "--to", "pollux")
    assert "another file than workload.csv" in str(done.exception)
    assert Path("workload.csv").read_text() == before
