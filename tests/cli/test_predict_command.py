"""``allocator predict``: the trace it writes, what it says, the page, and what it refuses."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.dom import minidom

import numpy as np
import pandas as pd
import pytest

from tests.cli.command import ran, refused, told
from tests.throughputs.predict.test_durations import workload
from throughputs import read_trace, write_trace


@pytest.fixture
def jobs(folder: Path) -> Path:
    write_trace(workload(500), "jobs.csv")
    return folder


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("model", ["fast", "interpretable"])
def test_a_trace_is_written_and_its_figures_told(model: str) -> None:
    said = ran(f"predict --trace jobs.csv --out out.parquet --model {model} --report page.html").out
    before, after = read_trace("jobs.csv"), read_trace("out.parquet")
    assert 400 < (~np.isnan(after.predicted_seconds)).sum() < 500
    left, right = (trace.to_frame().drop(columns="predicted_seconds") for trace in (before, after))
    pd.testing.assert_frame_equal(left, right)
    assert said.startswith("out.parquet: 500 jobs, ")
    assert float(re.search(r"rank correlation +(\S+)", said)[1]) > 0.6  # type: ignore[index]
    text = Path("page.html").read_text()
    assert "Shape functions" in text
    assert "http" not in text.replace("http-equiv", "")
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        minidom.parseString(svg)


@pytest.mark.usefixtures("jobs")
def test_truth_with_noise_and_files() -> None:
    for out in ("one.csv", "again.csv"):
        ran("predict --trace jobs.csv --truth --noise 0.5 --seed 4 --out", out)
    assert Path("one.csv").read_bytes() == Path("again.csv").read_bytes()
    trace = read_trace("one.csv")
    assert np.std(np.log(trace.predicted_seconds / trace.duration)) == pytest.approx(0.5, rel=0.15)
    ran("predict --trace jobs.csv --out own.csv --truth")
    assert (read_trace("own.csv").predicted_seconds == trace.duration).all()
    Path("mine.csv").write_text("job_id,seconds\n3,77\n")
    assert "1 by a file, 499 not predicted" in ran("predict --trace jobs.csv --out own.csv --from mine.csv").out
    assert read_trace("own.csv").predicted_seconds[3] == 77


@pytest.mark.usefixtures("folder")
def test_where_no_duration_is_known_nothing_is_predicted() -> None:
    head = "job_type,scale_factor,total_steps,arrival_time,duration\n"
    source = Path("u.csv")
    source.write_text(f"{head}a,1,5,0,\nb,1,5,9,\n")
    assert "field 'duration'" in refused("predict --trace u.csv --out o.csv")
    source.write_text(f"{head}a,1,5,0,7\nb,1,5,99999,\n")
    assert "1 by the median of those that had ended, 1 not predicted" in ran("predict --trace u.csv --out o.csv").out
    assert read_trace("o.csv").predicted_seconds[1] == 7
    source.write_text(head)
    assert ran("predict --trace u.csv --out o.csv").out.startswith("o.csv: 0 jobs")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("jobs")
def test_further_columns_go_by_id_and_the_origin_moves_hours() -> None:
    trace = pd.read_csv("jobs.csv")
    names = pd.DataFrame({"job_id": range(500), "name": [f"{user}-{i}" for i, user in enumerate(trace["user"])]})
    names.iloc[::-1].to_csv("columns.csv", index=False)
    trace.assign(user="all").to_csv("unnamed.csv", index=False)
    answer = told("predict --trace unnamed.csv --out o.csv --columns columns.csv --refit 3")
    assert answer["rank_correlation"] > 0.6
    assert "name" in answer["reach_of_columns"]
    assert answer["jobs"] == 500 == sum(answer["predicted"].values()) == sum(row["jobs"] for row in answer["periods"])
    assert answer["periods"][0]["rank_correlation"] is None
    written = []
    for more in ("", "--origin 2025-03-05T17:30:00", "--origin 2025-03-03"):
        ran(f"predict --trace jobs.csv --out o.csv {more}")
        written.append(Path("o.csv").read_bytes())
    assert written[0] == written[2] != written[1]


@pytest.mark.parametrize(
    "line",
    [
        "--model slow | fast interpretable 'slow'",
        "--truth --model fast | --model --truth",
        "--truth --noise -1 | noise -1.0",
        "--refit 0 | --refit 0.0",
        "--origin yesterday | --origin 'yesterday'",
        "--out o.txt | o.txt .csv .parquet",
        "--from absent.csv | absent.csv",
        "--columns few.csv | 'job_id' 499",
        "--model interpretable | interpret predict",
    ],
)
def test_what_is_refused(line: str, jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "interpret", None)
    Path("few.csv").write_text("job_id,name\n0,a\n")
    asked, words = line.split(" | ")
    message = refused(f"predict --trace jobs.csv --out o.csv {asked}")
    assert [word for word in words.split() if word not in message] == [], message
    assert sorted(path.name for path in jobs.iterdir()) == ["few.csv", "jobs.csv"]
