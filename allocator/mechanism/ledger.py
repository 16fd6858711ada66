"""The ledger of the round mechanism: shares of time, and the time that was received.

A *row* is a job alone or, under a policy that packs, two jobs on the same GPUs. It is known by one number,
``job << 32`` for a job alone and ``higher << 32 | lower + 1`` for a pair: sorted, rows stand in the order in which the
jobs came, each job alone before its pairs with earlier ones.

``received[j, i]`` is the time that row i had on type j since the policy was last asked. The *deficit*, the time that
shares promised and rounds did not give, is carried over from count to count.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from allocator.checkpoint.kept import Kept
from allocator.mechanism.gang_packing import Rows
from allocator.protocol.assignment import Assignment, among_ids
from allocator.protocol.jobs import JobTable
from formulations import Pairs
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints

SHIFT = 32
_LOW = (1 << SHIFT) - 1

CREDIT_ROUNDS = 0.5
"""Every row counts as having had so many rounds when a count starts, so that nobody's part of the time is 0 of 0."""


def pair_number(one: Ints, other: Ints) -> Ints:
    """Numbers of the rows of these pairs."""
    return np.asarray((np.maximum(one, other) << SHIFT) | (np.minimum(one, other) + 1))


def _numbers(jobs: Ints, partner: Ints) -> Ints:
    """Numbers of the rows of jobs with these partners, -1 for none."""
    return np.where(partner < 0, jobs << SHIFT, pair_number(jobs, partner)) if (partner >= 0).any() else jobs << SHIFT


class Ledger(Kept):
    """Shares of the active jobs on M types, alone and in pairs, and the time they have received; arrays are (M, R).

    There are rows for the pairs to which the last decision gave a share. Time that a pair is owed is owed to its jobs,
    and the deficit of a pair is the mean of its members', so that nothing is lost when partners change.

    Parameters
    ----------
    jobs : the job table; with `colocation` under a policy that packs.
    n_types : M.
    round_seconds : length of a round.
    least_deficit : no deficit is carried over that is below this, in seconds.

    Attributes
    ----------
    numbers : (R,) numbers of the rows, ascending.
    jobs : (n,) ids of the active jobs, ascending.
    alone : (n,) positions of the rows in which they are alone.
    paired, one, other : (P,) positions of the rows of pairs, and of their jobs among the active ones, lower id first.
    decided : (R,) whether the policy has been asked since the row is there.
    version : another number whenever rows came or went.
    """

    keeps: ClassVar[tuple[str, ...]] = (
        "numbers",
        "decided",
        "can_run",
        "shares",
        "received",
        "deficits",
        "counted_since",
    )

    def __init__(self, jobs: JobTable, n_types: int, round_seconds: float, least_deficit: float = -np.inf) -> None:
        self._table = jobs
        self._least_deficit = least_deficit
        self.credit_seconds = CREDIT_ROUNDS * round_seconds
        self.numbers: Ints = np.empty(0, dtype=np.int64)
        self.decided: Flags = np.empty(0, dtype=np.bool_)
        self.can_run: Flags = np.empty((n_types, 0), dtype=np.bool_)
        self.shares, self.received, self.deficits = (np.empty((n_types, 0)) for _ in range(3))
        self.counted_since = 0.0
        self.version = 0
        self._index()

    def _index(self) -> None:
        """What follows from the rows."""
        self._high, low = self.numbers >> SHIFT, (self.numbers & _LOW) - 1
        self.alone, self.paired = np.flatnonzero(low < 0), np.flatnonzero(low >= 0)
        self.jobs = self._high[self.alone]
        self.one, self.other = (self.jobs.searchsorted(ids[self.paired]) for ids in (low, self._high))
        self.version += 1
        # A round that repeats the one before comes with the same array of jobs: its rows are looked up once.
        self._known: tuple[Ints, Any, Ints] | None = None
        for name in ("row_gpus", "packing"):
            self.__dict__.pop(name, None)

    @cached_property
    def row_gpus(self) -> Ints:
        """(R,) GPUs that each row takes; both members of a pair have gangs of one size."""
        return np.asarray(self._table.scale_factor[self._table.rows(self._high)])

    @cached_property
    def packing(self) -> Rows:
        """The rows, for gang packing."""
        first, second = np.arange(len(self.numbers)), np.full(len(self.numbers), -1)
        if len(self.paired):
            first[self.alone], first[self.paired], second[self.paired] = np.arange(len(self.jobs)), self.other, self.one
        return Rows(first.tolist(), second.tolist(), self.row_gpus.tolist())

    def any_member(self, jobs: Flags) -> Flags:
        """(R,) rows in which any of the `jobs` is; these are marked among the (n,) active ones."""
        return self._by_members(jobs, np.logical_or)

    def both_members(self, jobs: Flags) -> Flags:
        """(R,) rows in which nobody is but these jobs."""
        return self._by_members(jobs, np.logical_and)

    def _by_members(self, jobs: Flags, of_two: np.ufunc) -> Flags:
        if not len(self.paired):
            return jobs
        rows = np.empty(len(self.numbers), dtype=np.bool_)
        rows[self.alone], rows[self.paired] = jobs, of_two(jobs[self.one], jobs[self.other])
        return rows

    def assignment(self, chosen: list[list[int]], order: list[int]) -> Assignment:
        """The rows that were `chosen` for each type, type by type in this order; the lower id of a pair comes first."""
        rows = np.array([row for j in order for row in chosen[j]], dtype=np.int64)
        pool, high = np.repeat(order, [len(chosen[j]) for j in order]), self._high[rows]
        low = (self.numbers[rows] & _LOW) - 1 if len(self.paired) else rows[:0]
        paired = low >= 0
        if not paired.any():
            return Assignment.alone(high, pool, self.row_gpus[rows])
        times = 1 + paired
        second = np.cumsum(times) - 1  # where the last job of each row goes
        jobs, partner = np.empty(int(times.sum()), dtype=np.int64), np.full(int(times.sum()), -1, dtype=np.int64)
        jobs[second] = high
        jobs[second[paired] - 1] = partner[second[paired]] = low[paired]
        partner[second[paired] - 1] = high[paired]
        return Assignment(jobs, np.repeat(pool, times), np.repeat(self.row_gpus[rows], times), partner)

    def add(self, jobs: Ints) -> None:
        """Take in new `jobs`; they have no share yet.

        Raises
        ------
        InputError
            One of them is active already.
        """
        if among_ids(jobs, self.jobs).any() or len(np.unique(jobs)) != len(jobs):
            raise InputError("arriving jobs", found=jobs.tolist(), expected="distinct jobs that are not active yet")
        self._insert(jobs << SHIFT, self._table.rates[self._table.rows(jobs)].T > 0, self.credit_seconds)

    def _insert(self, numbers: Ints, can_run: Flags, received: float) -> None:
        """Rows that count as having received so many seconds."""
        k = len(numbers)
        merged = np.concatenate([self.numbers, numbers])
        order = merged.argsort(kind="stable")

        def join(values: Floats, fill: float) -> Floats:
            return np.concatenate([values, np.full((len(values), k), fill)], axis=1).take(order, axis=1)

        self.numbers = merged[order]
        self.decided = np.concatenate([self.decided, np.zeros(k, dtype=np.bool_)])[order]
        self.can_run = np.concatenate([self.can_run, can_run], axis=1).take(order, axis=1)
        self.shares, self.deficits = join(self.shares, 0.0), join(self.deficits, 0.0)
        self.received = join(self.received, received)
        self._index()

    def remove(self, jobs: Ints) -> None:
        """Forget `jobs`, alone and in pairs."""
        gone = among_ids(self.jobs, np.sort(jobs))
        self._keep(np.flatnonzero(~self.any_member(gone)))

    def _keep(self, rows: Ints) -> None:
        self.numbers, self.decided = self.numbers.take(rows), self.decided.take(rows)
        self.can_run, self.shares = self.can_run.take(rows, axis=1), self.shares.take(rows, axis=1)
        self.received, self.deficits = self.received.take(rows, axis=1), self.deficits.take(rows, axis=1)
        self._index()

    def refresh(self) -> None:
        """Look again where jobs can run, alone and in pairs."""
        self.can_run[:, self.alone] = self._table.rates[self._table.rows(self.jobs)].T > 0
        if len(self.paired):
            self.can_run[:, self.paired] = self.can_share(self.jobs[self.one], self.jobs[self.other])

    def can_share(self, one: Ints, other: Ints) -> Flags:
        """(M, P) where both jobs of pairs make progress together, as far as it is known."""
        columns = self._table.colocation
        assert columns is not None
        at, together = self._table.rows, self._table.believed_together
        first, second = columns.group[at(one)], columns.group[at(other)]
        return np.asarray(((together[first, second] > 0) & (together[second, first] > 0)).T)

    def _slots(self, numbers: Ints) -> Ints:
        """Positions of the rows with these numbers, which must be there."""
        slots = self.numbers.searchsorted(numbers)
        if len(numbers) and not (len(self.numbers) and (self.numbers.take(slots, mode="clip") == numbers).all()):
            raise InputError("jobs", found=np.unique(numbers >> SHIFT).tolist(), expected="active jobs")
        return slots

    def start_count(self, clock: float) -> None:
        """Carry the deficits over and count anew from `clock` (seconds)."""
        owed = self.shares * (clock - self.counted_since) - (self.received - self.credit_seconds)
        self._share_debts(owed)
        self.deficits += owed
        np.maximum(self.deficits, self._least_deficit, out=self.deficits)
        self.received[:] = self.credit_seconds
        self.counted_since = clock

    def _share_debts(self, owed: Floats) -> None:
        """Time owed to a pair is owed to both of its members."""
        if len(self.paired):
            for member in (self.one, self.other):
                for j, row in enumerate(owed[:, self.paired]):
                    self.deficits[j, self.alone] += np.bincount(member, row, minlength=len(self.jobs))

    def row_owed(self, clock: float) -> Floats:
        """(M, R) time that each row was promised and has not received up to `clock`, in seconds."""
        promised = self.shares * (clock - self.counted_since)
        owed: Floats = self.deficits + promised - (self.received - self.credit_seconds)
        return owed

    def owed(self, clock: float) -> Floats:
        """(n,) time each job was promised and has not received up to `clock`, alone or in pairs, over all types."""
        rows: Floats = self.row_owed(clock).sum(axis=0)
        if not len(self.paired):
            return rows
        # The deficits of pairs repeat those of their members.
        rows[self.paired] -= self.deficits[:, self.paired].sum(axis=0)
        owed = rows[self.alone]
        for member in (self.one, self.other):
            owed = owed + np.bincount(member, rows[self.paired], minlength=len(owed))
        return owed

    def set_shares(self, shares: Floats, pairs: Pairs | None = None) -> None:
        """Set the (n, M) `shares` of all active jobs alone, and those of `pairs` (positions among the active jobs)."""
        if pairs is not None:
            numbers = pair_number(self.jobs[pairs.first], self.jobs[pairs.second])
            self._replace_pairs(np.unique(numbers))
            by_row = np.zeros((len(self.numbers), shares.shape[1]))
            by_row[self.alone] = shares
            np.add.at(by_row, (self._slots(numbers), pairs.accelerator), pairs.share)
            shares = by_row
        self.shares = np.ascontiguousarray(shares.T)
        self.decided[:] = True

    def _replace_pairs(self, numbers: Ints) -> None:
        """Rows of these pairs instead of those so far, with no time received since the count started."""
        if not len(numbers) and not len(self.paired):
            return
        self._keep(self.alone)
        self._insert(numbers, self.can_share((numbers & _LOW) - 1, numbers >> SHIFT), self.credit_seconds)
        deficits = self.deficits[:, self.alone]
        self.deficits[:, self.paired] = (deficits[:, self.one] + deficits[:, self.other]) / 2.0

    def record(self, assignment: Assignment, seconds: Floats) -> None:
        """Add the (K,) `seconds` of the jobs of a round; a pair has had the longer time of the two."""
        jobs, pool = assignment.jobs, assignment.pool
        if self._known is None or self._known[0] is not jobs:
            first: Any = np.flatnonzero(assignment.firsts) if assignment.shares_gpus else slice(None)
            self._known = jobs, first, self._slots(_numbers(jobs[first], assignment.partner[first]))
        _, first, rows = self._known
        if assignment.shares_gpus:
            last = np.append(first, len(jobs))[1:] - 1
            pool, seconds = pool[first], np.maximum(seconds[first], seconds[last])
        self.add_time(rows, pool, seconds)

    def add_time(self, rows: Ints, pool: Ints, seconds: Floats) -> None:
        """Add the `seconds` that rows (positions) ran on `pool`."""
        self.received[pool, rows] += seconds

    def running(self, rows: Assignment) -> Flags:
        """(M, R) rows that run; of a job that shares its GPUs, also the row in which it would have them alone."""
        numbers, pool = rows.jobs << SHIFT, rows.pool
        if rows.shares_gpus:
            first = rows.firsts & (rows.partner >= 0)
            numbers = np.concatenate([numbers, pair_number(rows.jobs[first], rows.partner[first])])
            pool = np.concatenate([pool, pool[first]])
        runs = np.zeros(self.shares.shape, dtype=np.bool_)
        if runs.size:
            at = self.numbers.searchsorted(numbers)
            there = self.numbers.take(at, mode="clip") == numbers
            runs[pool[there], at[there]] = True
        return runs

    def sums(self) -> list[Floats]:
        """What a round adds to, in place."""
        return [self.received]

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        super().restore(state)
        self._index()
