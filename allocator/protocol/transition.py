"""What happens to each job between two assignments: the one place where starts, stops and moves are found.

>>> last = Assignment.of([1, 2, 3, 4], pool=[0, 0, 1, 1], gpus=[1, 2, 1, 4])
>>> next = Assignment.of([2, 3, 4, 5], pool=[0, 0, 1, 1], gpus=[2, 1, 2, 1])
>>> change = transition(last, next)
>>> change.start, change.stop, change.move, change.resize, change.keep
(array([5]), array([1]), array([3]), array([4]), array([2]))
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allocator.protocol.assignment import Assignment, among_ids
from throughputs import InputError

__all__ = ["NOT_RUNNING", "Change", "Roster", "Transition", "runs_as", "transition"]

_Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Transition:
    """Job ids, ascending, each in one of five sets; all but `stop` together are the jobs of the next assignment.

    Attributes
    ----------
    start : run now and did not before.
    stop : ran before and do not now.
    move : have another pool, or other GPUs of the same pool, in the same number.
    resize : have another number of GPUs of the same pool.
    keep : have the same GPUs, whoever shares them.
    rows : rows of the next assignment, ascending, whose jobs start, move or are resized.
    next : the next assignment.
    """

    start: _Ids
    stop: _Ids
    move: _Ids
    resize: _Ids
    rows: _Ids
    next: Assignment

    @classmethod
    def nothing(cls, next: Assignment) -> Transition:
        """Everything stays as it is."""
        return cls(_NOBODY, _NOBODY, _NOBODY, _NOBODY, _NOBODY, next)

    @cached_property
    def keep(self) -> _Ids:
        """Ids of the others."""
        return np.sort(np.delete(self.next.jobs, self.rows))

    @property
    def changes(self) -> bool:
        """Whether anything does."""
        return bool(len(self.rows) or len(self.stop))


def transition(last: Assignment, next: Assignment, moved: ArrayLike = ()) -> Transition:
    """From `last` to `next`; `moved` are ids of jobs that get other GPUs though pool and number are the same.

    A change of the pool is a move, whether or not the number of GPUs changes with it; a change of the number alone is
    a resize, whatever GPUs the job gets. A change of partner alone is neither.
    """
    new, old = _packed(next), _packed(last)
    jobs, old_jobs = new >> _JOB, old >> _JOB
    if len(jobs) == len(old_jobs) and (jobs == old_jobs).all():
        start = stop = _NOBODY
    else:
        at = old_jobs.searchsorted(jobs)
        there = old_jobs.take(at, mode="clip") == jobs if len(old_jobs) else np.zeros(len(jobs), dtype=np.bool_)
        gone = np.ones(len(old_jobs), dtype=np.bool_)
        gone[at[there]] = False
        start, stop = jobs[~there], old_jobs[gone]
        jobs, new, old = jobs[there], new[there], old[~gone]
    move = new >> _POOL != old >> _POOL
    resize = (new != old) & ~move
    others = np.asarray(moved, dtype=np.int64)
    if len(others) and len(jobs):
        at = jobs.searchsorted(others)
        at = at[jobs.take(at, mode="clip") == others]
        move[at] = ~resize[at]
    move, resize = jobs[move], jobs[resize]
    rows = among_ids(next.jobs, np.sort(np.concatenate([start, move, resize]))).nonzero()[0]
    return Transition(start, stop, move, resize, rows, next)


# Job, pool and GPUs side by side in one number: what differs is seen in one comparison, and one plain sort sorts all.
_POOL: Final = 20
_JOB: Final = 32
_NOBODY: Final[_Ids] = np.empty(0, dtype=np.int64)


def _packed(assignment: Assignment) -> _Ids:
    """(K,) ascending by job, for ids below 2^31, 4,096 pools and a million GPUs."""
    packed = (assignment.jobs << _JOB) + (assignment.pool << _POOL) + assignment.gpus
    packed.sort()
    return packed


# What a job runs as is one number: from the low bits on its partner, pool and GPUs. A partner of -1 borrows one from
# the pool, so that 1 is added before the number is taken apart.
_PARTNER_BITS: Final = 32
_POOL_BITS: Final = 12
_PARTNER: Final = (1 << _PARTNER_BITS) - 1
_POOL_MASK: Final = (1 << _POOL_BITS) - 1
_GPUS_SHIFT: Final = _PARTNER_BITS + _POOL_BITS
# Ids index a table, so they should be dense.
_MOST_JOBS: Final = 1 << 31
_NO_ROW: Final = -1

NOT_RUNNING: Final = -2
"""What a job runs as that does not run."""


def runs_as(code: int) -> tuple[int, int, int]:
    """Pool, GPUs and partner of a job, from the one number that it runs as."""
    code += 1
    return code >> _PARTNER_BITS & _POOL_MASK, code >> _GPUS_SHIFT, (code & _PARTNER) - 1


@dataclass(frozen=True, eq=False)
class Change:
    """What is other in an assignment than in the one before.

    Attributes
    ----------
    assignment : the K rows of the next one.
    rows : (C,) its rows, ascending, whose jobs start, or go on with another pool, number of GPUs or partner.
    before : (C,) what their jobs ran as, see `runs_as`; `NOT_RUNNING` for those that start.
    now : (C,) what they run as from now on.
    stopped : (S,) ids of the jobs that ran before and do not now, in the order of their rows then.
    stopped_before : (S,) what they ran as.
    """

    assignment: Assignment
    rows: _Ids
    before: _Ids
    now: _Ids
    stopped: _Ids
    stopped_before: _Ids

    def transition(self, rows: _Ids) -> Transition:
        """The transition, where `rows`, ascending, are those whose jobs get other GPUs than they had, or had none."""
        before = dict(zip(self.rows.tolist(), self.before.tolist(), strict=True))
        now = dict(zip(before, self.now.tolist(), strict=True))
        start, move, resize = [], [], []
        for row, job in zip(rows.tolist(), self.assignment.jobs[rows].tolist(), strict=True):
            code = before.get(row)
            if code == NOT_RUNNING:
                start.append(job)
            elif code is None or runs_as(code)[0] != runs_as(now[row])[0] or runs_as(code)[1] == runs_as(now[row])[1]:
                move.append(job)
            else:
                resize.append(job)
        stop = self.stopped.tolist()
        return Transition(
            _ascending(start), _ascending(stop), _ascending(move), _ascending(resize), rows, self.assignment
        )


def _ascending(jobs: list[int]) -> _Ids:
    return np.array(sorted(jobs), dtype=np.int64) if jobs else _NOBODY


class Roster:
    """Who runs as what, by job: one assignment after the other.

    What changes is found by one look at the job of each row, without sorting; the tables grow with the largest id.
    """

    def __init__(self) -> None:
        self.last = Assignment.none()
        # By job: what it runs as, and its row plus `_first_row`. That number is raised with each assignment whose rows
        # are numbered, so that jobs with a lower one are not in that assignment.
        self._code: _Ids = _NOBODY
        self._row: _Ids = _NOBODY
        self._first_row = self._next_row = 0
        self._looked_at = self._numbered = self.last

    def change_to(self, assignment: Assignment) -> Change | None:
        """What would change; None where nothing does."""
        if assignment is self.last or _equal(assignment, self.last):
            return None
        self._looked_at, jobs = assignment, assignment.jobs
        code = (assignment.gpus << _GPUS_SHIFT) + (assignment.pool << _PARTNER_BITS) + assignment.partner
        try:
            codes = self._code[jobs]
        except IndexError:
            self._make_room(jobs)
            codes = self._code[jobs]
        rows = (codes != code).nonzero()[0]
        before = codes[rows]
        stopped = _NOBODY
        if len(self.last) + np.count_nonzero(before == NOT_RUNNING) != len(jobs):
            self._number_rows()
            stopped = self.last.jobs[self._row[self.last.jobs] < self._first_row]
        return Change(assignment, rows, before, code[rows], stopped, self._code[stopped])

    def accept(self, change: Change) -> None:
        """It is so from now on."""
        self._code[change.stopped] = NOT_RUNNING
        self._code[change.assignment.jobs[change.rows]] = change.now
        self.last = change.assignment

    def row_of(self, job: int) -> int:
        """The row of one of the jobs of the assignment that was last looked at."""
        self._number_rows()
        return int(self._row[job]) - self._first_row

    def _number_rows(self) -> None:
        assignment = self._looked_at
        if self._numbered is not assignment:
            self._numbered, self._first_row = assignment, self._next_row
            self._next_row += len(assignment)
            self._row[assignment.jobs] = np.arange(self._first_row, self._next_row)

    def _make_room(self, jobs: _Ids) -> None:
        """Let the tables by job hold all of `jobs`."""
        if jobs.min() < 0 or jobs.max() >= _MOST_JOBS:
            found = jobs[(jobs < 0) | (jobs >= _MOST_JOBS)].tolist()
            raise InputError("placement", field="jobs", found=found, expected=f"ids from 0 and below {_MOST_JOBS}")
        more = max(int(jobs.max()) + 1, 2 * len(self._code)) - len(self._code)
        self._code = np.concatenate([self._code, np.full(more, NOT_RUNNING)])
        self._row = np.concatenate([self._row, np.full(more, _NO_ROW)])


def _equal(one: Assignment, other: Assignment) -> bool:
    """Whether two assignments have the same rows in the same order."""
    return (
        one.jobs.tobytes() == other.jobs.tobytes()
        and one.gpus.tobytes() == other.gpus.tobytes()
        and one.pool.tobytes() == other.pool.tobytes()
        and one.partner.tobytes() == other.partner.tobytes()
    )
