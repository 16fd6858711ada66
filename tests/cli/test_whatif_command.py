"""``allocator whatif`` as a user runs it."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from allocator.cli.app import app
from allocator.registry import get_policy
from tests.scenarios.test_scenarios import log
from throughputs import InputError, write_trace


@pytest.fixture
def trace(tmp_path):
    write_trace(log(), tmp_path / "jobs.csv")
    return tmp_path / "jobs.csv"


def called(trace, *more, code=0):
    arguments = ["whatif", "--trace", trace, "--out", trace.parent / "out", "-j", 1, *more]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done


def refused(trace, *more):
    done = called(trace, *more, code=1)
    assert isinstance(done.exception, InputError)
    assert not (trace.parent / "out").exists()
    return str(done.exception)


def test_eight_more_gpus(trace):
    done = called(trace, "--cluster", "a100:8", "--cluster", "a100:16", "--prices", "a100:2")
    for text in ("a100:8", "a100:16", "×", "Change by 1 more GPU", "owned", "whatif.html"):
        assert text in done.stdout
    assert "a100:8 + 1 a100" in done.stderr  # progress
    out = trace.parent / "out"
    assert {"rows.csv", "next_gpus.csv", "whatif.json", "whatif.html", "1-a100-8", "2-a100-16"} <= {
        path.name for path in out.iterdir()
    }
    assert list(pd.read_csv(out / "rows.csv")["gpus"]) == [8, 16]
    again = called(trace, "--cluster", "a100:8", "--cluster", "a100:16", "--prices", "a100:2", "--next-gpus", 0)
    assert "completed" not in again.stderr  # all is there already
    assert "Change by" not in again.stdout
    assert not (out / "next_gpus.csv").exists()


def test_json_has_rows_and_ratios_and_nothing_else_on_standard_output(trace):
    done = called(
        trace,
        "-c",
        "a100:8",
        "--load",
        "1,2",
        "--restart-penalty",
        "0,60",
        "-p",
        "fifo,srtf",
        "--next-gpus",
        0,
        "--json",
    )
    told = json.loads(done.stdout)
    assert [row["row"] for row in told["rows"]][:3] == [
        "load 1, restart 0 s, fifo", "load 1, restart 0 s, srtf", "load 1, restart 60 s, fifo",
    ]  # fmt: skip
    assert len(told["rows"]) == 8
    assert told["rows"][0]["ratios"]["average_jct"] == 1.0
    assert told["rows"][-1]["restart_penalty_seconds"] == 60.0
    assert done.stderr == ""


def test_settings_and_servers_and_files(trace):
    (trace.parent / "cluster.csv").write_text(
        "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,2,4,96,512\n"
    )
    arguments = ["-c", trace.parent / "cluster.csv", "-c", "a100:8,h100:4", "--accelerator", "a100"]
    arguments += ["--gpus-per-server", "h100:2", "--set", "round_seconds=120", "--vary", "ideal=false,true"]
    told = json.loads(called(trace, *arguments, "--next-gpus", 0, "--json").stdout)
    assert [row["row"] for row in told["rows"]] == [
        "a100:8, ideal=False", "a100:8, ideal=True", "a100:8,h100:4, ideal=False", "a100:8,h100:4, ideal=True",
    ]  # fmt: skip


def test_what_is_not_used_and_what_does_not_fit_is_said(trace):
    write_trace(log(user=["ada"] * 24), trace)
    done = called(trace, "-c", "a100:2", "-c", "a100:8", "--next-gpus", 0)
    assert "not used: user (--entities-by user" in done.stderr
    assert "warning: a100:2: " in done.stderr
    assert "need more GPUs than any type that they can run on has; figures leave them out" in done.stderr
    assert "not used" not in called(trace, "-c", "a100:8", "--entities-by", "user", "--next-gpus", 0).stderr


def test_deadlines_are_drawn_by_the_seed(trace):
    deadlines = []
    for seed in (5, 6):
        called(trace, "-c", "a100:8", "--slos", "--seed", seed, "--next-gpus", 0)
        deadlines.append(pd.read_csv(trace.parent / "out" / "1-a100-8" / "jobs.csv")["deadline"])
    assert deadlines[0].notna().all()
    assert (deadlines[0] != deadlines[1]).any()


def test_one_row_is_a_table_without_ratios(trace):
    done = called(trace, "--cluster", "a100:8", "--next-gpus", 0)
    assert "×" not in done.stdout
    assert "a100:8" in done.stdout


def test_a_row_that_fails_is_told_and_the_status_is_1(trace, monkeypatch):
    def fail(_self, _state):
        raise ValueError("no such luck")

    monkeypatch.setattr(type(get_policy("isolated")), "allocate", fail)
    done = called(trace, "-c", "a100:8", "-p", "fifo,isolated", "--next-gpus", 1, code=1)
    assert "isolated failed: ValueError: no such luck" in done.stderr
    assert "failed" in done.stdout
    assert "Page:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-c", "a100"), "--cluster: found 'a100', expected TYPE:COUNT pairs"),
        (("-c", "a100:0"), "--cluster: found 'a100:0', expected at least one GPU"),
        (("-c", "a100:8", "-c", "a100:8"), "whatif: field 'clusters': found 'a100:8, a100:8', expected each once"),
        (("-c", "a100:8", "--load", "1,x"), "--load: found '1,x', expected numbers above 0, as in 1,1.2,1.5"),
        (("-c", "a100:8", "--load", "0"), "--load: found '0', expected numbers above 0"),
        (("-c", "a100:8", "--load", "inf"), "--load: found 'inf', expected numbers above 0"),
        (("-c", "a100:8", "--load", "2,2"), "--load: found '2,2', expected each number once"),
        (("-c", "a100:8", "--restart-penalty", "-1"), "--restart-penalty: found '-1', expected numbers of at least 0"),
        (("-c", "a100:8", "-p", "fifo,fifo"), "--policies: found 'fifo', expected distinct names"),
        (("-c", "a100:8", "-p", "fifi"), "did you mean 'fifo'"),
        (("-c", "a100:8", "--gpus-per-server", "h100:8"), "--gpus-per-server: found 'h100', expected one of a100"),
        (
            ("-c", "a100:8", "--vary", "round_seconds=60", "--vary", "round_seconds=9"),
            "found '60, and 9', expected each",
        ),
        (("-c", "a100:8", "--set", "round_second=3"), "did you mean 'round_seconds'"),
        (("-c", "a100:8", "--throughputs", "none.csv"), "workload.throughputs': found 'none.csv'"),
        (("-c", "a100:8", "--prices", "h100:3"), "a100"),
        (("-c", "v100:4,k80:4"), "expected a job type of the table"),
        (("-c", "a100:8", "--entities-by", "user"), "expected jobs with their user"),
    ],
)
def test_errors_are_one_line_and_leave_nothing_behind(trace, arguments, message):
    said = refused(trace, *arguments)
    assert message in said
    assert "\n" not in said


def test_a_trace_that_is_not_there(tmp_path):
    done = CliRunner().invoke(app, ["whatif", "--trace", str(tmp_path / "none.csv"), "--cluster", "a100:8"])
    assert isinstance(done.exception, OSError)
    without = CliRunner().invoke(app, ["whatif", "--cluster", "a100:8"])
    assert without.exit_code == 2
    assert "--trace" in without.stderr


def test_a_spoilt_table_of_jobs_is_named(trace):
    called(trace, "-c", "a100:8", "--next-gpus", 0)
    (jobs,) = (trace.parent / "out" / "runs" / "jobs").iterdir()
    jobs.write_bytes(jobs.read_bytes()[:100])
    done = called(trace, "-c", "a100:8", "--next-gpus", 0, code=1)
    assert isinstance(done.exception, InputError)
    assert str(done.exception).startswith(f"{jobs}: found b'PAR1', expected a whole Parquet file")
