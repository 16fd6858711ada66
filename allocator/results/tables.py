"""The tables of a run, made of its record when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.results.deadlines import deadline_columns
from allocator.results.outcomes import CUT_OFF, OPEN, STATUSES, UNSERVED
from allocator.results.record import RunRecord

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["jobs_table", "rounds_table", "timeline_table"]

_Ints = NDArray[np.int64]


def jobs_table(record: RunRecord) -> pd.DataFrame:
    """One row per job; columns as in `SimulationResult`."""
    import pandas as pd

    jobs, n = record.jobs, len(record.jobs)
    start = np.full(n, np.nan)
    # Written last to first, so that the first round stays.
    start[record.row_job[::-1]] = record.row_start[::-1]
    jct = jobs.completion_time - jobs.arrival_time
    isolated = record.isolated_jct()
    running = np.bincount(record.row_job, record.row_seconds, n)
    columns: dict[str, Any] = {
        "job_id": np.arange(n),
        "job_type": jobs.job_type,
        "scale_factor": jobs.scale_factor,
        "priority_weight": jobs.priority_weight,
        "total_steps": jobs.total_steps,
        "arrival_time": jobs.arrival_time,
        "start_time": start,
        "completion_time": jobs.completion_time,
        "jct": jct,
        "isolated_jct": isolated,
        "rho": jct / isolated,
        "running_time": running,
        "queueing_time": jct - running,
        "gpu_seconds": np.bincount(record.row_job, record.row_gpu_seconds, n),
        "restart_gpu_seconds": record.restart_gpu_seconds,
        "rounds_run": _rounds_run(record),
        "preemptions": record.preemptions,
        "status": pd.Categorical(record.status(), [*STATUSES[1:], UNSERVED, STATUSES[OPEN]]),
    }
    return pd.DataFrame(columns | _optional_columns(record))


def _rounds_run(record: RunRecord) -> _Ints:
    """(N,) rounds in which the job ran; without rounds, leases, or intervals in which it may use all types."""
    jobs = record.row_job
    if record.fluid:
        jobs = np.unique(np.stack([record.row_job, record.row_round]), axis=1)[0]
        return np.bincount(jobs, minlength=len(record.jobs))
    return np.bincount(jobs, record.round_length[record.row_round], len(record.jobs)).astype(np.int64)


def _optional_columns(record: RunRecord) -> dict[str, Any]:
    """Columns of the table of jobs that only some runs have."""
    jobs, n = record.jobs, len(record.jobs)
    columns: dict[str, Any] = {}
    jct = jobs.completion_time - jobs.arrival_time
    for name, fair in record.contended_jct().items():
        columns[f"rho_{name}"] = jct / fair
    if columns:
        present = record.rounds_present()
        columns["scheduled_fraction"] = _rounds_run(record) / np.maximum(present, 1)
    if "run_seconds" in jobs.columns:
        cut_off = jobs.columns["outcome"] == CUT_OFF
        columns["steps_done"] = np.where(cut_off, jobs.columns["steps_trained"], jobs.steps_done)
    if jobs.membership is not None:
        columns["entity"] = jobs.entity
    if (jobs.user != "").any():
        columns["user"] = jobs.user
    columns |= deadline_columns(record)
    if record.prices is not None:
        columns["cost"] = np.bincount(record.row_job, record.row_cost, n)
    if record.window is not None:
        columns["measured"] = record.measured
    return columns


def rounds_table(record: RunRecord) -> pd.DataFrame:
    """One row per job and round in which it ran; columns as in `SimulationResult`."""
    import pandas as pd

    texts: dict[tuple[int, ...], str] = {}
    gpus = [texts.get(ids) or texts.setdefault(ids, " ".join(map(str, ids))) for ids in record.row_gpu_ids()]
    extra: dict[str, Any] = {"share": record.row_share} if record.fluid else {}
    if record.packed:
        partner = record.row_partner
        extra["partner"] = pd.arrays.IntegerArray(partner, partner < 0)
    if record.round_length.max(initial=1) > 1:
        extra["rounds"] = record.round_length[record.row_round]
    if not record.fluid:
        extra |= _elastic_columns(record)
    return pd.DataFrame(
        {
            "round": record.round_index[record.row_round],
            "start_time": record.row_start,
            "end_time": record.row_finish,
            "job_id": record.row_job,
            "accelerator": pd.Categorical.from_codes(record.row_accelerator, pd.Index(record.cluster.accelerators)),
            "gpus": pd.Series(gpus or [""] * len(record.row_job), dtype="str"),
            "steps": record.row_steps,
        }
        | extra
    )


def _elastic_columns(record: RunRecord) -> dict[str, Any]:
    """The number of GPUs of each row, where it is not the scale factor of its job everywhere."""
    count = record.row_gpu_count
    return {} if np.array_equal(count, record.jobs.scale_factor[record.row_job]) else {"gpu_count": count}


def timeline_table(record: RunRecord) -> pd.DataFrame:
    """One row per round; columns as in `SimulationResult`."""
    import pandas as pd

    active = np.array([o.active_jobs for o in record.outcomes], dtype=np.int64)
    busy = np.bincount(record.row_round, record.row_gpus, len(record.outcomes))
    running = record.rows_per_round
    if record.fluid:
        running = np.array([len(np.unique(o.jobs)) for o in record.outcomes], dtype=np.int64)
    if record.leased:
        of_stretch = np.array([o.running for o in record.outcomes], dtype=np.int64)
        running, busy = of_stretch[:, 0], of_stretch[:, 1]
    extra = {"rounds": record.round_length} if record.round_length.max(initial=1) > 1 else {}
    return pd.DataFrame(
        {
            "round": record.round_index,
            "start_time": record.round_start,
            "end_time": record.round_end,
            "active_jobs": active,
            "running_jobs": running,
            "queued_jobs": active - running,
            "busy_gpus": busy if record.fluid else busy.astype(np.int64),
        }
        | extra
    )
