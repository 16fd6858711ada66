"""Reading and writing traces: the public text formats of Gavel and Shockwave, and tables of our own.

Tables of other systems, which have other columns, are read (`throughputs.traces.named`); that of Pollux is also written
(`allocator.published.pollux.traces.pollux_frame`). Job logs are read as `throughputs.traces.logs` reads them:
those of Slurm and of published clusters are told by what they hold. The Standard Workload Format, which is such a log,
is written too.

The text formats have one job per line, fields separated by tabs, and no header:

    gavel      job_type command working_directory num_steps_arg needs_data_dir total_steps scale_factor
               priority_weight slo arrival_time
    gavel7     job_type command num_steps_arg needs_data_dir total_steps arrival_time scale_factor
    shockwave  job_type command working_directory num_steps_arg needs_data_dir total_steps scale_factor mode
               priority_weight slo duration arrival_time

Sources: the public artifacts of D. Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for
Deep Learning Workloads", OSDI 2020 (stanford-futuredata/gavel), and of P. Zheng et al., "Shockwave: Fair and
Efficient Cluster Scheduling for Dynamic Adaptation in Machine Learning", NSDI 2023 (uw-mad-dash/shockwave).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from throughputs.arrays import Values
from throughputs.entry_points import load
from throughputs.errors import InputError, expect_one_of
from throughputs.files import (
    TABLE_KINDS,
    StrPath,
    check_table_name,
    file_kind,
    read_frame,
    read_text,
    source_of,
    write_frame,
    write_rows,
    write_text,
)
from throughputs.frames import FINITE, Column, FrameReader, columns_of
from throughputs.limits import require
from throughputs.trace import REQUIRED, Trace
from throughputs.traces.logs.layouts import layout_names
from throughputs.traces.logs.log import ImportedLog, import_log
from throughputs.traces.logs.read import log_kind
from throughputs.traces.logs.swf import SWF, swf_text
from throughputs.traces.named import NAMED_FORMATS, format_of_columns

if TYPE_CHECKING:
    import pandas as pd


class _Field(NamedTuple):
    """How the cells of one column are read, and printed: a ``%`` format."""

    column: Column
    form: str


_TEXT = _Field(Column("text", ""), "%s")
_WHOLE = _Field(Column("whole"), "%d")
_NUMBER = _Field(Column("number", None, FINITE, "a number"), "%f")
_WHOLE_NUMBER = _NUMBER._replace(form="%d")

_GAVEL = {
    "job_type": _TEXT,
    "command": _TEXT,
    "working_directory": _TEXT,
    "num_steps_arg": _TEXT,
    "needs_data_dir": _Field(Column("flag"), "%d"),
    "total_steps": _WHOLE,
    "scale_factor": _WHOLE,
    "priority_weight": _WHOLE_NUMBER,
    "slo": _NUMBER,
    "arrival_time": _NUMBER,
}
_GAVEL7 = (
    "job_type",
    "command",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "arrival_time",
    "scale_factor",
)

TEXT_FORMATS: dict[str, dict[str, _Field]] = {
    "gavel": _GAVEL,
    "gavel7": {name: _GAVEL[name] for name in _GAVEL7},
    "shockwave": {
        **{name: _GAVEL[name] for name in list(_GAVEL)[:7]},
        "mode": _TEXT,
        "priority_weight": _WHOLE_NUMBER,
        "slo": _NUMBER,
        "duration": _WHOLE_NUMBER,
        "arrival_time": _WHOLE_NUMBER,
    },
}

_NEGATIVE_FOR_NONE = {"slo", "duration"}

TRACE_FORMATS = (*TEXT_FORMATS, "table", SWF, "pollux")
"""Names of the formats of `write_trace`."""

_SACCT = "sacct"


def _log_formats() -> tuple[str, ...]:
    return (_SACCT, *layout_names())


def read_formats() -> tuple[str, ...]:
    """Names of the formats of `read_trace`: traces, tables of other systems, and job logs."""
    return tuple(dict.fromkeys((*TEXT_FORMATS, "table", *NAMED_FORMATS, *_log_formats())))


_IN_SWF = frozenset({"user", "partition", "recorded_start_seconds", "recorded_end_seconds"})

_POLLUX = frozenset({"deadline", "slo", "category", "working_directory"})
"""What a table of Pollux keeps; how a job is started is a matter of its application."""

_NOT_LOST = frozenset(
    {"command", "num_steps_arg", "needs_data_dir", "duration", "trace_id", "arrival_date", "recorded_status"}
)
"""What a format may lack without a word: how a job is started and what it is called; durations follow from steps and
throughput.
"""

_WITH_PREDICTIONS = "a table with a column job_id, where predictions are in a file of their own"


def read_trace(
    path: StrPath,
    format: str = "auto",
    *,
    time_unit_seconds: float | None = None,
    predictions: StrPath | None = None,
) -> Trace:
    """Trace from a file.

    Parameters
    ----------
    path : file; unpacked when its name ends in ``.gz``; ``-``: standard input.
    format : "gavel" (10 fields), "gavel7" (7), "shockwave" (12), "table" (named columns: ``.csv``,
        ``.csv.gz``, ``.parquet``), "elasticflow", "chronus", "pollux" and "lucid" (tables with the columns of those
        systems), "sacct" and the other job logs of `read_formats`, or "auto" to tell by what the file holds and its
        extension.
    time_unit_seconds : seconds in one unit of the times of a table of ElasticFlow, Chronus or Pollux. Where it is not
        said, 1, and for traces of Chronus without batch sizes, such as those of Philly, 60: these count minutes.
    predictions : file with a predicted length for each job of a table that has a column job_id
        (`allocator.published.lucid.traces`); None: the trace has its own or none.

    Raises
    ------
    InputError
        Names the file, the line and the field that cannot be used, what was found and what was expected.
    OSError
        The file cannot be opened.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "jobs.csv"
    ...     _ = path.write_text("job_type,scale_factor,total_steps,arrival_time\\nA3C,1,1000,0\\n")
    ...     read_trace(path).scale_factor.tolist()
    [1]
    """
    path = Path(path)
    expect_one_of(format, ("auto", *read_formats()), "trace", "format")
    if time_unit_seconds is not None and not 0 < time_unit_seconds < np.inf:
        raise InputError(path, field="time_unit_seconds", found=time_unit_seconds, expected="seconds above 0")
    log = read_job_log(path, format)
    is_table = format in ("table", *NAMED_FORMATS) or (format == "auto" and file_kind(path) in TABLE_KINDS)
    if predictions is not None and (log is not None or not is_table):
        found = "a text format" if log is None else "a job log"
        raise InputError(path, found=found, expected=_WITH_PREDICTIONS)
    if log is None and is_table:
        check_table_name(path)
        frame, first_line = read_frame(path)
        if predictions is not None:
            frame = load("traces", "predictions")(frame, source_of(path), predictions)
        format = format_of_columns(frame.columns.tolist()) if format == "auto" else format
        if format in NAMED_FORMATS:
            trace: Trace = load("traces", format)(frame, source_of(path), first_line, time_unit_seconds)
            return trace
    if time_unit_seconds is not None:
        expected = f"nothing: only traces of {', '.join(NAMED_FORMATS)} count in units"
        raise InputError(path, field="time_unit_seconds", found=time_unit_seconds, expected=expected)
    if log is not None:
        return log.trace
    if is_table:
        if not {*REQUIRED} & {*frame.columns}:
            made = "`allocator trace import` (import_log) makes such a table of a job log"
            expected = f"the columns of a trace, {', '.join(REQUIRED)} and others; {made}"
            raise InputError(path, found=frame.columns.tolist(), expected=expected)
        return Trace.from_frame(frame, source=source_of(path), first_line=first_line)
    lines = _lines(path)
    fields = TEXT_FORMATS[_detect(path, lines) if format == "auto" else format]
    return _parse(path, lines, fields)


def trace_of(jobs: Trace | pd.DataFrame | StrPath) -> Trace:
    """Jobs however they are given: a trace, a file of `read_trace`, or a DataFrame as a trace or a job log has it.

    >>> import pandas as pd
    >>> log = pd.DataFrame({"submit": [0, 60], "duration": ["01:00:00", "00:30:00"], "gpus": [1, 2]})
    >>> trace_of(log).duration.tolist()
    [3600.0, 1800.0]
    """
    if isinstance(jobs, Trace):
        return jobs
    if isinstance(jobs, str | os.PathLike):
        return read_trace(jobs)
    given: Any = jobs
    if not hasattr(given, "columns"):
        expected = "a Trace, a DataFrame of jobs, or the name of a file"
        raise InputError("trace", found=type(given).__name__, expected=expected)
    if {"job_type", "total_steps"} <= set(given.columns):
        return Trace.from_frame(given, source="DataFrame")
    log = import_log(given)
    if log.dropped:
        left = "; ".join(f"{count} {reason}" for reason, count in log.dropped.items())
        warnings.warn(
            f"of {log.rows} jobs of the DataFrame {sum(log.dropped.values())} are left out: {left}", stacklevel=3
        )
    return log.trace


def read_job_log(path: StrPath, format: str = "auto") -> ImportedLog | None:
    """The trace of a job log that is told by what it holds, with what was made of the log; None for other files.

    Parameters
    ----------
    path, format : as for `read_trace`.

    Raises
    ------
    InputError
        The log cannot be read, or `format` is that of another log.
    OSError
        The file cannot be opened.
    """
    path = Path(path)
    if format not in (*_log_formats(), "auto"):
        return None
    kind = log_kind(path).partition(" ")[0]
    if format not in (kind, "auto"):
        raise InputError(source_of(path), found=kind, expected=f"a job log in the format {format}")
    return import_log(path) if kind in _log_formats() else None


def named_format(path: StrPath) -> str:
    """Name of the system whose table a file is, one of `NAMED_FORMATS`; empty for any other trace."""
    path = Path(path)
    if file_kind(path) not in TABLE_KINDS or log_kind(path) != "table":
        return ""
    found = format_of_columns(read_frame(path)[0].columns.tolist())
    return found if found in NAMED_FORMATS else ""


def write_trace(
    trace: Trace,
    path: StrPath,
    format: str = "auto",
    *,
    lossy: bool = False,
    start: float = 0.0,
    rename: Mapping[str, str] | None = None,
) -> None:
    """Write a trace; the file is replaced in one step.

    Parameters
    ----------
    trace : the jobs.
    path : file; packed when its name ends in ``.gz``.
    format : one of `TRACE_FORMATS`; "auto" takes "table" and "swf" for their extensions, "shockwave" where a job
        changes its batch size and "gavel" otherwise.
    lossy : accept that the format drops or rounds something: see below.
    start, rename : of the format "pollux", see `allocator.published.pollux.traces.pollux_frame`.

    Raises
    ------
    InputError
        The format cannot hold a value, for example a priority that is not a whole number or a mode other than
        static in a Gavel trace. With `lossy` such numbers are cut to whole ones and columns are dropped.

    Notes
    -----
    In the text formats of Gavel and Shockwave SLOs, and in the Gavel ones arrivals, are rounded to 6 decimals. Gavel
    traces have no durations: they are dropped without complaint, as they follow from the steps and a throughput table.
    So are those of the format "pollux", in which samples take the place of steps, deadlines that of SLOs, and of
    several deadlines the first is kept with `lossy`. The Standard Workload Format (``.swf``) has whole seconds and no
    steps: one step for each second.
    """
    path = Path(path)
    expect_one_of(format, ("auto", *TRACE_FORMATS), "trace", "format")
    if format == "auto":
        kind, changes = file_kind(path), (trace.mode != "static").any()
        format = "table" if kind in TABLE_KINDS else SWF if kind == SWF else "shockwave" if changes else "gavel"
    if format != "pollux" and (start or rename):
        raise InputError(path, field="format", found=format, expected="pollux, with another start or other names")
    if format == "table":
        write_rows(path, trace)
    elif format == "pollux":
        check_table_name(path)
        if not lossy:
            _check_dropped(path, trace, format, _POLLUX)
        write_frame(path, load("writers", "pollux")(trace, start=start, rename=rename))
    elif format == SWF:
        if not lossy:
            _check_swf(path, trace)
        write_text(path, swf_text(trace))
    else:
        write_text(path, _print(path, trace, format, lossy))


def _lines(path: Path) -> list[str]:
    """Lines without their ends; blank ones at the end are none."""
    text = read_text(path).rstrip()
    return [line.removesuffix("\r") for line in text.split("\n")] if text else []


def _detect(path: Path, lines: list[str]) -> str:
    if not lines:
        return "gavel"
    count = lines[0].count("\t") + 1
    for name, fields in TEXT_FORMATS.items():
        if len(fields) == count:
            return name
    known = ", ".join(f"{len(fields)} ({name})" for name, fields in TEXT_FORMATS.items())
    raise InputError(path, line=1, found=f"{count} fields", expected=f"tab-separated fields, as many as {known}")


def _parse(path: Path, lines: list[str], fields: dict[str, _Field]) -> Trace:
    import pandas as pd

    rows = [line.split("\t") for line in lines]
    for number, row in enumerate(rows, start=1):
        if len(row) != len(fields):
            expected = f"{len(fields)} separated by tabs: {', '.join(fields)}"
            raise InputError(path, line=number, found=f"{len(row)} fields", expected=expected)
    reader = FrameReader(pd.DataFrame(rows, columns=list(fields), dtype=object), source_of(path))
    columns: dict[str, Any] = {name: reader.cells(name, field.column) for name, field in fields.items()}
    for name in _NEGATIVE_FOR_NONE & columns.keys():
        columns[name] = np.where(columns[name] < 0, np.nan, columns[name])
    return Trace(**columns, source=source_of(path))


def _print(path: Path, trace: Trace, format: str, lossy: bool) -> str:
    fields = TEXT_FORMATS[format]
    if not lossy:
        _check_dropped(path, trace, format, frozenset(TEXT_FORMATS[format]))
    columns = [_cells(path, name, field, getattr(trace, name), lossy) for name, field in fields.items()]
    form = "\t".join(field.form for field in fields.values()) + "\n"
    return "".join(form % row for row in zip(*columns, strict=True))


def _check_swf(path: Path, trace: Trace) -> None:
    """Refuse what the Standard Workload Format does not hold."""
    _check_dropped(path, trace, SWF, _IN_SWF)
    steps, seconds, found = trace.total_steps, trace.duration, trace.recorded_end_seconds
    end = trace.recorded_start_seconds + seconds
    for name, good, expected in (
        ("duration", ~np.isnan(seconds), "seconds (or lossy=True, which writes -1)"),
        ("total_steps", steps == seconds, "as many as seconds, as the format has no steps (or lossy=True)"),
        (
            "recorded_end_seconds",
            (found == end) | (np.isnan(found) & np.isnan(end)),
            "the recorded start and the duration (or lossy=True)",
        ),
    ):
        require(good, getattr(trace, name), path, name, expected)
    for name in ("arrival_time", "recorded_start_seconds", "duration"):
        values = getattr(trace, name)
        whole = np.isnan(values) | (values == np.trunc(values))
        require(whole, values, path, name, "whole seconds, as the format has them (or lossy=True)")


def _check_dropped(path: Path, trace: Trace, format: str, kept: frozenset[str]) -> None:
    """Refuse what is neither the default nor in the columns that are `kept`."""
    for name, declared in reversed(list(columns_of(Trace).items())):
        if declared.empty is None or name in kept or name in _NOT_LOST:
            continue
        values, default = getattr(trace, name), declared.empty
        if name == "deadline_options":
            good = [len(row) <= ("deadline" in kept) for row in values.tolist()]
        else:
            good = [value == default or value != value for value in values.tolist()]
        expected = f"{default!r}, as the format {format} has no such field (or lossy=True)"
        require(np.array(good, dtype=bool), values, path, name, expected)


def _cells(path: Path, name: str, field: _Field, values: Values, lossy: bool) -> list[Any]:
    """Cells ready for printing."""
    if field.form == "%s":
        good = np.array([not any(end in text for end in "\t\n\r") for text in values], dtype=bool)
        require(good, values, path, name, "text without tabs and line ends")
        return list(values)
    if name == "duration" and not lossy:
        require(~np.isnan(values), values, path, name, "seconds (or lossy=True, which writes -1)")
    values = np.where(np.isnan(values), -1.0, values)
    if field.form == "%d" and not lossy:
        expected = "a whole number, as the format prints it (or lossy=True)"
        require(values == np.trunc(values), values, path, name, expected)
    if name != "arrival_time":  # everything else has to stay positive
        printed = (values <= 0) | (values >= (1.0 if field.form == "%d" else 0.5e-6))
        require(printed, values, path, name, "a number that does not print as 0")
    return list(values)
