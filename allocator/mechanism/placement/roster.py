"""Who runs as what, by job, from one assignment to the next: what changes is found by one look at each row."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from allocator.protocol.assignment import NOBODY, Assignment
from allocator.protocol.decision import Transition
from throughputs import InputError
from throughputs.arrays import Ints

# The row of a job is packed into one number: partner in the low bits, then pool, then GPUs. A partner of -1 borrows 1
# from the bits of the pool, so 1 is added before the number is unpacked.
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


class Change(NamedTuple):
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
    rows: Ints
    before: Ints
    now: Ints
    stopped: Ints
    stopped_before: Ints

    def without(self, jobs: set[int]) -> Change:
        """The same without the rows of these `jobs`, which would start."""
        out = [job in jobs for job in self.assignment.jobs[self.rows].tolist()]
        gone, kept = self.rows[out], np.logical_not(out)
        stay = np.ones(len(self.assignment), dtype=np.bool_)
        stay[gone] = False
        rows = self.rows[kept]
        rows = rows - gone.searchsorted(rows)
        return self._replace(
            assignment=self.assignment.take(stay), rows=rows, before=self.before[kept], now=self.now[kept]
        )

    def transition(self, rows: Ints) -> Transition:
        """The transition, where `rows`, ascending, are those whose jobs get other GPUs than they had, or had none."""
        stop = _ascending(self.stopped.tolist())
        if not (len(self.rows) or len(rows)):
            return Transition(NOBODY, stop, NOBODY, NOBODY, NOBODY, self.assignment, NOBODY)
        codes = dict(zip(self.rows.tolist(), zip(self.before.tolist(), self.now.tolist(), strict=True), strict=True))
        start, move, resize = [], [], []
        for row, job in zip(rows.tolist(), self.assignment.jobs[rows].tolist(), strict=True):
            before, now = codes.pop(row, (0, 0))
            if before == NOT_RUNNING:
                start.append(job)
            elif runs_as(before)[0] != runs_as(now)[0] or runs_as(before)[1] == runs_as(now)[1]:
                move.append(job)
            else:
                resize.append(job)
        # Who runs as something else and has the GPUs that it had shares them with somebody else.
        regroup = list(codes)
        return Transition(
            _ascending(start),
            stop,
            _ascending(move),
            _ascending(resize),
            rows,
            self.assignment,
            _ascending(regroup),
        )


def _ascending(jobs: list[int]) -> Ints:
    return np.array(sorted(jobs), dtype=np.int64) if jobs else NOBODY


class Roster:
    """Who runs as what, by job: one assignment after the other.

    What changes is found by one look at the job of each row, without sorting; the tables grow with the largest id.
    """

    def __init__(self) -> None:
        self.last = Assignment.none()
        # By job: its packed row, and the position of its row plus `_first_row`. `_first_row` grows with each assignment
        # whose rows are numbered: a lower entry is of a job that is not in it, and nothing has to be cleared.
        self._code: Ints = NOBODY
        self._row: Ints = NOBODY
        self._first_row = self._next_row = 0
        self._looked_at = self._numbered = self.last

    def change_to(self, assignment: Assignment) -> Change | None:
        """What would change; None where nothing does."""
        if assignment is self.last or (len(assignment) == len(self.last) and _equal(assignment, self.last)):
            return None
        # Those who stand first run as they did where they are the rows of before.
        looked_at = assignment.beyond(self.last)
        first = len(assignment) - len(looked_at)
        self._looked_at, jobs = assignment, looked_at.jobs
        code = looked_at.gpus << _GPUS_SHIFT
        code += looked_at.pool << _PARTNER_BITS
        code += looked_at.partner
        try:
            codes = self._code[jobs]
        except IndexError:
            self._make_room(jobs)
            codes = self._code[jobs]
        rows = (codes != code).nonzero()[0]
        before = codes[rows]
        stopped = NOBODY
        if len(self.last) + np.count_nonzero(before == NOT_RUNNING) != len(assignment):
            self._number_rows()
            stopped = self.last.jobs[self._row[self.last.jobs] < self._first_row]
        return Change(assignment, rows + first, before, code[rows], stopped, self._code[stopped])

    def accept(self, change: Change) -> None:
        """It is so from now on."""
        self._code[change.stopped] = NOT_RUNNING
        self._code[change.assignment.jobs[change.rows]] = change.now
        self.last = self._looked_at = change.assignment

    def leave(self, jobs: list[int]) -> Assignment:
        """Jobs of the last assignment, who share with nobody, are not in it any more; its other rows."""
        if jobs:
            self._code[jobs] = NOT_RUNNING
            stay = (self._code.take(self.last.jobs) != NOT_RUNNING).nonzero()[0]
            self.last = self._looked_at = self.last.take(stay)
        return self.last

    def codes_of(self, jobs: list[int]) -> dict[int, int]:
        """What some jobs of the last assignment run as, by job."""
        return {job: int(self._code[job]) for job in jobs}

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

    def _make_room(self, jobs: Ints) -> None:
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
