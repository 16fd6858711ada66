"""Traces of ElasticFlow as tables with named columns.

    job_id submit_time iteration model_name ddl batch_size num_gpu duration [best_effort]
    job_id submission_time num_iteration model_name deadline batch_size num_gpu duration

The first spelling is that of the artifact, the second that of the public traces of ten ITP clusters. Deadlines are on
the clock. Job types are named ``MODEL (batch size B)``.

Source: D. Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep Learning", ASPLOS 2023
(pkusys/ElasticFlow, microsoft/elasticflow-traces).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from throughputs.frames import Column, FrameReader
from throughputs.trace import Trace
from throughputs.traces.named import BATCH_SIZE, in_seconds, job_types, trace_of_columns

if TYPE_CHECKING:
    import pandas as pd

_ARTIFACT = ("submit_time", "iteration", "ddl")
_PUBLIC = ("submission_time", "num_iteration", "deadline")

_IGNORED = ("job_id", "real_iteration", "real_duration")
"""One Philly trace says what steps and durations were before they were cut."""

_NO_DEADLINE = 2.0**63
"""Python's largest 64-bit number stands for no deadline in the published simulator; as a float it is this."""


def elasticflow(frame: pd.DataFrame, source: str, first_line: int, time_unit: float | None) -> Trace:
    """Trace from a table of ElasticFlow, in either spelling."""
    reader = FrameReader(frame, source, first_line)
    submit, steps, due = _PUBLIC if reader.has(_PUBLIC[0]) else _ARTIFACT
    table = reader.read(
        {
            submit: Column("number"),
            steps: Column("number"),
            due: Column("number", np.nan, needed=True),
            "model_name": Column("text"),
            "batch_size": Column("whole", None, *BATCH_SIZE),
            "num_gpu": Column("whole"),
            "duration": Column("number"),
            "best_effort": Column("flag", False),
        },
        _IGNORED,
    )
    none = (table[due] >= _NO_DEADLINE) | table["best_effort"]
    return trace_of_columns(
        reader,
        {
            "job_type": ("job_type", job_types(table["model_name"], table["batch_size"])),
            "scale_factor": ("num_gpu", table["num_gpu"]),
            "total_steps": (steps, table[steps]),
            "arrival_time": (submit, in_seconds(table[submit], time_unit)),
            "deadline": (due, np.where(none, np.nan, in_seconds(table[due], time_unit))),
            "duration": ("duration", in_seconds(table["duration"], time_unit)),
        },
    )
