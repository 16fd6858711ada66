"""Pairs in the round mechanism: rows that are a job alone or two jobs on the same GPUs.

A row is known by one number: ``job << 32`` for a job alone, ``higher << 32 | lower + 1`` for a pair. Sorted, they stand
in the order in which the jobs came, each job alone before its pairs with earlier ones. The ledger and the queues of
`allocator.mechanism.priorities` work on such rows as they do on jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allocator.protocol.jobs import JobTable
from allocator.mechanism.priorities import TimeLedger
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol import ClusterState, RoundDecision
from throughputs import InputError

if TYPE_CHECKING:
    from formulations import Pairs

__all__ = ["PackedLedger", "RowSizes", "checked_pairs", "fill_merged_rows", "fill_type_rows", "members", "row_alone"]

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


class RowSizes:
    """GPUs per gang by row; `sizes` is by job."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes

    def __getitem__(self, row: int) -> int:
        """Both members of a pair have gangs of one size."""
        return self._sizes[row >> _SHIFT]


class PackedLedger(TimeLedger):
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
        super().__init__(n_types, settings)
        self._table = jobs
        self._all_pairs = settings.pair_rows == "all"
        self._jobs: _Ids = np.empty(0, dtype=np.int64)
        self._known: tuple[_Ids, _Ids, _Ids] | None = None
        self._index_rows()

    @property
    def jobs(self) -> _Ids:
        """(n,) ids of the active jobs, ascending."""
        return self._jobs

    @property
    def shares_alone(self) -> _Floats:
        """(n, M) shares of the active jobs alone."""
        return np.asarray(self.shares[:, self._alone].T)

    @property
    def row_sizes(self) -> _Ids:
        """(rows,) GPUs per gang."""
        return np.asarray(self._table.scale_factor[self._high])

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
        sizes = self._table.scale_factor
        alike = sizes[one] == sizes[other]
        return np.minimum(one, other)[alike], np.maximum(one, other)[alike]

    def _can_share(self, low: _Ids, high: _Ids) -> NDArray[np.bool_]:
        """(M, pairs) where both make progress together, as far as it is known."""
        columns = self._table.colocation
        assert columns is not None
        one, other, together = columns.group[low], columns.group[high], self._table.believed_together
        return np.asarray(((together[one, other] > 0) & (together[other, one] > 0)).T)

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
        if not self._all_pairs and len(self._paired):
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

    def _in_pair(self) -> NDArray[np.bool_]:
        return (self.active & _LOW) > 0

    def set_packed_shares(self, shares: _Floats, pairs: Pairs) -> None:
        """Set the (n, M) `shares` of all active jobs alone, and those of `pairs` (positions among the active jobs)."""
        first, second = self._jobs[pairs.first], self._jobs[pairs.second]
        low, high = np.minimum(first, second), np.maximum(first, second)
        rows = (high << _SHIFT) | (low + 1)
        if not self._all_pairs:
            self._replace_pairs(np.unique(rows))
        by_row = np.zeros((len(self.active), shares.shape[1]))
        by_row[self._alone] = shares
        np.add.at(by_row, (self._slots(rows), pairs.accelerator), pairs.share)
        self.set_shares(by_row)

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

    def record_round(self, decision: RoundDecision, seconds: _Floats) -> None:
        """Add the (K,) `seconds` of the jobs of a round; a pair has had the longer time of the two."""
        jobs, partner = decision.jobs, decision.partner
        assert partner is not None
        if self._known is None or self._known[0] is not jobs:
            first = np.flatnonzero(jobs < np.where(partner < 0, _LOW, partner))
            with_partner = partner[first] >= 0
            rows = np.where(with_partner, (partner[first] << _SHIFT) | (jobs[first] + 1), jobs[first] << _SHIFT)
            self._known = jobs, first, rows
        _, first, rows = self._known
        last = np.append(first, len(jobs))[1:] - 1
        self.record(rows, decision.accelerator[first], np.maximum(seconds[first], seconds[last]))


def fill_type_rows(
    queues: Sequence[Iterable[int]],
    visit_order: Sequence[int],
    sizes: Sequence[int],
    free: list[int],
    taken: set[int],
    n_jobs: int,
) -> list[list[int]]:
    """As `filling.fill_types` for queues of rows; a job runs in one row only. `taken` and `sizes` are by job."""
    chosen: list[list[int]] = [[] for _ in queues]
    for j in visit_order:
        left = free[j]
        if not left:
            continue
        rows = chosen[j]
        if len(taken) == n_jobs:
            break
        # As `_take`, without a call for each of the many rows whose jobs are taken.
        for row in queues[j]:
            high = row >> _SHIFT
            if high in taken:
                continue
            size, low = sizes[high], (row & _LOW) - 1
            if size > left or low in taken:
                continue
            taken.add(high)
            if low >= 0:
                taken.add(low)
            rows.append(row)
            left -= size
            if not left or len(taken) == n_jobs:
                break
        free[j] = left
    return chosen


def fill_merged_rows(
    rows: Iterable[tuple[int, int]], sizes: Sequence[int], free: list[int], taken: set[int], n_jobs: int
) -> list[list[int]]:
    """As `filling.fill_merged` for rows; a job runs in one row only. `taken` and `sizes` are by job."""
    chosen: list[list[int]] = [[] for _ in free]
    open_types = sum(count > 0 for count in free)
    for row, j in rows:
        if _take(row, sizes, free[j], taken):
            chosen[j].append(row)
            free[j] -= sizes[row >> _SHIFT]
            open_types -= not free[j]
            if not open_types or len(taken) == n_jobs:
                break
    return chosen


def _take(row: int, sizes: Sequence[int], left: int, taken: set[int]) -> bool:
    """Take the jobs of a row if they are free and `left` GPUs are enough."""
    high = row >> _SHIFT
    if high in taken or sizes[high] > left:
        return False
    low = (row & _LOW) - 1
    if low >= 0:
        if low in taken:
            return False
        taken.add(low)
    taken.add(high)
    return True


def checked_pairs(pairs: Pairs | None, state: ClusterState, name: str) -> Pairs:
    """The pairs of an allocation for `state`.

    Raises
    ------
    InputError
        A job or type that does not exist, a job beside itself, gangs of different sizes, or a share below 0.
    """
    if pairs is None:
        from formulations import Pairs

        return Pairs.none()
    n, m = state.rates.shape
    for field, values, limit in (
        ("first", pairs.first, n),
        ("second", pairs.second, n),
        ("type", pairs.accelerator, m),
    ):
        if len(values) != len(pairs) or ((values < 0) | (values >= limit)).any():
            raise InputError(f"policy {name}", field=f"{field} of pairs", found=values, expected=f"below {limit}")
    sizes = state.scale_factors
    wrong = (pairs.first == pairs.second) | (sizes[pairs.first] != sizes[pairs.second])
    wrong |= ~(np.isfinite(pairs.share) & (pairs.share >= 0))
    if wrong.any():
        p = int(np.argmax(wrong))
        labels = tuple(state.throughputs.jobs[i] for i in (pairs.first[p], pairs.second[p]))
        expected = "two jobs with gangs of one size and a share of time of at least 0"
        raise InputError(f"policy {name}", field=f"pair {labels}", found=float(pairs.share[p]), expected=expected)
    return pairs
