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
from allocator.runtime.profiling import Reading, StepCount
from throughputs import ThroughputTable, read_table
from throughputs.tables.files import merged_tables

TRAINER = Path(__file__).with_name("steady_trainer.py")


def trainer(**rates):
    return [sys.executable, "-I", "-S", str(TRAINER), ",".join(f"{name}={rate}" for name, rate in rates.items())]


def profile(*arguments, command=("true",), seconds="0.5"):
    return CliRunner().invoke(app, ["profile", "--seconds", seconds, *map(str, arguments), "--", *command])


def profiled(*arguments, command):
    ran = profile(*arguments, command=command)
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_a_table_with_pairs_and_what_reads_it(tmp_path):
    out, trace = tmp_path / "table.csv", tmp_path / "trace.csv"
    options = ["--type", "mine", "--virtual", "v100:2", "--gpus", "1,2,4", "--repeats", "1", "--out", out]
    options += ["--colocate", shlex.join(trainer(v100=20)), "--colocate-type", "other", "--json"]
    told = json.loads(profiled(*options, command=trainer(v100=50)))
    table = read_table(out)
    assert set(table.keys) == {("mine", 1), ("other", 1), ("mine", 2), ("other", 2)}
    for size in (1, 2):
        assert table.rates(["mine", "other"], [size, size], ["v100"])[:, 0] == pytest.approx([50, 20])
        assert table.colocated_rates("mine", size, "other", size, ["v100"])[0] == pytest.approx([50, 20])
    assert len(told["figures"]) == len(pd.read_csv(told["spread"])) == 8
    trace.write_text("job_type,scale_factor,total_steps,arrival_time\nmine,1,500,0\nother,2,200,0\n")
    run = ["--trace", trace, "--policy", "max_min_fairness_packed", "--cluster", "v100:2", "--throughputs", out]
    simulated = CliRunner().invoke(app, ["simulate", *map(str, run), "--out", str(tmp_path / "run"), "--json"])
    assert simulated.exit_code == 0, simulated.output


def test_figures_are_added_to_a_table(tmp_path):
    table = tmp_path / "table.json"
    for kind, virtual, repeats, rates in (
        ("one", "v100:1,k80:1", "2", {"v100": 40, "k80": 20}),
        ("two", "v100:1", "1", {"v100": 30}),
    ):
        options = ["--type", kind, "--virtual", virtual, "--repeats", repeats, "--into", table]
        profiled(*options, command=trainer(**rates))
    found = read_table(table)
    assert found.rates(["one", "two"], [1, 1], ["v100", "k80"]).ravel() == pytest.approx([40, 20, 30, 0])
    spread = pd.read_csv(tmp_path / "table.spread.csv")
    assert spread["measurements"].tolist() == [2, 2, 1]
    assert (spread["lower_quartile"] <= spread["upper_quartile"]).all()
    # later figures take the place of earlier ones
    old = ThroughputTable([("a", 1), ("b", 1)], ["x", "y"], [[1, 2], [3, float("nan")]], [[0, 1]], [[[5, 6], [7, 8]]])
    new = ThroughputTable([("b", 1), ("a", 1)], ["y", "z"], [[9, 4], [2, 1]], [[0, 1]], [[[1, 2], [3, 4]]])
    both = merged_tables(old, new)
    assert both.keys == (("a", 1), ("b", 1))
    assert both.accelerators == ("x", "y", "z")
    assert both.isolated.tolist() == [[1, 2, 1], [3, 9, 4]]
    pair = both.colocated_rates("a", 1, "b", 1, ["x", "y", "z"]).tolist()
    assert pair == [[5, 6], [2, 1], [4, 3]]


def test_the_speed_of_what_is_printed(tmp_path, monkeypatch):
    """Steps since the first lines that were seen, over the time since then; what was printed before is not counted."""
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("allocator.runtime.profiling.time", clock)
    counts = [StepCount(tmp_path, "j", re.compile(text)) for text in (r"step (\d+)", "step")]
    assert [count.look() for count in counts] == [None, None]
    printed = 0
    with (tmp_path / "log").open("a") as log:
        for steps, clock.now in ((7, 110.0), (3, 110.5), (1, 112.0), (0, 115.0), (4, 120.0)):
            log.writelines(f"step {k}\n" for k in range(printed, printed + steps))
            log.flush()
            printed += steps
            readings = [count.look() for count in counts]
    assert readings == [Reading(8.0, 10.0)] * 2
    assert not counts[0].reports


def test_no_step_is_missed_when_a_full_log_makes_place_for_another(tmp_path):
    count, log = StepCount(tmp_path, "j", re.compile("step")), tmp_path / "log"
    log.write_text("begin\nstep\nst")
    assert count.look().steps == 0
    with log.open("a") as older:
        older.write("ep\nst")
    log.rename(tmp_path / "log.1")
    log.write_text("ep\nstep\n")
    reading = count.look()
    assert reading.steps == 3
    log.rename(tmp_path / "log.1")
    assert count.look() == reading


BYE = [sys.executable, "-c", "print('bye')"]


@pytest.mark.parametrize(
    ("options", "command", "expected"),
    [
        ([], BYE, "--steps-pattern"),
        (["--steps-pattern", "step"], BYE, "matches no pattern"),
        ([], [sys.executable, "-c", "raise SystemExit('no data here')"], "no data here"),
        ([], ["/no/such/program"], "/no/such/program"),
        (["--patience", "0.5"], ["sleep", "60"], "made no step in 0.5 s"),
        (["--out", "t.xls"], ["true"], "a name ending in"),
        (["--gpus", "4"], ["true"], "v100:2"),
        (["--gpus", "1,one"], ["true"], "whole numbers at least 1"),
        (["--steps-pattern", "("], ["true"], "regular expression"),
        (["--seconds", "0"], ["true"], "above 0"),
    ],
)
def test_what_cannot_be_measured_is_said(tmp_path, options, command, expected):
    ran = profile("--type", "x", "--virtual", "v100:2", "--out", tmp_path / "t.json", *options, command=command)
    assert ran.exit_code != 0
    assert expected in str(ran.exception)
    assert not (tmp_path / "t.json").exists()
