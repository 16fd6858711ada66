"""What was: the schedule that a trace records, as a run beside those of policies.

A job log says when each job began and ended. That is a schedule, made by whatever scheduled the cluster at the time,
and its figures are computed by the code that computes those of simulated runs, as far as a log tells them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.api import load_throughputs
from allocator.cluster import Cluster
from allocator.fractions import WHOLE
from allocator.presets import preset as find_preset
from allocator.protocol.assignment import Assignment
from allocator.protocol.entities import Entities
from allocator.protocol.jobs import JobTable
from allocator.results.measures.cost import price_table
from allocator.results.observers import StretchOutcome
from allocator.results.outcomes import COMPLETED, OPEN, RECORDED
from allocator.results.record import RunRecord
from allocator.results.result import SimulationResult
from allocator.simulator.rules.base import rule_of
from allocator.simulator.rules.general import GangRates
from throughputs import InputError, Trace, trace_of
from throughputs.arrays import Flags, Floats, Ints
from throughputs.trace import allowed_types

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import pandas as pd

    from allocator.presets.preset import Preset
    from allocator.protocol.elastic import Throughputs
    from allocator.protocol.entities import EntitiesLike
    from allocator.results.measures.cost import Prices

__all__ = ["RECORDED"]

_NOT_TOLD = (
    "preemptions",
    "migrations",
    "restart_gpu_hours",
    "lease_extensions",
    "lease_opportunities",
    "lease_extension_rate",
    "policy_seconds",
    "wall_seconds",
)
"""Figures of which the start and the end of a job say nothing."""

_MOST_PLACES = 10
"""GPU types and partitions of jobs left out that are named."""


def lease_outcomes(
    rows: Callable[[slice], Assignment],
    arrival: Floats,
    left: Floats,
    start: Floats,
    finish: Floats,
    steps: Floats,
    gpus: Floats,
    placed: Sequence[tuple[int, ...]] = (),
) -> Iterator[StretchOutcome]:
    """The time from one event to the next, as long as anybody runs; a lease is a row where it ends.

    Parameters
    ----------
    rows : of some of L leases, which are in the order of their ends.
    arrival, left : when jobs came, and when those that left did, seconds.
    start, finish, steps, gpus : (L,) of each lease; seconds, and the GPUs that it takes.
    placed : ids of the GPUs of each lease, where they are known.
    """
    arrival, left, by_start = np.sort(arrival), np.sort(left), np.sort(start)
    times = np.unique(np.concatenate([arrival, left, start, finish]))
    begin, end = times[:-1], times[1:]
    begun, over = by_start.searchsorted(begin, "right"), finish.searchsorted(begin, "right")
    upto = finish.searchsorted(end, "right")
    ended_before = np.concatenate([[0], upto[:-1]])
    held = np.concatenate([[0.0], np.cumsum(gpus[np.argsort(start, kind="stable")])])
    freed = np.concatenate([[0.0], np.cumsum(gpus)])
    busy = np.rint((held[begun] - freed[over]) * WHOLE) / WHOLE
    active = arrival.searchsorted(begin, "right") - left.searchsorted(begin, "right")
    some = np.flatnonzero((begun > over) | (upto > ended_before))
    columns = (begin, end, ended_before, upto, active, begun - over, busy)
    for index, *told in zip(some.tolist(), *(column[some].tolist() for column in columns), strict=True):
        since, until, first, last, there, running, used = told
        ended = slice(first, last)
        yield StretchOutcome(
            index,
            since,
            until,
            rows(ended),
            tuple(placed[ended]),
            finish[ended],
            steps[ended],
            there,
            started=start[ended],
            running=(running, used),
        )


def recorded_schedule(
    trace: Trace | pd.DataFrame | str | os.PathLike[str],
    cluster: Cluster | str | Mapping[str, int],
    throughputs: Throughputs | None = None,
    *,
    preset: str | Preset = "default",
    window: tuple[int, int] | None = None,
    prices: Prices | None = None,
    entities: EntitiesLike | None = None,
) -> SimulationResult:
    """The schedule in the columns recorded_start_seconds and recorded_end_seconds of a trace, as a run.

    A job held its GPUs from its start to its end. Those that a log says nothing of, such as preemptions in between, are
    left out of the figures. One that the cluster cannot run is unserved, as under a policy. No figure counts a job
    without recorded times, nor one that may have run on several types of the cluster, as the log does not say on which
    it did: ``status_detail`` says how many the latter are.

    Parameters
    ----------
    trace, cluster, throughputs, preset, window, prices, entities : as for `allocator.simulate`. Throughputs are for rho
        only: how long a job would have taken on its isolated share.

    Raises
    ------
    InputError
        The trace records no job, or each could have run on several types of the cluster.

    >>> trace = Trace(["a", "b"], [1, 1], [60.0, 30.0], [0.0, 0.0], duration=[60.0, 30.0],
    ...               recorded_start_seconds=[0.0, 60.0], recorded_end_seconds=[60.0, 90.0])
    >>> summary = recorded_schedule(trace, "gpu:1").summary()
    >>> summary.average_jct, summary.average_queueing_time, summary.utilization, summary.preemptions
    (75.0, 30.0, 1.0, None)
    """
    trace, cluster, chosen = trace_of(trace), Cluster.of(cluster), find_preset(preset)
    known = load_throughputs() if throughputs is None else throughputs
    owners = None if entities is None else Entities.parse(entities)
    by_duration = rule_of(chosen.world, GangRates).gang_rates == "duration"
    jobs = JobTable.from_trace(trace, known, cluster, entities=owners, by_duration=by_duration)
    done = ~np.isnan(trace.recorded_end_seconds) & jobs.runnable
    if not done.any():
        expected = "columns recorded_start_seconds and recorded_end_seconds of a job that the cluster can run"
        raise InputError(trace.source, found="no recorded schedule", expected=expected)
    pool, known = _pools(trace, cluster)
    left_out, measured = _left_out(trace, done & ~known), (done & known) | ~jobs.runnable
    if not (done & known).any():
        types = ", ".join(cluster.accelerators)
        expected = f"jobs of which GPU type or partition is one of {types} (the import renames with --map)"
        raise InputError(trace.source, found=left_out, expected=expected)
    jobs.rates[done & ~known] = 0.0
    done &= known
    jobs.register("outcome", OPEN)
    jobs.register("leave_time", np.nan)
    jobs.register("restart_gpu_seconds", np.nan)
    jobs.columns["outcome"][done] = COMPLETED
    jobs.completion_time = np.where(done, trace.recorded_end_seconds, np.nan)
    jobs.columns["leave_time"] = jobs.completion_time.copy()
    jobs.steps_done = np.where(done, jobs.total_steps, 0.0)
    priced = None if prices is None else price_table(prices, cluster.accelerators)
    record = RunRecord(jobs, cluster, list(_outcomes(trace, jobs, done, pool)), window, priced)
    if not measured.all():
        record.placed = measured
    settings: dict[str, Any] = chosen.as_dict() | {"trace": trace.source}
    if window is not None:
        settings["window"] = list(window)
    return SimulationResult(
        policy=RECORDED,
        settings=settings,
        record=record,
        status_detail=left_out,
        not_told=_NOT_TOLD,
    )


def beyond_cluster(recorded: SimulationResult) -> str:
    """How many GPUs a recorded schedule has in use at a time, where that is more than the cluster has; else nothing."""
    most, cluster = int(recorded.timeline["busy_gpus"].max()), recorded.cluster
    has = cluster.total_gpus
    return f"the recorded schedule has up to {most} GPUs in use, {cluster} has {has}" if most > has else ""


def _pools(trace: Trace, cluster: Cluster) -> tuple[Ints, Flags]:
    """(N,) the type on which each job ran, and whether that is known: it is the only one that the job may use."""
    allowed = allowed_types(trace.gpu_type, trace.partition, cluster.accelerators)
    if allowed is None:
        allowed = np.ones((len(trace), len(cluster.accelerators)), dtype=np.bool_)
    return np.asarray(allowed.argmax(axis=1), dtype=np.int64), np.asarray(allowed.sum(axis=1) == 1)


def _left_out(trace: Trace, rows: Flags) -> str:
    """How many jobs it is not known of where they ran, by GPU type or partition; empty for none."""
    if not rows.any():
        return ""
    places = Counter(np.where(trace.gpu_type == "", trace.partition, trace.gpu_type)[rows].tolist()).most_common()
    names = ", ".join(f"{name or 'no partition'} {count:,}" for name, count in places[:_MOST_PLACES])
    more = ", ..." * (len(places) > _MOST_PLACES)
    return f"{rows.sum():,} of {len(trace):,} jobs may have run on several types ({names}{more})"


def _outcomes(trace: Trace, jobs: JobTable, done: Flags, pool: Ints) -> Iterator[StretchOutcome]:
    """A lease for each job that ran."""
    ran = np.flatnonzero(done)
    ran = ran[np.argsort(trace.recorded_end_seconds[ran], kind="stable")]
    start, finish = trace.recorded_start_seconds[ran], trace.recorded_end_seconds[ran]
    gpus, steps = trace.scale_factor[ran], trace.total_steps[ran]
    leases = jobs.with_fractions(Assignment.of(ran, pool[ran], gpus))
    taken = leases.gpus_taken.astype(np.float64)
    return lease_outcomes(leases.take, trace.arrival_time[ran], finish, start, finish, steps, taken)
