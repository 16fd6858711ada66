"""``allocator nodes``: what it says of a trace, the bins and the page that it writes, and what it refuses."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from xml.dom import minidom

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from allocator.cli import app, main
from allocator.predictions import SleepSettings, jobs_that_wait, put_to_sleep
from throughputs import Trace, write_trace

DAY = 86400.0


def shifts(days: int = 5, **columns: object) -> Trace:
    """Each day ten jobs of eight GPUs for ten hours from eight o'clock on, one every half an hour, and one all day."""
    begins = np.array([day * DAY + 28800.0 + 1800.0 * k for day in range(days) for k in range(10)])
    arrival = np.concatenate([[0.0], begins])
    seconds = np.concatenate([[days * DAY], np.full(len(begins), 36000.0)])
    return Trace(["job"] * len(arrival), [8] * len(arrival), seconds, arrival, duration=seconds, **columns)  # type: ignore[arg-type]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    write_trace(shifts(), tmp_path / "jobs.csv")
    return tmp_path / "jobs.csv"


def nodes(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, ["nodes", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_figures_follow_from_the_bins(jobs: Path, tmp_path: Path) -> None:
    given = ("--trace", jobs, "--nodes", "13", "--model", "truth", "--learn", "1", "--set", "buffer=1")
    page, bins = tmp_path / "page.html", tmp_path / "bins.csv"
    figures = json.loads(nodes(*given, "--watts", "500", "--json", "--out", bins, "--report", page))
    table = pd.read_csv(bins)
    assert table["time"].iloc[0] == DAY
    assert (table["nodes_awake"] >= table["nodes_in_use"]).all()
    assert set(table["nodes_in_use"]) == set(range(1, 12))
    assert table["time"].iloc[-1] == 4 * DAY + 28800.0 + 9 * 1800.0  # of the last submission
    asleep = (13 - table["nodes_awake"]).sum()
    assert figures["nodes_asleep"] == pytest.approx(asleep / len(table))
    assert figures["energy_saved_kwh"] == pytest.approx(asleep / 6 * 0.5)
    assert figures["daily_wakes"] > 0
    # Use rises by a node every half an hour; every second time the idle one does for it.
    assert 10 <= figures["jobs_that_waited"] <= 30
    assert figures["jobs_started"] == 40
    text = page.read_text()
    assert re.search(r"<dd>[0-9,]+ kWh</dd>", text)
    assert "<script" not in text
    minidom.parseString(re.search(r"<svg.*</svg>", text, re.DOTALL)[0])  # type: ignore[index]
    said = nodes(*given)
    assert f"jobs that had to wait {figures['jobs_that_waited']} of 40, until nodes were up" in said
    assert "energy saved" not in said


def test_a_forecast_that_learns_says_no_more_than_the_truth(jobs: Path) -> None:
    given = ("--trace", jobs, "--nodes", "13", "--learn", "2", "--set", "buffer=1", "--json")
    learned, known = (json.loads(nodes(*given, "--model", model)) for model in ("fast", "truth"))
    assert known["forecast_smape"] == pytest.approx(0.0)
    assert learned["forecast_smape"] > 0
    assert learned["energy_saved_kwh"] is None


def test_recorded_jobs_run_as_they_were_recorded(tmp_path: Path) -> None:
    plain = shifts()
    late = shifts(
        recorded_start_seconds=plain.arrival_time + 3600.0,
        recorded_end_seconds=plain.arrival_time + plain.duration + 3600.0,
    )
    write_trace(late, tmp_path / "late.csv")
    bins = tmp_path / "bins.parquet"
    said = nodes("--trace", tmp_path / "late.csv", "--model", "truth", "--learn", "1", "--out", bins)
    assert "(jobs as recorded)" in said
    assert pd.read_parquet(bins)["nodes_in_use"].max() == 11


def test_jobs_wait_where_more_nodes_are_in_use_than_were_awake() -> None:
    """Bins of 10 s, no idle node: the third job finds one awake, the fourth and the fifth do not."""
    start, gpus = np.array([0.0, 0.0, 25.0, 31.0, 32.0]), np.array([8, 8, 8, 8, 4])
    end = np.array([20.0, 60.0, 60.0, 60.0, 60.0])
    used = np.array([2, 2, 2, 4, 4, 4])
    kept = put_to_sleep(used, 5, *np.zeros((2, 6)), SleepSettings(buffer=0, start=2), bin_seconds=10.0)
    assert kept.awake.tolist() == [2, 2, 2, 4, 4, 4]
    assert jobs_that_wait(start, end, gpus, 8, kept).tolist() == [False, False, False, True, True]
    assert not len(jobs_that_wait(start[:0], end[:0], gpus[:0], 8, kept))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--nodes", "4"), "--nodes: found 4, expected at least 11, on which jobs ran at the same time"),
        (("--rule", "Venuss"), "--rule: found 'Venuss', expected a known name (did you mean 'Venus'?)"),
        (("--set", "foo=1"), "--set: field 'foo': found '1', expected one of buffer, history, fall"),
        (("--set", "buffer=-1"), "buffer: found -1, expected a whole number, at least 0"),
        (("--model", "best"), "--model: found 'best', expected one of fast, interpretable, truth"),
        (("--bin", "0"), "--bin: found 0.0, expected above 0"),
        (("--learn", "9"), "jobs.csv: found '4.5 days', expected more than the 9 days of --learn"),
        (("--learn", "1e308"), "more than the 1e+308 days of --learn"),
        (("--bin", "1e-6"), "--bin: found 1e-06, expected at least 0.04"),
        (("--watts", "inf"), "--watts: found inf, expected a number of watts"),
        (("--out", "bins.txt"), "expected a name ending in .csv, .csv.gz or .parquet"),
        (("--out", "a.csv", "--report", "a.csv"), "found 'a.csv', expected another file than a.csv"),
    ],
)
def test_what_cannot_be_said_is_refused(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...],
    message: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["allocator", "nodes", "--trace", str(jobs), *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
