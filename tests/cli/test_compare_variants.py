"""One policy with different settings side by side, and comparisons in which a policy fails."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from allocator import registry
from allocator.protocol import Assignment, Plan, PlanPolicy
from tests.cli.command import Done, run

LABEL = "elasticflow:admission=repair,margin_seconds=5"
COMPARE = "compare --jobs 8 --mean-interarrival 600 --cluster v100:4 --out ."


def compared(line: str, code: int = 0) -> tuple[Done, list[dict]]:
    done = run(f"{COMPARE} {line}")
    assert done.code == code, done.err
    return done, json.loads(Path("comparison.json").read_text())


@pytest.mark.usefixtures("folder")
def test_one_policy_with_two_settings():
    done, (first, second) = compared(f"--slos --policies elasticflow,{LABEL} --set policy.margin_seconds=3")
    assert f"{LABEL}: 8 jobs with a deadline:" in " ".join(done.out.split())
    assert [first["policy"], second["policy"], second["label"]] == ["elasticflow", "elasticflow", LABEL]
    assert "label" not in first
    # what is said of one policy stands above what is said of all
    used = [row["settings"]["policy_settings"] for row in (first, second)]
    assert [(each["margin_seconds"], each["admission"]) for each in used] == [(3.0, "each"), (5.0, "repair")]
    for row, name in ((first, "elasticflow"), (second, "elasticflow-admission=repair,margin_seconds=5")):
        assert json.loads(Path(name, "summary.json").read_text())["settings"] == row["settings"]
    assert f'"name":"{LABEL}"' in Path("report.html").read_text().replace('": "', '":"')
    # the next comparison there is not beside runs of this one
    compared("--policies fifo")
    assert [path.parent.name for path in Path().glob("*/summary.json")] == ["fifo"]


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
def failing(monkeypatch, folder):
    """Two more policies, for one test."""
    registry.list_policies()
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    registry.register("idle", paper="", program="")(Idle)
    registry.register("broken", paper="", program="")(Broken)
    return folder


@pytest.mark.exhaustive
def test_what_fails_is_named_and_the_others_are_compared(failing):
    stale = failing / "idle" / "summary.json"
    stale.parent.mkdir()
    stale.write_text('{"policy": "idle", "status_detail": ""}')
    done, rows = compared("--policies idle,fifo,broken,isolated", code=1)
    assert "idle failed: policy idle" in done.err
    assert "broken failed: ZeroDivisionError: no jobs to divide by" in done.err
    assert "Traceback" in done.err
    assert not stale.exists()
    assert [(row["policy"], row["status"]) for row in rows] == [
        ("fifo", "completed"), ("isolated", "completed"), ("idle", "failed"), ("broken", "failed"),
    ]  # fmt: skip
    assert rows[2]["status_detail"].startswith("policy idle: ")
    assert "idle failed: policy idle" in Path("report.html").read_text()
    assert {"fifo", "isolated"} <= {path.parent.name for path in failing.glob("*/summary.json")}
    seeds = run(f"{COMPARE} --policies fifo,idle --runs 2")
    assert [f"idle, seed {seed} failed: " in seeds.err for seed in (0, 1)] == [True, True]
    # where all fail the first error is that of the comparison
    alone = run(f"{COMPARE} --policies idle")
    assert (alone.code, alone.out, "policy idle" in alone.err) == (1, "", True)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("folder")
def test_several_runs_of_each_policy():
    done, rows = compared("--policies fifo,srtf --runs 2 --seed 3")
    assert "means of 2 runs, seeds 3 to 4" in " ".join(done.out.split())
    assert [(row["policy"], row["settings"]["seed"]) for row in rows] == [
        ("fifo", 3), ("srtf", 3), ("fifo", 4), ("srtf", 4),
    ]  # fmt: skip
    for row in rows:
        kept = Path(f"seed-{row['settings']['seed']}", row["policy"], "summary.json")
        assert json.loads(kept.read_text())["average_jct"] == row["average_jct"]
    one, other = rows[0]["average_jct"], rows[2]["average_jct"]
    assert one != other
    assert f"{(one + other) / 2 / 3600:.4g}"[:4] in done.out
    assert "half-width" in Path("report.html").read_text()
    # all seeds are named, also of what was drawn too large; figures are paired by seed
    assert "(seeds 3 to 4)" in " ".join(done.out.split())
    assert {line.split(":")[0] for line in done.err.splitlines() if "never served" in line} == {"seed 4"}
    (difference,) = json.loads(Path("differences.json").read_text())
    assert difference["pairs"] == 2
    by_seed = [second["average_jct"] - first["average_jct"] for first, second in (rows[:2], rows[2:])]
    assert difference["mean"]["average_jct"] == pytest.approx(sum(by_seed) / 2)
    assert "Differences from fifo with the same seeds: means of 2 pairs" in " ".join(done.out.split())
    _, (alone,) = compared("--policies fifo --seed 4")
    assert alone["average_jct"] == other
    assert not Path("differences.json").exists()
