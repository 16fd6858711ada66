"""``allocator whatif`` as a user runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from allocator.registry import get_policy
from tests.cli.command import ran, refused, run, told
from tests.scenarios.test_scenarios import log
from throughputs import write_trace

WHATIF = "whatif --trace jobs.csv --out out -j 1"


@pytest.fixture(autouse=True)
def _jobs(folder: Path) -> None:
    write_trace(log(), folder / "jobs.csv")


@pytest.mark.exhaustive
def test_what_is_there_is_not_run_again():
    asked = f"{WHATIF} -c a100:8 -c a100:16 --prices a100:2"
    done = ran(asked)
    assert "Change by 1 more GPU" in done.out
    assert "a100:8 + 1 a100" in done.err  # progress
    out = Path("out")
    assert {"rows.csv", "next_gpus.csv", "whatif.json", "whatif.html", "1-a100-8", "2-a100-16"} <= {
        path.name for path in out.iterdir()
    }
    assert pd.read_csv(out / "rows.csv")["gpus"].tolist() == [8, 16]
    again = ran(f"{asked} --next-gpus 0")
    assert "completed" not in again.err
    assert "Change by" not in again.out
    assert not (out / "next_gpus.csv").exists()
    for jobs in (out / "runs" / "jobs").iterdir():
        jobs.write_bytes(jobs.read_bytes()[:100])
    assert refused(f"{asked} -j 1").startswith("error: out/runs/jobs/")


def test_json_has_rows_and_ratios_and_nothing_else_is_said():
    asked = "-c a100:8,h100:4 --gpus-per-server h100:2 --load 1,2 -p fifo,srtf --next-gpus 0"
    asked += " --vary restart_penalty_seconds=0,60"
    done = run(f"{WHATIF} {asked} --json")
    assert done.err == ""
    rows = told(f"{WHATIF} {asked}")["rows"]
    assert [row["row"] for row in rows][:3] == [
        "load 1, restart_penalty_seconds=0.0, fifo",
        "load 1, restart_penalty_seconds=0.0, srtf",
        "load 1, restart_penalty_seconds=60.0, fifo",
    ]
    assert (len(rows), rows[0]["ratios"]["average_jct"], rows[-1]["restart_penalty_seconds"]) == (8, 1.0, 60.0)


def test_clusters_of_files_and_settings_that_vary():
    Path("cluster.csv").write_text(
        "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,2,4,96,512\n"
    )
    asked = "-c cluster.csv -c a100:4 --accelerator a100 --set round_seconds=120 --vary ideal=false,true --next-gpus 0"
    assert [row["row"] for row in told(f"{WHATIF} {asked}")["rows"]] == [
        "a100:8, ideal=False", "a100:8, ideal=True", "a100:4, ideal=False", "a100:4, ideal=True",
    ]  # fmt: skip


def test_what_is_not_used_what_does_not_fit_and_what_fails_is_said(monkeypatch):
    write_trace(log(user=["ada"] * 24), "jobs.csv")
    done = ran(f"{WHATIF} -c a100:2 -c a100:8 --next-gpus 0")
    assert "not used: user (--entities-by user" in done.err
    assert "for slurm the jobs have no predicted length" in done.err
    assert "warning: a100:2: " in done.err
    done = ran(f"{WHATIF} -c a100:8 --entities-by user --default-limit 1 --next-gpus 0")
    assert not re.search("not used|predicted length", done.err)

    def fail(_self, _state):
        raise ValueError("no such luck")

    monkeypatch.setattr(type(get_policy("isolated")), "allocate", fail)
    done = run(f"{WHATIF} -c a100:8 -p fifo,isolated --next-gpus 1")
    assert (done.code, "failed" in done.out, "Page:" in done.out) == (1, True, True)
    assert "isolated failed: ValueError: no such luck" in done.err


def test_deadlines_are_drawn_by_the_seed():
    deadlines = []
    for seed in (5, 6):
        ran(f"{WHATIF} -c a100:8 --slos --next-gpus 0 --seed {seed}")
        deadlines.append(pd.read_csv("out/1-a100-8/jobs.csv")["deadline"])
    assert deadlines[0].notna().all()
    assert (deadlines[0] != deadlines[1]).any()


@pytest.mark.parametrize(
    "line",
    [
        "-c a100 | --cluster 'a100'",
        "-c a100:0 | --cluster 'a100:0'",
        "-c a100:8 -c a100:8 | 'clusters' 'a100:8",
        "-c a100:8 --load 1,x | --load 'x'",
        "-c a100:8 --load 0,1 | --load 0.0 above",
        "-c a100:8 --load inf | --load 'inf'",
        "-c a100:8 --load 2,2 | --load '2,2'",
        "-c a100:8 -p fifo,fifo | --policies 'fifo'",
        "-c a100:8 -p fifi | 'fifo'",
        "-c a100:8 --gpus-per-server h100:8 | --gpus-per-server 'h100' a100",
        "-c a100:8 --vary round_seconds=60 --vary round_seconds=9 | --vary '60, 9'",
        "-c a100:8 --set round_second=3 | 'round_seconds'",
        "-c a100:8 --throughputs none.csv | none.csv: No such file or directory",
        "-c a100:8 --prices h100:3 | a100",
        "-c v100:4,k80:4 | table",
        "-c a100:8 --entities-by user | user",
    ],
)
def test_errors_are_one_line_and_leave_nothing_behind(folder: Path, line: str):
    asked, words = line.split(" | ")
    message = refused(f"{WHATIF} {asked}")
    assert [word for word in words.split() if word not in message] == [], message
    assert not (folder / "out").exists()
