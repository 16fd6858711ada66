"""What jobs do in pairs, estimated on request: ``--profiling-percentage`` and ``--reference-models``."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from allocator.cli.app import app
from throughputs import gavel_trace, write_trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("estimation") / "jobs.csv"
    write_trace(gavel_trace(10, mean_interarrival=600.0, multi_gpu=False), path)
    return path


def simulate(trace, out, policy, *options):
    arguments = ["simulate", "--trace", trace, "--policy", policy, "--cluster", "v100:3,p100:3", "--out", out, *options]
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_run_says_how_it_estimated(trace, tmp_path):
    ran = simulate(trace, tmp_path, "max_min_fairness_packed", "--profiling-percentage", 0.4, "--reference-models", 5)
    assert ran.exit_code == 0, ran.output
    settings = json.loads((tmp_path / "summary.json").read_text())["settings"]["estimation"]
    assert (settings["profiling_percentage"], settings["reference_models"]) == (0.4, 5)


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        ("max_min_fairness_perf", ["--reference-models", 5], "share GPUs"),
        ("max_min_fairness_packed", ["--profiling-percentage", 1.5], "profiling_percentage"),
        ("max_min_fairness_packed", ["--reference-models", 0], "reference_models"),
    ],
)
def test_what_makes_no_sense_is_one_line(trace, tmp_path, policy, options, message):
    ran = simulate(trace, tmp_path / "out", policy, *options)
    assert ran.exit_code != 0
    assert message in str(ran.exception or "") + ran.output
    assert not (tmp_path / "out").exists()
