"""Who held the GPUs, and which were free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator.explanations.run import FinishedRun
from allocator.fractions import WHOLE, thousandths_of

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]

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

    start: _Floats
    end: _Floats
    free: _Floats
    in_use: _Ints


def free_times(run: FinishedRun, start: float, end: float) -> FreeTimes:
    """From `start` to `end` (seconds)."""
    rows = run.rows.take(_overlapping(run, start, end))
    types = len(run.cluster.accelerators)
    changes = run.capacity_times[(run.capacity_times > start) & (run.capacity_times < end)]
    begins, ends = np.maximum(rows.start, start), np.minimum(rows.until, end)
    bounds = np.unique(np.concatenate([[start, end], begins, ends, changes, _round_bounds(run, start, end)]))
    busy = np.zeros((len(bounds), types))
    np.add.at(busy, (bounds.searchsorted(begins), rows.pool), rows.weighted_gpus)
    np.subtract.at(busy, (bounds.searchsorted(ends), rows.pool), rows.weighted_gpus)
    in_use = run.capacity[run.capacity_times.searchsorted(bounds[:-1], "right") - 1]
    free = in_use - busy.cumsum(axis=0)[:-1]
    return FreeTimes(bounds[:-1], bounds[1:], np.maximum(_whole(free), 0.0), in_use)


def _whole(values: _Floats) -> _Floats:
    """Without what rounding leaves of whole numbers."""
    near = np.rint(values)
    return np.where(np.abs(values - near) <= _ROUNDING, near, values)


def _round_bounds(run: FinishedRun, start: float, end: float) -> _Floats:
    if not run.in_rounds:
        return np.empty(0)
    bounds = np.concatenate([run.round_start, run.round_end])
    return bounds[(bounds > start) & (bounds < end)]


def _overlapping(run: FinishedRun, start: float, end: float) -> NDArray[Any]:
    return np.flatnonzero((run.rows.start < end) & (run.rows.until > start))


def free_at(run: FinishedRun, time: float) -> dict[str, FreeGpus]:
    """By type, right after `time` (seconds)."""
    rows = run.rows.take(np.flatnonzero((run.rows.start <= time) & (run.rows.until > time)))
    in_use = run.capacity[run.capacity_times.searchsorted(time, "right") - 1]
    busy = np.bincount(rows.pool, rows.weighted_gpus, len(in_use))
    found = {}
    # which GPUs nodes that are down had is not written down
    placed = not run.ideal and all(rows.places) and bool((in_use == run.cluster.capacity).all())
    # Of each GPU that anybody has, what is left.
    left: dict[int, int] = {}
    for places, part in zip(rows.places, thousandths_of(rows.fraction).tolist(), strict=True) if placed else ():
        for gpu in map(int, places.split()):
            left[gpu] = left.get(gpu, WHOLE) - part
    for j, name in enumerate(run.cluster.accelerators):
        first, count = int(run.cluster.first_gpu[j]), int(run.cluster.capacity[j])
        per_server = run.cluster.gpus_per_server[name]
        by_server: dict[int, int] = {}
        for gpu in range(count):
            if first + gpu not in left:
                by_server[gpu // per_server] = by_server.get(gpu // per_server, 0) + 1
        free = float(_whole(np.array(max(in_use[j] - busy[j], 0.0))))
        if not placed:
            found[name] = FreeGpus(free, int(in_use[j]))
            continue
        parts = [part for gpu in range(first, first + count) if (part := left.get(gpu, 0)) > 0]
        found[name] = FreeGpus(
            free,
            int(in_use[j]),
            servers=len(by_server),
            largest=max(by_server.values(), default=0),
            whole=sum(by_server.values()),
            parts=len(parts),
            largest_part=max(parts, default=0) / WHOLE,
        )
    return found


def holders(run: FinishedRun, job: int, start: float, end: float) -> list[Holder]:
    """Who held GPUs of the types that the `job` can run on from `start` to `end` (seconds), most GPU hours first."""
    jobs, names = run.jobs, run.cluster.accelerators
    rows = run.rows.take(_overlapping(run, start, end))
    rows = rows.take(np.flatnonzero(jobs.rates[job][rows.pool] > 0))
    seconds = np.minimum(rows.until, end) - np.maximum(rows.start, start)
    hours = np.zeros((len(jobs), len(names)))
    np.add.at(hours, (rows.job, rows.pool), seconds * rows.weighted_gpus / 3600.0)
    most = np.zeros(len(jobs))
    np.maximum.at(most, rows.job, rows.gpus * rows.fraction)
    past = run.rows.take(np.flatnonzero(run.rows.start < start))
    had = np.minimum(past.until, start) - past.start
    gpu_hours_before = np.bincount(past.job, had * past.weighted_gpus, len(jobs)) / 3600.0
    time_before = np.bincount(past.job, np.minimum(past.finish, start) - past.start, len(jobs))
    present = np.maximum(start - jobs.arrival, 0.0)
    share = np.divide(time_before, present, out=np.zeros(len(jobs)), where=present > 0)
    total = hours.sum(axis=1)
    return [
        Holder(
            job=other,
            gpus=float(most[other]),
            entity=str(jobs.entity[other]),
            weight=float(jobs.weight[other]),
            gpu_hours={name: float(h) for name, h in zip(names, hours[other], strict=True) if h > 0},
            arrival=float(jobs.arrival[other]),
            came_later=bool(jobs.arrival[other] > jobs.arrival[job]),
            gpu_hours_before=float(gpu_hours_before[other]),
            time_before=min(float(share[other]), 1.0),
            trace_id=str(jobs.trace_id[other]),
        )
        for other in np.lexsort((np.arange(len(jobs)), -total)).tolist()
        if total[other] > 0
    ]
