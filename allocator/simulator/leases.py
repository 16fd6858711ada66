"""Leases: which GPUs each job has had since when, in a world that decides at events.

A lease begins when a job starts or goes on as something else (another pool, number of GPUs, GPU or partner), and ends
when it stops, changes or completes. The record keeps one row per lease, so it grows with what changes and not with
those who run on.
"""

from __future__ import annotations

import numpy as np

from allocator.checkpoint.kept import Kept
from allocator.mechanism.core import DecisionCore
from allocator.protocol.assignment import Assignment
from allocator.protocol.decision import Decision
from allocator.protocol.jobs import JobTable
from allocator.results.observers import StretchOutcome
from throughputs.arrays import Floats, Ints

# Of an open lease: pool, GPUs, partner, start (seconds), steps done at its start, GPU ids.
_Lease = tuple[int, int, int, float, float, tuple[int, ...]]


class Leases(Kept):
    """The open leases by job, and those that ended since they were last asked for.

    Parameters
    ----------
    core : knows which GPUs a job has.
    """

    keeps = ("_open", "_ended")

    def __init__(self, core: DecisionCore) -> None:
        self._core = core
        self._open: dict[int, _Lease] = {}
        self._ended: list[tuple[int, _Lease, float, float]] = []

    def end_all(self, clock: float, table: JobTable) -> bool:
        """All leases end at `clock` (seconds); whether any did since they were last asked for."""
        self.end(np.array(sorted(self._open), dtype=np.int64), clock, table)
        return bool(self._ended)

    def follow(self, decision: Decision, clock: float, table: JobTable) -> None:
        """End and begin leases where a decision at `clock` (seconds) changes something."""
        change = decision.transition
        rows, begins, stop = decision.assignment, change.rows, change.stop
        if len(change.regroup):
            begins = np.sort(np.concatenate([begins, change.regroup]))
        if not (len(begins) or len(stop)):
            return
        before = len(self._ended)
        if len(stop):
            self.end(stop, clock, table)
        if len(begins):
            self.begin(rows.take(begins), clock, table)
        self._ended[before:] = sorted(self._ended[before:], key=_job)

    def begin(self, rows: Assignment, clock: float, table: JobTable) -> None:
        """The leases of all `rows` begin at `clock` (seconds); those that their jobs had end."""
        columns = rows.jobs, rows.pool, rows.gpus, rows.partner, table.steps_done.take(table.rows(rows.jobs))
        gpus_of, leases, ended = self._core.gpus_of, self._open, []
        for job, pool, gpus, partner, done in zip(*(column.tolist() for column in columns), strict=True):
            before = leases.get(job)
            if before is not None:
                ended.append((job, before, clock, done - before[4]))
            leases[job] = pool, gpus, partner, clock, done, gpus_of(job)
        self._ended += ended

    def end(self, jobs: Ints, clock: float, table: JobTable) -> None:
        """The leases of `jobs` end at `clock` (seconds), for those that have one."""
        leaving = [job for job in jobs.tolist() if job in self._open]
        if leaving:
            done = table.steps_done[table.rows(np.array(leaving))].tolist()
            for job, steps in zip(leaving, done, strict=True):
                lease = self._open.pop(job)
                self._ended.append((job, lease, clock, steps - lease[4]))

    def stretch(self, index: int, start: float, end: float, active: int, running: tuple[int, float]) -> StretchOutcome:
        """The stretch from `start` to `end` (seconds), with the leases that ended since the last one."""
        ended, self._ended = self._ended, []
        if not ended:
            return StretchOutcome(index, start, end, _NOBODY, (), _NONE, _NONE, active, started=_NONE, running=running)
        rows = Assignment(*np.array([(job, *lease[:3]) for job, lease, _, _ in ended], dtype=np.int64).T)
        ended_at, did, since = np.array([(finish, steps, lease[3]) for _, lease, finish, steps in ended]).T
        held = tuple([lease[5] for _, lease, _, _ in ended]) if ended[0][1][5] else ()
        return StretchOutcome(index, start, end, rows, held, ended_at, did, active, started=since, running=running)


def _job(ended: tuple[int, _Lease, float, float]) -> int:
    return ended[0]


_NOBODY = Assignment.none()
_NONE: Floats = np.empty(0)
