"""Reading and writing throughput tables: the public JSON of Gavel and Shockwave, tidy CSV and Parquet.

The JSON is ``{accelerator: {"('job type', scale factor)": {"null": alone, "('other', sf)": [mine, its]}}}``
with throughputs in steps/s; its keys are Python tuples in text form. Format: D. Narayanan et al.,
"Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020, public artifact.
"""

from __future__ import annotations

import ast
import csv
import json
import os
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from throughputs.entry_points import load
from throughputs.errors import InputError, expect
from throughputs.files import (
    TABLE_KINDS,
    Document,
    StrPath,
    file_kind,
    read_frame,
    read_json,
    source_of,
    write_frame,
    write_text,
)
from throughputs.frames import NOT_NEGATIVE
from throughputs.limits import LARGEST_WHOLE_NUMBER
from throughputs.tables.figures import STEPS, TableBuilder
from throughputs.tables.table import Key, ThroughputTable

_KINDS = "a name ending in .json, .json.gz, .csv, .csv.gz or .parquet"
_PREFIX = "throughputs_"


def read_table(path: StrPath, accelerator: str | None = None) -> ThroughputTable:
    """Throughput table from a file, its format told by the extension, or from a folder.

    ``.json``, ``.json.gz``: the public format of Gavel and Shockwave; ``.csv``, ``.csv.gz``, ``.parquet``:
    the tidy form of `ThroughputTable.to_frame`; a folder: throughputs by number of GPUs on one accelerator type, as
    ElasticFlow has them (`allocator.published.elasticflow.tables`). `accelerator` is that type where the folder's name
    does not tell it; in a file it stands beside the figures.

    Raises
    ------
    InputError
        Names the file and the line, or for JSON the path of the key, that cannot be used.
    OSError
        The file cannot be opened.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "speeds.csv"
    ...     _ = path.write_text("job_type,scale_factor,accelerator,throughput\\nbert,1,a100,4.5\\n")
    ...     read_table(path).rates(["bert"], [1], ["a100"]).tolist()
    [[4.5]]
    """
    path = place_of_table(path)
    if path.is_dir():
        table: ThroughputTable = load("tables", "elasticflow")(path, accelerator)
        return table
    kind = file_kind(path)
    if kind == "json":
        return _Reader(path).read(read_json(path, unique_keys=True))
    if kind in TABLE_KINDS:
        frame, first_line = read_frame(path)
        return ThroughputTable.from_frame(frame, source=source_of(path), first_line=first_line)
    raise InputError(path, found=path.name, expected=f"{_KINDS}, or a folder that exists")


def place_of_table(path: StrPath) -> Path:
    """The path of a table; InputError where what is given is no name of a file, such as a table itself."""
    expected = (
        "the name of a file or folder, as `write_table` makes of a `ThroughputTable`, and its `from_frame` of a frame"
    )
    expect(isinstance(path, str | os.PathLike), "throughputs", None, type(path).__name__, expected)
    return Path(path)


def accelerator_of_folder(path: Path) -> str | None:
    """The accelerator type in the name of a folder: ``a100`` for ``throughputs_A100``; None where there is none."""
    name = path.resolve().name.lower()
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) and name != _PREFIX else None


def write_table(table: ThroughputTable, path: StrPath) -> None:
    """Write a throughput table in the format that the extension names; the file is replaced in one step.

    Raises
    ------
    InputError
        The extension is not known.
    """
    path = Path(path)
    kind = file_kind(path)
    if kind == "json":
        write_text(path, json.dumps(_to_json(table)))
    elif kind in TABLE_KINDS:
        write_frame(path, table.to_frame())
    else:
        raise InputError(path, found=path.name, expected=_KINDS)


class _Reader(Document):
    """Walks the three levels of the JSON; errors name the path of a key."""

    def read(self, content: object) -> ThroughputTable:
        builder = TableBuilder()
        for accelerator, jobs in self.table(content, "").items():
            builder.accelerator(accelerator)
            keys = {text: self._key(text, _path(accelerator, text)) for text in self.table(jobs, accelerator)}
            for key in keys.values():  # before any partner, so that the order is that of the file
                builder.key(key)
            for text, key in keys.items():
                for other, value in self.table(jobs[text], _path(accelerator, text)).items():
                    self._add(builder, accelerator, key, other, value, _path(accelerator, text, other))
        return ThroughputTable(*builder.figures(), str(self.source))

    def _add(self, builder: TableBuilder, accelerator: str, key: Key, other: str, value: object, where: str) -> None:
        given = value if isinstance(value, list) and other != "null" else [value]
        figures = [self.number(figure, where, NOT_NEGATIVE, STEPS) for figure in given]
        if other == "null":
            problem = builder.add_isolated(accelerator, key, figures[0])
        elif len(figures) == 2:
            problem = builder.add_pair(accelerator, key, self._key(other, where), (figures[0], figures[1]))
        else:
            problem = "a list of two throughputs"
        if problem is not None:
            raise self.error(where, value, problem)

    def _key(self, text: str, where: str) -> Key:
        try:
            key = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            key = None
        match key:
            case (str(name), int(size)) if name and 1 <= size <= LARGEST_WHOLE_NUMBER and not isinstance(size, bool):
                return name, size
        expected = "a key such as \"('ResNet-18 (batch size 16)', 1)\": a job type and a scale factor"
        raise self.error(where, text, expected)


def _path(*names: str) -> str:
    return " / ".join(names)


def _to_json(table: ThroughputTable) -> dict[str, dict[str, dict[str, float | list[float]]]]:
    """The public layout, with every pair under both of its jobs."""
    texts = [repr(key) for key in table.keys]
    content: dict[str, dict[str, dict[str, float | list[float]]]] = {}
    for m, accelerator in enumerate(table.accelerators):
        jobs = content.setdefault(accelerator, {})
        for k, figure in enumerate(table.isolated[:, m].tolist()):
            if not np.isnan(figure):
                jobs[texts[k]] = {"null": figure}
        for (a, b), (mine, its) in zip(table.pairs.tolist(), table.colocated[:, m].tolist(), strict=True):
            if not (np.isnan(mine) or np.isnan(its)):
                # in this order, for a job type beside itself the two entries are one
                jobs.setdefault(texts[b], {})[texts[a]] = [its, mine]
                jobs.setdefault(texts[a], {})[texts[b]] = [mine, its]
    return content


@cache
def default_table() -> ThroughputTable:
    """The embedded table: 83 (job type, scale factor) keys, 3 accelerator types, steps/s; no co-location.

    Isolated throughput of 26 deep-learning job types on v100, p100 and k80 GPUs, with gangs of 1, 2, 4 and 8 GPUs for
    the 19 types that train distributed. Figures: D. Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies
    for Deep Learning Workloads", OSDI 2020, public artifact stanford-futuredata/gavel (MIT).

    >>> default_table().rates(["A3C"], [1], ["v100", "k80"]).shape
    (1, 2)
    """
    resource = files("throughputs") / "data" / "default_throughputs.csv"
    with resource.open(encoding="utf-8") as lines:
        rows = list(csv.reader(line for line in lines if not line.startswith("#")))
    header, figures = rows[0], rows[1:]
    return ThroughputTable(
        keys=[(row[0], int(row[1])) for row in figures],
        accelerators=header[2:],
        isolated=[[float(value) for value in row[2:]] for row in figures],
        source="default throughput table",
    )


def merged_tables(table: ThroughputTable, other: ThroughputTable) -> ThroughputTable:
    """All figures of two tables; where both have one, that of `other`.

    The order is that of `table`, with what only `other` has behind it.
    """
    builder = TableBuilder(table, other)
    builder.add_table(other)
    builder.add_table(table)
    return ThroughputTable(*builder.figures(), other.source)
