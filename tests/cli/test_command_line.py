"""The commands as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pandas as pd
import pytest

INSTANCE = {
    "cluster": {"v100": 1, "k80": 1},
    "jobs": [
        {"job_id": 7, "throughputs": {"v100": 4.0, "k80": 1.0}, "num_steps_remaining": 100},
        {"job_id": 9, "throughputs": {"v100": 2.0, "k80": 1.0}, "priority_weight": 2, "time_since_start": 5},
    ],
}


def run(*arguments, check=True):
    done = subprocess.run([sys.executable, "-m", "allocator", *map(str, arguments)], capture_output=True, text=True)
    if check:
        assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def instance(tmp_path):
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(INSTANCE))
    return path


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "jobs.csv"
    run("trace", "generate", "--jobs", 12, "--mean-interarrival", 900, "--seed", 3, "--out", path)
    return path


def test_help_lists_the_commands():
    text = run("--help").stdout
    for command in ("solve", "simulate", "compare", "trace", "throughputs", "policies"):
        assert command in text


@pytest.mark.parametrize("command", ["solve", "simulate", "compare", "policies", "trace", "throughputs"])
def test_every_command_has_help(command):
    assert "Usage: " in run(command, "--help").stdout


def test_solve_to_the_screen(instance):
    answer = json.loads(run("solve", instance, "--policy", "max_min_fairness_perf").stdout)
    assert set(answer) >= {
        "policy", "status", "objective", "gap", "prices", "allocation", "effective_throughput", "solver", "seconds"
    }  # fmt: skip
    assert answer["status"] == "optimal"
    assert set(answer["prices"]) == {"v100", "k80"}
    assert set(answer["effective_throughput"]) == {"7", "9"}
    assert {tuple(entry["jobs"]) for entry in answer["allocation"]} == {(7,), (9,)}


def test_solve_to_a_file(instance, tmp_path):
    out = tmp_path / "answer.json"
    done = run("solve", instance, "--policy", "isolated", "--out", out)
    assert done.stdout == ""
    answer = json.loads(out.read_text())
    assert answer["objective"] is None
    assert answer["effective_throughput"]["7"] == pytest.approx(2.5)


def test_solvers_agree(instance):
    by_default = json.loads(run("solve", instance, "--policy", "min_total_duration_perf").stdout)
    by_highs = json.loads(run("solve", instance, "--policy", "min_total_duration_perf", "--solver", "highs").stdout)
    assert by_highs["solver"] == "highs"
    assert by_highs["objective"] == pytest.approx(by_default["objective"], rel=1e-8)


def test_a_solver_that_cannot_says_so(instance):
    """No traceback when the named solver does not take the program."""
    done = run("solve", instance, "--policy", "finish_time_fairness_perf", "--solver", "homogeneous", check=False)
    assert done.returncode == 1
    assert (
        done.stderr
        == "error: homogeneous: the published path takes max-min, makespan and sums, not FinishTimeFairness\n"
    )


def test_help_names_every_solver():
    from formulations.solving.backends import BACKENDS

    text = run("solve", "--help").stdout
    assert all(name in text for name in BACKENDS)


def test_solve_as_a_table(instance):
    text = run("solve", instance, "--policy", "max_min_fairness_perf", "--table").stdout
    assert "v100" in text
    assert "optimal" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["jobs"][1]["throughputs"].pop("k80"), "field 'jobs[1].throughputs'"),
        (lambda data: data["jobs"][0].update(scale_factor=0), "field 'jobs[0].scale_factor'"),
        (lambda data: data["jobs"][0].update(job_id=9), "distinct job ids"),
        (lambda data: data["jobs"][0]["throughputs"].update(v100="fast"), "jobs[0].throughputs.v100"),
        (lambda data: data.pop("cluster"), "field 'cluster'"),
        (lambda data: data["jobs"][1].update(priority_weight=-1), "jobs[1].priority_weight"),
    ],
)
def test_bad_instances_say_which_field(tmp_path, change, message):
    data = json.loads(json.dumps(INSTANCE))
    change(data)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data))
    done = run("solve", path, "--policy", "isolated", check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {path}")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_broken_json_says_the_line(tmp_path):
    path = tmp_path / "bad.json"
    path.write_text('{"cluster": {"v100": 1},\n "jobs": [}')
    done = run("solve", path, "--policy", "isolated", check=False)
    assert done.returncode == 2
    assert f"{path}:2" in done.stderr


def test_missing_file_and_misspelt_policy(instance, tmp_path):
    assert "no such file" in run("solve", tmp_path / "none.json", "--policy", "isolated", check=False).stderr
    done = run("solve", instance, "--policy", "isolate", check=False)
    assert done.returncode == 2
    assert "did you mean 'isolated'" in done.stderr


def test_simulate_writes_its_results(trace, tmp_path):
    out = tmp_path / "run"
    arguments = (
        "--trace",
        trace,
        "--cluster",
        "v100:4,p100:4,k80:4",
        "--policy",
        "max_min_fairness_perf",
        "--out",
        out,
    )
    summary = json.loads(run("simulate", *arguments, "--json").stdout)
    assert summary == json.loads((out / "summary.json").read_text())
    assert set(summary) >= {
        "average_jct", "makespan", "utilization", "completed_jobs", "rounds", "policy_seconds", "wall_seconds"
    }  # fmt: skip
    jobs = pd.read_csv(out / "jobs.csv")
    assert jobs["job_id"].tolist() == list(range(12))
    assert {"job_type", "scale_factor", "arrival_time", "start_time", "completion_time", "jct"} <= set(jobs)
    assert jobs["jct"].mean() == pytest.approx(summary["average_jct"])
    rounds = pd.read_parquet(out / "rounds.parquet")
    assert set(rounds["job_id"]) == set(range(12))
    assert summary["rounds"] == rounds["round"].max() + 1


def test_simulations_repeat_to_the_last_digit(trace, tmp_path):
    arguments = ("--trace", trace, "--cluster", "v100:2,p100:2,k80:2", "--policy", "max_min_fairness", "--seed", 5)
    run("simulate", *arguments, "--out", tmp_path / "one")
    run("simulate", *arguments, "--out", tmp_path / "two")
    assert (tmp_path / "one" / "jobs.csv").read_bytes() == (tmp_path / "two" / "jobs.csv").read_bytes()


def test_preset_and_settings_reach_the_run(trace, tmp_path):
    arguments = (
        "--trace",
        trace,
        "--cluster",
        "v100:4,p100:4,k80:4",
        "--policy",
        "isolated",
        "--out",
        tmp_path,
        "--json",
    )
    settings = json.loads(run("simulate", *arguments, "--preset", "gavel", "--round", 720).stdout)["settings"]
    assert settings["preset"] == "gavel"
    assert settings["round_seconds"] == 720
    assert settings["recompute_interval_seconds"] == 1920
    changed = json.loads(run("simulate", *arguments, "--set", "recompute_interval_seconds=100").stdout)["settings"]
    assert changed["recompute_interval_seconds"] == 100
    for wrong, said in (
        (
            "round_second=1",
            "--set: found 'round_second', expected a setting of mechanism or simulator (did you mean 'round_s",
        ),
        ("zzzz=1", "found 'zzzz', expected a setting of mechanism or simulator; docs/simulator.md"),
        ("round_seconds=x", "--set: field 'round_seconds': found 'x', expected a finite number"),
    ):
        done = run("simulate", *arguments, "--set", wrong, check=False)
        assert done.returncode == 2
        assert said in done.stderr
    mine = run("simulate", *arguments, "--policy", "sia", "--set", "power=2", check=False)
    assert "--set: found 'power', expected policy.power, as it is a setting of sia" in mine.stderr


def test_compare_writes_one_page(trace, tmp_path):
    done = run(
        "compare",
        "--policies",
        "isolated,fifo_perf",
        "--trace",
        trace,
        "--cluster",
        "v100:4,p100:4,k80:4",
        "--out",
        tmp_path,
    )
    assert "isolated" in done.stdout
    assert "fifo_perf" in done.stdout
    page = (tmp_path / "report.html").read_text()
    assert "isolated" in page
    comparison = json.loads((tmp_path / "comparison.json").read_text())
    assert [summary["policy"] for summary in comparison] == ["isolated", "fifo_perf"]
    assert (tmp_path / "fifo_perf" / "jobs.csv").exists()


def test_compare_refuses_a_policy_twice(tmp_path):
    done = run("compare", "--policies", "isolated,isolated", "--out", tmp_path, check=False)
    assert done.returncode == 2
    assert "distinct names" in done.stderr


def test_traces_convert_and_back(trace, tmp_path):
    text, again = tmp_path / "jobs.trace", tmp_path / "again.parquet"
    run("trace", "convert", trace, text, "--to", "gavel")
    run("trace", "convert", text, again)
    described = json.loads(run("trace", "describe", again, "--json").stdout)
    assert described["n_jobs"] == 12
    assert described["gpu_hours"] == pytest.approx(
        json.loads(run("trace", "describe", trace, "--json").stdout)["gpu_hours"], rel=1e-3
    )


def test_published_generator_by_preset(tmp_path, public_data):
    ours, theirs = tmp_path / "n40.trace", public_data("gavel/traces/n40_lam900_multi0_prio0_seed0.trace")
    run(
        "trace",
        "generate",
        "--preset",
        "gavel",
        "--jobs",
        40,
        "--mean-interarrival",
        900,
        "--single-gpu",
        "--format",
        "gavel",
        "--out",
        ours,
    )
    assert ours.read_bytes() == theirs.read_bytes()


def test_policies_and_throughputs_as_json():
    policies = {entry["name"]: entry for entry in json.loads(run("policies", "--json").stdout)}
    assert policies["max_min_fairness_perf"]["program"]
    assert "OSDI 2020" in policies["max_min_fairness_perf"]["paper"]
    table = json.loads(run("throughputs", "describe", "--json").stdout)
    assert table["job_types"] == 26
    assert set(table["accelerators"]) == {"v100", "p100", "k80"}
    assert len(table["throughputs"]) == 83


def test_policies_for_people():
    text = run("policies").stdout
    assert "max_x min_i s_i T_i.x_i / (w_i p_i)" in text


def test_import_is_light():
    """The names are imported at first use: neither pandas nor a solver comes with the package."""
    script = (
        "import allocator, sys; print([m for m in ('pandas', 'scipy', 'highspy', 'cvxpy', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_terminal_that_lacks_a_character_is_shown_its_number():
    program = """
import sys
from allocator.cli import app, main
sys.argv = ["allocator", "--help"]
app.info.help = "Größe \\ud800"
main()
"""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert shown.returncode == 0, shown.stderr
    assert "Gr\\xf6\\xdfe \\ud800" in shown.stdout
