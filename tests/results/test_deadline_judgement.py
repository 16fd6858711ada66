"""Deadlines of recorded runs: our own folders, and what Pollux' simulators and cluster scripts write."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocator import get_policy, simulate
from allocator.results.measures.recorded_runs import deadline_judgement, judged, read_recorded_jobs
from allocator.results.output import save_result
from throughputs import InputError, Trace, write_trace

RECORD = {
    "timestamp": 500.0,
    "submitted_jobs": [
        {"name": "bert-0", "submission_time": 0, "completion_time": 90.0, "ddl": 90},
        {"name": "bert-1", "submission_time": 10, "completion_time": 90.5, "ddl": 90},
        {"name": "ncf-2", "submission_time": 10, "completion_time": None, "ddl": 499},
        {"name": "ncf-3", "submission_time": 10, "completion_time": None, "ddl": 501},
        {"name": "ncf-5", "submission_time": 10, "completion_time": None, "ddl": 500},
        {"name": "ncf-4", "submission_time": 20, "completion_time": 60, "ddl": None},
    ],
}


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_the_last_record_of_a_log_counts(tmp_path: Path) -> None:
    early = {"timestamp": 60.0, "submitted_jobs": RECORD["submitted_jobs"][:1]}
    jobs = read_recorded_jobs(write(tmp_path / "run.log", early, RECORD))
    assert judged(jobs).tolist() == ["met", "late", "missed", "open", "open", "best_effort"]
    figures = deadline_judgement(jobs)
    assert (figures["deadline_jobs"], figures["accepted"], figures["declined"]) == (5, 5, 0)
    assert figures["satisfactory_ratio"] == 1 / 5
    assert figures["satisfactory_ratio_of_finished"] == 1 / 3


def test_a_run_on_another_clock_is_judged_by_the_time_it_had(tmp_path: Path) -> None:
    trace = Trace(["bert (batch size 64)"] * 4, [1] * 4, [1.0] * 4, [5, 6, 7, 8], deadline=[65, 66, 67, np.nan])
    write_trace(trace, tmp_path / "pollux.csv", "pollux")
    jobs = [
        {"name": "bert-1", "submission_time": "2026-02-28T23:59:30Z", "completion_time": "2026-03-01T00:00:30Z"},
        {"name": "bert-0", "submission_time": "2026-02-28T23:59:30Z", "completion_time": "2026-03-01T00:00:31Z"},
        {"name": "bert-3", "submission_time": "2026-02-28T23:59:30Z", "completion_time": None},
    ]
    log = write(tmp_path / "run.log", {"submitted_jobs": jobs})
    write_trace(trace, tmp_path / "table.csv")
    for name in ("pollux.csv", "table.csv"):
        recorded = read_recorded_jobs(log, tmp_path / name)
        assert judged(recorded).tolist() == ["met", "late", "best_effort", "not_submitted"]
        figures = deadline_judgement(recorded)
        assert (figures["accepted"], figures["not_submitted"]) == (2, 1)
        assert figures["satisfactory_ratio"] == pytest.approx(1 / 3)


def test_a_run_of_our_own_is_judged_as_its_summary_says(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    n = 40
    arrival = np.sort(rng.integers(0, 4000, n)).astype(float)
    seconds = rng.integers(100, 2000, n).astype(float)
    deadline = np.where(rng.random(n) < 0.8, arrival + rng.uniform(1, 4, n) * seconds, np.nan)
    trace = Trace(["job"] * n, [1] * n, seconds, arrival, deadline=deadline, duration=seconds)
    write_trace(trace, tmp_path / "trace.csv")
    for policy in ("fifo", "elasticflow"):
        result = simulate(trace, {"v100": 3}, get_policy(policy), None)
        save_result(result, tmp_path / policy)
        summary = result.summary()
        for given in (None, tmp_path / "trace.csv"):
            figures = deadline_judgement(read_recorded_jobs(tmp_path / policy, given))
            names = ("satisfactory_ratio", "declined", "met", "late", "accepted")
            assert [figures[name] for name in names] == [
                summary.deadline_ratio, summary.rejected, summary.met, summary.late, summary.admitted,
            ]  # fmt: skip
    assert summary.rejected


def test_the_run_of_pollux_on_the_deadlines_of_elasticflow(
    reference_data: Callable[[str], Path], public_data: Callable[[str], Path]
) -> None:
    path = reference_data("pollux_sia/runs/ef_pollux_40.json")
    told = json.loads(path.read_text())["summary"]
    figures = deadline_judgement(read_recorded_jobs(path))
    assert figures["satisfactory_ratio_of_finished"] == told["ddl_ratio"]
    assert figures["completed_jobs"] == told["n_done"]
    whole = deadline_judgement(read_recorded_jobs(path, public_data("pollux_sia/elasticVpollux_p_first40.csv")))
    assert (whole["jobs"], whole["accepted"], whole["not_submitted"]) == (40, 13, 27)
    assert whole["satisfactory_ratio"] == 1 / 40
    assert whole["satisfactory_ratio_of_finished"] == told["ddl_ratio"]


BAD = """
{ | run.json:1
[1] | run.json table
{"a": 1} | run.json a submitted_jobs
{"jcts": {"a": {}, "b": {}}} | 'jcts'
{"jobs": {"x": 3}} | x 3
{"jobs": {"x": {"submit": 1, "finish": "soon"}}} | x finish 'soon'
{"submitted_jobs": [{"id": 3}]} | run.json 'submitted_jobs' name
{"submitted_jobs": [{"name": "a-1", "submission_time": 3}]} | deadline
{"jcts": {"w": [1, 2]}} | jcts w
{"timestamp": 9, "submitted_jobs": [{"name": "a", "submission_time": 5, "completion_time": 2, "ddl": 9}]} | a 2.0 5
{"timestamp": 9, "submitted_jobs": [{"name": "a", "ddl": 9}, {"name": "a", "ddl": 8}]} | 'a' once
"""


@pytest.mark.parametrize("line", BAD.strip().splitlines())
def test_what_cannot_be_read_is_said(line: str, tmp_path: Path) -> None:
    content, words = line.split(" | ")
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(InputError) as caught:
        read_recorded_jobs(tmp_path / "run.json")
    assert [word for word in words.split() if word not in str(caught.value)] == [], caught.value
