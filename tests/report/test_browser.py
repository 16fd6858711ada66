"""The page's script in a real browser, where there is one."""

import shutil
import subprocess
from pathlib import Path

import pytest

from allocator.report import write_report
from allocator.results.result import SimulationResult
from tests.report.synthetic import changed, make_result

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=2000",
    "--dump-dom",
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


def open_page(path: Path, profile: Path) -> str:
    """The document after its script ran; fails on any message on the console."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    return done.stdout


def test_the_script_fills_the_page(results: list[SimulationResult], tmp_path: Path) -> None:
    text = open_page(write_report(results, tmp_path / "report.html"), tmp_path / "profile")
    middle = results[0].decisions[len(results[0].decisions) // 2]
    assert f"round {middle[0]}, " in text
    matrix = text.partition('id="allocation-table"')[2]
    assert matrix.count('<th class="text" scope="row">') == middle[2].throughputs.n_jobs
    assert "Shown: 0 h to" in text
    assert "GPU timeline of fifo. Shown: 0 h to" in text


def test_the_script_bears_a_run_in_which_nothing_happened(tmp_path: Path) -> None:
    plain = make_result(n_jobs=3, n_rounds=10, cluster="v100:2")
    tables = {name: getattr(plain, name).iloc[:0] for name in ("jobs", "rounds", "timeline")}
    empty = changed(plain, decisions=(), makespan=float("nan"), **tables)
    text = open_page(write_report([empty], tmp_path / "report.html"), tmp_path / "profile")
    assert "Nothing ran." in text
    assert "This run recorded no decisions." in text
