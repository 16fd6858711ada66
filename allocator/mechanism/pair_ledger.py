"""Pairs in the round mechanism: rows that are a job alone or two jobs on the same GPUs.

A row is known by one number: ``job << 32`` for a job alone, ``higher << 32 | lower + 1`` for a pair. Sorted, they stand
in the order in which the jobs came, each job alone before its pairs with earlier ones. Ledger and queues
work on such rows as they do on jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.mechanism.gang_packing import Rows
from allocator.mechanism.ledger import NOTHING, TimeLedger, joined
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol.assignment import Assignment
from throughputs import InputError

if TYPE_CHECKING:
    from allocator.protocol.jobs import JobTable
    from formulations import Pairs

_SHIFT = 32
_LOW = (1 << _SHIFT) - 1

# Time received by a pair that no decision has seen yet. Gavel counts none; its share is 0, so any positive number will
# do where a share is divided by it.
_NO_TIME = 1e-300

_Floats = NDArray[np.float64]
_Ids = NDArray[np.int64]


def row_alone(job: int) -> int:
    """The row of a job alone."""
    return job << _SHIFT


def members(row: int) -> tuple[int, ...]:
    """The jobs of a row, ascending."""
    low = (row & _LOW) - 1
    return (row >> _SHIFT,) if low < 0 else (low, row >> _SHIFT)


class PairLedger(TimeLedger):
    """Shares and time received of jobs alone and of pairs: `active` are rows, and arrays are (M, rows).

    Two rules (`MechanismSettings.pair_rows`). "shared": rows of the pairs that the last decision gave a share; time is
    owed to jobs, and the deficit of a pair is the mean of its members', so that nothing is lost when partners change.
    "all": every pair of active jobs with gangs of one size is a row with a deficit of its own.

    Parameters
    ----------
    jobs : the job table, with `colocation`.
    n_types : M.
    settings : as of `TimeLedger`, and pair_rows.
    """

    def __init__(self, jobs: JobTable, n_types: int, settings: MechanismSettings) -> None:
        super().__init__(jobs, n_types, settings)
        self._all_pairs = settings.pair_rows == "all"
        self._jobs: _Ids = np.empty(0, dtype=np.int64)
        self._known: tuple[_Ids, _Ids, _Ids] | None = None
        self._index_rows()

    @property
    def jobs(self) -> _Ids:
        """(n,) ids of the active jobs, ascending."""
        return self._jobs

    def _gpus_of_rows(self) -> _Ids:
        """Both members of a pair have gangs of one size."""
        return np.asarray(self._table.scale_factor[self._table.rows(self._high)])

    def _packing_rows(self) -> Rows:
        low = (self.active & _LOW) - 1
        second = np.where(low < 0, -1, self._jobs.searchsorted(low))
        return Rows(self._jobs.searchsorted(self._high).tolist(), second.tolist(), self.row_gpus.tolist())

    def alone(self, jobs: _Ids) -> _Ids:
        """Rows in which the active jobs at these positions run alone."""
        return self._alone[jobs]

    def assignment(self, chosen: list[list[int]], order: list[int]) -> Assignment:
        """As in `TimeLedger`; the lower id of a pair comes first."""
        slots, pool = joined(chosen, order)
        high, low = self._high[slots], (self.active[slots] & _LOW) - 1
        paired = low >= 0
        times = 1 + paired
        second = np.cumsum(times) - 1  # where the last job of each row goes
        jobs, partner = np.empty(int(times.sum()), dtype=np.int64), np.full(int(times.sum()), -1, dtype=np.int64)
        jobs[second] = high
        jobs[second[paired] - 1] = partner[second[paired]] = low[paired]
        partner[second[paired] - 1] = high[paired]
        return Assignment(jobs, np.repeat(pool, times), np.repeat(self.row_gpus[slots], times), partner)

    def _index_rows(self) -> None:
        """What follows from the rows: their members, and where jobs alone and pairs are."""
        self._high = self.active >> _SHIFT
        low = (self.active & _LOW) - 1
        self._alone = np.flatnonzero(low < 0)
        self._paired = np.flatnonzero(low >= 0)
        self._jobs = self._high[self._alone]
        # Positions among the active jobs of both members of each pair.
        self._one = self._jobs.searchsorted(low[self._paired])
        self._other = self._jobs.searchsorted(self._high[self._paired])

    def add(self, jobs: _Ids, can_run: NDArray[np.bool_]) -> None:
        """Take in new `jobs`; as in `TimeLedger`."""
        before = self._jobs
        super().add(jobs << _SHIFT, can_run)
        if self._all_pairs:
            low, high = self._new_pairs(before, np.sort(jobs))
            self._insert((high << _SHIFT) | (low + 1), self._can_share(low, high), _NO_TIME)
        self._index_rows()

    def _new_pairs(self, before: _Ids, jobs: _Ids) -> tuple[_Ids, _Ids]:
        """Pairs of new jobs with those of before and among themselves, gangs of one size."""
        everyone = np.concatenate([before, jobs])
        one, other = np.triu_indices(len(everyone), 1)
        new = other >= len(before)
        one, other = everyone[one[new]], everyone[other[new]]
        sizes, at = self._table.scale_factor, self._table.rows
        alike = sizes[at(one)] == sizes[at(other)]
        return np.minimum(one, other)[alike], np.maximum(one, other)[alike]

    def _can_share(self, low: _Ids, high: _Ids) -> NDArray[np.bool_]:
        """(M, pairs) where both make progress together, as far as it is known."""
        columns = self._table.colocation
        assert columns is not None
        at, together = self._table.rows, self._table.believed_together
        one, other = columns.group[at(low)], columns.group[at(high)]
        return np.asarray(((together[one, other] > 0) & (together[other, one] > 0)).T)

    def refresh(self) -> None:
        """Look again where jobs can run, alone and in pairs."""
        self.can_run[:, self._alone] = self._table.rates[self._table.rows(self._jobs)].T > 0
        self.refresh_pairs()

    def refresh_pairs(self) -> None:
        """Look again where pairs can run: what is believed of them has changed."""
        rows = self.active[self._paired]
        self.can_run[:, self._paired] = self._can_share((rows & _LOW) - 1, rows >> _SHIFT)

    def remove(self, jobs: _Ids) -> None:
        """Forget `jobs`, alone and in pairs."""
        if not np.isin(jobs, self._jobs).all():
            raise InputError("jobs", found=jobs.tolist(), expected="active jobs")
        low = (self.active & _LOW) - 1
        kept = np.ones(len(low), dtype=np.bool_)
        for job in jobs.tolist():
            kept &= (self._high != job) & (low != job)
        self._keep(np.flatnonzero(kept))
        self._index_rows()

    def start_count(self, clock: float) -> None:
        """Carry the deficits over and count anew from `clock` (seconds)."""
        if not self.never_forgets and not self._all_pairs and len(self._paired):
            promised = self.shares * (clock - self.counted_since)
            owed = (promised - (self.received - self.credit_seconds))[:, self._paired]
            # Time owed to a pair is owed to both of its members.
            for member in (self._one, self._other):
                for j, row in enumerate(owed):
                    self.deficits[j, self._alone] += np.bincount(member, row, minlength=len(self._jobs))
        super().start_count(clock)

    def owed(self, clock: float) -> _Floats:
        """(n,) time each job was promised and has not received up to `clock`, alone or in pairs, over all types."""
        rows = super().owed(clock)
        if not self._all_pairs:
            # The deficits of pairs repeat those of their members.
            rows = rows - np.where(self._in_pair(), self.deficits.sum(axis=0), 0.0)
        owed = rows[self._alone]
        for member in (self._one, self._other):
            owed = owed + np.bincount(member, rows[self._paired], minlength=len(owed))
        return np.asarray(owed)

    def due(self, clock: float) -> NDArray[np.bool_]:
        """As in `TimeLedger`, where both jobs of a row are owed anything over all their rows: a debt that is carried
        over stands in each of these, and is paid once."""
        owed = self.owed(clock + self.round_seconds) > NOTHING * self.round_seconds
        both = np.empty(len(self.active), dtype=np.bool_)
        both[self._alone] = owed
        both[self._paired] = owed[self._one] & owed[self._other]
        return super().due(clock) & both

    def due_gpus(self, due: NDArray[np.bool_], clock: float, capacity: list[int]) -> list[int]:  # noqa: ARG002
        """All GPUs: what the rows of a type are owed together cannot be told from debts that several rows repeat."""
        return capacity

    def _in_pair(self) -> NDArray[np.bool_]:
        return (self.active & _LOW) > 0

    def set_shares(self, shares: _Floats, pairs: Pairs | None = None) -> None:
        """Set the (n, M) `shares` of all active jobs alone, and those of `pairs` (positions among the active jobs)."""
        assert pairs is not None
        first, second = self._jobs[pairs.first], self._jobs[pairs.second]
        low, high = np.minimum(first, second), np.maximum(first, second)
        rows = (high << _SHIFT) | (low + 1)
        if not self._all_pairs:
            self._replace_pairs(np.unique(rows))
        by_row = np.zeros((len(self.active), shares.shape[1]))
        by_row[self._alone] = shares
        np.add.at(by_row, (self._slots(rows), pairs.accelerator), pairs.share)
        self._set(by_row)

    def _replace_pairs(self, pairs: _Ids) -> None:
        """Rows of these pairs instead of those so far, with no time received since the count started."""
        if not len(pairs) and not len(self._paired):
            return
        kept = self._alone
        self._keep(kept)
        can_share = self._can_share((pairs & _LOW) - 1, pairs >> _SHIFT)
        self._insert(pairs, can_share, self.credit_seconds)
        self._index_rows()
        deficits = self.deficits[:, self._alone]
        self.deficits[:, self._paired] = (deficits[:, self._one] + deficits[:, self._other]) / 2.0

    def record(self, assignment: Assignment, seconds: _Floats) -> None:
        """Add the (K,) `seconds` of the jobs of a round; a pair has had the longer time of the two."""
        jobs, partner = assignment.jobs, assignment.partner
        if self._known is None or self._known[0] is not jobs:
            first = np.flatnonzero(assignment.firsts)
            with_partner = partner[first] >= 0
            rows = np.where(with_partner, (partner[first] << _SHIFT) | (jobs[first] + 1), jobs[first] << _SHIFT)
            self._known = jobs, first, rows
        _, first, rows = self._known
        last = np.append(first, len(jobs))[1:] - 1
        self._add_time(rows, assignment.pool[first], np.maximum(seconds[first], seconds[last]))

    def _rows_with(self, jobs: NDArray[np.bool_]) -> NDArray[np.bool_]:
        rows = np.empty(len(self.active), dtype=np.bool_)
        rows[self._alone] = jobs
        rows[self._paired] = jobs[self._one] | jobs[self._other]
        return rows

    def _rows_running(self, running: Assignment) -> tuple[_Ids, _Ids]:
        """Of a job that shares its GPUs, also the row in which it would have them alone."""
        jobs, pool, partner = running.jobs, running.pool, running.partner
        first = running.firsts & (partner >= 0)
        pairs = (partner[first] << _SHIFT) | (jobs[first] + 1)
        return np.concatenate([jobs << _SHIFT, pairs]), np.concatenate([pool, pool[first]])

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        super().restore(state)
        self._known = None
        self._index_rows()
