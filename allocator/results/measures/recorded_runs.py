"""Recorded runs and the deadlines of their jobs, from the files that we, Pollux and ElasticFlow write.

Of a job the time from submission to completion is compared with the time from submission to its deadline: the clocks
of a run and of a trace need not begin alike. Two satisfactory ratios are in use. That of ElasticFlow's paper (Gu et
al., ASPLOS 2023, sec. 6) is over all jobs with a deadline, wherever they are at the end. The simulator that its
artifact has for Pollux tells another one while it runs: over the jobs that have finished so far, those without a
deadline, which are never in time, among them.

What is read:

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

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.results.output import read_summary
from throughputs import InputError, read_trace
from throughputs.arrays import Texts
from throughputs.errors import expect
from throughputs.files import Document, JsonObject, parse_json, read_frame, read_text
from throughputs.frames import FrameReader
from throughputs.traces import named_format

if TYPE_CHECKING:
    import pandas as pd

JUDGEMENTS = ("met", "late", "missed", "open", "declined", "best_effort", "not_submitted")
"""Completed in time; completed late; not completed, and the deadline has passed at the end of the record; has not
passed yet; turned away; no deadline; with a deadline in the trace, and not in the run."""

_TIMES = ("submitted", "completed", "deadline")
_OF_LOGS = dict(zip(_TIMES, ("submission_time", "completion_time", "ddl"), strict=True))
_OF_JOBS = dict(zip(_TIMES, ("submit", "finish", "ddl"), strict=True))
"""What the files of others call them."""


@dataclass(frozen=True, eq=False)
class RecordedJobs:
    """Jobs of a run.

    Attributes
    ----------
    table : by name submitted, completed, deadline (seconds on one clock; nan for a job that has not completed, or
        without one), declined (whether the scheduler turned it away) and absent (whether it is in the trace alone).
    end : up to when the run is recorded, seconds.
    """

    table: pd.DataFrame
    end: float


def judged(jobs: RecordedJobs) -> Texts:
    """(N,) one of `JUDGEMENTS` for each job."""
    table = jobs.table
    allowed = table["deadline"] - table["submitted"]
    in_time = table["completed"] - table["submitted"] <= allowed
    passed = jobs.end - table["submitted"] > allowed
    cases = {
        "best_effort": table["deadline"].isna(),
        "not_submitted": table["absent"],
        "declined": table["declined"],
        "met": in_time,
        "late": table["completed"].notna(),
        "missed": passed,
    }
    return np.select([case.to_numpy(bool) for case in cases.values()], list(cases), "open").astype(object)


def deadline_judgement(jobs: RecordedJobs) -> JsonObject:
    """Figures of a run, ready for JSON.

    jobs, deadline_jobs, completed_jobs; accepted (jobs with a deadline that were submitted and not declined); the
    number of each of `JUDGEMENTS`; satisfactory_ratio (met over deadline_jobs) and satisfactory_ratio_of_finished (met
    over completed_jobs), None where there is nothing to divide by.
    """
    verdicts = judged(jobs)
    counts = {name: int((verdicts == name).sum()) for name in JUDGEMENTS}
    due, done = (int(jobs.table[name].notna().sum()) for name in ("deadline", "completed"))
    return {
        "jobs": len(verdicts),
        "deadline_jobs": due,
        "completed_jobs": done,
        "accepted": due - counts["declined"] - counts["not_submitted"],
        **counts,
        "satisfactory_ratio": counts["met"] / due if due else None,
        "satisfactory_ratio_of_finished": counts["met"] / done if done else None,
    }


def read_recorded_jobs(run: Path, trace: Path | None = None) -> RecordedJobs:
    """The jobs of a recorded run, with the deadlines of the `trace` where one is given, else those in the run.

    Raises
    ------
    InputError
        The file is none of those above, a job of it is not in the trace, or nothing tells deadlines or submissions.
    """
    import pandas as pd

    jobs, end = _of_folder(run) if run.is_dir() else _of_file(run)
    jobs["absent"] = False
    if trace is not None:
        wanted = _wanted(trace)
        keys = pd.Index([name if name in wanted.index else name.rpartition("-")[2] for name in jobs.index])
        unknown = ~keys.isin(wanted.index) | keys.duplicated()
        if unknown.any():
            raise InputError(run, field="job", found=jobs.index[unknown][0], expected=f"a job of {trace}, once")
        told = wanted.loc[keys].set_index(jobs.index)
        jobs["submitted"] = jobs["submitted"].fillna(told["submitted"])
        # the clocks of a run and of its trace need not begin alike
        jobs["deadline"] = told["deadline"] - told["submitted"] + jobs["submitted"]
        jobs = pd.concat([jobs, wanted.drop(keys).assign(completed=math.nan, declined=False, absent=True)])
    if (unknown := jobs["submitted"].isna()).any():
        raise InputError(run, field=jobs.index[unknown][0], expected="the time of its submission, or a trace")
    if "took" in jobs:
        jobs["completed"] = jobs["submitted"] + jobs["took"]
    if (early := jobs["completed"] < jobs["submitted"]).any():
        job = jobs[early].iloc[0]
        expected = f"at least its submission, {job['submitted']:g} s"
        raise InputError(run, field=f"completion of job {job.name}", found=float(job["completed"]), expected=expected)
    if jobs["deadline"].isna().all():
        expected = "deadlines, in the run or in a trace"
        raise InputError(trace or run, found="no job with a deadline", expected=expected)
    return RecordedJobs(jobs, float(np.fmax(end, jobs["completed"].max())))


def _of_folder(folder: Path) -> tuple[pd.DataFrame, float]:
    """Jobs and end of a run of our own."""
    import pandas as pd

    summary = read_summary(folder)
    frame, first_line = read_frame(folder / "jobs.csv")
    table = FrameReader(frame, str(folder / "jobs.csv"), first_line)
    table.check_columns(("job_id", "arrival_time", "completion_time", "status"), [*map(str, frame.columns)])
    status = table.text("status")
    jobs = {
        "submitted": table.numbers("arrival_time"),
        # a job that was cut off has not done its work
        "completed": np.where(status == "cut_off", math.nan, table.numbers("completion_time", empty=math.nan)),
        "deadline": table.numbers("deadline", empty=math.nan) if table.has("deadline") else math.nan,
        "declined": np.isin(status.astype(str), ("rejected", "unserved")),
    }
    return pd.DataFrame(jobs, index=table.names("job_id")), float(summary.get("makespan", 0.0))


def _of_file(path: Path) -> tuple[pd.DataFrame, float]:
    """Jobs and end of a run of others."""
    read, text = Document(path), read_text(path)
    lines = text.strip().splitlines()
    # of a log the last record counts
    is_log = bool(lines) and '"submitted_jobs"' in lines[0]
    told = read.table(parse_json(lines[-1] if is_log else text, path), "")
    if "submitted_jobs" in told:
        submitted = [read.table(job, "submitted_jobs") for job in read.items(told["submitted_jobs"], "submitted_jobs")]
        jobs = {job.get("name"): job for job in submitted}
        if None in jobs or len(jobs) < len(submitted):
            again = next((job.get("name") for job in submitted if job is not jobs[job.get("name")]), None)
            raise read.error("submitted_jobs", again, "each job with a name, and each name once")
        return _jobs(read, "submitted_jobs", jobs, _OF_LOGS), _seconds(read, told.get("timestamp", 0.0), "timestamp")
    if "jobs" in told:
        end = _seconds(read, read.table(told.get("summary", {}), "summary").get("sim_time", 0.0), "sim_time")
        return _jobs(read, "jobs", told["jobs"], _OF_JOBS), end
    if "jcts" in told:
        workloads = read.table(told["jcts"], "jcts")
        if len(workloads) != 1:
            raise read.error("jcts", ", ".join(workloads) or "none", "one workload")
        ((workload, times),) = workloads.items()
        where = f"jcts / {workload}"
        took = {name: {"took": seconds} for name, seconds in read.table(times, where).items()}
        return _jobs(read, where, took, {"took": "took"}), 0.0
    expected = 'a log with "submitted_jobs" in each line, or an object with "jobs" or "jcts"'
    raise InputError(path, found=f"an object with {', '.join(told) or 'nothing'}", expected=expected)


def _jobs(read: Document, field: str, jobs: Any, names: Mapping[str, str]) -> pd.DataFrame:
    """What is told of jobs by name, with times that the file calls by these names."""
    import pandas as pd

    rows = {}
    for name, job in read.table(jobs, field).items():
        told = read.table(job, f"{field} / {name}")
        rows[name] = [_seconds(read, told.get(theirs), f"{field} / {name} / {theirs}") for theirs in names.values()]
    table = pd.DataFrame.from_dict(rows, "index", columns=list(names), dtype=float)
    return table.reindex(columns=list(dict.fromkeys([*_TIMES, *names]))).assign(declined=False)


def _seconds(read: Document, value: Any, where: str) -> float:
    """A number, or a date, as seconds; nan for nothing."""
    try:
        dated = isinstance(value, str) and "-" in value[1:]
        return math.nan if value is None else datetime.fromisoformat(value).timestamp() if dated else float(value)
    except (TypeError, ValueError):
        raise read.error(where, value, "seconds, or a date such as 2026-03-01T08:00:00Z") from None


def _wanted(path: Path) -> pd.DataFrame:
    """Arrival and deadline of each job of a trace, by its name."""
    import pandas as pd

    trace = read_trace(path)
    names = [str(position) for position in range(len(trace))]
    if named_format(path) == "pollux":
        frame, _ = read_frame(path)
        order = np.argsort(frame["time"].astype(float).to_numpy(), kind="stable")
        names = frame["name"].astype(str).to_numpy()[order].tolist()
        expect(len(set(names)) >= len(names), path, "name", "a name twice", "each name once")
    return pd.DataFrame({"submitted": trace.arrival_time, "deadline": trace.deadline}, index=names)
