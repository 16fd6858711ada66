"""Traces, throughputs and clusters of ElasticFlow and Chronus on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from allocator.cli.app import app
from throughputs import InputError

TRACE = """job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort
a,0,3600,bert,9000,64,1,3600,0
b,60,7200,bert,3700,64,2,3600,0
c,120,720,bert,9000,64,1,720,1
"""
SOFT = """job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,\
expect_time_list,expect_value_list,best_effort,job_type
0,u,1,1,50,alexnet,10,7,15-30,10-5,0,soft
1,u,2,2,50,alexnet,10,7,100,10,0,strict
"""
SPEC = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,2,2,64,256\n"
SPEEDS = "global_batch_size,1,2,4\n64,1,2,3\n"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "jobs.csv").write_text(TRACE)
    (tmp_path / "soft.csv").write_text(SOFT)
    (tmp_path / "n2g2.csv").write_text(SPEC)
    (tmp_path / "throughputs_A100").mkdir()
    (tmp_path / "throughputs_A100" / "bert.csv").write_text(SPEEDS)
    return {path.name: str(path) for path in tmp_path.iterdir()} | {"out": str(tmp_path / "out")}


def ran(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return done.stdout


def refused(told: str, *arguments: str) -> None:
    done = CliRunner().invoke(app, list(arguments))
    assert isinstance(done.exception, InputError)
    assert told in str(done.exception)


def test_a_simulation_of_files_of_elasticflow(files: dict[str, str]) -> None:
    inputs = ("--trace", files["jobs.csv"], "--throughputs", files["throughputs_A100"], "--cluster", files["n2g2.csv"])
    summary = json.loads(ran("simulate", *inputs, "--policy", "fifo", "--out", files["out"], "--json"))
    assert summary["cluster"] == "a100:4"
    assert {name: summary[name] for name in ("deadline_jobs", "admitted", "rejected", "met", "late")} == {
        "deadline_jobs": 2,
        "admitted": 2,
        "rejected": 0,
        "met": 1,
        "late": 1,
    }
    assert summary["deadline_ratio"] == 0.5
    assert summary["best_effort_average_jct"] == 990.0  # 30 s of it to start
    assert summary["cluster_efficiency"] > 0.5
    jobs = pd.read_csv(Path(files["out"]) / "jobs.csv")
    assert jobs["status"].tolist() == ["completed"] * 3
    assert jobs["deadline"].tolist()[:2] == [9000, 3700]
    assert jobs["met"].tolist()[:2] == [True, False]
    assert jobs["met"].isna()[2]
    said = ran("simulate", *inputs, "--policy", "fifo", "--out", files["out"])
    assert "50.0% of 2 jobs with a deadline in time" in said
    counted = ("--cluster", "a100:4", "--gpus-per-server", "a100:2")
    again = json.loads(ran("simulate", *inputs[:4], *counted, "--policy", "fifo", "--out", files["out"], "--json"))
    assert again["average_jct"] == summary["average_jct"]


def test_the_accelerator_type(files: dict[str, str], tmp_path: Path) -> None:
    other = (tmp_path / "throughputs_A100").rename(tmp_path / "speeds")
    inputs = ("simulate", "--trace", files["jobs.csv"], "--cluster", files["n2g2.csv"], "--policy", "fifo")
    inputs += ("--out", files["out"], "--json", "--throughputs", str(other))
    refused("--accelerator TYPE", *inputs)
    assert json.loads(ran(*inputs, "--accelerator", "t4"))["cluster"] == "t4:4"
    refused("--gpus-per-server", *inputs, "--accelerator", "t4", "--gpus-per-server", "t4:2")
    described = json.loads(ran("throughputs", "describe", str(other), "--accelerator", "t4", "--json"))
    assert described["accelerators"] == ["t4"]


def test_soft_deadlines_in_other_units(files: dict[str, str]) -> None:
    inputs = ("simulate", "--trace", files["soft.csv"], "--cluster", "a100:1", "--policy", "fifo", "--json")
    summary = json.loads(ran(*inputs, "--out", files["out"]))
    assert (summary["deadline_jobs"], summary["met"], summary["unserved_jobs"]) == (2, 1, 1)
    jobs = pd.read_csv(Path(files["out"]) / "jobs.csv")
    assert (jobs["deadline"][0], jobs["last_deadline"][0], jobs["value_kept"][0]) == (960, 1860, 1)
    ran(*inputs, "--out", files["out"], "--time-unit", "1")
    assert pd.read_csv(Path(files["out"]) / "jobs.csv")["deadline"].tolist() == [16, 102]


def test_traces_are_described_and_converted(files: dict[str, str], tmp_path: Path) -> None:
    described = json.loads(ran("trace", "describe", files["soft.csv"], "--json"))
    assert (described["n_jobs_with_deadline"], described["n_jobs_with_deadline_options"]) == (2, 1)
    folder = ("--throughputs", files["throughputs_A100"])
    described = json.loads(ran("trace", "describe", files["jobs.csv"], *folder, "--json"))
    assert (described["n_jobs_not_profiled"], described["gpu_hours"]) == (0, (3600 + 2 * 3600 + 720) / 3600)
    own = str(tmp_path / "own.csv")
    ran("trace", "convert", files["soft.csv"], own, "--from", "chronus", "--time-unit", "60")
    assert "960.0:10.0 1860.0:5.0" in Path(own).read_text()
    refused("chronos", "trace", "convert", files["soft.csv"], own, "--from", "chronos")


def test_an_unknown_job_type_is_named(files: dict[str, str], tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text(TRACE.replace("bert", "brt"))
    inputs = ("simulate", "--trace", str(other), "--throughputs", files["throughputs_A100"], "--policy", "fifo")
    refused("'brt (batch size 64)'", *inputs, "--cluster", "a100:2,t4:2", "--out", files["out"])


def test_the_command_that_scripts_rely_on(files: dict[str, str]) -> None:
    inputs = ("--trace", files["jobs.csv"], "--throughputs", files["throughputs_A100"], "--cluster", files["n2g2.csv"])
    inputs = ("simulate", "--preset", "elasticflow", *inputs, "--out", files["out"], "--json")
    told = {}
    for policy in ("elasticflow", "elasticflow_no_admission", "edf", "edf_admission"):
        summary = json.loads(ran(*inputs, "--slot", "240", "--policy", policy))
        assert summary["settings"]["slot_seconds"] == 240.0
        jobs = pd.read_csv(Path(files["out"]) / "jobs.csv")
        assert {"status", "deadline", "met"} <= set(jobs.columns)
        assert (jobs["status"] == "rejected").sum() == summary["rejected"]
        assert (jobs["met"] == True).sum() == summary["met"]  # noqa: E712 - empty for best effort
        assert summary["deadline_ratio"] == summary["met"] / summary["deadline_jobs"] == summary["met"] / 2
        assert summary["admitted"] + summary["rejected"] == 2
        assert summary["best_effort_average_jct"] > 0
        told[policy] = summary
    # A slot of the policy's own follows as well, and may be set on its own.
    assert told["elasticflow"]["settings"]["policy_settings"]["slot_seconds"] == 240.0
    own = json.loads(ran(*inputs, "--slot", "240", "--set", "policy.slot_seconds=60", "--policy", "elasticflow"))
    assert own["settings"]["policy_settings"]["slot_seconds"] == 60.0
    # The original's name of the policy.
    again = json.loads(ran(*inputs, "--slot", "240", "--policy", "ef-accessctrl"))
    assert again["average_jct"] == told["elasticflow"]["average_jct"]


def test_throughputs_that_were_forgotten(files: dict[str, str], tmp_path: Path) -> None:
    """A trace of ElasticFlow runs without them, on fixed numbers of GPUs; that is said."""
    out = ("--out", files["out"], "--json")

    def told(trace: str, *arguments: str) -> str:
        done = CliRunner().invoke(app, ["simulate", "--trace", trace, "--cluster", "a100:4", *arguments, *out])
        assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
        return done.stderr

    said = told(files["jobs.csv"], "--policy", "elasticflow")
    assert said.startswith("warning: ")
    assert "jobs of bert (batch size 64) run on the GPUs that they ask for only" in said
    assert "--throughputs throughputs_A100 (allocator data fetch elasticflow-throughputs)" in said
    assert not told(files["jobs.csv"], "--policy", "elasticflow", "--throughputs", files["throughputs_A100"])
    (tmp_path / "misspelt.csv").write_text(Path(files["jobs.csv"]).read_text().replace("bert", "Bert"))
    given = (str(tmp_path / "misspelt.csv"), "--throughputs", files["throughputs_A100"], "--policy")
    said = told(*given, "elasticflow")
    assert "jobs of Bert (batch size 64) run on the GPUs that they ask for only, as fast as their durations say" in said
    assert "throughputs_A100 has no throughputs of theirs" in said
    assert not told(*given, "tiresias")
    asked = ["whatif", "--trace", *given[:-1], "--cluster", "a100:4", "--policies", "elasticflow", "--next-gpus", "0"]
    asked_what_if = CliRunner().invoke(app, [*asked, "-j", "1", *out])
    assert "throughputs_A100 has no throughputs of theirs" in asked_what_if.stderr
    # durations are all that Chronus and fixed gangs need
    assert "--throughputs" not in told(files["soft.csv"], "--policy", "chronus")
    assert "jobs of alexnet run on the GPUs" in told(files["soft.csv"], "--policy", "elasticflow")
    (tmp_path / "named.csv").write_text(SOFT.replace("alexnet", "A3C"))
    on_v100 = ("--cluster", "v100:4", "--policy", "chronus")
    assert "has A3C under the same name, from other programs" in told(str(tmp_path / "named.csv"), *on_v100)
    several = ("--cluster", "v100:4,p100:4", "--policy", "fifo", "--out", files["out"])
    refused("models that the default throughput table lacks", "simulate", "--trace", files["jobs.csv"], *several)
    one_more = ("--job-type", "A3C", "--steps", "9", "--within", "900", "--cluster", "v100:4")
    asked = CliRunner().invoke(app, ["admit", "--trace", files["jobs.csv"], *one_more])
    assert "--throughputs throughputs_A100" in asked.stderr


@pytest.mark.parametrize("steps", ["0", "-5", "nan", "inf"])
def test_steps_of_a_newcomer_are_told_by_their_option(steps: str) -> None:
    asked = ("admit", "--cluster", "v100:4", "--job-type", "A3C", "--within", "900", "--steps", steps)
    refused("--steps: found", *asked)


def test_models_that_become_one_application_are_said(files: dict[str, str], tmp_path: Path) -> None:
    soft = SOFT.replace("1,u,2,2,50,alexnet", "1,u,2,2,50,vgg")
    Path(files["soft.csv"]).write_text(soft.replace("iterations,", "iterations,batch_size,").replace(",50,", ",50,8,"))
    out = tmp_path / "pollux.csv"
    given = ["trace", "convert", files["soft.csv"], str(out), "--to", "pollux", "--lossy", "--rename"]
    done = CliRunner().invoke(app, [*given, "vgg=alexnet"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.stderr.endswith(f"warning: {out}: the models alexnet, vgg are one application there, alexnet\n")
    assert set(pd.read_csv(out)["application"]) == {"alexnet"}
    apart = CliRunner().invoke(app, [*given, "vgg=vgg16"], catch_exceptions=False)
    assert "one application" not in apart.stderr
    twice = CliRunner().invoke(app, [*given, "vgg=a", "--rename", "vgg=b"])
    assert "--rename: field 'vgg': found 'a, and b', expected each model once" in str(twice.exception)
