"""The options of ``allocator simulate`` and ``allocator compare`` as a user gives them."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from allocator.cli.app import app

CLUSTER = ["--cluster", "v100:4,p100:4,k80:4"]


def run(*arguments, ok=True):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if ok:
        assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return done


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("options") / "jobs.csv"
    run("trace", "generate", "--jobs", 40, "--mean-interarrival", 900, "--single-gpu", "--priorities", "--out", path)
    return path


def simulated(trace, out, *options):
    done = run("simulate", "--trace", trace, *CLUSTER, "--policy", "isolated", "--out", out, "--json", *options)
    return json.loads(done.stdout)


def test_settings_with_options_of_their_own(trace, tmp_path):
    options = ("--queue", "per_type", "--recompute-interval", "720", "--round", "180", "--max-waiting", "500")
    settings = simulated(trace, tmp_path, *options, "--max-clock", "1e9")["settings"]
    assert (settings["queue"], settings["recompute_interval_seconds"]) == ("per_type", 720.0)
    assert (settings["round_seconds"], settings["max_waiting_jobs"]) == (180.0, 500)
    assert settings["max_clock_seconds"] == 1e9
    assert settings["ideal"] is False


def test_ideal_window_preload_slos_and_prices(trace, tmp_path):
    (tmp_path / "prices.csv").write_text("time_seconds,accelerator,price\n0,v100,1\n0,p100,1\n0,k80,1\n")
    options = ["--ideal", "--window", "12:30", "--preload", "--slos", "--seed", "5"]
    summary = simulated(trace, tmp_path, *options, "--prices", tmp_path / "prices.csv")
    jobs = pd.read_csv(tmp_path / "jobs.csv")
    assert (jobs["arrival_time"][:12] == 0).all()
    assert jobs["measured"].sum() == summary["jobs"] == 18
    assert summary["deadline_jobs"] == 18
    assert set(jobs["deadline"].notna()) == {True}
    assert summary["cost"] == pytest.approx(jobs["gpu_seconds"].sum() / 3600)
    assert len(pd.read_csv(tmp_path / "priorities.csv")) == 2
    again = simulated(trace, tmp_path, *options, "--prices", "v100:1,p100:1,k80:1")
    assert again["cost"] == pytest.approx(summary["cost"])
    assert again["deadline_ratio"] == summary["deadline_ratio"]


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--window", "5-9", "FIRST:END"),
        ("--prices", "v100:cheap", "TYPE:PRICE"),
        ("--prices", "v100:1", "p100"),
        ("--queue", "both", "per_type or global"),
        ("--max-waiting", "-1", "at least 0"),
        ("--unconsolidated", None, "v100_unconsolidated"),
    ],
)
def test_bad_values_are_named(trace, tmp_path, option, value, expected):
    arguments = [option] if value is None else [option, value]
    base = ("simulate", "--trace", trace, *CLUSTER, "--policy", "isolated", "--out", tmp_path)
    done = run(*base, *arguments, ok=False)
    assert done.exit_code != 0
    assert expected in str(done.exception)
