"""The tidy form of a throughput table: one row per measured figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from throughputs.errors import InputError
from throughputs.frames import FrameReader
from throughputs.limits import LARGEST_WHOLE_NUMBER
from throughputs.tables.builder import Figures, TableBuilder

if TYPE_CHECKING:
    import pandas as pd

    from throughputs.tables.table import Key, ThroughputTable

ISOLATED_COLUMNS = ("job_type", "scale_factor", "accelerator", "throughput")
COLOCATED_COLUMNS = ("other_job_type", "other_scale_factor", "other_throughput")


def figures_of_frame(frame: pd.DataFrame, source: str, first_line: int = 1) -> Figures:
    """See `ThroughputTable.from_frame`."""
    reader = FrameReader(frame, source, first_line)
    reader.check_columns(ISOLATED_COLUMNS, COLOCATED_COLUMNS)
    keys = _keys(reader)
    accelerators = reader.text("accelerator").tolist()
    figures = _throughputs(reader, "throughput").tolist()
    others = _others(reader)
    builder = TableBuilder()
    for row, (key, accelerator, figure) in enumerate(zip(keys, accelerators, figures, strict=True)):
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

    key_names = np.array([name for name, _ in table.keys], dtype=object)
    key_sizes = np.array([size for _, size in table.keys], dtype=np.int64)
    accelerators = np.array(table.accelerators, dtype=object)
    m, k = np.nonzero(~np.isnan(table.isolated.T))
    isolated = pd.DataFrame(
        {
            "job_type": key_names[k],
            "scale_factor": key_sizes[k],
            "accelerator": accelerators[m],
            "throughput": table.isolated[k, m],
        }
    )
    if not table.has_colocation:
        return isolated
    m, p = np.nonzero(~np.isnan(table.colocated).any(axis=2).T)
    one, other = table.pairs[p, 0], table.pairs[p, 1]
    colocated = pd.DataFrame(
        {
            "job_type": key_names[one],
            "scale_factor": key_sizes[one],
            "accelerator": accelerators[m],
            "throughput": table.colocated[p, m, 0],
            "other_job_type": key_names[other],
            "other_scale_factor": pd.array(key_sizes[other], dtype="Int64"),
            "other_throughput": table.colocated[p, m, 1],
        }
    )
    return pd.concat([isolated, colocated], ignore_index=True)


def _keys(reader: FrameReader) -> list[Key]:
    names = reader.text("job_type").tolist()
    sizes = reader.whole_numbers("scale_factor")
    _check(reader, "scale_factor", sizes < 1, sizes, "at least 1 GPU")
    return list(zip(names, sizes.tolist(), strict=True))


def _throughputs(reader: FrameReader, column: str, *, empty: float | None = None) -> NDArray[np.float64]:
    values = reader.numbers(column, empty=empty)
    with np.errstate(invalid="ignore"):
        bad = (values < 0) | np.isinf(values)
    _check(reader, column, bad, values, "a finite throughput of at least 0 steps/s")
    return values


def _others(reader: FrameReader) -> dict[int, tuple[Key, float]]:
    """By row: the second job and its throughput, where there is one."""
    present = [name for name in COLOCATED_COLUMNS if reader.has(name)]
    if not present:
        return {}
    for name in COLOCATED_COLUMNS:
        if name not in present:
            raise InputError(reader.source, field=name, found=present, expected="all three columns of co-location")
    names = reader.text("other_job_type", empty="")
    sizes = reader.numbers("other_scale_factor", empty=np.nan)
    figures = _throughputs(reader, "other_throughput", empty=np.nan)
    given = names != ""
    for column, values in (("other_scale_factor", sizes), ("other_throughput", figures)):
        _check(reader, column, ~given & ~np.isnan(values), values, "nothing, as other_job_type is empty")
        _check(reader, column, given & np.isnan(values), values, "a number, as other_job_type is given")
    _check(reader, "other_scale_factor", given & ~_whole_gangs(sizes), sizes, "a whole number of GPUs, at least 1")
    rows = np.flatnonzero(given).tolist()
    return {row: ((str(names[row]), int(sizes[row])), float(figures[row])) for row in rows}


def _whole_gangs(sizes: NDArray[np.float64]) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        whole: NDArray[np.bool_] = (sizes == np.rint(sizes)) & (sizes >= 1) & (sizes <= LARGEST_WHOLE_NUMBER)
    return whole


def _check(reader: FrameReader, column: str, bad: NDArray[np.bool_], values: NDArray[Any], expected: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        found = values[row].item()
        raise InputError(
            reader.source,
            line=row + reader.first_line,
            field=column,
            found=None if found != found else found,
            expected=expected,
        )
