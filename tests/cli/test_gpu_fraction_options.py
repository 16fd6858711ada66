"""Fractions of a GPU on the command line, in what-if questions, recorded schedules and explanations."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pandas as pd
import pytest

from allocator import whatif
from allocator.recorded import recorded_schedule
from throughputs import Trace, write_trace

HALVES = Trace(
    ["a"] * 4, [1] * 4, [600.0] * 4, [0.0] * 4, duration=[600.0] * 4, gpu_fraction=[0.5, 0.25, 1.0, 0.3],
    recorded_start_seconds=[0.0, 0.0, 0.0, 600.0], recorded_end_seconds=[600.0, 600.0, 600.0, 1200.0],
)  # fmt: skip


def run(*arguments):
    command = [sys.executable, "-m", "allocator", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("fractions") / "jobs.csv"
    write_trace(HALVES, path)
    return path


def test_simulate_and_explain(trace, tmp_path):
    done = run("simulate", "--trace", trace, "--cluster", "gpu:2", "--policy", "fcfs", "--out", tmp_path / "shared")
    assert done.returncode == 0, done.stderr
    assert "gpu_fraction" not in done.stderr
    jobs = pd.read_csv(tmp_path / "shared" / "jobs.csv")
    assert jobs["gpu_fraction"].tolist() == [0.5, 0.25, 1.0, 0.3]
    assert jobs["gpu_seconds"].tolist() == [315.0, 157.5, 630.0, 189.0]
    told = run("explain", tmp_path / "shared", "--job", 3)
    assert told.returncode == 0, told.stderr
    assert "0.3 of a GPU" in told.stdout
    assert "0.25 of 2 gpu free" in told.stdout


def test_a_policy_of_whole_gpus_says_so(trace, tmp_path):
    common = ("simulate", "--trace", trace, "--cluster", "gpu:2", "--policy", "max_min_fairness")
    refused = run(*common, "--out", tmp_path / "refused")
    assert refused.returncode != 0
    assert "field 'gpu_fraction of job 0': found 0.5, expected 1, as policy max_min_fairness" in refused.stderr
    assert "--whole-gpus" in refused.stderr
    assert not (tmp_path / "refused" / "jobs.csv").exists()
    done = run(*common, "--whole-gpus", "--out", tmp_path / "whole")
    assert done.returncode == 0, done.stderr
    assert "gpu_fraction" not in pd.read_csv(tmp_path / "whole" / "jobs.csv")


def test_compare_has_the_recorded_schedule_by_fractions(trace, tmp_path):
    done = run("compare", "--trace", trace, "--cluster", "gpu:2", "--policies", "fcfs", "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["policy"]: row for row in json.loads(done.stdout)}
    assert rows["recorded"]["utilization"] == pytest.approx((600 * 1.75 + 600 * 0.3) / 2400)


def test_recorded_fractions_count_as_such():
    recorded = recorded_schedule(HALVES, "gpu:2")
    assert recorded.timeline["busy_gpus"].tolist() == pytest.approx([1.75, 0.3])
    assert recorded.jobs["gpu_seconds"].tolist() == [300.0, 150.0, 600.0, 180.0]


def test_what_if():
    found = whatif(HALVES, ["gpu:2", "gpu:3"], policies="fcfs", next_gpus=0).table
    assert found["policy"].tolist() == ["fcfs", "fcfs", "recorded"]
    assert found["average_jct"].tolist() == pytest.approx([787.5, 630.0, 750.0])
    whole = whatif(HALVES, ["gpu:2"], policies="max_min_fairness", next_gpus=0, whole_gpus=True).table
    assert whole["status"].tolist() == ["completed", "completed"]
