"""``allocator nodes``: what it says of a trace, the bins and the page that it writes, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path
from xml.dom import minidom

import numpy as np
import pandas as pd
import pytest

from allocator.predictions import SleepSettings, jobs_that_wait, put_to_sleep
from tests.cli.command import ran, refused, told
from throughputs import Trace, write_trace

DAY = 86400.0


def shifts(late: float | None = None) -> Trace:
    """Each day ten jobs of eight GPUs for ten hours from eight o'clock on, one every half an hour, and one all day."""
    begins = np.array([day * DAY + 28800.0 + 1800.0 * k for day in range(5) for k in range(10)])
    arrival = np.append(0.0, begins)
    seconds = np.append(5 * DAY, np.full(len(begins), 36000.0))
    start = None if late is None else arrival + late
    n = len(arrival)
    recorded = {} if start is None else {"recorded_start_seconds": start, "recorded_end_seconds": start + seconds}
    return Trace(["job"] * n, [8] * n, seconds, arrival, duration=seconds, **recorded)


@pytest.fixture(autouse=True)
def _jobs(folder: Path) -> None:
    write_trace(shifts(), folder / "jobs.csv")


def test_figures_follow_from_the_bins() -> None:
    given = "nodes --trace jobs.csv --nodes 13 --model truth --learn 1 --set buffer=1"
    figures = told(f"{given} --watts 500 --out bins.csv --report page.html")
    table = pd.read_csv("bins.csv")
    assert table["time"].iloc[0] == DAY
    assert (table["nodes_awake"] >= table["nodes_in_use"]).all()
    assert set(table["nodes_in_use"]) == set(range(1, 12))
    assert table["time"].iloc[-1] == 4 * DAY + 28800.0 + 9 * 1800.0  # of the last submission
    asleep = (13 - table["nodes_awake"]).sum()
    assert figures["nodes_asleep"] == pytest.approx(asleep / len(table))
    assert figures["energy_saved_kwh"] == pytest.approx(asleep / 6 * 0.5)
    # Use rises by a node every half an hour; every second time the idle one does for it.
    assert 10 <= figures["jobs_that_waited"] <= 30
    assert (figures["jobs_started"], figures["forecast_smape"]) == (40, 0.0)
    text = Path("page.html").read_text()
    assert "<script" not in text
    minidom.parseString(re.search(r"<svg.*</svg>", text, re.DOTALL)[0])  # type: ignore[index]
    learned = told(given.replace("truth", "fast"))
    assert learned["forecast_smape"] > 0
    assert learned["energy_saved_kwh"] is None


def test_recorded_jobs_run_as_they_were_recorded() -> None:
    write_trace(shifts(late=3600.0), "late.csv")
    assert "(jobs as recorded)" in ran("nodes --trace late.csv --model truth --learn 1 --out bins.parquet").out
    bins = pd.read_parquet("bins.parquet")
    assert bins["nodes_in_use"].max() == 11
    assert bins.loc[bins["nodes_in_use"] > 1, "time"].iloc[0] == DAY + 28800.0 + 3600.0


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
    "line",
    [
        "--nodes 4 | --nodes 4 11",
        "--rule Venuss | --rule 'Venuss' 'Venus'",
        "--set foo=1 | --set 'foo' buffer",
        "--set buffer=-1 | buffer -1",
        "--model best | --model 'best' truth",
        "--bin 0 | --bin 0.0",
        "--bin 1e-6 | --bin 1e-06",
        "--learn 9 | jobs.csv --learn 9 4.5",
        "--learn 1e308 | --learn 1e+308",
        "--watts inf | --watts inf",
        "--out bins.txt | bins.txt .parquet",
    ],
)
def test_what_cannot_be_said_is_refused(line: str) -> None:
    asked, words = line.split(" | ")
    message = refused(f"nodes --trace jobs.csv {asked}")
    assert [word for word in words.split() if word not in message] == [], message
