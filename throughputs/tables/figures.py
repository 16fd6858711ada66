"""Figures of a throughput table, in whatever order a file gives them, and its tidy form, one row per figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from throughputs.arrays import Floats, Ints, Values
from throughputs.errors import InputError, expect
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
        self._pairs: dict[tuple[int, int], int] = {}
        self._colocated: dict[tuple[int, int], tuple[float, float]] = {}
        self._ordered: set[tuple[int, int, int]] = set()
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
        keys, m = (self.key(key), self.key(other)), self.accelerator(accelerator)
        if (*keys, m) in self._ordered:
            return f"one entry for {key} beside {other} on {accelerator!r}"
        self._ordered.add((*keys, m))
        if keys not in self._pairs and keys[::-1] in self._pairs:
            keys, figures = keys[::-1], figures[::-1]
        row = self._pairs.setdefault(keys, len(self._pairs))
        known = self._colocated.setdefault((row, m), figures)
        if known != figures:
            return f"the figures given for {other} beside {key}, {known[::-1]}"
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
        colocated = np.full((len(self._pairs), len(self._accelerators), 2), np.nan)
        for (k, m), figure in self._isolated.items():
            isolated[k, m] = figure
        for (p, m), figures in self._colocated.items():
            colocated[p, m] = figures
        pairs = np.array(list(self._pairs), dtype=np.int64).reshape(-1, 2)
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
    table = reader.read(_COLUMNS)
    keys = list(zip(table["job_type"].tolist(), table["scale_factor"].tolist(), strict=True))
    others = _others(reader, table)
    builder = TableBuilder()
    rows = zip(keys, table["accelerator"].tolist(), table["throughput"].tolist(), strict=True)
    for row, (key, accelerator, figure) in enumerate(rows):
        if row in others:
            other, other_figure = others[row]
            found: object = (figure, other_figure)
            problem = builder.add_pair(accelerator, key, other, (figure, other_figure))
        else:
            found = figure
            problem = builder.add_isolated(accelerator, key, figure)
        if problem is not None:
            raise InputError(source, line=row + first_line, field="throughput", found=found, expected=problem)
    return builder.figures()


def frame_of_table(table: ThroughputTable) -> pd.DataFrame:
    """See `ThroughputTable.to_frame`."""
    import pandas as pd

    accelerators = np.array(table.accelerators, dtype=object)

    def of_jobs(keys: Ints, prefix: str = "") -> dict[str, Any]:
        names, sizes = zip(*(table.keys[k] for k in keys), strict=True) if len(keys) else ((), ())
        return {f"{prefix}job_type": np.array(names, dtype=object), f"{prefix}scale_factor": np.array(sizes, np.int64)}

    m, k = np.nonzero(~np.isnan(table.isolated.T))
    frame = pd.DataFrame(of_jobs(k) | {"accelerator": accelerators[m], "throughput": table.isolated[k, m]})
    if not table.has_colocation:
        return frame
    m, p = np.nonzero(~np.isnan(table.colocated).any(axis=2).T)
    (one, other), (first, second) = table.pairs[p].T, table.colocated[p, m].T
    pairs = pd.DataFrame(
        of_jobs(one)
        | {"accelerator": accelerators[m], "throughput": first}
        | of_jobs(other, "other_")
        | {"other_throughput": second}
    )
    return pd.concat([frame, pairs.astype({"other_scale_factor": "Int64"})], ignore_index=True)


def _others(reader: FrameReader, table: dict[str, Values]) -> dict[int, tuple[Key, float]]:
    """By row: the second job and its throughput, where there is one."""
    present = [name for name in COLOCATED_COLUMNS if reader.has(name)]
    for name in COLOCATED_COLUMNS if present else ():
        expect(name in present, reader.source, name, present, "all three columns of co-location")
    names, sizes, figures = (table[name] for name in COLOCATED_COLUMNS)
    given = names != ""
    for column in COLOCATED_COLUMNS[1:]:
        known = ~np.isnan(table[column])
        reader.require(given | ~known, table[column], column, "nothing, as other_job_type is empty")
        reader.require(~given | known, table[column], column, "a number, as other_job_type is given")
    whole = np.isnan(sizes) | (sizes == np.rint(sizes))
    reader.require(whole, sizes, "other_scale_factor", _GPUS)
    return {row: ((names[row], int(sizes[row])), float(figures[row])) for row in np.flatnonzero(given).tolist()}
