"""``allocator sweep`` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys

import pandas as pd
import pytest

from allocator.sweep import Sweep
from tests.sweep.sweep_definitions import TINY


def command(*arguments, status=0):
    done = subprocess.run(
        [sys.executable, "-m", "allocator", "sweep", *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    return done


def test_help():
    text = command("--help").stdout
    for name in ("continuous", "static", "run", "show"):
        assert name in text


def test_a_continuous_sweep(tmp_path):
    arguments = ["--rates", "0.3:0.6:2", "--window", "5:10", "--cluster", TINY, "--cluster", "v100:3", "--seeds", "0:2",
                 "--policies", "fifo_perf,max_min_fairness_perf", "--vary", "round_seconds=360,720",
                 "--vary", "policy.solver=[\"auto\",\"highs\"]", "--set", "queue=per_type", "--multi-gpu",
                 "-j", 2]  # fmt: skip
    plan = command("continuous", "--out", tmp_path, *arguments, "--plan", "--json")
    points = json.loads(plan.stdout)
    assert len(points) == 2 * 2 * 2 * 2 + 2 * 2 * 2 * 2 * 2  # fifo_perf has no solver
    assert not list(tmp_path.iterdir())
    assert {p["load"] for p in points} == {0.3, 0.6}
    assert all(p["workload"]["multi_gpu"] and p["settings"]["queue"] == "per_type" for p in points)


def test_a_static_sweep_and_its_table(tmp_path):
    done = command("static", "--jobs", "5,8", "--cluster", TINY, "-p", "fifo_perf", "--out", tmp_path, "-j", 1,
                   "--prices", "v100:2.5,p100:1,k80:0.5")  # fmt: skip
    assert "2 of 2 points have results" in done.stdout
    assert "1 of 2: fifo_perf, 5 jobs, seed 0: completed" in done.stderr
    table = pd.read_parquet(tmp_path / "results.parquet")
    assert table["submitted_jobs"].tolist() == [5, 8]
    assert (table["cost"] > 0).all()
    (tmp_path / "results.parquet").unlink()
    shown = json.loads(command("show", tmp_path, "--json").stdout)
    assert [row["point"] for row in shown["results"]] == table["point"].tolist()
    assert (tmp_path / "results.parquet").exists()


def test_a_file_and_its_small_variant(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        f'kind = "static"\npolicies = ["fifo_perf"]\njobs = [900]\nseeds = [0]\nclusters = ["{TINY}"]\n'
        "[small]\njobs = [4]\n"
    )
    done = subprocess.run([sys.executable, "-m", "allocator", "sweep", "run", "mine.toml", "--small", "-j", "1"],
                          cwd=tmp_path, capture_output=True, text=True, check=True)  # fmt: skip
    assert "1 of 1 points have results" in done.stdout
    table = pd.read_parquet(tmp_path / "sweeps" / "mine-small" / "results.parquet")
    assert table["point"].tolist() == [Sweep.from_toml(file, small=True).points()[0].key]


def test_a_failed_run_is_told(tmp_path):
    done = command("static", "--jobs", "5", "--cluster", TINY, "-p", "fifo_perf", "--out", tmp_path, "-j", 1,
                   "--set", "unconsolidated_throughputs=true", status=1)  # fmt: skip
    assert "1 runs failed" in done.stderr
    assert "failed" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["continuous", "--rates", "fast"], "--rates"),
        (["continuous", "--rates", "1:2"], "--rates"),
        (["continuous", "--rates", "1", "--seeds", "x"], "--seeds"),
        (["continuous", "--rates", "1", "--window", "5"], "--window"),
        (["continuous", "--rates", "1", "-p", "fifo_pref"], "did you mean 'fifo_perf'"),
        (["continuous", "--rates", "1", "--set", "round_seconds"], "--set"),
        (["continuous", "--rates", "1", "--vary", "rond_seconds=1,2"], "did you mean 'round_seconds'"),
        (["continuous", "--rates", "1", "--engine", "slurm"], "local or ray"),
        (["static", "--jobs", "2.5"], "whole"),
        (["static", "--jobs", "5", "--prices", "v100:dear"], "--prices"),
        (["show"], "sweep.json"),
        (["run", "absent.toml"], "absent.toml"),
    ],
)
def test_bad_input_is_one_line(tmp_path, arguments, message):
    extra = [tmp_path] if arguments[0] == "show" else ["--out", tmp_path / "out"]
    done = command(*arguments, *extra, status=2)
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.strip().splitlines()) == 1
