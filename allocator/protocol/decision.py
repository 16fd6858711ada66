"""What the decision core tells a world: who runs as what on which GPUs, until when, and what changes by that.

Starts, stops and moves are found in one place:

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
from numpy.typing import ArrayLike

from allocator.protocol.assignment import NOBODY, Assignment, among_ids
from throughputs.arrays import Flags, Floats, Ints

# Job, pool and GPUs side by side in one number: what differs is seen in one comparison, and one plain sort sorts all.
_POOL: Final = 20
_JOB: Final = 32


@dataclass(eq=False)
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
    regroup : rows, ascending, of those that keep their GPUs and share them with another job than before, or none.
    """

    start: Ints
    stop: Ints
    move: Ints
    resize: Ints
    rows: Ints
    next: Assignment
    regroup: Ints

    @classmethod
    def nothing(cls, next: Assignment) -> Transition:
        """Everything stays as it is."""
        return cls(NOBODY, NOBODY, NOBODY, NOBODY, NOBODY, next, NOBODY)

    @cached_property
    def keep(self) -> Ints:
        """Ids of the others."""
        return np.sort(np.delete(self.next.jobs, self.rows))


def transition(last: Assignment, next: Assignment, moved: ArrayLike = ()) -> Transition:
    """From `last` to `next`; `moved` are ids of jobs that get other GPUs though pool and number are the same.

    A change of the pool is a move, whether or not the number of GPUs changes with it; a change of the number alone is
    a resize, whatever GPUs the job gets. A change of partner alone is neither: the job is among those who `regroup`.
    """
    new, old = _packed(next), _packed(last)
    jobs, old_jobs = new >> _JOB, old >> _JOB
    if len(jobs) == len(old_jobs) and (jobs == old_jobs).all():
        start = stop = NOBODY
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
    other_gpus = among_ids(next.jobs, np.sort(np.concatenate([start, move, resize])))
    regroup = (~other_gpus & _other_partner(last, next)).nonzero()[0]
    return Transition(start, stop, move, resize, other_gpus.nonzero()[0], next, regroup)


def _other_partner(last: Assignment, next: Assignment) -> Flags:
    """(K,) rows of `next` whose jobs had another partner in `last`, or were not in it."""
    if not (last.shares_gpus or next.shares_gpus):
        return np.zeros(len(next), dtype=np.bool_)
    if not len(last):
        return np.ones(len(next), dtype=np.bool_)
    order = last.jobs.argsort(kind="stable")
    at = order.take(last.jobs[order].searchsorted(next.jobs), mode="clip")
    return np.asarray((last.jobs[at] != next.jobs) | (last.partner[at] != next.partner))


def _packed(assignment: Assignment) -> Ints:
    """(K,) ascending by job, for ids below 2^31, 4,096 pools and a million GPUs."""
    packed = (assignment.jobs << _JOB) + (assignment.pool << _POOL) + assignment.gpus
    packed.sort()
    return packed


@dataclass(eq=False)
class Decision:
    """Who runs as what from now on.

    Attributes
    ----------
    assignment : K rows, ids of jobs, in the order in which they were chosen.
    gpus : for each row the ids of its GPUs; empty when placement is off, and in a step that may be interrupted
        (`DecisionCore.gpus_of` knows them).
    seconds : the core wants to be asked again after so many seconds; inf: only when something happens.
    interruptible : whether the step ends early when something happens that the policy wants to be asked about.
    recomputed : whether the policy was asked for it.
    shares : (K,) in a world without rounds, the share of the time of its pool that each row has; else None.
    rejected : ids of the jobs that the policy did not admit; they are gone.
    before, gpus_before : who ran as what before, and on which GPUs; empty where they are not known.
    change : what changes where placement has found it, who has other GPUs of the same pool included; else None.

    >>> from allocator.protocol import Assignment
    >>> rows, nobody = Assignment.of([3, 5], pool=[0, 0], gpus=[1, 2]), Assignment.of([], [], [])
    >>> decision = Decision(rows, ((0,), (2, 3)), 360.0, False, True, None, [], nobody)
    >>> decision.jobs.tolist(), decision.gpus
    ([3, 5], ((0,), (2, 3)))
    """

    assignment: Assignment
    gpus: tuple[tuple[int, ...], ...]
    seconds: float
    interruptible: bool
    recomputed: bool
    shares: Floats | None
    rejected: Ints
    before: Assignment
    change: Transition | None = None
    gpus_before: tuple[tuple[int, ...], ...] = ()

    @property
    def jobs(self) -> Ints:
        """(K,) ids."""
        return self.assignment.jobs

    @property
    def transition(self) -> Transition:
        """What changes."""
        return self._found if self.change is None else self.change

    @cached_property
    def _found(self) -> Transition:
        moved: list[int] = []
        if self.gpus and self.gpus_before and self.gpus is not self.gpus_before:
            had = dict(zip(self.before.jobs.tolist(), self.gpus_before, strict=True))
            moved = [job for job, ids in zip(self.jobs.tolist(), self.gpus, strict=True) if had.get(job, ids) != ids]
        return transition(self.before, self.assignment, moved)
