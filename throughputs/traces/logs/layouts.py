"""The layouts of published job logs, as data: which columns tell them, what each holds, what is derived first.

They are in ``data/job_logs.toml``, and entry points of any package in the group ``throughputs.logs``, whose values are
layouts. A log of one of these is told by its header or its first line, and read without options; its dates and figures
mean what its publisher says. What a log of one's own has in its columns is guessed from their names instead
(`logs.columns`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np

from throughputs.arrays import Floats, Ints, Texts
from throughputs.entry_points import entries_of
from throughputs.files import parse_toml
from throughputs.traces.logs.cells import numbers

Cells = dict[str, Texts]
"""(N,) text of each column, by name."""

Reader = Callable[[str, str], tuple[Cells, Ints | None, tuple[str, ...]]]
"""Makes of a text and its source the columns, the line of each row (None where rows are no lines), and notes."""

_GROUP = "throughputs.logs"


@dataclass(frozen=True)
class Layout:
    """How a published log is read.

    Attributes
    ----------
    name : the format, as in ``--format``.
    columns : which column holds each field.
    told_by : columns that the header of such a log has, all of them; `alone`: and no others.
    line : of text without a header: what its first line is like, a regular expression.
    cells : the reader of such text.
    zone : of dates that name none; None: UTC.
    derived : columns that follow from others, in the order in which they are made: how, and of which columns.
    notes : what a user should know of any such log, in sentences.
    """

    declared_in: ClassVar[str] = _GROUP

    name: str
    columns: Mapping[str, str]
    told_by: Sequence[str] = ()
    alone: bool = False
    line: str = ""
    cells: Reader | None = None
    zone: str | None = None
    derived: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def completed(self, cells: Mapping[str, Texts]) -> Cells:
        """The columns of a log with derived ones; a figure that does not come out is an empty cell."""
        whole = dict(cells)
        for name, (how, *of) in self.derived.items():
            whole[name] = printed(_RECKONED[how](*(numbers(whole[column]) for column in of)))
        return whole

    @property
    def used(self) -> frozenset[str]:
        """Columns that something is made of."""
        return frozenset(self.columns.values()).union(*(of for _, *of in self.derived.values()))


@cache
def _tables() -> Mapping[str, Any]:
    resource = files("throughputs") / "data" / "job_logs.toml"
    return parse_toml(resource.read_text(encoding="utf-8"), resource.name)


def _layouts() -> Mapping[str, Layout]:
    ours = {name: Layout(name, **table) for name, table in _tables().items()}
    return ours | {name: entry.load() for name, entry in entries_of(_GROUP).items()}


def layout_names() -> tuple[str, ...]:
    """Names of the formats, as in ``--format``."""
    return (*_tables(), *entries_of(_GROUP))


def layout_of(kind: str) -> Layout | None:
    """The layout of a log of that kind; None where its columns are told by their names."""
    return _layouts().get(kind)


def layout_of_line(line: str) -> Layout | None:
    """The layout of text without a header of which this is the first line; None for any other."""
    return next((each for each in _layouts().values() if each.line and re.fullmatch(each.line, line)), None)


def layout_of_header(header: Sequence[str]) -> Layout | None:
    """The layout that these columns tell; None where they tell none."""
    names = set(header)
    for layout in _layouts().values():
        told_by = set(layout.told_by)
        if told_by and (told_by == names if layout.alone else told_by <= names):
            return layout
    return None


def printed(values: Floats) -> Texts:
    """(N,) figures as text, whole ones without a point; empty for nan."""
    cells = ["" if value != value else repr(value).removesuffix(".0") for value in values.tolist()]
    return np.array(cells, dtype=object)


def _share(asked: Floats) -> Floats:
    """Share of each GPU: below one GPU that figure, else whole GPUs."""
    return np.where((asked > 0) & (asked < 1), asked, 1.0)


_RECKONED: Mapping[str, Callable[..., Floats]] = {
    "difference": lambda end, start: np.round(end - start, 6),
    # of workers with a part of a GPU, one GPU for each
    "product": lambda gpus, workers: np.maximum(np.ceil(gpus), np.sign(gpus)) * workers,
    "part": _share,
    # of the GPU of a pod that has one
    "thousandths": lambda gpus, milli: np.where(gpus == 1, _share(milli / 1000), 1.0),
}
