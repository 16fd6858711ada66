"""Traces of Chronus as tables with named columns.

    job_id user num_gpu [batch_size] submit_time iterations model_name duration interval expect_time_list
    expect_value_list best_effort job_type

Deadlines count from submission; where there are several, these and their values have dashes between them. Job types are
named ``MODEL (batch size B)``, and where there is no batch size ``MODEL``.

Source: W. Gao et al., "Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training Jobs", SoCC 2021
(S-Lab-System-Group/ChronusArtifact).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from throughputs.arrays import Texts, Values
from throughputs.deadlines import OptionRow
from throughputs.frames import Column, FrameReader, parsed_number
from throughputs.trace import Trace
from throughputs.traces.named import BATCH_SIZE, in_seconds, job_types, trace_of_columns

if TYPE_CHECKING:
    import pandas as pd

_MINUTE = 60.0
_LISTS = ("expect_time_list", "expect_value_list")
_COLUMNS = {
    "num_gpu": Column("whole"),
    "submit_time": Column("number"),
    "iterations": Column("number"),
    "model_name": Column("text"),
    "duration": Column("number"),
    "expect_time_list": Column("text", "", needed=True),
    "expect_value_list": Column("text", "", needed=True),
    "best_effort": Column("flag", False, needed=True),
    "user": Column("text", ""),
    "batch_size": Column("whole", 1, *BATCH_SIZE),
}


def chronus(frame: pd.DataFrame, source: str, first_line: int, time_unit: float | None) -> Trace:
    """Trace from a table of Chronus."""
    reader = FrameReader(frame, source, first_line)
    table = reader.read(_COLUMNS, ("job_id", "interval", "job_type"))
    # The Philly traces count minutes and have no batch sizes; those that were made of ElasticFlow's count seconds.
    sizes = table["batch_size"] if reader.has("batch_size") else None
    unit = (_MINUTE if sizes is None else 1.0) if time_unit is None else time_unit
    return trace_of_columns(
        reader,
        {
            "job_type": ("job_type", job_types(table["model_name"], sizes)),
            "scale_factor": ("num_gpu", table["num_gpu"]),
            "total_steps": ("iterations", table["iterations"]),
            "arrival_time": ("submit_time", in_seconds(table["submit_time"], unit)),
            "deadline_options": (", ".join(_LISTS), _options(reader, table, unit)),
            "duration": ("duration", in_seconds(table["duration"], unit)),
            "entity": ("user", table["user"]),
        },
        # The published simulator drops jobs without GPUs, which the Philly traces have.
        np.flatnonzero(table["num_gpu"] != 0),
    )


def _options(reader: FrameReader, table: dict[str, Values], unit: float) -> Texts:
    """(N,) deadlines on the clock (seconds) with their values; none for best effort."""
    times, values, best_effort = (table[name].tolist() for name in (*_LISTS, "best_effort"))
    rows = np.empty(len(times), dtype=object)
    for i, (begin, own, worth) in enumerate(zip(table["submit_time"].tolist(), times, values, strict=True)):
        if best_effort[i]:
            rows[i] = ()
            continue
        after, value = _list(reader, i, "expect_time_list", own), _list(reader, i, "expect_value_list", worth)
        if len(after) != len(value):
            raise reader.error(i, "expect_value_list", worth, f"{len(after)} values, as many as deadlines")
        option: OptionRow = tuple(((begin + time) * unit, v) for time, v in zip(after, value, strict=True))
        rows[i] = option
    return rows


def _list(reader: FrameReader, row: int, name: str, text: str) -> list[float]:
    """Numbers above 0 with dashes between."""
    try:
        numbers = [parsed_number(part) for part in text.split("-")]
    except ValueError:
        numbers = []
    if not numbers or not all(0 < number < np.inf for number in numbers):
        raise reader.error(row, name, text, "numbers above 0 with dashes between, as in 299-319-379")
    return numbers
