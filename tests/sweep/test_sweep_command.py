"""``allocator sweep`` as a user runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from allocator.sweep import Sweep
from tests.cli.command import ran, refused, run, told
from throughputs import TraceGenerator, write_trace


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_points_of_a_continuous_sweep():
    points = told(
        "sweep continuous --rates 0.3:0.6:2 --window 5:10 --cluster v100:2,k80:2 --cluster v100:3 --seeds 0:2 --out s "
        "--policies fifo_perf,max_min_fairness_perf --vary round_seconds=360,720 --set placement=in_order --multi-gpu "
        """--vary 'policy.solver=["auto","highs"]' -j 2 --plan"""
    )
    assert len(points) == 2 * 2 * 2 * 2 + 2 * 2 * 2 * 2 * 2  # fifo_perf has no solver
    assert not Path("s").exists()
    assert {p["load"] for p in points} == {0.3, 0.6}
    assert all(p["workload"]["multi_gpu"] and p["settings"]["placement"] == "in_order" for p in points)


def test_a_static_sweep_and_its_table():
    asked = "sweep static --jobs 3,5 --cluster v100:2,k80:2 -p fifo_perf --out s -j 1 --prices v100:2.5,k80:0.5"
    done = ran(asked)
    assert "2 of 2 points have results" in done.out
    assert "1 of 2: fifo_perf, 3 jobs, seed 0: completed" in done.err
    table = pd.read_parquet("s/results.parquet")
    assert table["submitted_jobs"].tolist() == [3, 5]
    assert (table["cost"] > 0).all()
    Path("s/results.parquet").unlink()
    assert [row["point"] for row in told("sweep show s")["results"]] == table["point"].tolist()
    assert Path("s/results.parquet").exists()
    failed = run(asked.replace("--prices", "--set unconsolidated_throughputs=true --prices"))
    assert failed.code == 1
    assert "2 runs failed" in failed.err


def test_a_static_sweep_can_have_the_jobs_that_compare_draws():
    ran("sweep static --jobs 6 --cluster v100:8 -p fifo --generator default --multi-gpu --out s -j 1 --seeds 3")
    ran("compare --jobs 6 --cluster v100:8 --policies fifo --mean-interarrival 0 --seed 3 --out c")
    (swept,) = pd.read_parquet("s/results.parquet")["average_jct"]
    assert swept == json.loads(Path("c/comparison.json").read_text())[0]["average_jct"]


@pytest.mark.exhaustive
def test_a_file_and_its_small_variant():
    Path("mine.toml").write_text(
        'kind = "static"\npolicies = ["fifo_perf"]\njobs = [900]\nseeds = [0]\nclusters = ["v100:2"]\n'
        "[small]\njobs = [4]\n"
    )
    assert "1 of 1 points have results" in ran("sweep run mine.toml --small -j 1").out
    table = pd.read_parquet("sweeps/mine-small/results.parquet")
    assert table["point"].tolist() == [Sweep.from_toml("mine.toml", small=True).points()[0].key]


@pytest.mark.exhaustive
def test_a_sweep_of_a_trace():
    write_trace(TraceGenerator(n_jobs=4, mean_interarrival=600, seed=1).generate(), "jobs.csv")
    asked = "sweep trace --trace jobs.csv --load 1,2 --cluster v100:2,k80:2 -p fifo_perf --out out -j 1"
    assert [row["load"] for row in told(asked)["results"]] == [1.0, 2.0]


@pytest.mark.parametrize(
    "line",
    [
        "continuous --rates fast | --rates 'fast'",
        "continuous --rates 1:2 | --rates '1:2'",
        "continuous --rates 1 --seeds x | --seeds 'x'",
        "continuous --rates 1 --window 5 | --window '5'",
        "continuous --rates 1 -p fifo_pref | 'fifo_perf'",
        "continuous --rates 1 --set round_seconds | --set",
        "continuous --rates 1 --vary rond_seconds=1,2 | 'round_seconds'",
        "continuous --rates 1 --engine slurm | 'slurm' local ray",
        "static --jobs 2.5 | whole",
        "static --jobs 5 --prices v100:dear | --prices",
    ],
)
def test_bad_input_is_one_line(line):
    asked, words = line.split(" | ")
    message = refused(f"sweep {asked} --out out")
    assert [word for word in words.split() if word not in message] == [], message
    assert not Path("out").exists()


def test_a_sweep_as_picture_and_table_for_a_paper():
    asked = "sweep static --jobs 3,5 --cluster v100:2,k80:2 -p fifo_perf,srtf --seeds 0:2 --out s -j 1"
    results = pd.DataFrame(told(asked)["results"])
    ran("sweep export s --out t.csv --figures average_jct,preemptions")
    ran("sweep export s --out t.tex")
    table = pd.read_csv("t.csv").set_index(["submitted_jobs", "policy"])
    hours = results.groupby(["submitted_jobs", "policy"])["average_jct"].agg(["mean", "std"]) / 3600
    assert table["average JCT (h)"].to_numpy() == pytest.approx(hours["mean"].loc[table.index].to_numpy())
    widths = 12.706 * hours["std"].loc[table.index].to_numpy() / 2**0.5  # t_(0.975, 1)
    assert table["average JCT (h), half width"].to_numpy() == pytest.approx(widths, rel=1e-4)
    lines = Path("t.tex").read_text().splitlines()
    assert lines[0] == r"\begin{tabular}{rlrrr}"
    mean, width = table.iloc[0, :2]
    assert lines[4].startswith(rf"3 & fifo\_perf & {mean:.2f} $\pm$ {width:.2f} &")
    for kind, start in {"pdf": b"%PDF", "svg": b"<?xml"}.items():
        ran(f"sweep plot s --out p.{kind}")
        written = Path(f"p.{kind}").read_bytes()
        ran(f"sweep plot s --out p.{kind}")
        assert Path(f"p.{kind}").read_bytes() == written
        assert Path(f"p.{kind}").read_bytes().startswith(start)
    # panels stand below each other where there is no room
    heights = []
    for width in 15, 3.5:
        ran(f"sweep plot s --out p.svg --width {width}")
        heights.append(float(re.search(r'<svg .*?height="([\d.]+)pt"', Path("p.svg").read_text(), re.DOTALL)[1]))
    assert heights[1] == 3 * heights[0]
    assert ">fifo_perf</text>" in Path("p.svg").read_text()
    for line, word in {"plot s --out p.gif": ".gif", "export s --out t.csv --figures avg_jct": "average_jct"}.items():
        assert word in refused(f"sweep {line}")
    ran(
        "sweep continuous --rates 9 --cluster v100:1 -p fifo --seeds 0 --window 5:9 --set max_waiting_jobs=1 --out full"
    )
    for line in "plot full --out p.svg", "export full --out t.tex":
        assert "no run that completed" in refused(f"sweep {line}")
    ran("sweep static --jobs 9 --cluster v100:1 -p fifo --seeds 0 --multi-gpu --out wide -j 1")
    assert "in 1 of 1 runs some jobs were never served" in ran("sweep show wide").out
