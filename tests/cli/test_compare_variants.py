"""One policy with different settings side by side, and comparisons in which a policy fails."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from allocator import registry
from allocator.cli.app import app
from allocator.protocol import Assignment, Plan, PlanPolicy
from allocator.simulator import SimulationStalledError
from throughputs import InputError

JOBS = ("--jobs", "12", "--mean-interarrival", "600", "--cluster", "v100:4", "--slos")
TWICE = "elasticflow,elasticflow:admission=repair,margin_seconds=5"
LABEL = "elasticflow:admission=repair,margin_seconds=5"


def compared(policies: str, out: Path, *more: str, code: int = 0) -> tuple[str, str]:
    """Standard output and standard error."""
    done = CliRunner().invoke(app, ["compare", "--policies", policies, *JOBS, "--out", str(out), *more])
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.stdout, done.stderr


def test_one_policy_with_two_settings(tmp_path):
    shown, _ = compared(TWICE, tmp_path, "--set", "policy.margin_seconds=3")
    assert f"{LABEL}: deadlines:" in " ".join(shown.split())
    first, second = json.loads((tmp_path / "comparison.json").read_text())
    assert [first["policy"], second["policy"]] == ["elasticflow", "elasticflow"]
    assert "label" not in first
    assert second["label"] == LABEL
    # what is said of one policy stands above what is said of all
    assert [row["settings"]["policy_settings"]["margin_seconds"] for row in (first, second)] == [3.0, 5.0]
    assert [row["settings"]["policy_settings"]["admission"] for row in (first, second)] == ["each", "repair"]
    for row, folder in ((first, "elasticflow"), (second, "elasticflow-admission=repair,margin_seconds=5")):
        kept = json.loads((tmp_path / folder / "summary.json").read_text())
        assert kept["settings"] == row["settings"]
    page = (tmp_path / "report.html").read_text()
    assert f'"name":"{LABEL}"' in page.replace('": "', '":"')


def test_bars_have_room_beside_long_labels(tmp_path):
    shown, _ = compared("edf,elasticflow:levels=all,margin_seconds=5", tmp_path, "--preset", "elasticflow")
    bar = next(line for line in shown.splitlines() if line.startswith("elasticflow:…in_seconds=5 "))
    assert "█" in bar
    assert "x" in bar.split("█")[-1]


def test_a_simulation_takes_settings_with_the_policy(tmp_path):
    trace = tmp_path / "jobs.csv"
    made = CliRunner().invoke(app, ["trace", "generate", "--out", str(trace), "--jobs", "5"])
    assert made.exit_code == 0, made.output
    arguments = ["simulate", "--trace", str(trace), "--cluster", "v100:8", "--out", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(app, [*arguments, "--policy", "elasticflow:levels=all"])
    summary = json.loads(done.stdout)
    assert (summary["label"], summary["settings"]["policy_settings"]["levels"]) == ("elasticflow:levels=all", "all")
    two = CliRunner().invoke(app, [*arguments, "--policy", "elasticflow,fifo"])
    assert isinstance(two.exception, InputError)
    assert "one policy" in str(two.exception)


def test_a_sweep_takes_settings_with_the_policies(tmp_path):
    arguments = ["sweep", "static", "--policies", "fifo,elasticflow,elasticflow:admission=repair", "--jobs", "10"]
    done = CliRunner().invoke(app, [*arguments, "--cluster", "v100:8", "--out", str(tmp_path), "--plan", "--json"])
    assert done.exit_code == 0, done.output
    assert [point["policy"] for point in json.loads(done.stdout)] == [
        {"name": "fifo"},
        {"name": "elasticflow"},
        {"name": "elasticflow", "admission": "repair"},
    ]


@dataclass(frozen=True)
class Idle(PlanPolicy):
    """Runs nobody."""

    def plan(self, state, memory):  # noqa: ARG002
        return Plan.until_next_event(Assignment.of([], [], []))


@dataclass(frozen=True)
class Broken(PlanPolicy):
    """Cannot decide."""

    def plan(self, state, memory):  # noqa: ARG002
        raise ZeroDivisionError("no jobs\nto divide by")


@pytest.fixture
def failing(monkeypatch):
    """Two more policies, for one test."""
    registry.list_policies()
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    registry.register("idle", paper="", program="")(Idle)
    registry.register("broken", paper="", program="")(Broken)


@pytest.mark.usefixtures("failing")
def test_what_fails_is_named_and_the_others_are_compared(tmp_path):
    stale = tmp_path / "idle" / "summary.json"
    stale.parent.mkdir()
    stale.write_text('{"policy": "idle", "status_detail": ""}')
    shown, told = compared("idle,fifo,broken,isolated", tmp_path, code=1)
    assert "idle failed: policy idle: no job made progress in 100 rounds" in told
    assert "broken failed: ZeroDivisionError: no jobs to divide by" in told
    assert "Traceback" in told
    assert "fifo" in shown
    assert not stale.exists()
    rows = json.loads((tmp_path / "comparison.json").read_text())
    assert [(row["policy"], row["status"]) for row in rows] == [
        ("fifo", "completed"), ("isolated", "completed"), ("idle", "failed"), ("broken", "failed"),
    ]  # fmt: skip
    assert rows[2]["status_detail"].startswith("policy idle: no job made progress")
    assert "idle failed: policy idle" in (tmp_path / "report.html").read_text()
    for name in ("fifo", "isolated"):
        assert (tmp_path / name / "summary.json").exists()
    listed = CliRunner().invoke(
        app, ["compare", "--policies", "fifo,broken", *JOBS, "--out", str(tmp_path / "json"), "--json"]
    )
    assert listed.exit_code == 1
    assert [row["status"] for row in json.loads(listed.stdout)] == ["completed", "failed"]


@pytest.mark.usefixtures("failing")
def test_where_all_fail_the_first_error_is_that_of_the_comparison(tmp_path):
    done = CliRunner().invoke(app, ["compare", "--policies", "idle", *JOBS, "--out", str(tmp_path)])
    assert isinstance(done.exception, SimulationStalledError)


def test_several_runs_of_each_policy(tmp_path):
    shown, _ = compared("fifo,elasticflow", tmp_path, "--runs", "2", "--seed", "3")
    assert "means of 2 runs, seeds 3 to 4" in " ".join(shown.split())
    rows = json.loads((tmp_path / "comparison.json").read_text())
    assert [(row["policy"], row["settings"]["seed"]) for row in rows] == [
        (policy, seed) for seed in (3, 4) for policy in ("fifo", "elasticflow")
    ]
    for row in rows:
        folder = tmp_path / f"seed-{row['settings']['seed']}" / row["policy"]
        assert json.loads((folder / "summary.json").read_text())["average_jct"] == row["average_jct"]
    assert rows[0]["average_jct"] != rows[2]["average_jct"]
    mean = (rows[0]["average_jct"] + rows[2]["average_jct"]) / 2 / 3600
    assert f"{mean:.4g}"[:4] in shown
    assert "half-width" in (tmp_path / "report.html").read_text()
    alone = tmp_path / "alone"
    compared("fifo", alone, "--seed", "4")
    (row,) = json.loads((alone / "comparison.json").read_text())
    assert row["average_jct"] == rows[2]["average_jct"]


@pytest.mark.usefixtures("failing")
def test_a_run_that_fails_is_named_with_its_seed(tmp_path):
    _, told = compared("fifo,idle", tmp_path, "--runs", "2", code=1)
    assert "idle, seed 0 failed: " in told
    assert "idle, seed 1 failed: " in told


def test_a_full_disk_is_no_bug_of_a_policy(tmp_path, monkeypatch, capsys):
    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device", "jobs.csv")

    monkeypatch.setattr("allocator.cli.commands.compare.save_result", full)
    done = CliRunner().invoke(app, ["compare", "--policies", "fifo", *JOBS, "--out", str(tmp_path)])
    assert isinstance(done.exception, OSError)
    assert "Traceback" not in done.stderr + capsys.readouterr().err
