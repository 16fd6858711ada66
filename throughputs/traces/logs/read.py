"""Reading a job log: text with a header and separators, Parquet, the JSON of Slurm's sacct, or a published log.

What a log is follows from what it holds, never from its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from throughputs.arrays import Flags, Ints, Texts
from throughputs.errors import InputError
from throughputs.files import (
    JsonObject,
    StrPath,
    divided,
    file_kind,
    parse_json,
    parse_rows,
    read_columns,
    read_frame,
    read_head,
    read_text,
    source_of,
)
from throughputs.traces.logs.layouts import layout_of, layout_of_header, layout_of_line

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
"""Separators by name."""

_SACCT_COLUMNS = frozenset({"JobID", "JobIDRaw", "AllocTRES", "ReqTRES", "Elapsed", "ElapsedRaw", "Submit", "State"})
_SACCT_AT_LEAST = 3
"""So many of these columns, and a table is one of sacct."""

_JSON = re.compile(r'\s*\{\s*(?:["}].*)?')
"""How JSON begins, as sacct prints it."""

_TYPED_GPU = re.compile(r"gres/gpu:[^=,]+=[1-9]")

_NOT_STARTED = 0
"""How the JSON of sacct writes a time that has not come."""


@dataclass(frozen=True)
class Log:
    """A job log as text.

    Attributes
    ----------
    cells : (N,) text of each column, by name.
    source : where it came from, for messages.
    kind : "table", "sacct" (its text), "sacct --json", or the name of a layout.
    first_line : line of the source that holds the first row; 0 where rows are no lines.
    separator : between columns; empty where there is none.
    too_long : (N,) whether a row has more cells than the header.
    lines : (N,) lines of the source that hold the rows, where they do not follow each other; else None.
    notes : what is to be said of this log, in sentences.
    """

    cells: Mapping[str, Texts]
    source: str
    kind: str
    first_line: int
    separator: str
    too_long: Flags
    lines: Ints | None = None
    notes: tuple[str, ...] = ()

    def error(self, row: int, column: str, found: object, expected: str) -> InputError:
        """What is wrong with a cell."""
        if self.first_line:
            return InputError(self.source, line=self._line(row), field=column, found=found, expected=expected)
        return InputError(self.source, field=f"jobs[{row}].{column}", found=found, expected=expected)

    def place(self, row: int) -> str:
        """Where a row is in the source."""
        return f"line {self._line(row)}" if self.first_line else f"jobs[{row}]"

    def _line(self, row: int) -> int:
        return row + self.first_line if self.lines is None else int(self.lines[row])


def read_log(path: StrPath | pd.DataFrame, separator: str | None = None) -> Log:
    """The log in a file, unpacked where its name ends in ``.gz``; ``-``: standard input. Or a DataFrame of its rows.

    Parameters
    ----------
    separator : between columns, or a name of `SEPARATORS`; told from the header if omitted.

    Raises
    ------
    InputError
        No header, another separator, or JSON that is not of sacct.
    OSError
        The file cannot be opened.
    """
    if not isinstance(path, str | os.PathLike):
        return _of_frame(path.reset_index() if any(path.index.names) else path, "DataFrame", 0)
    path = Path(path)
    if file_kind(path) == "parquet":
        frame, first_line = read_frame(path)
        return _of_frame(frame, str(path), first_line)
    source, text = source_of(path), read_text(path)
    kind = _kind_of_text(text)
    if kind == "sacct --json":
        return _of_json(parse_json(text, source), source)
    layout = layout_of(kind)
    if layout is None or layout.cells is None or separator is not None:
        return _of_text(text, source, separator)
    cells, lines, notes = layout.cells(text, source)
    none = np.zeros(len(next(iter(cells.values()))), dtype=bool)
    return Log(cells, source, kind, 0 if lines is None else 1, "", none, lines, notes)


def log_kind(path: StrPath) -> str:
    """What log a file holds, as in `Log.kind`; "table" also for what is none.

    Raises
    ------
    InputError
        The file is not text, and no table either.
    OSError
        The file cannot be opened.
    """
    path = Path(path)
    if file_kind(path) == "parquet":
        return _kind_of_header(read_columns(path))
    return _kind_of_text(read_head(path))


def _kind_of_text(text: str) -> str:
    _, line, _ = divided(text)
    if _JSON.fullmatch(line):
        return "sacct --json"
    layout = layout_of_line(line)
    if layout is not None:
        return layout.name
    mark = max(SEPARATORS.values(), key=line.count)
    return _kind_of_header([name.strip() for name in line.split(mark)])


def _kind_of_header(header: Sequence[str]) -> str:
    if len(_SACCT_COLUMNS & set(header)) >= _SACCT_AT_LEAST:
        return "sacct"
    layout = layout_of_header(header)
    return "table" if layout is None else layout.name


def _of_text(text: str, source: str, separator: str | None) -> Log:
    above, line, rest = divided(text)
    mark = _separator(line, separator, source, above + 1)
    header, frame, too_long = parse_rows(line, rest, mark, source, above + 1)
    _check_header(header, source, above + 1)
    columns = {name: frame.iloc[:, i].to_numpy(dtype=object) for i, name in enumerate(header)}
    return Log(columns, source, _kind_of_header(header), above + 2, mark, too_long)


def _separator(line: str, given: str | None, source: str, number: int) -> str:
    if given is not None:
        mark = SEPARATORS.get(given, given.replace("\\t", "\t"))
        if len(mark) != 1 or mark.isalnum():
            expected = f"one character, or one of {', '.join(SEPARATORS)}"
            raise InputError("separator", found=given, expected=expected)
        return mark
    mark = max(SEPARATORS.values(), key=line.count)
    if not line.count(mark):
        expected = "a header with commas, semicolons, tabs or bars between its columns, or another separator"
        raise InputError(source, line=number, found=line or None, expected=expected)
    return mark


def _check_header(header: Sequence[str], source: str, line: int) -> None:
    for name in header:
        if header.count(name) > 1:
            raise InputError(source, line=line, field=name, found=f"{header.count(name)} columns", expected="one")


def _of_frame(frame: pd.DataFrame, source: str, first_line: int) -> Log:
    columns = {
        str(name): np.array(
            ["" if gone else _cell(value) for value, gone in zip(cells, cells.isna(), strict=True)], dtype=object
        )
        for name, cells in frame.items()
    }
    _check_header(list(map(str, frame.columns)), source, 1)
    kind = _kind_of_header(list(columns))
    return Log(columns, source, kind, first_line, "", np.zeros(len(frame), dtype=bool))


def _cell(value: Any) -> str:
    """A cell of a table as it would stand in text; a length of time as D-HH:MM:SS."""
    if not isinstance(value, timedelta):
        return str(value)
    minutes, seconds = divmod(round(value.total_seconds()), 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:{seconds:02}"


def _of_json(content: Any, source: str) -> Log:
    jobs = content.get("jobs") if isinstance(content, dict) else None
    if not isinstance(jobs, list):
        found = list(content) if isinstance(content, dict) else type(content).__name__
        raise InputError(source, field="jobs", found=found, expected="a list of jobs, as sacct --json prints it")
    rows = []
    for i, job in enumerate(jobs):
        if not isinstance(job, dict):
            raise InputError(source, field=f"jobs[{i}]", found=job, expected="an object, as sacct --json prints it")
        rows.append(_json_row(job))
    columns = {name: np.array([row[name] for row in rows], dtype=object) for name in _json_row({})}
    return Log(columns, source, "sacct --json", 0, "", np.zeros(len(jobs), dtype=bool))


def _json_row(job: JsonObject) -> dict[str, str]:
    """What is said of a job, as text."""
    time, owner = _object(job.get("time")), _object(job.get("association"))
    state = job.get("state", job.get("job_state"))
    state = state.get("current", "") if isinstance(state, dict) else state
    state = state[0] if isinstance(state, list) and state else state
    submit, start, end = (_text(time.get(name)) for name in ("submission", "start", "end"))
    row = {
        "submit": submit,
        "start": start,
        "end": end,
        "elapsed": _text(time.get("elapsed")),
        "gpus": _json_gpus(job),
        "user": _text(owner.get("user") or job.get("user")),
        "account": _text(owner.get("account") or job.get("account")),
        "partition": _text(job.get("partition")),
        "time_limit": _json_limit(time.get("limit")),
        "state": _text(state),
        "job_id": _json_id(job),
        "qos": _text(job.get("qos")),
    }
    return row | {name: "" for name in ("submit", "start", "end") if row[name] == str(_NOT_STARTED)}


def _json_limit(limit: Any) -> str:
    """The time limit as the column Timelimit has it; sacct counts minutes, and says apart that there is none."""
    if isinstance(limit, dict):
        limit = "" if limit.get("infinite") or not limit.get("set", True) else limit.get("number")
    return f"{limit * 60}" if isinstance(limit, int) and not isinstance(limit, bool) else ""


def _json_id(job: JsonObject) -> str:
    """As the column JobID: of a job of an array with the number of its task behind the id of the array."""
    array = _object(job.get("array"))
    task, of = _text(array.get("task_id")), _text(array.get("job_id"))
    return f"{of}_{task}" if task and of not in ("", "0") else _text(job.get("job_id"))


def _json_gpus(job: JsonObject) -> str:
    """GPUs that a job was given, or asked for where it was given nothing, as in the column AllocTRES.

    Where what it was given names no type, the types are those of what it asked for, and of the text that some versions
    write beside (``tres_alloc_str``).
    """
    tres = _object(job.get("tres"))
    texts = []
    for entries, text in (("allocated", "tres_alloc_str"), ("requested", "tres_req_str")):
        listed = tres.get(entries)
        if isinstance(listed, list) and listed:
            gpus = [entry for entry in map(_object, listed) if _text(entry.get("name")).split(":")[0] == "gpu"]
            texts.append(",".join(f"gres/{_text(entry['name'])}={_text(entry.get('count'))}" for entry in gpus))
        if beside := _text(job.get(text)):
            texts.append(beside)
    given = texts[0] if texts else ""
    typed = next((text for text in texts if _TYPED_GPU.search(text)), "")
    return f"{given},{typed}" if given and typed != given else given


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    """A number may stand in an object beside whether it is set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    return "" if value is None or isinstance(value, list | dict) else str(value)
