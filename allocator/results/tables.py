"""The tables of a run, made of its record when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.fractions import WHOLE
from allocator.protocol.policy import Need
from allocator.results.deadlines import deadline_columns
from allocator.results.outcomes import CUT_OFF, DROPPED, OPEN, REJECTED, STATUSES, UNSERVED
from allocator.results.record import RunRecord
from throughputs.arrays import Floats, Ints, Values
from throughputs.numerics import quotient
from throughputs.trace import ENDINGS, date_texts, dates_after

if TYPE_CHECKING:
    import pandas as pd

    from allocator.protocol.allocation import Allocation

Decisions = Sequence[tuple[int, float, "Allocation"]]

SLOWDOWN_FLOOR = 600.0
"""Seconds below which nobody minds how long a job takes."""

OF_ROW = "price of "
"""Before the name of a row that a policy adds, in the columns of decisions."""

_ROUNDING = 1e-9
"""Part of a completion time that the sum of its stretches may be off by; a job that waited for no more never did."""


def jobs_table(record: RunRecord) -> pd.DataFrame:
    """One row per job; columns as in `SimulationResult`."""
    import pandas as pd

    jobs, n = record.jobs, len(record.jobs)
    start = np.full(n, np.nan)
    # Written last to first, so that the first round stays.
    start[record.row_job[::-1]] = record.row_start[::-1]
    jct = jobs.completion_time - jobs.arrival_time
    isolated = record.isolated_jct()
    waited = jct - record.running_seconds
    columns: dict[str, Any] = {
        "job_id": np.arange(n),
        **{name: getattr(jobs, name) for name in _SUBMITTED},
        "start_time": start,
        "completion_time": jobs.completion_time,
        "jct": jct,
        "isolated_jct": isolated,
        "rho": jct / isolated,
        **({"bounded_slowdown": _bounded_slowdown(record, jct)} if record.logged else {}),
        "running_time": record.running_seconds,
        **({} if record.promised_seconds is None else {"promised_time": record.promised_seconds}),
        "queueing_time": np.where(np.abs(waited) <= _ROUNDING * jct, 0.0, waited),
        "gpu_seconds": np.bincount(record.row_job, record.row_gpu_seconds, n),
        "restart_gpu_seconds": record.restart_gpu_seconds,
        "rounds_run": _rounds_run(record),
        "preemptions": record.preemptions,
        "status": pd.Categorical(record.status(), [*STATUSES[1:], *ENDINGS[1:], UNSERVED, STATUSES[OPEN]]),
    }
    if fair := record.contended_jct():
        columns |= {f"rho_{name}": jct / seconds for name, seconds in fair.items()}
        columns["scheduled_fraction"] = _rounds_run(record) / np.maximum(record.rounds_present(), 1)
    columns |= _optional_columns(record)
    if not np.isnat(jobs.arrival_date).all():
        for name, time in (("arrival", jobs.arrival_time), ("start", start), ("completion", jobs.completion_time)):
            columns[f"{name}_date"] = date_texts(dates_after(jobs.arrival_date, time - jobs.arrival_time))
    return pd.DataFrame(columns)


_SUBMITTED = ("job_type", "scale_factor", "priority_weight", "total_steps", "arrival_time")
"""Columns of every table of jobs, as they were submitted."""


def _bounded_slowdown(record: RunRecord, jct: Floats) -> Floats:
    """(N,) completion time over that of the job alone on its fastest type, whatever a start takes; at least 1.

    Alone no job takes less than `SLOWDOWN_FLOOR` (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001). Starts are left out so
    that a job has one yardstick in all runs, and in the recorded schedule, in which its length has them.
    """
    work = record.jobs.total_steps if record.work is None else record.work
    alone = quotient(work, record.jobs.rates.max(axis=1, initial=0.0), 0.0)
    slowdown: Floats = jct / np.maximum(alone, SLOWDOWN_FLOOR)
    return np.where(np.isnan(jct), np.nan, np.maximum(slowdown, 1.0))


def _rounds_run(record: RunRecord) -> Ints:
    """(N,) rounds in which the job ran; without rounds, leases, or intervals in which it may use all types."""
    jobs = record.row_job
    if record.fluid:
        jobs = np.unique(np.stack([record.row_job, record.row_round]), axis=1)[0]
        return np.bincount(jobs, minlength=len(record.jobs))
    return np.bincount(jobs, record.round_length[record.row_round], len(record.jobs)).astype(np.int64)


def _optional_columns(record: RunRecord) -> dict[str, Any]:
    """Columns of the table of jobs that only some runs have."""
    jobs, n, outcome = record.jobs, len(record.jobs), record.jobs.columns["outcome"]
    columns: dict[str, Any] = {}
    if "run_seconds" in jobs.columns:
        columns["steps_done"] = np.where(outcome == CUT_OFF, jobs.columns["steps_trained"], jobs.steps_done)
    columns |= {name: jobs.columns[name] for name in jobs.told}
    if jobs.membership is not None:
        columns["entity"] = jobs.entity
    elif (jobs.entity != "").any():
        columns["account"] = jobs.entity
    if record.policy is not None and Need.PREDICTIONS in record.policy.needs:
        length = quotient(jobs.total_steps, jobs.rates.max(axis=1, initial=0.0), 0.0)
        if (jobs.predicted_seconds != length).any():
            columns["predicted_seconds"] = jobs.predicted_seconds
    if jobs.fractions is not None:
        columns["gpu_fraction"] = jobs.fractions.thousandths / WHOLE
    for name in ("user", "partition", "gpu_type", "trace_id"):
        if (getattr(jobs, name) != "").any():
            columns[name] = getattr(jobs, name)
    columns |= deadline_columns(record)
    gone = np.isin(outcome, (CUT_OFF, DROPPED, REJECTED)) & np.isnan(jobs.completion_time)
    if gone.any():
        columns["leave_time"] = np.where(gone, jobs.columns["leave_time"], np.nan)
    if record.prices is not None:
        columns["cost"] = np.bincount(record.row_job, record.row_cost, n)
    if record.window is not None or record.placed is not None:
        columns["measured"] = record.measured
    return columns


def rounds_table(record: RunRecord) -> pd.DataFrame:
    """One row per job and round in which it ran; columns as in `SimulationResult`."""
    import pandas as pd

    codes, places = record.row_places
    gpus = np.empty(max(len(places), 1), dtype=object)
    gpus[:] = places or [()]
    extra: dict[str, Any] = {"share": record.row_share} if record.fluid else {}
    if record.packed:
        partner = record.row_partner
        extra["partner"] = pd.arrays.IntegerArray(partner, partner < 0)
    if record.round_length.max(initial=1) > 1:
        extra["rounds"] = record.round_length[record.row_round]
    # where it is not the scale factor of its job everywhere
    if (record.row_gpu_count != record.jobs.scale_factor[record.row_job]).any():
        extra["gpu_count"] = record.row_gpu_count
    return pd.DataFrame(
        {
            "round": record.round_index[record.row_round],
            "start_time": record.row_start,
            "end_time": record.row_finish,
            "job_id": record.row_job,
            "accelerator": pd.Categorical.from_codes(record.row_accelerator, pd.Index(record.cluster.accelerators)),
            "gpus": gpus[codes if places else np.zeros_like(record.row_job)],
            "steps": record.row_steps,
        }
        | extra
    )


def timeline_table(record: RunRecord) -> pd.DataFrame:
    """One row per round; columns as in `SimulationResult`."""
    import pandas as pd

    busy = np.bincount(record.row_round, record.row_gpus, len(record.outcomes))
    running = record.rows_per_round
    if record.fluid:
        running = np.array([len(np.unique(o.assignment.jobs)) for o in record.outcomes], dtype=np.int64)
    if record.leased:
        running = np.array([o.running[0] for o in record.outcomes if o.running is not None], dtype=np.int64)
        busy = np.array([o.running[1] for o in record.outcomes if o.running is not None], dtype=float)
    extra = {"rounds": record.round_length} if record.round_length.max(initial=1) > 1 else {}
    return pd.DataFrame(
        {
            "round": record.round_index,
            "start_time": record.round_start,
            "end_time": record.round_end,
            "active_jobs": record.active_jobs,
            "running_jobs": running,
            "queued_jobs": record.active_jobs - running,
            "busy_gpus": busy if record.fluid or record.jobs.fractions is not None else busy.astype(np.int64),
        }
        | extra
    )


def rates_table(record: RunRecord) -> pd.DataFrame:
    """One row per job: job_id, and under the name of each accelerator type what its gang does there alone, steps/s.

    0 where it cannot run. Of jobs whose batch size changed, what they did last.
    """
    import pandas as pd

    names, rates = record.cluster.accelerators, record.jobs.rates
    return pd.DataFrame({"job_id": np.arange(len(rates))} | {name: rates[:, j] for j, name in enumerate(names)})


def capacity_table(record: RunRecord) -> pd.DataFrame | None:
    """One row per change of the GPUs that may be used: time (seconds), and under the name of each type how many there
    are from then on; the first row is the begin. None where all were there all the time.
    """
    import pandas as pd

    if not record.capacity:
        return None
    times, gpus = zip(*record.capacity, strict=True)
    by_type = pd.DataFrame(gpus, columns=list(record.cluster.accelerators), dtype="int64")
    by_type.insert(0, "time", np.array(times, dtype=float))
    return by_type


def decisions_table(record: RunRecord, decisions: Decisions) -> pd.DataFrame | None:
    """One row per decision on shares of time: decision (its number), round, time (seconds), status, objective_unit, and
    ``price TYPE`` for each type, in that unit per GPU; nan where there is no price. Under a policy with rows of its own
    also ``price of ROW``, per unit of its limit. None where there were none.
    """
    import pandas as pd

    if not decisions:
        return None
    names = record.cluster.accelerators
    prices = [np.full(len(names), np.nan) if a.prices is None else a.prices for _, _, a in decisions]
    table = np.array(prices, dtype=float).reshape(len(decisions), len(names))
    rows = dict.fromkeys(name for _, _, a in decisions for name in a.row_prices)
    return pd.DataFrame(
        {
            "decision": np.arange(len(decisions), dtype=np.int32),
            "round": np.array([number for number, _, _ in decisions], dtype=np.int64),
            "time": np.array([clock for _, clock, _ in decisions], dtype=float),
            "status": pd.Categorical([a.status for _, _, a in decisions]),
            "objective_unit": pd.Categorical([a.objective_unit for _, _, a in decisions]),
        }
        | {f"price {name}": table[:, j] for j, name in enumerate(names)}
        | {OF_ROW + name: np.array([a.row_prices.get(name, np.nan) for _, _, a in decisions]) for name in rows}
    )


def shares_table(record: RunRecord, decisions: Decisions) -> pd.DataFrame | None:
    """One row per decision, job and type on which the decision gave the job a share of time: decision, job_id,
    accelerator (category), share; under policies that pack also partner, the job on the same GPUs. None without any.
    """
    import pandas as pd

    if not decisions:
        return None
    parts: list[tuple[Values, ...]] = []
    packed = any(a.pairs is not None for _, _, a in decisions)
    for number, (_, _, allocation) in enumerate(decisions):
        job, pool = np.nonzero(allocation.shares)
        share, nobody = allocation.shares[job, pool], np.full(len(job), -1)
        labels = np.array(allocation.throughputs.jobs, dtype=np.int64)
        parts.append((np.full(len(job), number), labels[job], pool, share, nobody))
        if allocation.pairs is not None:
            pairs = allocation.pairs
            for one, other in ((pairs.first, pairs.second), (pairs.second, pairs.first)):
                parts.append((np.full(len(pairs), number), labels[one], pairs.accelerator, pairs.share, labels[other]))
    decision, job, pool, share, partner = (np.concatenate(column) for column in zip(*parts, strict=True))
    columns: dict[str, Any] = {
        "decision": decision.astype(np.int32),
        "job_id": job.astype(np.int32),
        "accelerator": pd.Categorical.from_codes(pool, pd.Index(record.cluster.accelerators)),
        "share": share,
    }
    if packed:
        columns["partner"] = pd.arrays.IntegerArray(partner, partner < 0)
    return pd.DataFrame(columns)
