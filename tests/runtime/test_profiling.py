"""`allocator profile`: trainers of known speed are found to have it, and the table is one that commands take."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from typer.testing import CliRunner

from allocator.cli.app import app
from allocator.runtime.profiling.program import Reading, StepCount
from throughputs import ThroughputTable, read_table
from throughputs.tables.merge import merged_tables

TRAINER = Path(__file__).with_name("steady_trainer.py")

PRINTS = """
import time
began = time.monotonic()
while True:
    time.sleep(0.02)
    print("loss 0.5, step", int(50 * (time.monotonic() - began)), flush=True)
"""
"""Fifty steps/s by the clock: what it is late with one line the next makes good."""


def trainer(**rates):
    text = ",".join(f"{name}={rate}" for name, rate in rates.items())
    return [sys.executable, "-I", "-S", str(TRAINER), text]


def profile(*arguments, command):
    return CliRunner().invoke(app, ["profile", "--seconds", "0.5", *arguments, "--", *command])


def test_a_table_with_pairs_and_what_reads_it(tmp_path):
    out = tmp_path / "table.csv"
    other = shlex.join(trainer(v100=20))
    options = ["--type", "mine", "--virtual", "v100:2", "--gpus", "1,2,4", "--repeats", "1", "--out", str(out)]
    ran = profile(*options, "--colocate", other, "--colocate-type", "other", "--json", command=trainer(v100=50))
    assert ran.exit_code == 0, ran.output
    table = read_table(out)
    assert set(table.keys) == {("mine", 1), ("other", 1), ("mine", 2), ("other", 2)}
    for size in (1, 2):
        assert table.rates(["mine", "other"], [size, size], ["v100"])[:, 0] == pytest.approx([50, 20])
        assert table.colocated_rates("mine", size, "other", size, ["v100"])[0] == pytest.approx([50, 20])
    told = json.loads(ran.output)
    assert len(told["figures"]) == 8
    assert len(pd.read_csv(told["spread"])) == 8
    trace = tmp_path / "trace.csv"
    trace.write_text("job_type,scale_factor,total_steps,arrival_time\nmine,1,500,0\nother,2,200,0\n")
    for policy in ("max_min_fairness_perf", "max_min_fairness_packed"):
        run = ["--trace", str(trace), "--policy", policy, "--cluster", "v100:2", "--out", str(tmp_path / "run")]
        simulated = CliRunner().invoke(app, ["simulate", *run, "--throughputs", str(out), "--json"])
        assert simulated.exit_code == 0, simulated.output


def test_figures_are_added_to_a_table(tmp_path):
    table = tmp_path / "table.json"
    options = ["--type", "one", "--virtual", "v100:1,k80:1", "--repeats", "2", "--into", str(table)]
    assert profile(*options, command=trainer(v100=40, k80=20)).exit_code == 0
    options[1], options[3], options[5] = "two", "v100:1", "1"
    assert profile(*options, command=trainer(v100=30)).exit_code == 0
    found = read_table(table)
    assert found.rates(["one", "two"], [1, 1], ["v100", "k80"]).ravel() == pytest.approx([40, 20, 30, 0])
    spread = pd.read_csv(tmp_path / "table.spread.csv")
    assert spread["measurements"].tolist() == [2, 2, 1]
    assert (spread["lower_quartile"] <= spread["upper_quartile"]).all()


def test_steps_are_found_in_the_output_of_a_program(tmp_path):
    out = tmp_path / "table.json"
    options = ["--type", "told", "--virtual", "v100:1", "--repeats", "1", "--out", str(out)]
    options += ["--steps-pattern", r"step (\d+)", "--seconds", "2"]
    ran = profile(*options, command=[sys.executable, "-c", PRINTS])
    assert ran.exit_code == 0, ran.output
    # how exactly is a matter of the moments at which the first line and the last are seen; see the next test
    assert 25 < read_table(out).rates(["told"], [1], ["v100"])[0, 0] < 100


def test_the_speed_of_what_is_printed(tmp_path, monkeypatch):
    """Steps since the first lines that were seen, over the time since then; what was printed before is not counted."""
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("allocator.runtime.profiling.program.time", clock)
    numbered, counted = (StepCount(tmp_path, "j", re.compile(text)) for text in (r"step (\d+)", "step"))
    printed = 0
    with (tmp_path / "log").open("a") as log:
        for steps, clock.now in ((7, 110.0), (3, 110.5), (1, 112.0), (0, 115.0), (4, 120.0)):
            log.writelines(f"step {k}\n" for k in range(printed, printed + steps))
            log.flush()
            printed += steps
            readings = [count.look() for count in (numbered, counted)]
    assert readings == [Reading(8.0, 10.0)] * 2


def test_no_step_is_missed_when_a_full_log_makes_place_for_another(tmp_path):
    count, log = StepCount(tmp_path, "j", re.compile("step")), tmp_path / "log"
    log.write_text("step\nstep\n")
    assert count.look() is not None
    with log.open("a") as older:
        older.write("step\nst")
    log.rename(tmp_path / "log.1")
    log.write_text("ep\nstep\n")
    reading = count.look()
    assert reading is not None
    assert reading.steps == 3
    log.rename(tmp_path / "log.1")
    assert count.look() == reading


@pytest.mark.parametrize(
    ("command", "options", "expected"),
    [
        ([sys.executable, "-c", "print('bye')"], [], "--steps-pattern"),
        ([sys.executable, "-c", "print('bye')"], ["--steps-pattern", "step"], "matches no pattern"),
        ([sys.executable, "-c", "raise SystemExit('no data here')"], [], "no data here"),
        (["/no/such/program"], [], "/no/such/program"),
        (["sleep", "60"], ["--patience", "0.5"], "made no step in 0.5 s"),
    ],
)
def test_what_cannot_be_measured_is_said(tmp_path, command, options, expected):
    given = ["--type", "x", "--virtual", "v100:1", "--out", str(tmp_path / "t.json"), *options]
    ran = profile(*given, command=command)
    assert ran.exit_code != 0
    assert expected in str(ran.exception)
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--virtual", "v100:1"], "a file for the throughput table"),
        (["--virtual", "v100:1", "--out", "t.xls"], "a name ending in"),
        (["--virtual", "v100:2", "--out", "t.json", "--gpus", "4"], "v100:2"),
        (["--virtual", "v100:2", "--out", "t.json", "--gpus", "1,one"], "numbers of GPUs"),
        (["--virtual", "v100:2", "--out", "t.json", "--steps-pattern", "("], "regular expression"),
        (["--virtual", "v100:2", "--out", "t.json", "--seconds", "0"], "above 0"),
    ],
)
def test_bad_options(options, expected):
    ran = profile("--type", "x", *options, command=["true"])
    assert ran.exit_code != 0
    assert expected in str(ran.exception)


def test_output_is_read_as_it_grows(tmp_path):
    log = tmp_path / "log"
    count = StepCount(tmp_path, "j", re.compile(r"step"))
    assert count.look() is None
    log.write_text("begin\nstep\nst")
    first = count.look()
    assert first is not None
    assert first.steps == 0
    with log.open("a") as file:
        file.write("ep\nstep\n")
    later = count.look()
    assert later is not None
    assert later.steps == 2
    assert later.seconds > 0
    assert not count.reports


def test_later_figures_take_the_place_of_earlier_ones():
    old = ThroughputTable([("a", 1), ("b", 1)], ["x", "y"], [[1, 2], [3, float("nan")]], [[0, 1]], [[[5, 6], [7, 8]]])
    new = ThroughputTable([("b", 1), ("a", 1)], ["y", "z"], [[9, 4], [2, 1]], [[0, 1]], [[[1, 2], [3, 4]]])
    both = merged_tables(old, new)
    assert both.keys == (("a", 1), ("b", 1))
    assert both.accelerators == ("x", "y", "z")
    assert both.isolated.tolist() == [[1, 2, 1], [3, 9, 4]]
    pair = both.colocated_rates("a", 1, "b", 1, ["x", "y", "z"]).tolist()
    assert pair == [[5, 6], [2, 1], [4, 3]]
