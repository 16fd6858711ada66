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
    assert "restarts are free here: --restart-penalty SECONDS makes them cost" in " ".join(free.stdout.split())
    assert "Restarts are free here" in (tmp_path / "report.html").read_text()
    paid = CliRunner().invoke(app, given)
    assert "restarts are free" not in paid.stdout
    rows = pd.DataFrame(json.loads((tmp_path / "comparison.json").read_text()))
    assert (rows["restart_gpu_hours"] > 0).all()
