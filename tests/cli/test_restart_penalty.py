"""What restarts cost on the command line: something by default, nothing where it is said."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
from typer.testing import CliRunner

from allocator.cli.app import app


def test_free_restarts_are_said(tmp_path: Path) -> None:
    given = ["compare", "--jobs", "12", "--mean-interarrival", "300", "--cluster", "v100:2,p100:2,k80:4"]
    given += ["--policies", "max_min_fairness_perf,isolated", "--out", str(tmp_path)]
    free = CliRunner().invoke(app, [*given, "--restart-penalty", "0"])
    assert free.exit_code == 0, free.output
    assert "starts are free here: --restart-penalty SECONDS makes them cost" in " ".join(free.stdout.split())
    assert "Starts are free here" in (tmp_path / "report.html").read_text()
    paid = CliRunner().invoke(app, given)
    assert "starts are free" not in paid.stdout
    rows = pd.DataFrame(json.loads((tmp_path / "comparison.json").read_text()))
    assert (rows["restart_gpu_hours"] > 0).all()


def test_the_time_of_first_starts_is_told_beside_0_preemptions(tmp_path: Path) -> None:
    given = ["compare", "--jobs", "4", "--mean-interarrival", "9000", "--cluster", "v100:8", "--policies", "fifo"]
    told = CliRunner().invoke(app, [*given, "--out", str(tmp_path)])
    assert told.exit_code == 0, told.output
    (row,) = json.loads((tmp_path / "comparison.json").read_text())
    assert row["preemptions"] == 0
    assert row["restart_gpu_hours"] > 0
    assert "starts" in told.stdout
    assert "restarts" not in told.stdout
    assert "the first of each job, and those after preemptions" in (tmp_path / "report.html").read_text()
