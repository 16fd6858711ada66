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
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from throughputs.frames import FrameReader, parsed_numbers
from throughputs.trace import Trace
from throughputs.traces.named_rows import in_order_of_arrival, row_error, seconds

if TYPE_CHECKING:
    import pandas as pd

_REQUIRED = ("vc", "gpu_num", "submit_time", "duration", "dataset", "model", "batchsize", "amp")
_MEASURED = ("speed", "gpu_util", "gmem_util", "gmem")
_PERCENT = 100.0
_OTHERS = ("job_id", "user", "predicted_seconds", "jobname", "cpu_num", "state", *_MEASURED)


def lucid(frame: pd.DataFrame, source: str, first_line: int, time_unit: float | None) -> Trace:
    """Trace from a log of Lucid."""
    reader = FrameReader(frame, source, first_line)
    reader.check_columns(_REQUIRED, _OTHERS)
    unit = 1.0 if time_unit is None else time_unit
    gpus, lasted = reader.whole_numbers("gpu_num"), seconds(reader.numbers("duration"), unit)
    rows = np.flatnonzero(gpus != 0)
    submitted = _submitted(reader, unit)
    columns = {
        "job_type": _workloads(reader),
        "scale_factor": gpus,
        "total_steps": lasted,
        "duration": lasted,
        "arrival_time": submitted - submitted[rows].min(initial=np.inf) if len(rows) else submitted,
        "partition": reader.text("vc"),
    }
    if reader.has("user"):
        columns["user"] = reader.text("user", empty="")
    if reader.has("job_id"):
        columns["trace_id"] = reader.frame["job_id"].astype(str).to_numpy(dtype=object)
    if reader.has("predicted_seconds"):
        columns["predicted_seconds"] = reader.numbers("predicted_seconds", empty=np.nan)
    if reader.has("gpu_util"):
        columns["gpu_utilization"] = reader.numbers("gpu_util", empty=np.nan) / _PERCENT
    renamed = {
        "gpu_utilization": "gpu_util",
        "scale_factor": "gpu_num",
        "total_steps": "duration",
        "arrival_time": "submit_time",
        "partition": "vc",
    }
    return in_order_of_arrival(columns, rows, reader, renamed)


def _submitted(reader: FrameReader, unit: float) -> NDArray[np.float64]:
    """(N,) seconds of submission, from any origin."""
    cells = reader.frame["submit_time"].astype(str)
    try:
        return seconds(parsed_numbers(cells.to_numpy(dtype=object)), unit)
    except ValueError:
        pass
    import pandas as pd

    dates = pd.to_datetime(cells.where(cells.map(str.isascii)), format="%Y-%m-%d %H:%M:%S", errors="coerce")
    if dates.isna().any():
        row = int(np.argmax(dates.isna().to_numpy()))
        expected = "a date, as in 2020-09-01 00:00:21, or seconds"
        raise row_error(reader, row, "submit_time", cells.iloc[row], expected)
    return np.asarray((dates - dates.min()).dt.total_seconds(), dtype=np.float64)


def _workloads(reader: FrameReader) -> NDArray[np.object_]:
    """(N,) names of what the jobs train."""
    sizes, amp = reader.whole_numbers("batchsize").tolist(), reader.flags("amp").tolist()
    models, data = reader.text("model").tolist(), reader.text("dataset").tolist()
    columns = zip(models, data, sizes, amp, strict=True)
    named = [
        f"{model} on {dataset} (batch size {size}{', amp' if mixed else ''})" for model, dataset, size, mixed in columns
    ]
    return np.array(named, dtype=object)
