"""Tables with the columns of other systems than our own, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from throughputs.trace import Trace
from throughputs.traces.deadline_traces import chronus, elasticflow
from throughputs.traces.goodput_traces import pollux
from throughputs.traces.virtual_clusters.lucid import lucid

if TYPE_CHECKING:
    import pandas as pd

NamedFormat = Callable[["pd.DataFrame", str, int, float | None], Trace]
"""Makes a trace of a table, its source, the line of its first row, and the seconds in one unit of its times."""

NAMED_FORMATS: dict[str, NamedFormat] = {
    "elasticflow": elasticflow,
    "chronus": chronus,
    "pollux": pollux,
    "lucid": lucid,
}
"""Readers of tables with other columns than our own, by name."""


def format_of_columns(columns: Sequence[object]) -> str:
    """Name of the format that has these columns: one of `NAMED_FORMATS`, or "table"."""
    if "expect_time_list" in columns:
        return "chronus"
    if {"application", "num_replicas"} <= set(columns):
        return "pollux"
    if {"vc", "gpu_num", "batchsize"} <= set(columns):
        return "lucid"
    return "elasticflow" if {"submit_time", "submission_time"} & set(columns) else "table"
