"""The job log of Alibaba PAI 2020: a table of tasks, without a header, with tables of jobs and of sensors beside it.

    pai_task_table.csv  job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type
    pai_job_table.csv   job_name,inst_id,user,status,start_time,end_time
    pai_sensor_table.csv  job_name,task_name,worker_name,inst_id,machine,gpu_name,cpu_usage,gpu_wrk_util,...

The GPUs of a job are those of its tasks: instances times GPUs, which the table has in percent. The start of a job in
the table of jobs is its submission. What a worker used of its GPUs, in percent of one GPU, is in the table of sensors,
which may be absent; a job counts with the mean over its workers that are there, of the GPUs of their tasks. Times are
in seconds, less a constant; they keep the time of day in China.

Source: Q. Weng et al., "MLaaS in the Wild: Workload Analysis and Scheduling in Large-Scale Heterogeneous GPU Clusters",
NSDI 2022 (alibaba/clusterdata, cluster-trace-gpu-v2020).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from throughputs.arrays import Floats, Ints, Texts
from throughputs.errors import InputError
from throughputs.files import read_head, read_text
from throughputs.traces.logs.cells import numbers
from throughputs.traces.logs.layouts import Cells, Layout, printed

if TYPE_CHECKING:
    import pandas as pd

_TASK = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
    "gpu_type",
)  # fmt: skip
_JOB = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_SENSOR = (
    "job_name", "task_name", "worker_name", "inst_id", "machine", "gpu_name", "cpu_usage", "gpu_wrk_util", "avg_mem",
    "max_mem", "avg_gpu_wrk_mem", "max_gpu_wrk_mem", "read", "write", "read_count", "write_count",
)  # fmt: skip
_PERCENT = 100.0


def _cells(text: str, source: str) -> tuple[Cells, Ints, tuple[str, ...]]:
    """Columns of text of the jobs with a task, the line of the first task of each, and what there is to say of them.

    A job begins with the first of its tasks that have GPUs and ends with the last of them; its share of a GPU is that
    of all its GPUs. The tables of jobs and of sensors are the files beside that of the tasks with ``job`` or ``sensor``
    in their names for ``task``.

    Raises
    ------
    InputError
        The table of jobs instead of that of the tasks, or lines with other columns.
    """
    import pandas as pd

    if text.partition("\n")[0].count(",") == len(_JOB) - 1:
        expected = "pai_task_table.csv, which has the GPUs; that of the jobs is read beside it"
        raise InputError(source, found="the table of jobs", expected=expected)
    tasks, first_line = _table(text, source, _TASK)
    asked = numbers(tasks["plan_gpu"].to_numpy(dtype=object)) / _PERCENT
    instances = numbers(tasks["inst_num"].to_numpy(dtype=object))
    has_gpus = (asked > 0) & (instances > 0)
    of, names = pd.factorize(tasks["job_name"].to_numpy(dtype=object))
    n = len(names)
    whole = np.bincount(of[has_gpus], (np.ceil(asked) * instances)[has_gpus], n)
    parts = np.bincount(of[has_gpus], (asked * instances)[has_gpus], n)
    # Of a job without GPUs all tasks count: it is left out, for want of them.
    counted = has_gpus | (whole == 0)[of]
    times = {name: numbers(tasks[name].to_numpy(dtype=object)) for name in ("start_time", "end_time")}
    spans = pd.DataFrame(times | {"row": np.arange(len(of))})[counted].groupby(of[counted])
    first, start, end = spans["row"].first().to_numpy(), spans["start_time"].min(), spans["end_time"].max()
    columns: Cells = {name: tasks[name].to_numpy(dtype=object)[first] for name in ("task_name", "gpu_type", "status")}
    columns |= {
        "job_name": np.asarray(names, dtype=object),
        "gpus": printed(np.asarray(whole, dtype=np.float64)),
        "share of each GPU": printed(np.divide(parts, whole, out=np.ones(n), where=whole > 0)),
        "first start": printed(start.to_numpy()),
        "last end": printed(end.to_numpy()),
        "seconds of tasks": printed((end - start).to_numpy()),
    }
    submission, user, note = _of_jobs(source, columns["job_name"])
    columns["submission"] = np.where(submission == "", columns["first start"], submission).astype(object)
    columns["user"] = user
    columns["share of its GPUs used"] = printed(_used(source, tasks, np.ceil(asked), pd.Index(names)))
    return columns, first + first_line, (note,) if note else ()


def _beside(source: str, table: str) -> tuple[Path, bool]:
    """Where the table of that name is, the file of the tasks with its name for ``task``; and whether it is there."""
    path = Path(source)
    beside = path.with_name(path.name.replace("task", table))
    return beside, beside != path and beside.exists()


def _of_jobs(source: str, jobs: Texts) -> tuple[Texts, Texts, str]:
    """Submission and user of each job as the table of jobs has them, and a note where there is none."""
    (beside, there), none = _beside(source, "job"), np.full(len(jobs), "", dtype=object)
    if not there:
        note = f"no table of jobs beside it ({beside.name}): the first start stands in for the submission"
        return none, none, note
    table, _ = _table(read_text(beside), str(beside), _JOB)
    table = table.drop_duplicates("job_name").set_index("job_name").reindex(jobs)
    missing = table["user"].isna().to_numpy()
    submission, user = (np.where(missing, "", table[name].to_numpy(dtype=object)) for name in ("start_time", "user"))
    note = f"jobs that the table of jobs lacks: {int(missing.sum()):,}" if missing.any() else ""
    return submission.astype(object), user.astype(object), note


def _used(source: str, tasks: pd.DataFrame, gpus: Floats, jobs: pd.Index[str]) -> Floats:
    """(n,) what each of the jobs used of its GPUs, as a share; nan where the table of sensors has nothing.

    A worker that used more than it had asked for, as jobs may that share GPUs, counts as one that used all of it.
    """
    import pandas as pd

    beside, there = _beside(source, "sensor")
    if not there:
        return np.full(len(jobs), np.nan)
    keys = ["job_name", "task_name"]
    head = read_head(beside).partition("\n")[0].rstrip("\r").split(",") == list(_SENSOR)
    try:
        # Larger than the other tables by far: three of its columns are kept.
        read = pd.read_csv(
            io.StringIO(read_text(beside)) if beside.suffix.lower() == ".gz" else beside,
            header=0 if head else None,
            names=list(_SENSOR),
            usecols=[*keys, "gpu_wrk_util"],
            dtype=str,
            compression=None,  # what is packed is unpacked above, within bounds
        )
    except ValueError as error:  # those of pandas are among them
        raise InputError(str(beside), expected=f"{len(_SENSOR)} columns: {', '.join(_SENSOR)} ({error})") from error
    asked = tasks[keys].assign(gpus=gpus).drop_duplicates(keys)
    workers = read.merge(asked, on=keys)
    used = pd.to_numeric(workers["gpu_wrk_util"], errors="coerce") / _PERCENT
    known = (used >= 0) & (workers["gpus"] > 0)
    some = workers.assign(used=np.minimum(used, workers["gpus"]))[known].groupby("job_name")[["used", "gpus"]].sum()
    shares = (some["used"] / some["gpus"]).reindex(jobs)
    return shares.to_numpy(dtype=np.float64)


def _table(text: str, source: str, columns: Sequence[str]) -> tuple[pd.DataFrame, int]:
    """The cells under their names, and the line of the first row."""
    import pandas as pd

    head = text.partition("\n")[0].rstrip("\r").split(",") == list(columns)
    body = text.partition("\n")[2] if head else text
    names = [*columns, ""]
    try:
        frame = pd.read_csv(io.StringIO(body, newline=""), header=None, names=names, dtype=str, na_filter=False)
    except (ValueError, OverflowError) as error:  # those of pandas are among them
        raise InputError(source, expected=f"{len(columns)} columns: {', '.join(columns)} ({error})") from error
    first_line = 2 if head else 1
    wrong = np.flatnonzero(frame[""].to_numpy(dtype=object) != "")
    if len(wrong):
        expected = f"{len(columns)} cells: {', '.join(columns)}"
        raise InputError(source, line=int(wrong[0]) + first_line, found="more", expected=expected)
    return frame, first_line


PAI_2020 = Layout(
    "pai-2020",
    {
        "id": "job_name",
        "submit": "submission",
        "duration": "seconds of tasks",
        "gpus": "gpus",
        "fraction": "share of each GPU",
        "utilization": "share of its GPUs used",
        "start": "first start",
        "end": "last end",
        "user": "user",
        "model": "task_name",
        "partition": "gpu_type",
        "state": "status",
    },
    line="|".join(
        (
            ",".join(_TASK),
            ",".join(_JOB),
            "(?:[^,]*,){3}(?:Terminated|Running|Failed|Waiting)(?:,[^,]*){2}(?:(?:,[^,]*){4})?",
        )
    ),
    cells=_cells,
)
