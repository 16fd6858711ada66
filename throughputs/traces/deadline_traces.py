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

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from throughputs.deadlines import OptionRow
from throughputs.frames import FrameReader, parsed_number
from throughputs.trace import Trace
from throughputs.traces.named_rows import in_order_of_arrival, job_types, row_error, seconds

if TYPE_CHECKING:
    import pandas as pd

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


def elasticflow(frame: pd.DataFrame, source: str, first_line: int, time_unit: float | None) -> Trace:
    """Trace from a table of ElasticFlow, in either spelling."""
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
        "job_type": job_types(reader),
        "scale_factor": reader.whole_numbers("num_gpu"),
        "total_steps": reader.numbers(names["iteration"]),
        "arrival_time": seconds(reader.numbers(names["submit_time"]), unit),
        "deadline": np.where(none, np.nan, seconds(deadline, unit)),
        "duration": seconds(reader.numbers("duration"), unit),
    }
    renamed = {
        "scale_factor": "num_gpu",
        "total_steps": names["iteration"],
        "arrival_time": names["submit_time"],
        "deadline": names["ddl"],
    }
    return in_order_of_arrival(columns, np.arange(len(frame)), reader, renamed)


def chronus(frame: pd.DataFrame, source: str, first_line: int, time_unit: float | None) -> Trace:
    """Trace from a table of Chronus."""
    reader = FrameReader(frame, source, first_line)
    reader.check_columns(_CHRONUS, ("job_id", "user", "batch_size", "interval", "job_type"))
    # The Philly traces count minutes and have no batch sizes; those that were made of ElasticFlow's count seconds.
    unit = (1.0 if reader.has("batch_size") else _MINUTE) if time_unit is None else time_unit
    submitted, gpus = reader.numbers("submit_time"), reader.whole_numbers("num_gpu")
    columns = {
        "job_type": job_types(reader),
        "scale_factor": gpus,
        "total_steps": reader.numbers("iterations"),
        "arrival_time": seconds(submitted, unit),
        "deadline_options": _options(reader, submitted, unit),
        "duration": seconds(reader.numbers("duration"), unit),
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
    return in_order_of_arrival(columns, np.flatnonzero(gpus != 0), reader, renamed)


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
            raise row_error(reader, i, "expect_value_list", worth, f"{len(after)} values, as many as deadlines")
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
        raise row_error(reader, row, name, text, "numbers above 0 with dashes between, as in 299-319-379")
    return numbers
