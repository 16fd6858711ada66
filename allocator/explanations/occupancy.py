"""Who held the GPUs, and which were free."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from allocator.explanations.run import FinishedRun, Rows
from allocator.fractions import WHOLE, thousandths_of
from throughputs.arrays import Floats, Ints
from throughputs.numerics import quotient

# What halves and shares of GPUs may leave of a whole number of them.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class FreeGpus:
    """Free GPUs of a type at an instant.

    Attributes
    ----------
    gpus, in_use : free, and in use of the cluster at all (fewer than it has where nodes are down or drained).
    servers, largest : servers with GPUs that are free whole, and most that are on one of them; None where it is not
        known.
    whole : GPUs that are free whole; None where it is not known.
    parts, largest_part : GPUs that jobs share and do not fill, and the most that is free of one of them.
    """

    gpus: float
    in_use: int
    servers: int | None = None
    largest: int | None = None
    whole: int | None = None
    parts: int = 0
    largest_part: float = 0.0


@dataclass(frozen=True)
class Holder:
    """A job that held GPUs in some stretch of time.

    Attributes
    ----------
    job, gpus, entity, weight : who, the most GPUs it had at once, whose it is, its priority weight.
    gpu_hours : by type, in that time.
    arrival : seconds.
    came_later : whether it arrived after the job that waited.
    gpu_hours_before, time_before : GPU hours that it had had before, and the share of its time in the cluster in which
        it had had GPUs; 0 where it was not there.
    trace_id : what it is called where it was logged; empty: not told.
    """

    job: int
    gpus: float
    entity: str
    weight: float
    gpu_hours: dict[str, float]
    arrival: float
    came_later: bool
    gpu_hours_before: float
    time_before: float
    trace_id: str

    @property
    def total_gpu_hours(self) -> float:
        """Over all types."""
        return sum(self.gpu_hours.values())


@dataclass(frozen=True, eq=False)
class FreeTimes:
    """Free GPUs over time: K stretches one after the other, in each of which nothing changes.

    Attributes
    ----------
    start, end : (K,) seconds.
    free, in_use : (K, M) GPUs of each type that were free, and in use of the cluster at all.
    """

    start: Floats
    end: Floats
    free: Floats
    in_use: Ints


def free_times(run: FinishedRun, start: float, end: float) -> FreeTimes:
    """From `start` to `end` (seconds)."""
    rows = _overlapping(run, start, end)
    begins, ends = np.maximum(rows.start_time, start), np.minimum(rows.until, end)
    rounds = (run.rounds.start_time, run.rounds.end_time) if run.in_rounds else ()
    bounds = np.unique(np.clip(np.concatenate([[start, end], begins, ends, run.capacity_times, *rounds]), start, end))
    busy = np.zeros((len(bounds), len(run.cluster.accelerators)))
    np.add.at(busy, (bounds.searchsorted(begins), rows.pool), rows.weighted_gpus)
    np.subtract.at(busy, (bounds.searchsorted(ends), rows.pool), rows.weighted_gpus)
    in_use = run.capacity[run.capacity_times.searchsorted(bounds[:-1], "right") - 1]
    free = in_use - busy.cumsum(axis=0)[:-1]
    return FreeTimes(bounds[:-1], bounds[1:], np.maximum(_whole(free), 0.0), in_use)


def _whole(values: Floats) -> Floats:
    """Without what rounding leaves of whole numbers."""
    near = np.rint(values)
    return np.where(np.abs(values - near) <= _ROUNDING, near, values)


def _overlapping(run: FinishedRun, start: float, end: float) -> Rows:
    return run.rows.take(np.flatnonzero((run.rows.start_time < end) & (run.rows.until > start)))


def free_at(run: FinishedRun, time: float) -> dict[str, FreeGpus]:
    """By type, right after `time` (seconds)."""
    cluster, rows = run.cluster, run.rows.there_at(time)
    in_use = run.capacity[run.capacity_times.searchsorted(time, "right") - 1]
    free = _whole(np.maximum(in_use - np.bincount(rows.pool, rows.weighted_gpus, len(in_use)), 0.0))
    found = {name: FreeGpus(float(free[j]), int(in_use[j])) for j, name in enumerate(cluster.accelerators)}
    # which GPUs nodes that are down had is not written down
    if run.ideal or not all(rows.gpus) or (in_use != cluster.capacity).any():
        return found
    # what is left of each GPU
    left = np.full(cluster.total_gpus, WHOLE)
    for gpus, part in zip(rows.gpus, thousandths_of(rows.gpu_fraction), strict=True):
        np.subtract.at(left, np.array(gpus, dtype=np.int64), part)
    for (name, told), own in zip(found.items(), np.split(left, cluster.first_gpu[1:]), strict=True):
        whole = own == WHOLE
        by_server = np.bincount(np.flatnonzero(whole) // cluster.gpus_per_server[name])
        parts = own[~whole & (own > 0)]
        found[name] = replace(
            told,
            servers=int(np.count_nonzero(by_server)),
            largest=int(by_server.max(initial=0)),
            whole=int(whole.sum()),
            parts=len(parts),
            largest_part=int(parts.max(initial=0)) / WHOLE,
        )
    return found


def holders(run: FinishedRun, job: int, start: float, end: float) -> list[Holder]:
    """Who held GPUs of the types that the `job` can run on from `start` to `end` (seconds), most GPU hours first."""
    jobs, names, n = run.jobs, run.cluster.accelerators, len(run.jobs)
    rows = _overlapping(run, start, end)
    rows = rows.take(np.flatnonzero(jobs.rates[job][rows.pool] > 0))
    seconds = np.minimum(rows.until, end) - np.maximum(rows.start_time, start)
    hours = np.zeros((n, len(names)))
    np.add.at(hours, (rows.job_id, rows.pool), seconds * rows.weighted_gpus / 3600.0)
    most = np.zeros(n)
    np.maximum.at(most, rows.job_id, rows.gpu_count * rows.gpu_fraction)
    past = run.rows.before(start)
    had = np.minimum(past.until, start) - past.start_time
    gpu_hours_before = np.bincount(past.job_id, had * past.weighted_gpus, n) / 3600.0
    share = time_before(run, start)
    total = hours.sum(axis=1)
    return [
        Holder(
            job=other,
            gpus=float(most[other]),
            entity=jobs.entity[other],
            weight=float(jobs.priority_weight[other]),
            gpu_hours={name: float(h) for name, h in zip(names, hours[other], strict=True) if h > 0},
            arrival=float(jobs.arrival_time[other]),
            came_later=bool(jobs.arrival_time[other] > jobs.arrival_time[job]),
            gpu_hours_before=float(gpu_hours_before[other]),
            time_before=float(share[other]),
            trace_id=jobs.trace_id[other],
        )
        for other in np.lexsort((np.arange(n), -total)).tolist()
        if total[other] > 0
    ]


def time_before(run: FinishedRun, time: float) -> Floats:
    """(N,) share of its time in the cluster before `time` (seconds) that each job had GPUs; 0 if it was not there."""
    rows, n = run.rows.before(time), len(run.jobs)
    had = np.bincount(rows.job_id, np.minimum(rows.end_time, time) - rows.start_time, n)
    present = np.maximum(time - run.jobs.arrival_time, 0.0)
    return np.minimum(quotient(had, present, 0.0), 1.0)
