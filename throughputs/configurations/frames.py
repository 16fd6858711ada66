"""The columns of configurations as tidy pandas tables."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from throughputs.configurations.checks import Arrays
from throughputs.errors import InputError, did_you_mean
from throughputs.frames import Column, FrameReader

if TYPE_CHECKING:
    import pandas as pd

_REQUIRED = ("job", "pool", "gpus", "rate")
_OPTIONAL = ("batch_size", "partner", "partner_rate")
_NUMBERS = {
    "gpus": Column("whole"),
    "rate": Column("number"),
    "batch_size": Column("number", 0.0),
    "partner_rate": Column("number", 0.0),
}


def columns_of_frame(
    frame: pd.DataFrame,
    jobs: Sequence[Hashable] | None,
    pools: Sequence[str] | None,
    source: str,
    first_line: int,
) -> tuple[dict[str, Any], list[Hashable], list[str]]:
    """Arrays by name, labels of the jobs and names of the pools; see `Configurations.from_frame`."""
    reader = FrameReader(frame, source, first_line)
    reader.check_columns(_REQUIRED, _OPTIONAL)
    partners = reader.has("partner")
    labels = _appearing(frame, ("job", "partner") if partners else ("job",)) if jobs is None else list(jobs)
    names = [str(name) for name in _appearing(frame, ("pool",))] if pools is None else list(pools)
    columns = {name: reader.cells(name, _NUMBERS[name]) for name in _NUMBERS if reader.has(name)}
    arrays: dict[str, Any] = {
        "job": _positions(reader, "job", labels),
        "pool": _positions(reader, "pool", names),
        **columns,
    }
    if partners:
        arrays["partner"] = _positions(reader, "partner", labels, may_be_empty=True)
    return arrays, labels, names


def frame_of_columns(columns: Arrays, jobs: tuple[Hashable, ...], pools: tuple[str, ...]) -> pd.DataFrame:
    """Tidy table; see `Configurations.to_frame`."""
    import pandas as pd

    labels = pd.Series(list(jobs), dtype=None if jobs else "object").to_numpy()
    figures: dict[str, Any] = {
        "job": labels[columns.job],
        "pool": np.array(pools, dtype=object)[columns.pool],
        "gpus": columns.gpus,
        "rate": columns.rate,
    }
    if (columns.batch_size > 0).any():
        own = columns.batch_size == 0
        figures["batch_size"] = pd.Series(columns.batch_size, dtype="Int64").mask(own)
    alone = columns.partner < 0
    if not alone.all():
        figures["partner"] = np.where(alone, np.array(None), labels.astype(object)[columns.partner])
        figures["partner_rate"] = np.where(alone, np.nan, columns.partner_rate)
    return pd.DataFrame(figures)


def _appearing(frame: pd.DataFrame, columns: tuple[str, ...]) -> list[Hashable]:
    """Labels in the order in which they first appear, down the first column and then down the others."""
    import pandas as pd

    cells: Any = pd.concat([frame[name] for name in columns])
    return list(cells[~_blank(cells)].unique())


def _blank(cells: Any) -> NDArray[np.bool_]:
    return np.asarray(cells.isna() | (cells == ""))


def _positions(
    reader: FrameReader, name: str, labels: Sequence[Hashable], *, may_be_empty: bool = False
) -> NDArray[np.int64]:
    """(C,) position of each cell's label, -1 for an empty cell."""
    import pandas as pd

    cells = reader.frame[name]
    blank = _blank(cells)
    index: Any = pd.Index
    found = index(labels, dtype=object).get_indexer(cells.astype(object))
    wrong = (found < 0) & ~(blank & may_be_empty)
    if wrong.any():
        row = int(np.argmax(wrong))
        cell = None if blank[row] else cells.iloc[row]
        expected = f"a known {'pool' if name == 'pool' else 'job'}{did_you_mean(cell, labels)}"
        raise InputError(reader.source, line=reader.first_line + row, field=name, found=cell, expected=expected)
    return np.where(blank, -1, found).astype(np.int64)
