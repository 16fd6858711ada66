"""Traces of the systems that schedule for deadlines, as tables with named columns.

    elasticflow   job_id submit_time iteration model_name ddl batch_size num_gpu duration [best_effort]
                  job_id submission_time num_iteration model_name deadline batch_size num_gpu duration
    chronus       job_id user num_gpu [batch_size] submit_time iterations model_name duration interval
                  expect_time_list expect_value_list best_effort job_type

The first spelling of ElasticFlow's is that of the artifact, the second that of the public traces of ten ITP clusters.
Their deadlines are on the clock. Those of Chronus count from submission; where there are several, these and their
values have dashes between them. Job types are named ``MODEL (batch size B)``, and where there is no batch size
``MODEL``.

Sources: D. Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep Learning", ASPLOS 2023
(pkusys/ElasticFlow, microsoft/elasticflow-traces); W. Gao et al., "Chronus: A Novel Deadline-aware Scheduler for Deep
Learning Training Jobs", SoCC 2021 (S-Lab-System-Group/ChronusArtifact).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from throughputs.deadlines import OptionRow
from throughputs.errors import InputError
from throughputs.frames import FrameReader
from throughputs.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NAMED_FORMATS", "NamedFormat", "format_of_columns"]

NamedFormat = Callable[["pd.DataFrame", str, int, float | None], Trace]
"""Makes a trace of a table, its source, the line of its first row, and the seconds in one unit of its times."""

_ARTIFACT = {"submit_time": "submit_time", "iteration": "iteration", "ddl": "ddl"}
_PUBLIC = {"submit_time": "submission_time", "iteration": "num_iteration", "ddl": "deadline"}
_ELASTICFLOW = ("model_name", "batch_size", "num_gpu", "duration")
_CHRONUS = (
    "num_gpu",
    "submit_time",
    "iterations",
    "model_name",
    "duration",
    "expect_time_list",
    "expect_value_list",
    "best_effort",
)

# Python's largest 64-bit number stands for no deadline in the published simulator; as a float it is this.
_NO_DEADLINE = 2.0**63

_MINUTE = 60.0


def format_of_columns(columns: Sequence[object]) -> str:
    """Name of the format that has these columns: one of `NAMED_FORMATS`, or "table"."""
    if "expect_time_list" in columns:
        return "chronus"
    return "elasticflow" if {"submit_time", "submission_time"} & set(columns) else "table"


def _elasticflow(frame: pd.DataFrame, source: str, first_line: int, time_unit: float | None) -> Trace:
    reader = FrameReader(frame, source, first_line)
    names = _PUBLIC if reader.has(_PUBLIC["submit_time"]) else _ARTIFACT
    # One Philly trace says what steps and durations were before they were cut.
    ignored = ("job_id", "real_iteration", "real_duration")
    reader.check_columns((*names.values(), *_ELASTICFLOW), ("best_effort", *ignored))
    unit = 1.0 if time_unit is None else time_unit
    deadline = reader.numbers(names["ddl"], empty=np.nan)
    none = deadline >= _NO_DEADLINE
    if reader.has("best_effort"):
        none |= reader.flags("best_effort")
    columns = {
        "job_type": _job_types(reader),
        "scale_factor": reader.whole_numbers("num_gpu"),
        "total_steps": reader.numbers(names["iteration"]),
        "arrival_time": _seconds(reader.numbers(names["submit_time"]), unit),
        "deadline": np.where(none, np.nan, _seconds(deadline, unit)),
        "duration": _seconds(reader.numbers("duration"), unit),
    }
    renamed = {
        "scale_factor": "num_gpu",
        "total_steps": names["iteration"],
        "arrival_time": names["submit_time"],
        "deadline": names["ddl"],
    }
    return _in_order_of_arrival(columns, np.arange(len(frame)), reader, renamed)


def _chronus(frame: pd.DataFrame, source: str, first_line: int, time_unit: float | None) -> Trace:
    reader = FrameReader(frame, source, first_line)
    reader.check_columns(_CHRONUS, ("job_id", "user", "batch_size", "interval", "job_type"))
    # The Philly traces count minutes and have no batch sizes; those that were made of ElasticFlow's count seconds.
    unit = (1.0 if reader.has("batch_size") else _MINUTE) if time_unit is None else time_unit
    submitted, gpus = reader.numbers("submit_time"), reader.whole_numbers("num_gpu")
    columns = {
        "job_type": _job_types(reader),
        "scale_factor": gpus,
        "total_steps": reader.numbers("iterations"),
        "arrival_time": _seconds(submitted, unit),
        "deadline_options": _options(reader, submitted, unit),
        "duration": _seconds(reader.numbers("duration"), unit),
        "entity": reader.text("user", empty="") if reader.has("user") else np.full(len(frame), "", dtype=object),
    }
    renamed = {
        "scale_factor": "num_gpu",
        "total_steps": "iterations",
        "arrival_time": "submit_time",
        "deadline": "expect_time_list",
        "deadline_options": "expect_time_list, expect_value_list",
    }
    # The published simulator drops jobs without GPUs, which the Philly traces have.
    return _in_order_of_arrival(columns, np.flatnonzero(gpus != 0), reader, renamed)


NAMED_FORMATS: dict[str, NamedFormat] = {"elasticflow": _elasticflow, "chronus": _chronus}
"""Readers of tables with other columns than our own, by name."""


def _seconds(times: NDArray[np.float64], unit: float) -> NDArray[np.float64]:
    """Times in units of so many seconds; inf, which no trace takes, where they are beyond all numbers."""
    with np.errstate(over="ignore"):
        return times * unit


def _job_types(reader: FrameReader) -> NDArray[np.object_]:
    """(N,) ``MODEL (batch size B)``, or ``MODEL`` where the table has no batch sizes."""
    models = reader.text("model_name")
    if not reader.has("batch_size"):
        return models
    sizes = reader.whole_numbers("batch_size")
    if (sizes < 1).any():
        row = int(np.argmax(sizes < 1))
        raise _error(reader, row, "batch_size", int(sizes[row]), "a batch size of at least 1")
    named = [f"{model} (batch size {size})" for model, size in zip(models.tolist(), sizes.tolist(), strict=True)]
    return np.array(named, dtype=object)


def _options(reader: FrameReader, submitted: NDArray[np.float64], unit: float) -> NDArray[np.object_]:
    """(N,) deadlines on the clock (seconds) with their values; none for best effort."""
    best_effort = reader.flags("best_effort")
    times, values = reader.text("expect_time_list", empty=""), reader.text("expect_value_list", empty="")
    rows = np.empty(len(submitted), dtype=object)
    for i, (begin, own, worth) in enumerate(zip(submitted.tolist(), times.tolist(), values.tolist(), strict=True)):
        if best_effort[i]:
            rows[i] = ()
            continue
        after, value = _list(reader, i, "expect_time_list", own), _list(reader, i, "expect_value_list", worth)
        if len(after) != len(value):
            raise _error(reader, i, "expect_value_list", worth, f"{len(after)} values, as many as deadlines")
        option: OptionRow = tuple(((begin + time) * unit, v) for time, v in zip(after, value, strict=True))
        rows[i] = option
    return rows


def _list(reader: FrameReader, row: int, name: str, text: str) -> list[float]:
    """Numbers above 0 with dashes between."""
    try:
        numbers = [float(part) for part in text.split("-")]
    except ValueError:
        numbers = []
    if not numbers or not all(0 < number < np.inf for number in numbers):
        raise _error(reader, row, name, text, "numbers above 0 with dashes between, as in 299-319-379")
    return numbers


def _in_order_of_arrival(
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


def _error(reader: FrameReader, row: int, field: str, found: object, expected: str) -> InputError:
    return InputError(reader.source, line=reader.first_line + row, field=field, found=found, expected=expected)
