"""From a job log of one's own to a trace.

A log says of each job when it was submitted, for how long it ran and on how many GPUs. Without a throughput table a
second is a step: a job of an hour has 3600 steps, and runs at one step per second wherever it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from throughputs.errors import InputError, expect_one_of
from throughputs.files import JsonObject, StrPath, check_table_name, write_frame
from throughputs.frames import columns_of as columns_of_trace
from throughputs.shown import counted
from throughputs.trace import Trace
from throughputs.traces.logs.cells import Clock
from throughputs.traces.logs.columns import UNIT_OF_WORD, UNITS, Column, columns_of, fields, unit_of
from throughputs.traces.logs.layouts import layout_of
from throughputs.traces.logs.read import read_log
from throughputs.traces.logs.rows import QOS, SLURM_PRIORITY, Rows

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ImportedLog:
    """The trace that a log became, and what was made of the log.

    Attributes
    ----------
    trace : the jobs by submission, those submitted together as they stand; seconds from the first submission.
    source : the log. kind : "table", "sacct", "sacct --json", or the name of a published layout.
    rows : jobs in the log.
    origin : the first submission on the clock of the log: a date in UTC, or a number.
    columns : which column holds each field.
    units : of the fields that are times in numbers.
    assumed : those of which nothing told the unit.
    unread : columns that nothing was made of.
    dropped : jobs that cannot be used, by reason.
    notes : what else a user should know, in sentences.
    """

    trace: Trace
    source: str
    kind: str
    rows: int
    origin: str
    columns: Mapping[str, Column]
    units: Mapping[str, str]
    assumed: frozenset[str]
    unread: tuple[str, ...]
    dropped: Mapping[str, int]
    notes: tuple[str, ...]

    def write(self, path: StrPath) -> None:
        """Write the trace as a table (``.csv``, ``.csv.gz``, ``.parquet``), without columns in which nothing is said.

        A CSV file begins with a comment that names the log and its origin.

        Raises
        ------
        InputError
            Another extension.
        """
        path = Path(path)
        check_table_name(path)
        frame = self.trace.to_frame()
        said = [
            name
            for name, column in columns_of_trace(Trace).items()
            if column.empty is None
            or any(value == value and value not in ("", column.empty) for value in frame[name].unique())
        ]
        source = " ".join(self.source.split())
        write_frame(path, frame[said], f"jobs of {source}; second 0 is {self.origin} there")

    @property
    def left_out(self) -> str:
        """How many jobs cannot be used, and why; empty where all can."""
        if not self.dropped:
            return ""
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in self.dropped.items())
        count = sum(self.dropped.values())
        return f"left out: {counted(count, 'job')} ({reasons})"

    def __repr__(self) -> str:
        """What was made of the log, in a few lines; the jobs are `trace`."""
        lines = [
            f"{self.source}: {counted(self.rows, 'job')}, {len(self.trace):,} in the trace; second 0 is {self.origin}"
        ]
        lines.append(f"columns: {', '.join(f'{field} from {column.name}' for field, column in self.columns.items())}")
        lines += [f"not read: {', '.join(self.unread)}"] * bool(self.unread)
        return "\n".join([*lines, *([self.left_out] * bool(self.left_out)), *(f"note: {note}" for note in self.notes)])

    def as_dict(self) -> JsonObject:
        """All but the trace, ready for JSON."""
        return {
            "source": self.source,
            "kind": self.kind,
            "rows": self.rows,
            "origin": self.origin,
            "columns": {
                field: {"column": column.name, "guessed": column.guessed, "unit": self.units.get(field)}
                for field, column in self.columns.items()
            },
            "unread": list(self.unread),
            "dropped": dict(self.dropped),
            "notes": list(self.notes),
        }


def import_log(
    path: StrPath | pd.DataFrame,
    columns: Mapping[str, str] | None = None,
    *,
    separator: str | None = None,
    duration_unit: str | None = None,
    clock_unit: str | None = None,
    zone: str | None = None,
    date_format: str | None = None,
    renamed: Mapping[str, str] | None = None,
    weights: Mapping[str, float] | None = None,
    strict: bool = False,
) -> ImportedLog:
    """A trace from a job log.

    Parameters
    ----------
    path : text with a header, Parquet, what Slurm's ``sacct -p``, ``sacct -P`` or ``sacct --json`` printed, or a
        published log of `throughputs.traces.logs.layouts`; ``-``: standard input. Or a DataFrame with such columns.
    columns : which column holds a field of `throughputs.traces.logs.columns.fields`; the others as the layout of the
        log has them, or by their names.
    separator : as in `throughputs.traces.logs.read.read_log`.
    duration_unit, clock_unit : "ms", "s", "min", "h" or "d": of durations, and of times on the clock, that are numbers;
        told by the name of the column, else seconds, or for times that are too large for that milliseconds since 1970.
        ``[D-]HH:MM:SS`` and dates (ISO 8601) need none.
    zone : of dates that name none, as ``Europe/Berlin``; None: that of the layout, else UTC.
    date_format : of dates, as ``%d/%m/%Y %H:%M`` (the directives of `datetime.strptime`); None: ISO 8601.
    renamed : types by the names that the log has for them. A GPU type is called so, and so is the GPU type of jobs of a
        partition for which the log tells none; a model becomes a job type of that name.
    weights : weight of each name in the column of priorities, or of QOS where none is named.
    strict : a job that cannot be used is an error.

    Raises
    ------
    InputError
        Names the file, the line, the field, what was found and what was expected: no column for the submission, the
        GPUs, or the duration or steps; no job that can be used; with `strict` one that cannot.
    OSError
        The file cannot be opened.
    """
    log = read_log(path, separator)
    given = dict(columns or {})
    for field in given:
        expect_one_of(field, fields(), "columns")
    layout = layout_of(log.kind)
    if layout is not None:
        log = replace(log, cells=layout.completed(log.cells), notes=(*log.notes, *layout.notes))
    sacct = log.kind == "sacct"
    header = [name for name in log.cells if not (sacct and name == SLURM_PRIORITY) or name in given.values()]
    if weights and "priority" not in given:
        given["priority"] = next((name for name in log.cells if name.lower() == QOS), QOS)
    chosen = columns_of(header, given, log.source, None if layout is None else layout.columns)
    told = {
        "duration": _unit("duration_unit", duration_unit, chosen.get("duration")),
        "submit": _unit("clock_unit", clock_unit, chosen["submit"]),
    }
    place = None if layout is None or zone is not None else layout.zone
    clock = Clock(
        zone or place,
        told["submit"],
        zone_assumed=place is not None,
        date_format=date_format,
        since_1970=log.kind == "sacct --json",
    )
    rows = Rows(log, chosen, told, clock, renamed, weights)
    trace = Trace(**rows.usable(strict), source=log.source)
    return ImportedLog(
        trace,
        log.source,
        log.kind,
        int(rows.is_job.sum()),
        clock.origin(rows.origin),
        chosen,
        *rows.units(),
        rows.unread(),
        rows.dropped(),
        tuple(rows.notes),
    )


def _unit(name: str, given: str | None, column: Column | None) -> str | None:
    """What an option or the name of a column says; None where neither does."""
    if given is None:
        return None if column is None else unit_of(column.name)
    if given.lower() not in UNIT_OF_WORD:
        raise InputError(name, found=given, expected=f"one of {', '.join(UNITS)}")
    return UNIT_OF_WORD[given.lower()]
