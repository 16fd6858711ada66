"""The job log of Philly: a list of jobs in JSON, each with the attempts in which it ran.

    {"status": "Pass", "vc": "a1b2c3", "jobid": "application_1", "user": "ann",
     "submitted_time": "2017-10-14 09:30:00",
     "attempts": [{"start_time": ..., "end_time": ..., "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}]}

Source: M. Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019
(msr-fiddle/philly-traces, cluster_job_log).
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from throughputs.arrays import Ints
from throughputs.errors import InputError
from throughputs.files import parse_json
from throughputs.traces.logs.cells import Clock
from throughputs.traces.logs.layouts import Cells, Layout

_PACIFIC = "America/Los_Angeles"
"""Zone of the dates, as the records of utilisation name it."""

_OF_JOB = ("submitted_time", "vc", "user", "status", "jobid")


def _cells(text: str, source: str) -> tuple[Cells, None, tuple[str, ...]]:
    """Columns of text of the jobs, and what there is to say of them.

    A job's duration is the time of its attempts; the time between two of them is not in it. An attempt of which the
    start or the end was not recorded does not count, and a job whose last attempt has no end has no duration.

    Raises
    ------
    InputError
        An entry is not a job of this log.
    """
    jobs = parse_json(text, source)
    for i, job in enumerate(jobs):
        attempts = job.get("attempts") if isinstance(job, dict) else None
        if not isinstance(attempts, list) or not all(isinstance(attempt, dict) for attempt in attempts):
            expected = "an object with a list of attempts, as in cluster_job_log of Philly"
            raise InputError(source, field=f"jobs[{i}]", found=job, expected=expected)
    n, of_job = len(jobs), [job["attempts"] for job in jobs]
    begun, over = ([[_text(each.get(name)) for each in own] for own in of_job] for name in ("start_time", "end_time"))
    of = np.repeat(np.arange(n), np.array([len(own) for own in of_job], dtype=np.int64))
    times = Clock(_PACIFIC, None).seconds(np.array([*chain(*begun), *chain(*over)], dtype=object))
    seconds = times[len(of) :] - times[: len(of)]
    known = ~np.isnan(seconds)
    total, count = np.bincount(of[known], seconds[known], n).tolist(), np.bincount(of[known], minlength=n).tolist()
    last = [own[-1] if own else "" for own in over]
    cells = {name: [_text(job.get(name)) for job in jobs] for name in _OF_JOB} | {
        "first start": [next(filter(None, own), "") for own in begun],
        "last end": last,
        "gpus": [str(max(map(_gpus, own), default=0)) for own in of_job],
        "seconds of attempts": [repr(s) if k and end else "" for s, k, end in zip(total, count, last, strict=True)],
    }
    columns = {name: np.array(column, dtype=object) for name, column in cells.items()}
    return columns, None, _notes(np.bincount(of, minlength=n), int((~known).sum()))


def _notes(attempts: Ints, unknown: int) -> tuple[str, ...]:
    several = int((attempts > 1).sum())
    notes = []
    if several:
        notes.append(
            f"several attempts: {several:,} jobs; their duration is the time of all attempts, their recorded time goes "
            "from the first start to the last end"
        )
    if unknown:
        notes.append(f"attempts without a start or an end: {unknown:,}, which do not count")
    return tuple(notes)


def _gpus(attempt: dict[str, Any]) -> int:
    servers = attempt.get("detail")
    if not isinstance(servers, list):
        return 0
    held = [server.get("gpus") for server in servers if isinstance(server, dict)]
    return sum(len(gpus) for gpus in held if isinstance(gpus, list))


def _text(value: Any) -> str:
    """The publisher writes a time that is not there as null, or as text."""
    return "" if value in (None, "None", "null") or isinstance(value, list | dict) else str(value)


PHILLY = Layout(
    "philly",
    {
        "id": "jobid",
        "submit": "submitted_time",
        "duration": "seconds of attempts",
        "gpus": "gpus",
        "start": "first start",
        "end": "last end",
        "user": "user",
        "partition": "vc",
        "state": "status",
    },
    line=r"\s*\[\s*(?:[{\]].*)?",
    cells=_cells,
    zone=_PACIFIC,
)
