"""``allocator predict``: the trace it writes, what it says, the page, and what it refuses."""

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
from tests.throughputs.predict.test_durations import workload
from throughputs import Trace, gavel_trace, read_trace, write_trace


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    write_trace(workload(500), path)
    return path


def predict(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, ["predict", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def refused(monkeypatch, capsys, *arguments: str | Path) -> str:
    """The one line on standard error with which a command ends."""
    monkeypatch.setattr(sys, "argv", ["allocator", "predict", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("model", ["fast", "interpretable"])
def test_a_trace_is_written_and_its_figures_told(model: str, jobs: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out.parquet", tmp_path / "page.html"
    said = predict("--trace", jobs, "--out", out, "--model", model, "--report", page)
    before, after = read_trace(jobs), read_trace(out)
    known = ~np.isnan(after.predicted_seconds)
    assert 400 < known.sum() < 500
    left, right = (trace.to_frame().drop(columns="predicted_seconds") for trace in (before, after))
    pd.testing.assert_frame_equal(left, right)
    assert re.match(
        rf"{out}: 500 jobs, \d+ by a model, \d+ by the median of those that had ended, \d+ not predicted\n"
        "  not predicted         at the last fit before their submission no job had ended; cells are empty\n",
        said,
    )
    assert float(re.search(r"rank correlation +(\S+)", said)[1]) > 0.6
    assert "columns that count" in said
    text = page.read_text()
    assert "Shape functions" in text
    assert "http" not in text.replace("http-equiv", "")
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        minidom.parseString(svg)


def test_json_has_no_numbers_that_json_has_not(jobs: Path, tmp_path: Path) -> None:
    told = json.loads(predict("--trace", jobs, "--out", tmp_path / "o.csv", "--json", "--refit", "3"))
    assert told["jobs"] == 500 == sum(told["predicted"].values()) == sum(each["jobs"] for each in told["periods"])
    assert told["periods"][0]["rank_correlation"] is None
    assert max(told["reach_of_columns"].values()) > 2


def test_truth_with_noise_and_files(jobs: Path, tmp_path: Path) -> None:
    one, again, own = (tmp_path / name for name in ("one.csv", "again.csv", "own.csv"))
    for out in (one, again):
        predict("--trace", jobs, "--out", out, "--truth", "--noise", "0.5", "--seed", "4")
    assert one.read_bytes() == again.read_bytes()
    trace = read_trace(one)
    assert np.std(np.log(trace.predicted_seconds / trace.duration)) == pytest.approx(0.5, rel=0.15)
    predict("--trace", jobs, "--out", own, "--truth")
    assert (read_trace(own).predicted_seconds == trace.duration).all()
    table = tmp_path / "mine.csv"
    table.write_text("job_id,seconds\n3,77\n")
    said = predict("--trace", jobs, "--out", own, "--from", table)
    assert "1 by a file, 499 not predicted" in said
    assert "at the last fit" not in said
    assert read_trace(own).predicted_seconds[3] == 77


def test_durations_that_are_not_stated_are_steps_over_throughput(tmp_path: Path) -> None:
    source, out = tmp_path / "g.trace", tmp_path / "o.csv"
    write_trace(gavel_trace(30, 600.0, seed=0), source, lossy=True)
    predict("--trace", source, "--out", out, "--truth")
    hours = read_trace(out).predicted_seconds / 3600
    assert 0.1 < hours.min() < hours.max() < 1000


def test_where_no_duration_is_known_nothing_is_predicted(tmp_path: Path, monkeypatch, capsys) -> None:
    source, out = tmp_path / "u.csv", tmp_path / "o.csv"
    source.write_text("job_type,scale_factor,total_steps,arrival_time,duration\na,1,5,0,\nb,1,5,9,\n")
    line = refused(monkeypatch, capsys, "--trace", source, "--out", out)
    assert line.startswith("error: jobs: field 'duration': found nothing, expected the durations of some jobs")
    source.write_text("job_type,scale_factor,total_steps,arrival_time,duration\na,1,5,0,7\nb,1,5,99999,\n")
    assert "1 by the median of those that had ended, 1 not predicted" in predict("--trace", source, "--out", out)
    assert read_trace(out).predicted_seconds[1] == 7
    source.write_text("job_type,scale_factor,total_steps,arrival_time\n")
    assert predict("--trace", source, "--out", out) == f"{out}: 0 jobs, nothing to predict\n"


def test_further_columns_go_by_id(jobs: Path, tmp_path: Path) -> None:
    users = read_trace(jobs).user
    columns, unnamed = tmp_path / "columns.csv", tmp_path / "unnamed.csv"
    frame = pd.DataFrame({"job_id": range(500), "name": [f"{user}-{i}" for i, user in enumerate(users)]})
    frame.iloc[::-1].to_csv(columns, index=False)
    write_trace(workload(500).take(slice(None)), unnamed)
    table = pd.read_csv(unnamed)
    table["user"] = "all"
    table.to_csv(unnamed, index=False)
    said = json.loads(predict("--trace", unnamed, "--out", tmp_path / "o.csv", "--columns", columns, "--json"))
    assert said["rank_correlation"] > 0.6
    assert "name" in said["reach_of_columns"]


def test_the_origin_moves_hours(jobs: Path, tmp_path: Path) -> None:
    plain, moved, monday = (tmp_path / name for name in ("a.csv", "b.csv", "c.csv"))
    predict("--trace", jobs, "--out", plain)
    predict("--trace", jobs, "--out", moved, "--origin", "2025-03-05T17:30:00")
    predict("--trace", jobs, "--out", monday, "--origin", "2025-03-03")
    assert plain.read_bytes() == monday.read_bytes() != moved.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "slow"], "error: model: found 'slow', expected one of fast, interpretable"),
        (["--noise", "1"], "error: --noise: found 1.0, expected nothing without --truth, whose error it is"),
        (["--truth", "--model", "fast"], "error: --model, --truth: found 'several', expected one of them"),
        (
            ["--truth", "--noise", "-1"],
            "error: noise: found -1.0, expected a standard deviation of logarithms, from 0 to",
        ),
        (["--refit", "0"], "error: --refit: found 0.0, expected days above 0"),
        (["--origin", "yesterday"], "error: --origin: found 'yesterday', expected a date (ISO 8601)"),
        (["--out", "o.txt"], "error: o.txt: found 'o.txt', expected a name ending in .csv, .csv.gz or .parquet"),
        (["--from", "absent.csv"], "error: absent.csv: No such file"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str, jobs: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused(monkeypatch, capsys, "--trace", jobs, "--out", "o.csv", *arguments)
    assert line.startswith(message)
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.csv"]


def test_columns_that_do_not_fit_and_the_file_that_is_read(jobs: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    columns = tmp_path / "columns.csv"
    columns.write_text("job_id,name\n0,a\n")
    line = refused(monkeypatch, capsys, "--trace", jobs, "--out", tmp_path / "o.csv", "--columns", columns)
    assert line.endswith("field 'job_id': found '1 rows', expected each job of the trace once, 0 to 499")
    line = refused(monkeypatch, capsys, "--trace", jobs, "--out", jobs)
    assert line.startswith("error: --out: found")


def test_an_absent_extra_is_one_line_and_writes_nothing(jobs: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "interpret", None)
    line = refused(monkeypatch, capsys, "--trace", jobs, "--out", tmp_path / "o.csv", "--model", "interpretable")
    assert line == (
        "error: model interpretable: field 'interpret': found 'no such package', "
        "expected the extra: pip install 'cluster-allocator[predict]'"
    )
    assert not (tmp_path / "o.csv").exists()


def test_what_could_not_be_learned_is_said(tmp_path: Path) -> None:
    def said(n: int, gap: float, *more: str) -> str:
        trace = Trace(["a"] * n, [1] * n, [50.0] * n, gap * np.arange(n), duration=[50.0] * n)
        write_trace(trace, tmp_path / "few.csv")
        given = ["predict", "--trace", str(tmp_path / "few.csv"), "--out", str(tmp_path / "out.csv"), *more]
        return CliRunner().invoke(app, given, catch_exceptions=False).stderr

    assert "no job was predicted: at the last fit before it was submitted none had ended" in said(9, 10.0)
    assert "no model was fitted, for which 100 jobs must have ended before a fit: the median" in said(30, 86400.0)
    assert said(300, 86400.0) == ""
    assert "nothing can be said about errors: of no job a duration, a prediction and the median" in said(
        9, 10.0, "--truth"
    )
