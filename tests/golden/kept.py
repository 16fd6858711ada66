"""How goldens are kept, compared and told: trees of plain values, CSV texts, and digests of tables row by row.

A golden is a dict of plain values (JSON). A text whose first line is a header is compared as a table, row by row and
column by column. Of a table that is too long to keep, `digest` keeps a character per row, which says where it first
differs, and a hash per column, which says what differs and leaves no doubt that something does.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import lzma
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent / "recorded"

MOST_TOLD = 7
"""Differences that are told of one golden; the others are counted."""

TOLD_FIRST = ("refused", "table rounds", "table decisions", "jobs.csv")
"""What says most of a run: since when it differs, in which decisions, and in which jobs."""

Table = list[list[str]]


@dataclass(frozen=True)
class Taken:
    """What a case gives today: what is to be kept, and the tables behind its digests by their names."""

    kept: dict[str, Any]
    tables: Mapping[str, Table] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """Something of which a golden is kept.

    Attributes
    ----------
    file, name : where it is kept: the file, without its ending, and its name there.
    line : what gives it again, to be pasted into a shell.
    take : gives it; a function of a module with its arguments (`functools.partial`), so that processes can share work.
    tier : the marker of its test; none for those of every day.
    """

    file: str
    name: str
    line: str
    take: Callable[[], Taken]
    tier: str = ""

    @property
    def parameter(self) -> Any:
        """What a test is parametrized with."""
        return pytest.param(self, id=self.title, marks=[getattr(pytest.mark, self.tier)] if self.tier else [])

    @property
    def title(self) -> str:
        return f"{self.file} {self.name}"


def read(file: str) -> dict[str, dict[str, Any]]:
    """The goldens of a file by name; none where there is no such file."""
    path = FOLDER / f"{file}.json.xz"
    return json.loads(lzma.decompress(path.read_bytes())) if path.exists() else {}


def write(file: str, goldens: Mapping[str, Any]) -> None:
    """Keep these; a file that says the same already stays as it is, whatever release packed it."""
    path, text = FOLDER / f"{file}.json.xz", json.dumps(goldens, sort_keys=True, separators=(",", ":"))
    if not goldens:
        path.unlink(missing_ok=True)
    elif json.dumps(read(file), sort_keys=True, separators=(",", ":")) != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def digest(table: Table) -> dict[str, Any]:
    """Of a table with a header: a hash for each column, a character for each row."""
    header, rows = table[0], table[1:]
    order = sorted(range(len(header)), key=header.__getitem__)
    columns = {header[i]: _hash("\n".join(row[i] for row in rows))[:8] for i in order}
    return {"columns": columns, "rows": "".join(_hash("\t".join(row[i] for i in order))[0] for row in rows)}


def _hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.blake2b(text.encode(), digest_size=6).digest()).decode()


def differences(before: Mapping[str, Any], after: Taken) -> list[str]:
    """What is not as it was, a line each."""
    found = list(_between("", before, after.kept, after.tables))
    found.sort(key=lambda line: [not line.startswith(name) for name in TOLD_FIRST])
    if len(found) > MOST_TOLD:
        found[MOST_TOLD:] = [f"and {len(found) - MOST_TOLD} more"]
    return found


def _between(path: str, before: Any, after: Any, tables: Mapping[str, Table]) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        if {*before} == {*after} == {"columns", "rows"}:
            name = path.rpartition("/")[2]
            yield _of_digests(name, before, after, tables.get(name))
            return
        for name in sorted({*before, *after}):
            inside = f"{path}/{name}" if path else name
            if name not in after:
                yield f"{inside}: gone; it was {_short(before[name])}"
            elif name not in before:
                yield f"{inside}: new; it is {_short(after[name])}"
            else:
                yield from _between(inside, before[name], after[name], tables)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _between(f"{path}[{place}]", old, new, tables)
    elif isinstance(before, str) and isinstance(after, str) and "\n" in before and "\n" in after:
        yield from _of_texts(path, *([*csv.reader(io.StringIO(text))] for text in (before, after)))
    else:
        yield f"{path}: {_change(before, after)}"


def _of_digests(name: str, before: Any, after: Any, table: Table | None) -> str:
    old, new = before["rows"], after["rows"]
    first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    columns = {*before["columns"], *after["columns"]}
    other = sorted(each for each in columns if before["columns"].get(each) != after["columns"].get(each))
    told = f"table {name}: columns {', '.join(other)} differ, first in row {first} of {len(old)} (now {len(new)})"
    if table is None or first >= len(table) - 1:
        return f"{told}, which is no longer there"
    return f"{told}, which is now {_row(table[0], table[first + 1])}"


def _row(header: Sequence[str], row: Sequence[str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(header, row, strict=True))


def _of_texts(path: str, before: Table, after: Table) -> Iterator[str]:
    """Tables that begin with a header; the first column names the row."""
    if before[0] != after[0]:
        yield f"{path}: header {_change(','.join(before[0]), ','.join(after[0]))}"
    if len(before) != len(after):
        yield f"{path}: {len(before) - 1} rows -> {len(after) - 1}"
    places = {name: place for place, name in enumerate(after[0])}
    shared = [(name, i, places[name]) for i, name in enumerate(before[0]) if name in places]
    for old, new in zip(before[1:], after[1:], strict=False):
        for name, i, k in shared:
            if old[i] != new[k]:
                yield f"{path}: {before[0][0]} {old[0]}: {name} {_change(old[i], new[k])}"


def _change(before: Any, after: Any) -> str:
    told = f"{_short(before)} -> {_short(after)}"
    try:
        old, new = float(before), float(after)
    except (TypeError, ValueError):
        return told
    return f"{told} ({(new - old) / abs(old):+.2g} of it)" if old else told


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    first = text.partition("\n")[0][:200]
    return repr(text) if not text else text if text == first else f"{first}..."


_known = cache(read)


def check(case: Case) -> None:
    """Fail with what differs, where something does."""
    before = _known(case.file).get(case.name)
    if before is None:
        raise AssertionError(f"no golden of {case.title}; `make golden` keeps one of: {case.line}")
    found = differences(before, case.take())
    if found:
        raise AssertionError("\n  ".join([f"{case.title} is not as it was: {found[0]}", *found[1:], f"$ {case.line}"]))
