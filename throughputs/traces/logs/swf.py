"""The Standard Workload Format of the Parallel Workloads Archive, read and written.

Comments behind semicolons, ``; Label: value``, then a line for each job with 18 numbers, -1 for what is not known:
number, submission, wait, run time, processors, processor time and memory used, processors, time and memory requested,
status, user, group, executable, queue, partition, job before it and think time. Times are in seconds. Users,
executables and partitions are numbers there. Names of partitions stand where the standard has them, as in
``; Partition: 1 batch``, and in files that are written here those of users and executables in comments of their own, as
in ``; Note: user 1 is ada``.

Source: S. Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers", JSSPP 1999, and the
archive's definition of version 2.2.
"""

from __future__ import annotations

import re

import numpy as np

from throughputs.arrays import Ints, Texts, Values
from throughputs.errors import InputError
from throughputs.limits import require
from throughputs.trace import Trace
from throughputs.traces.logs.cells import numbers
from throughputs.traces.logs.layouts import Cells, Layout, printed

SWF = "swf"
"""Name of the format, and the extension of its files."""

_FIELDS = (
    "job number", "submit time", "wait time", "run time", "processors", "processor time", "memory", "asked processors",
    "asked time", "asked memory", "status", "user", "group", "executable", "queue", "partition", "job before", "think",
)  # fmt: skip
"""Of each job, in their order."""

_UNKNOWN = "-1"
_NOT_RECORDED = "not recorded"
_STATES = {"0": "FAILED", "1": "COMPLETED", "2": "PARTIAL", "3": "PARTIAL", "4": "PARTIAL", "5": "CANCELLED"}
_NAMED = ("user", "executable", "queue", "partition")

_COMMENT = re.compile(r";\s*([A-Za-z]+)\s*:\s*(.*\S)\s*")
_NOTE = re.compile(r"(user|executable) (\d+) is (.+)")
_NAME = re.compile(r"(\d+)\s+(\S.*)")

_TOLD = {
    "Computer": "computer",
    "Installation": "installation",
    "UnixStartTime": "second 0 of the log, in seconds since 1970",
    "TimeZoneString": "time zone",
    "MaxNodes": "nodes",
    "MaxProcs": "processors",
}
"""Comments that a user should know of, and what they say."""


def _cells(text: str, source: str) -> tuple[Cells, Ints, tuple[str, ...]]:
    """Columns of text of the jobs, the line of each, and what the comments say.

    Raises
    ------
    InputError
        A line that has other than 18 fields.
    """
    names: dict[str, dict[str, str]] = {name: {} for name in _NAMED}
    notes: list[str] = []
    rows: dict[int, list[str]] = {}
    for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
        if comment := _COMMENT.fullmatch(line):
            _take(comment[1], comment[2], names, notes)
        elif line and not line.startswith(";"):
            rows[number] = cells = line.split()
            if len(cells) != len(_FIELDS):
                expected = f"{len(_FIELDS)} numbers, as the Standard Workload Format has for each job"
                raise InputError(source, line=number, found=f"{len(cells)} fields", expected=expected)
    table = np.array(list(rows.values()), dtype=object).reshape(-1, len(_FIELDS)).T
    return _columns(dict(zip(_FIELDS, table, strict=True)), names), np.array(list(rows), dtype=np.int64), tuple(notes)


def _take(label: str, value: str, names: dict[str, dict[str, str]], notes: list[str]) -> None:
    """What a comment says."""
    if label in _TOLD and value != _UNKNOWN:
        notes.append(f"{_TOLD[label]}: {value}")
    elif label in ("Queue", "Partition") and (named := _NAME.fullmatch(value)):
        names[label.lower()][named[1]] = named[2]
    elif label == "Note" and (named := _NOTE.fullmatch(value)):
        names[named[1]][named[2]] = named[3]


def _columns(table: Cells, names: dict[str, dict[str, str]]) -> Cells:
    """The columns with those that follow from several, and names in place of numbers."""
    submit, wait, run = (numbers(table[name]) for name in ("submit time", "wait time", "run time"))
    started = np.where(wait >= 0, submit + wait, np.nan)
    ended = np.where(run >= 0, started + run, np.nan)
    starts = printed(started)
    starts[(starts == "") & (run > 0)] = _NOT_RECORDED
    used, asked = table["processors"], table["asked processors"]
    columns: Cells = {
        "job number": _known(table["job number"]),
        "submit time": table["submit time"],
        "start time": starts,
        "end time": printed(ended),
        "run time": _known(table["run time"]),
        "processors": _known(np.where(numbers(used) > 0, used, asked)),
        "status": np.array([_STATES.get(status, "") for status in table["status"].tolist()], dtype=object),
    }
    for name in _NAMED:
        known = names[name]
        columns[name] = np.array([known.get(cell, cell) for cell in _known(table[name]).tolist()], dtype=object)
    if not (columns["partition"] != "").any():
        columns["partition"] = columns["queue"]
    return columns


def _known(cells: Texts) -> Texts:
    return np.where(cells == _UNKNOWN, "", cells).astype(object)


def swf_text(trace: Trace) -> str:
    """A trace in this format, times cut to whole seconds.

    Raises
    ------
    InputError
        A name with line ends in it.
    """
    for name in ("user", "job_type", "partition"):
        texts = getattr(trace, name)
        one_line = np.array(["\n" not in text and "\r" not in text for text in texts], dtype=bool)
        require(one_line, texts, trace.source, name, "text without line ends")
    start, lasts = trace.recorded_start_seconds, trace.duration
    named = {"user": trace.user, "executable": trace.job_type, "partition": trace.partition}
    numbered = {name: _numbered(column) for name, column in named.items()}
    known: dict[str, Values] = {
        "job number": _job_numbers(trace),
        "submit time": trace.arrival_time,
        "wait time": np.where(np.isnan(start), -1.0, start - trace.arrival_time),
        "run time": np.where(np.isnan(lasts), -1.0, lasts),
        "processors": trace.scale_factor,
        "asked processors": trace.scale_factor,
        "status": np.where(np.isnan(lasts), -1, 1),
        **{name: of for name, (_, of) in numbered.items()},
    }
    columns = [known.get(name, np.full(len(trace), -1)).astype(np.int64).tolist() for name in _FIELDS]
    head = ["; Version: 2.2", f"; Conversion: of {' '.join(trace.source.split())}"]
    head += [f"; MaxJobs: {len(trace)}", f"; MaxRecords: {len(trace)}"]
    head += [f"; Partition: {number} {name}" for number, name in enumerate(numbered["partition"][0], start=1)]
    for what in ("user", "executable"):
        head += [f"; Note: {what} {number} is {name}" for number, name in enumerate(numbered[what][0], start=1)]
    return "\n".join([*head, *(" ".join(map(str, row)) for row in zip(*columns, strict=True))]) + "\n"


def _job_numbers(trace: Trace) -> Ints:
    """(N,) what the jobs are called where they were logged, if these are different numbers; else they are counted."""
    names = trace.trace_id.tolist()
    if len(set(names)) == len(names) and all(re.fullmatch(r"[1-9][0-9]{0,15}", name) for name in names):
        return np.array([int(name) for name in names], dtype=np.int64)
    return np.arange(1, len(trace) + 1)


def _numbered(column: Texts) -> tuple[list[str], Ints]:
    """The names in a column by first appearance, and for each row the number of its own from 1; -1 for none."""
    import pandas as pd

    codes, names = pd.factorize(np.where(column == "", np.array(None), column))
    return list(names), np.where(codes < 0, -1, codes + 1)


SWF_LAYOUT = Layout(
    SWF,
    {
        "id": "job number",
        "submit": "submit time",
        "duration": "run time",
        "gpus": "processors",
        "start": "start time",
        "end": "end time",
        "user": "user",
        "model": "executable",
        "partition": "partition",
        "state": "status",
    },
    line=r";.*|\s*(?:[-+]?[\d.]+(?:[eE][-+]?\d+)?\s+){17}[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*",
    cells=_cells,
    notes=("processors are taken for GPUs",),
)
