"""What readers of tables with the columns of other systems have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughputs.errors import InputError
from throughputs.frames import FrameReader
from throughputs.trace import Trace


def seconds(times: NDArray[np.float64], unit: float) -> NDArray[np.float64]:
    """Times in units of so many seconds; inf, which no trace takes, where they are beyond all numbers."""
    with np.errstate(over="ignore"):
        return times * unit


def job_types(reader: FrameReader, model: str = "model_name") -> NDArray[np.object_]:
    """(N,) ``MODEL (batch size B)``, or ``MODEL`` where the table has no batch sizes."""
    models = reader.text(model)
    if not reader.has("batch_size"):
        return models
    sizes = reader.whole_numbers("batch_size")
    if (sizes < 1).any():
        row = int(np.argmax(sizes < 1))
        raise row_error(reader, row, "batch_size", int(sizes[row]), "a batch size of at least 1")
    named = [f"{model} (batch size {size})" for model, size in zip(models.tolist(), sizes.tolist(), strict=True)]
    return np.array(named, dtype=object)


def in_order_of_arrival(
    columns: dict[str, Any], rows: NDArray[np.intp], reader: FrameReader, renamed: dict[str, str]
) -> Trace:
    """The jobs in these rows by arrival, those that arrive together as they stand; errors name lines of the file."""
    arrival = columns["arrival_time"]
    order = rows[np.argsort(arrival[rows], kind="stable")]
    try:
        return Trace(**{name: values[order] for name, values in columns.items()}, source=reader.source)
    except InputError as error:
        line = None if error.line is None else int(order[error.line - 1]) + reader.first_line
        field = renamed.get(str(error.field), error.field)
        raise InputError(reader.source, line=line, field=field, found=error.found, expected=error.expected) from None


def row_error(reader: FrameReader, row: int, field: str, found: object, expected: str) -> InputError:
    """The error that names the file and the line of a row."""
    return InputError(reader.source, line=reader.first_line + row, field=field, found=found, expected=expected)
