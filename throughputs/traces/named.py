"""Tables with the columns of other systems than our own, and what their readers have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from throughputs.arrays import Floats, Ints, Positions, Texts
from throughputs.errors import InputError
from throughputs.frames import FrameReader
from throughputs.limits import Range
from throughputs.trace import Trace

NAMED_FORMATS: Mapping[str, tuple[set[str], ...]] = {
    "elasticflow": ({"submit_time"}, {"submission_time"}),
    "chronus": ({"expect_time_list"},),
    "pollux": ({"application", "num_replicas"},),
    "lucid": ({"vc", "gpu_num", "batchsize"},),
}
"""Columns that tell a format, by name, those of later ones before those of earlier ones. Its reader, an entry point,
makes a trace of a table, its source, the line of its first row, and the seconds in one unit of its times.
"""

BATCH_SIZE = Range(1), "a batch size of at least 1"
"""What a column of batch sizes may hold, and these in words."""


def format_of_columns(columns: Sequence[object]) -> str:
    """Name of the format that has these columns: one of `NAMED_FORMATS`, or "table"."""
    named = reversed(list(NAMED_FORMATS.items()))
    return next((name for name, told_by in named if any(some <= set(columns) for some in told_by)), "table")


def in_seconds(times: Floats, unit: float | None) -> Floats:
    """Times in units of so many seconds, 1 if None; inf, which no trace takes, where they are beyond all numbers."""
    with np.errstate(over="ignore"):
        return times * (1.0 if unit is None else unit)


def job_types(models: Texts, sizes: Ints | None) -> Texts:
    """(N,) ``MODEL (batch size B)``, or ``MODEL`` where there are no batch sizes."""
    if sizes is None:
        return models
    named = [f"{model} (batch size {size})" for model, size in zip(models.tolist(), sizes.tolist(), strict=True)]
    return np.array(named, dtype=object)


def trace_of_columns(
    reader: FrameReader, columns: Mapping[str, tuple[str, Any]], rows: Positions | None = None
) -> Trace:
    """The jobs in these rows, or in all, by arrival, those that arrive together as they stand.

    `columns` has for each column of the trace what it is called in the table, and its values; errors name these, and
    lines of the file.
    """
    arrival = columns["arrival_time"][1]
    rows = np.arange(len(arrival)) if rows is None else rows
    order = rows[np.argsort(arrival[rows], kind="stable")]
    try:
        return Trace(**{name: values[order] for name, (_, values) in columns.items()}, source=reader.source)
    except InputError as error:
        line = None if error.line is None else int(order[error.line - 1]) + reader.first_line
        field = columns.get(str(error.field), (error.field, None))[0]
        raise InputError(reader.source, line=line, field=field, found=error.found, expected=error.expected) from None
