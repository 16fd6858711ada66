"""Recorded runs and the deadlines of their jobs, from the files that we, Pollux and ElasticFlow write.

    a folder         what `allocator simulate` wrote: summary.json and jobs.csv
    records by line  the log of a simulator or a cluster, a JSON object in each line with "submitted_jobs", of which the
                     last says how far each job has come: name, submission_time, completion_time [, ddl]
    jobs by name     an object with "jobs": by name submit, finish [, ddl]
    a summary        an object with "jcts": by workload the completion time of each job, by name

Times are seconds, or dates of ISO 8601 as Kubernetes has them. Files without submissions or deadlines need the trace:
a workload of Pollux, whose names are those of the run, or any other trace, where the number behind the last dash of a
name is the position of the job.

Sources: A. Qiao et al., "Pollux", OSDI 2021 (petuum/adaptdl); S. Jayaram Subramanya et al., "Sia", SOSP 2023; D. Gu et
al., "ElasticFlow", ASPLOS 2023 (pkusys/ElasticFlow).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from allocator.results.measures.judgement import RecordedJobs
from throughputs import InputError, read_trace
from throughputs.files import read_frame, read_text
from throughputs.traces import named_format

_OWN_COLUMNS = ("job_id", "arrival_time", "completion_time", "status")


def read_recorded_jobs(run: Path, trace: Path | None = None) -> RecordedJobs:
    """The jobs of a recorded run, with the deadlines of the `trace` where one is given, else those in the run.

    Raises
    ------
    InputError
        The file is none of those above, a job of it is not in the trace, or nothing tells deadlines or submissions.
    """
    jobs, end = _of_folder(run) if run.is_dir() else _of_file(run)
    wanted = None if trace is None else _wanted(trace)
    rows = []
    for name, job in jobs.items():
        if wanted is not None:
            key = name if name in wanted else name.rpartition("-")[2]
            if key not in wanted:
                raise InputError(run, field="job", found=name, expected=f"a job of {trace}")
            arrival, deadline = wanted.pop(key)
            submitted = arrival if math.isnan(job["submitted"]) else job["submitted"]
            # the clocks of a run and of its trace need not begin alike
            job |= {"submitted": submitted, "deadline": deadline - arrival + submitted}
        if math.isnan(job["submitted"]):
            raise InputError(run, field=name, expected="the time of its submission, or a --trace")
        if not math.isnan(job["took"]):
            job["completed"] = job["submitted"] + job["took"]
        if job["completed"] < job["submitted"]:
            expected = f"at least its submission, {job['submitted']:g} s"
            raise InputError(run, field=f"completion of job {name}", found=job["completed"], expected=expected)
        rows.append((name, job["submitted"], job["completed"], job["deadline"], job["declined"], False))
    absent = [] if wanted is None else wanted.items()
    rows += [(name, arrival, math.nan, deadline, False, True) for name, (arrival, deadline) in absent]
    if all(math.isnan(row[3]) for row in rows):
        where = f"{run}" if trace is None else f"{trace}"
        raise InputError(where, found="no job with a deadline", expected="deadlines, in the run or in a --trace")
    names, submitted, completed, deadlines, declined, missing = zip(*rows, strict=True)
    done = np.array(completed, dtype=np.float64)
    return RecordedJobs(
        np.array(names, dtype=object),
        np.array(submitted, dtype=np.float64),
        done,
        np.array(deadlines, dtype=np.float64),
        np.array(declined, dtype=np.bool_),
        np.array(missing, dtype=np.bool_),
        max([end, *done[~np.isnan(done)].tolist()]),
    )


def _job(**known: Any) -> dict[str, Any]:
    """What is known of a job; `took` is its completion time where only that is told."""
    times = dict.fromkeys(("submitted", "completed", "deadline", "took"), math.nan)
    return times | {"declined": False} | known


def _of_folder(folder: Path) -> tuple[dict[str, dict[str, Any]], float]:
    """Jobs and end of a run of our own."""
    if not (folder / "summary.json").is_file():
        inside = sorted(path.parent.name for path in folder.glob("*/summary.json"))
        expected = f"the folder of one run, such as {folder / inside[0]}" if inside else "the folder of a finished run"
        found = f"no summary.json, but runs in its folders {', '.join(inside)}" if inside else "no summary.json"
        raise InputError(folder, found=found, expected=expected)
    frame, first_line = read_frame(folder / "jobs.csv")
    for name in _OWN_COLUMNS:
        if name not in frame.columns:
            raise InputError(folder / "jobs.csv", field=name, expected="this column to be present")
    jobs = {}
    for line, row in enumerate(frame.to_dict("records"), start=first_line):
        times = [
            _seconds(row.get(name) or None, folder / "jobs.csv", name, line)
            for name in ("arrival_time", "completion_time", "deadline")
        ]
        status = str(row["status"])
        # a job that was cut off has not done its work
        times[1] = math.nan if status == "cut_off" else times[1]
        declined = status in ("rejected", "unserved")
        jobs[str(row["job_id"])] = _job(
            **dict(zip(("submitted", "completed", "deadline"), times, strict=True)), declined=declined
        )
    makespan = _object(folder / "summary.json", read_text(folder / "summary.json"), None).get("makespan", 0.0)
    return jobs, float(makespan)


def _of_file(path: Path) -> tuple[dict[str, dict[str, Any]], float]:
    """Jobs and end of a run of others."""
    text = read_text(path)
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if lines and '"submitted_jobs"' in lines[0][1]:
        return _of_log(path, *lines[-1])
    told = _object(path, text, None)
    if isinstance(told.get("submitted_jobs"), list):
        return _of_log(path, 1, text)
    if isinstance(told.get("jobs"), Mapping):
        names = {"submitted": "submit", "completed": "finish", "deadline": "ddl"}
        jobs = {name: _told(path, name, job, names) for name, job in told["jobs"].items()}
        summary = told.get("summary")
        return jobs, float(summary.get("sim_time", 0.0)) if isinstance(summary, Mapping) else 0.0
    if isinstance(told.get("jcts"), Mapping):
        workloads = told["jcts"]
        if len(workloads) != 1:
            found = ", ".join(map(str, workloads))
            raise InputError(path, field="jcts", found=found or "none", expected="one workload")
        ((workload, times),) = workloads.items()
        if not isinstance(times, Mapping):
            raise InputError(path, field=f"jcts / {workload}", found=times, expected="an object, seconds by job")
        return {name: _job(took=_seconds(jct, path, name)) for name, jct in times.items()}, 0.0
    expected = 'a log with "submitted_jobs" in each line, or an object with "jobs" or "jcts"'
    raise InputError(path, found=f"an object with {', '.join(map(str, told)) or 'nothing'}", expected=expected)


def _of_log(path: Path, line: int, text: str) -> tuple[dict[str, dict[str, Any]], float]:
    """The last record of a log."""
    record = _object(path, text, line)
    names = {"submitted": "submission_time", "completed": "completion_time", "deadline": "ddl"}
    jobs = {}
    for job in record["submitted_jobs"]:
        if not isinstance(job, Mapping) or "name" not in job:
            raise InputError(path, line=line, field="submitted_jobs", found=job, expected="jobs with a name")
        if str(job["name"]) in jobs:
            raise InputError(
                path, line=line, field="submitted_jobs / name", found=job["name"], expected="each name once"
            )
        jobs[str(job["name"])] = _told(path, "submitted_jobs", job, names, line)
    return jobs, _seconds(record.get("timestamp", 0.0), path, "timestamp", line)


def _told(path: Path, field: str, job: Any, names: Mapping[str, str], line: int | None = None) -> dict[str, Any]:
    if not isinstance(job, Mapping):
        raise InputError(
            path, line=line, field=field, found=job, expected=f"an object with {', '.join(names.values())}"
        )
    times = {ours: _seconds(job.get(name), path, f"{field} / {name}", line) for ours, name in names.items()}
    return _job(**times)


def _object(path: Path, text: str, line: int | None) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        at = error.lineno if line is None and isinstance(error, json.JSONDecodeError) else line
        raise InputError(path, line=at, found=text[:40], expected=f"JSON ({error})") from None
    if not isinstance(found, dict):
        raise InputError(path, line=line, found=type(found).__name__, expected="a JSON object")
    return found


def _seconds(value: Any, path: Path, field: str, line: int | None = None) -> float:
    """A number, or a date, as seconds; nan for nothing."""
    if value is None:
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        pass
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        expected = "seconds, or a date such as 2026-03-01T08:00:00Z"
        raise InputError(path, line=line, field=field, found=value, expected=expected) from None


def _wanted(path: Path) -> dict[str, tuple[float, float]]:
    """Arrival and deadline of each job of a trace, by its name."""
    trace = read_trace(path)
    names = [str(position) for position in range(len(trace))]
    if named_format(path) == "pollux":
        frame, _ = read_frame(path)
        order = np.argsort(frame["time"].astype(float).to_numpy(), kind="stable")
        names = frame["name"].astype(str).to_numpy()[order].tolist()
        if len(set(names)) < len(names):
            raise InputError(path, field="name", found="a name twice", expected="each name once")
    return dict(zip(names, zip(trace.arrival_time.tolist(), trace.deadline.tolist(), strict=True), strict=True))
