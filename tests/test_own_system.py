"""The system of docs/simulator.md: shown as it is, and known by name from a package of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "docs" / "examples" / "own_system"
TICKETS = """ticket,who,cards,asked,began,ended
1,ada,2,2026-03-02 09:00,2026-03-02 09:10,2026-03-02 11:00
2,bob,1,2026-03-02 09:05,2026-03-02 09:10,2026-03-02 10:00
"""


def test_the_page_shows_the_file_and_its_entry_points() -> None:
    page = (ROOT / "docs" / "simulator.md").read_text()
    shown = re.search(r"<!-- campus -->\n```python\n(.*?)```\n<!-- /campus -->", page, re.DOTALL)
    assert shown is not None
    assert shown.group(1) == (PACKAGE / "campus.py").read_text()
    declared = re.search(r"<!-- campus.toml -->\n```toml\n(.*?)```", page, re.DOTALL)
    assert declared is not None
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    assert tomllib.loads(declared.group(1))["project"]["entry-points"] == project["entry-points"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Runs a command where the package is installed, in a folder of its own."""
    site, folder = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("campus")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    about = site / "campus_scheduler-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: campus-scheduler\nVersion: 0.1.0\n")
    groups = (
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())])
        for group, entries in project["entry-points"].items()
    )
    (about / "entry_points.txt").write_text("\n".join(groups) + "\n")
    paths = [str(site), str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]

    def run(command: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-c", "from allocator.cli import main; main()", *command.split()]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True)

    (folder / "tickets.csv").write_text(TICKETS)
    run.folder = folder
    return run


def test_a_system_is_compared_by_its_name(installed) -> None:
    done = installed("compare --preset campus --jobs 12 --json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["paper_label"] for row in rows] == ["Campus line", "First come, first served", "Shortest first"]
    assert {row["completed_jobs"] for row in rows} == {12}
    slower = installed("compare --preset campus --jobs 12 --policies fcfs --out slow --set slowdown=1 --json")
    assert json.loads(slower.stdout)[0]["average_jct"] > rows[1]["average_jct"]


@pytest.mark.exhaustive
def test_its_log_is_read_without_options(installed) -> None:
    done = installed(
        "compare --preset campus --trace tickets.csv --cluster v100:4 --policies campus_line --out own --json"
    )
    recorded, campus = json.loads(done.stdout)
    # two hours, and 55 minutes
    assert (recorded["policy"], recorded["average_jct"]) == ("recorded", (7200 + 3300) / 2)
    # each start takes 90 s, and the one gang of two GPUs is 2 % slower than in a world without the switch
    assert campus["average_jct"] == (90 + 6600 * 1.02 + 90 + 3000) / 2
    told = json.loads(installed("trace describe tickets.csv --json").stdout)["log"]
    assert told["kind"] == "campus"


def test_what_it_draws_comes_in_office_hours(installed) -> None:
    done = installed("trace generate --generator campus --jobs 50 --mean-interarrival 3000 --out drawn.csv")
    assert done.returncode == 0, done.stderr
    arrival = pd.read_csv(installed.folder / "drawn.csv")["arrival_time"]
    assert arrival.max() > 86400.0
    assert (arrival % 86400.0 < 8 * 3600.0).all()
