"""Arrivals: which jobs come when, and a trace that grows while a run needs more of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from allocator.cluster import Cluster
from allocator.protocol.jobs import JobTable
from allocator.simulator.truth import Truth
from throughputs import InputError, Trace
from throughputs.arrays import Floats, Ints

ExtendTrace = Callable[[int], Trace]
"""Returns a trace of that many jobs; a longer one begins with the jobs of every shorter one."""


class Arrivals:
    """The jobs of a table that some type can run, in the order of their arrival.

    Attributes
    ----------
    next_time : when the next one arrives, seconds; inf when all have.
    """

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs
        self._known = 0
        self._admitted = 0
        self._queue: Ints = np.empty(0, dtype=np.int64)
        self._times: Floats = np.empty(0)
        self.next_time = np.inf
        self.refresh()

    def state(self) -> int:
        """What a checkpoint keeps: how many have arrived."""
        return self._admitted

    def restore(self, state: int) -> None:
        """Go on from `state`, with a table of the same jobs."""
        self._admitted = state
        self._set_next()

    @property
    def all_admitted(self) -> bool:
        """Whether nobody is left to come."""
        return self._admitted == len(self._queue)

    @property
    def only_last_left(self) -> bool:
        """Whether all that are left to come arrive together."""
        return not self.all_admitted and self._times[self._admitted] == self._times[-1]

    def refresh(self) -> None:
        """Take in the jobs by which the table has grown. Those that no type can run are left out: they would stay."""
        jobs, known = self._jobs, self._known
        fresh = known + np.flatnonzero(np.any(jobs.rates[known:] > 0, axis=1))
        self._known = len(jobs)
        self._queue = np.concatenate([self._queue, fresh])
        self._times = jobs.arrival_time[self._queue]
        self._set_next()

    def due(self, clock: float) -> Ints:
        """Ids of the jobs that have arrived up to `clock` (seconds) since the last call."""
        upto = int(self._times.searchsorted(clock, side="right"))
        jobs = self._queue[self._admitted : upto]
        self._admitted = upto
        self._set_next()
        return jobs

    def _set_next(self) -> None:
        self.next_time = float(self._times[self._admitted]) if self._admitted < len(self._times) else np.inf


class MoreJobs:
    """Lengthens a job table from a trace that can be had at any length.

    Parameters
    ----------
    extend : gives the trace.
    build : makes the table and the truth of some of its jobs.
    trace : the jobs of the table so far, as they were submitted.
    """

    def __init__(self, extend: ExtendTrace, build: Callable[[Trace], tuple[JobTable, Truth]], trace: Trace) -> None:
        self._extend = extend
        self._build = build
        self._trace = trace

    def append_to(self, jobs: JobTable, truth: Truth) -> None:
        """Double the jobs of table and truth."""
        wanted = max(2 * len(jobs), 16)
        longer = self._extend(wanted)
        known = len(jobs)
        if len(longer) < wanted:
            raise InputError("extend", found=f"{len(longer)} jobs", expected=f"{wanted} jobs")
        for name in ("job_type", "scale_factor", "total_steps", "arrival_time"):
            if not np.array_equal(getattr(longer, name)[:known], getattr(self._trace, name)):
                raise InputError(
                    "extend", field=name, found="other jobs", expected="the same jobs as before, with more behind"
                )
        later_jobs, later_truth = self._build(longer.take(slice(known, wanted)))
        jobs.submit(later_jobs)
        truth.append(later_truth)
        self._trace = longer.head(wanted)


def preload(trace: Trace, cluster: Cluster) -> Trace:
    """The same jobs, with the first ones there from the start: enough to fill the GPUs of every type once.

    For each type in turn jobs are taken from the front of the trace until their gangs add up to its GPUs; these arrive
    at 0. The others keep the time between them, the first of them arriving at 0 too. A run then starts near its steady
    state instead of with an empty cluster (Gavel, OSDI'20, public artifact). Deadlines keep their distance to arrivals;
    recorded times and dates, which are of other arrivals, are left out.

    Raises
    ------
    InputError
        The trace has too few jobs to fill the cluster.
    """
    count = 0
    for name, gpus in cluster.gpus.items():
        left = gpus
        while left > 0:
            if count == len(trace):
                raise InputError(
                    trace.source,
                    found=f"{len(trace)} jobs",
                    expected=f"enough to fill {cluster}; {left} GPUs of {name} are left",
                )
            left -= int(trace.scale_factor[count])
            count += 1
    arrival = trace.arrival_time.copy()
    if count < len(trace):
        arrival[count:] -= arrival[count]
    arrival[:count] = 0.0
    earlier = trace.arrival_time - arrival
    options = [
        tuple((seconds - by, value) for seconds, value in row)
        for row, by in zip(trace.deadline_options, earlier.tolist(), strict=True)
    ]
    times: dict[str, Any] = {"arrival_time": arrival, "deadline": trace.deadline - earlier, "deadline_options": options}
    times |= dict.fromkeys(("recorded_start_seconds", "recorded_end_seconds", "recorded_status", "arrival_date"))
    return replace(trace, **times, source=f"{trace.source}, preloaded")
