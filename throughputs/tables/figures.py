"""Figures of a throughput table, in whatever order a file gives them, and its tidy form, one row per figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from throughputs.arrays import Floats, Ints
from throughputs.errors import InputError
from throughputs.frames import NOT_NEGATIVE, Column, FrameReader
from throughputs.limits import LARGEST_WHOLE_NUMBER, Range

if TYPE_CHECKING:
    import pandas as pd

    from throughputs.tables.table import Key, ThroughputTable


Figures: TypeAlias = "tuple[list[Key], list[str], Floats, Ints, Floats]"
"""Keys, accelerator types, isolated throughputs, pairs and their throughputs, shaped as in `ThroughputTable`."""


class TableBuilder:
    """Collects figures; the `add` methods answer with what is wrong with one, in words, or None."""

    def __init__(self, *tables: ThroughputTable) -> None:
        """Keys and accelerator types of the `tables` come first, in their order."""
        self._keys: dict[Key, int] = {}
        self._accelerators: dict[str, int] = {}
        self._isolated: dict[tuple[int, int], float] = {}
        self._colocated: dict[tuple[int, int, int], tuple[float, float]] = {}
        for table in tables:
            for key in table.keys:
                self.key(key)
            for name in table.accelerators:
                self.accelerator(name)

    def accelerator(self, name: str) -> int:
        """Position of the accelerator type, new or known."""
        return self._accelerators.setdefault(name, len(self._accelerators))

    def key(self, key: Key) -> int:
        """Position of the key, new or known."""
        return self._keys.setdefault(key, len(self._keys))

    def add_isolated(self, accelerator: str, key: Key, figure: float) -> str | None:
        """Throughput of a job alone, steps/s."""
        entry = (self.key(key), self.accelerator(accelerator))
        if entry in self._isolated:
            return f"one figure for {key} on {accelerator!r}, there is {self._isolated[entry]} already"
        self._isolated[entry] = figure
        return None

    def add_pair(self, accelerator: str, key: Key, other: Key, figures: tuple[float, float]) -> str | None:
        """Throughput of `key` and of `other` on shared GPUs, steps/s; both orders may come if they agree."""
        one, two, m = self.key(key), self.key(other), self.accelerator(accelerator)
        if (one, two, m) in self._colocated:
            return f"one entry for {key} beside {other} on {accelerator!r}"
        known = self._colocated.get((two, one, m), figures[::-1])
        if known != figures[::-1]:
            return f"the figures given for {other} beside {key}, {known}"
        self._colocated[one, two, m] = figures
        return None

    def add_table(self, table: ThroughputTable) -> None:
        """All figures of a table that are not there yet; what is there already stays."""
        for k, m in np.argwhere(~np.isnan(table.isolated)).tolist():
            self.add_isolated(table.accelerators[m], table.keys[k], float(table.isolated[k, m]))
        for p, m in np.argwhere(~np.isnan(table.colocated[:, :, 0])).tolist():
            one, other = (table.keys[k] for k in table.pairs[p])
            first, second = table.colocated[p, m].tolist()
            self.add_pair(table.accelerators[m], one, other, (first, second))

    def figures(self) -> Figures:
        """All that was added, as `ThroughputTable` takes it; nan where nothing was."""
        isolated = np.full((len(self._keys), len(self._accelerators)), np.nan)
        for entry, figure in self._isolated.items():
            isolated[entry] = figure
        rows: dict[tuple[int, int], int] = {}
        for one, two, _ in self._colocated:
            if (two, one) not in rows:
                rows.setdefault((one, two), len(rows))
        colocated = np.full((len(rows), len(self._accelerators), 2), np.nan)
        for (one, two, m), figures in self._colocated.items():
            if (one, two) in rows:
                colocated[rows[one, two], m] = figures
            else:
                colocated[rows[two, one], m] = figures[::-1]
        pairs = np.array(list(rows), dtype=np.int64).reshape(-1, 2)
        return list(self._keys), list(self._accelerators), isolated, pairs, colocated


COLOCATED_COLUMNS = ("other_job_type", "other_scale_factor", "other_throughput")

STEPS = "a finite throughput of at least 0 steps/s"
_GPUS = "a whole number of GPUs, at least 1"
_COLUMNS = {
    "job_type": Column("text"),
    "scale_factor": Column("whole", None, Range(1), "at least 1 GPU"),
    "accelerator": Column("text"),
    "throughput": Column("number", None, NOT_NEGATIVE, STEPS),
    "other_job_type": Column("text", ""),
    "other_scale_factor": Column("number", np.nan, Range(1, LARGEST_WHOLE_NUMBER), _GPUS),
    "other_throughput": Column("number", np.nan, NOT_NEGATIVE, STEPS),
}


def figures_of_frame(frame: pd.DataFrame, source: str, first_line: int = 1) -> Figures:
    """See `ThroughputTable.from_frame`."""
    reader = FrameReader(frame, source, first_line)
    present = [name for name in COLOCATED_COLUMNS if reader.has(name)]
    if 0 < len(present) < len(COLOCATED_COLUMNS):
        raise InputError(reader.source, found=present, expected=f"none or all of {', '.join(COLOCATED_COLUMNS)}")
    table = reader.read(_COLUMNS)
    for name in COLOCATED_COLUMNS[1:]:
        expected = "a number where other_job_type is given, and nothing where it is empty"
        reader.require((table["other_job_type"] != "") == ~np.isnan(table[name]), table[name], name, expected)
    sizes = table["other_scale_factor"]
    reader.require(np.isnan(sizes) | (sizes == np.rint(sizes)), sizes, "other_scale_factor", _GPUS)
    builder = TableBuilder()
    rows = zip(*(table[name].tolist() for name in _COLUMNS), strict=True)
    for row, (name, size, accelerator, figure, other, other_size, other_figure) in enumerate(rows):
        if other:
            found: object = (figure, other_figure)
            problem = builder.add_pair(accelerator, (name, size), (other, int(other_size)), (figure, other_figure))
        else:
            found = figure
            problem = builder.add_isolated(accelerator, (name, size), figure)
        if problem is not None:
            raise reader.error(row, "throughput", found, problem)
    return builder.figures()


def frame_of_table(table: ThroughputTable) -> pd.DataFrame:
    """See `ThroughputTable.to_frame`."""
    import pandas as pd

    keys, accelerators, alone, shared = table.keys, table.accelerators, table.isolated, table.colocated
    rows: list[Any] = [
        (*keys[k], accelerators[m], alone[k, m], None, None, np.nan) for m, k in np.argwhere(~np.isnan(alone.T))
    ]
    for m, p in np.argwhere(~np.isnan(shared[..., 0].T)):
        one, other = table.pairs[p]
        rows.append((*keys[one], accelerators[m], shared[p, m, 0], *keys[other], shared[p, m, 1]))
    frame = pd.DataFrame(rows, columns=list(_COLUMNS)).astype({"other_scale_factor": "Int64"})
    return frame if table.has_colocation else frame.drop(columns=list(COLOCATED_COLUMNS))
