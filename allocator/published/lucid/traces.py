"""The job log that Lucid is run on: Helios' log with a workload for each job, as a table with named columns.

    lucid   job_id user vc gpu_num submit_time duration dataset model batchsize amp [predicted_seconds]
            [gpu_util] [jobname cpu_num state speed gmem_util gmem]

`submit_time` is a date or seconds; times count from the first submission. A job runs in its virtual cluster `vc`,
which becomes its partition, for its logged `duration` (seconds) whatever its `state` is; jobs without GPUs are left
out. Its type is named after its workload: ``ResNet50 on ImageNet (batch size 64, amp)``. `gpu_util`, what the job was
measured to use of its GPUs alone, is in percent. What else was measured (`speed`, `gmem_util`, `gmem`) goes with that
workload and is not read from here.

Source: Q. Hu et al., "Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep Learning Training Jobs",
ASPLOS 2023 (S-Lab-System-Group/Lucid).

Predicted lengths of jobs may be in a file of their own, a table with a row for each job: job_id and
predicted_seconds, or, as Helios and Lucid have it, job_id and priority.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from throughputs.arrays import Floats, Texts, Values
from throughputs.errors import InputError
from throughputs.files import read_frame
from throughputs.frames import Column, FrameReader, parsed_numbers
from throughputs.trace import Trace
from throughputs.traces.named import in_seconds, trace_of_columns

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = {
    "vc": Column("text"),
    "gpu_num": Column("whole"),
    "submit_time": Column("name", "", needed=True),
    "duration": Column("number"),
    "dataset": Column("text"),
    "model": Column("text"),
    "batchsize": Column("whole"),
    "amp": Column("flag", False, needed=True),
    "job_id": Column("name", ""),
    "user": Column("text", ""),
    "predicted_seconds": Column("number", np.nan),
    "gpu_util": Column("number", np.nan),
}
_IGNORED = ("jobname", "cpu_num", "state", "speed", "gmem_util", "gmem")
_PERCENT = 100.0


def lucid(frame: pd.DataFrame, source: str, first_line: int, time_unit: float | None) -> Trace:
    """Trace from a log of Lucid."""
    reader = FrameReader(frame, source, first_line)
    table = reader.read(_COLUMNS, _IGNORED)
    lasted = in_seconds(table["duration"], time_unit)
    rows = np.flatnonzero(table["gpu_num"] != 0)
    submitted = _submitted(reader, time_unit)
    return trace_of_columns(
        reader,
        {
            "job_type": ("job_type", _workloads(table)),
            "scale_factor": ("gpu_num", table["gpu_num"]),
            "total_steps": ("duration", lasted),
            "duration": ("duration", lasted),
            "arrival_time": ("submit_time", submitted - submitted[rows].min(initial=np.inf)),
            "partition": ("vc", table["vc"]),
            "user": ("user", table["user"]),
            "trace_id": ("job_id", table["job_id"]),
            "predicted_seconds": ("predicted_seconds", table["predicted_seconds"]),
            "gpu_utilization": ("gpu_util", table["gpu_util"] / _PERCENT),
        },
        rows,
    )


def _submitted(reader: FrameReader, unit: float | None) -> Floats:
    """(N,) seconds of submission, from any origin."""
    cells = reader.frame["submit_time"].astype(str)
    try:
        return in_seconds(parsed_numbers(cells.to_numpy(dtype=object)), unit)
    except ValueError:
        pass
    import pandas as pd

    dates = pd.to_datetime(cells.where(cells.map(str.isascii)), format="%Y-%m-%d %H:%M:%S", errors="coerce")
    reader.require(dates.notna().to_numpy(), cells, "submit_time", "a date, as in 2020-09-01 00:00:21, or seconds")
    return np.asarray((dates - dates.min()).dt.total_seconds(), dtype=np.float64)


def _workloads(table: dict[str, Values]) -> Texts:
    """(N,) names of what the jobs train."""
    columns = (table[name].tolist() for name in ("model", "dataset", "batchsize", "amp"))
    named = [
        f"{model} on {dataset} (batch size {size}{', amp' if mixed else ''})"
        for model, dataset, size, mixed in zip(*columns, strict=True)
    ]
    return np.array(named, dtype=object)


_NOT_POSITIVE = 1000.0
"""Seconds that stand for a prediction that is not above 0, which regressions on seconds make (Lucid's loader)."""


def with_predictions(jobs: pd.DataFrame, source: str, path: str | os.PathLike[str]) -> pd.DataFrame:
    """The table of `jobs` with a column predicted_seconds, from the file `path`.

    A job that the file does not name has no prediction. Predictions that are not above 0 become 1000 s.

    Raises
    ------
    InputError
        `jobs` (of `source`) have no job_id or have predictions already, or a line of the file cannot be used, names a
        job twice, or none of its jobs is there.
    """
    frame, first_line = read_frame(Path(path))
    reader = FrameReader(frame, str(path), first_line)
    column = "priority" if reader.has("priority") else "predicted_seconds"
    table = reader.read({"job_id": Column("text"), column: Column("number")})
    if "job_id" not in jobs.columns or "predicted_seconds" in jobs.columns:
        found = [str(name) for name in jobs.columns]
        expected = "a column job_id and no predicted_seconds, where predictions are in a file of their own"
        raise InputError(source, found=found, expected=expected)
    ids, values = table["job_id"], table[column]
    reader.require_once(ids.astype(str), ids, "job_id", "each job once")
    predicted = dict(zip(ids.tolist(), np.where(values > 0, values, _NOT_POSITIVE).tolist(), strict=True))
    known = jobs["job_id"].astype(str).map(predicted)
    if len(jobs) and known.isna().all():
        expected = f"predictions for jobs of {source}, such as {jobs['job_id'].iloc[0]}"
        raise InputError(str(path), field="job_id", found="none of its jobs", expected=expected)
    return jobs.assign(predicted_seconds=known.astype(np.float64))
