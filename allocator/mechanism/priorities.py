"""Priorities: who is furthest behind its share of time.

Counted since the policy was last asked: ``received[j, i]``, the time job i had on type j (tau), and ``type_time[j]``,
the time all jobs had on it (Theta). The *deficit*, the time that shares promised and rounds did not give, is carried
over from count to count. Two rules of priority:

- "time_fraction": share divided by the fraction of the type's time received (Gavel, OSDI'20, sec. 5),
  priority[j, i] = share[j, i] / (received[j, i] / type_time[j]). It forgets the past at every decision: where shares
  change in nearly every round, small shares are hardly ever served.
- "deficit": GPU time owed at the end of the coming round if the job does not run in it,
  priority[j, i] = s_i (deficit[j, i] + share[j, i] (time since the decision + round) - received[j, i]).
  It does not forget, so the time that jobs get follows the shares however often these change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allocator.mechanism.settings import MechanismSettings
from throughputs import InputError

__all__ = ["Queues", "TimeLedger"]

# Negated deficit of rows without a share: behind every row with one, and before those that may not be chosen.
_LAST = 1e300

_LEAST_POWER, _LARGEST_POWER = -323, 308
_POWERS_OF_TEN = np.array([float(f"1e{power}") for power in range(_LEAST_POWER, _LARGEST_POWER + 1)])
"""All that there are. Read as text they are the nearest numbers; the power function's depend on the processor."""

_Floats = NDArray[np.float64]
_Ids = NDArray[np.int64]


class TimeLedger:
    """Shares of the n active jobs on M types and the time they have received; arrays are (M, n), ids ascending.

    Parameters
    ----------
    n_types : M.
    settings : round_seconds, initial_credit_rounds, late_jobs_add_type_time and max_overdraft_rounds are read.
    """

    def __init__(self, n_types: int, settings: MechanismSettings) -> None:
        self.credit_seconds = credit_seconds = settings.initial_credit_rounds * settings.round_seconds
        self.late_jobs_add_type_time = settings.late_jobs_add_type_time
        overdraft = settings.max_overdraft_rounds
        self.least_deficit = -np.inf if overdraft is None else -overdraft * settings.round_seconds
        self.active: _Ids = np.empty(0, dtype=np.int64)
        self.decided: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self.can_run: NDArray[np.bool_] = np.empty((n_types, 0), dtype=np.bool_)
        self.shares, self.received, self.deficits = (np.empty((n_types, 0)) for _ in range(3))
        self.type_time: _Floats = np.full(n_types, credit_seconds)
        self.counted_since = 0.0
        # A round that repeats the one before comes with the same array of jobs: its rows are looked up once.
        self._indexed_jobs: _Ids | None = None
        self._indexed_slots: _Ids = self.active

    @property
    def jobs(self) -> _Ids:
        """(n,) ids of the active jobs, ascending."""
        return self.active

    def add(self, jobs: _Ids, can_run: NDArray[np.bool_]) -> None:
        """Take in new `jobs`; `can_run` (M, len(jobs)) says where they can run. They have no share yet."""
        if np.isin(jobs, self.active).any() or len(np.unique(jobs)) != len(jobs):
            raise InputError("arriving jobs", found=jobs.tolist(), expected="distinct jobs that are not active yet")
        self._insert(jobs, can_run, self.credit_seconds)
        if self.late_jobs_add_type_time:
            self.type_time = self.type_time + len(jobs) * self.credit_seconds

    def _insert(self, jobs: _Ids, can_run: NDArray[np.bool_], credit_seconds: float) -> None:
        """Rows for `jobs`, which count as having received `credit_seconds`."""
        k = len(jobs)
        self._indexed_jobs = None
        merged = np.concatenate([self.active, jobs])
        order = merged.argsort(kind="stable")
        self.active = merged[order]

        def join(values: _Floats, fill: float) -> _Floats:
            return np.concatenate([values, np.full((len(values), k), fill)], axis=1).take(order, axis=1)

        self.decided = np.concatenate([self.decided, np.zeros(k, dtype=np.bool_)])[order]
        self.can_run = np.concatenate([self.can_run, can_run], axis=1).take(order, axis=1)
        self.shares, self.deficits = join(self.shares, 0.0), join(self.deficits, 0.0)
        self.received = join(self.received, credit_seconds)

    def remove(self, jobs: _Ids) -> None:
        """Forget `jobs`; the time they had still counts for the types."""
        self._keep(np.delete(np.arange(len(self.active)), self._slots(jobs)))

    def _keep(self, kept: _Ids) -> None:
        self._indexed_jobs = None
        self.active, self.decided = self.active.take(kept), self.decided.take(kept)
        self.can_run, self.shares = self.can_run.take(kept, axis=1), self.shares.take(kept, axis=1)
        self.received, self.deficits = self.received.take(kept, axis=1), self.deficits.take(kept, axis=1)

    def _slots(self, jobs: _Ids) -> _Ids:
        """Positions of active `jobs` in the arrays."""
        slots = self.active.searchsorted(jobs)
        if not np.array_equal(self.active.take(slots, mode="clip") if len(self.active) else self.active, jobs):
            raise InputError("jobs", found=jobs.tolist(), expected="active jobs")
        return slots

    def start_count(self, clock: float) -> None:
        """Carry the deficits over and count anew from `clock` (seconds)."""
        promised = self.shares * (clock - self.counted_since)
        self.deficits += promised - (self.received - self.credit_seconds)
        np.maximum(self.deficits, self.least_deficit, out=self.deficits)
        self.received[:] = self.credit_seconds
        # With no job at all the time of a type is only ever divided by; any positive number does.
        self.type_time[:] = self.credit_seconds * max(len(self.active), 1)
        self.counted_since = clock

    def owed(self, clock: float) -> _Floats:
        """(n,) time each job was promised and has not received up to `clock`, over all types, in seconds."""
        promised = self.shares * (clock - self.counted_since)
        total: _Floats = (self.deficits + promised - (self.received - self.credit_seconds)).sum(axis=0)
        return total

    def set_shares(self, shares: _Floats) -> None:
        """Set the (n, M) `shares` of all active jobs."""
        self.shares = np.ascontiguousarray(shares.T)
        self.decided[:] = True

    def record(self, jobs: _Ids, accelerator: _Ids, seconds: _Floats) -> None:
        """Add the `seconds` that active `jobs` ran on `accelerator`.

        The time of a type is summed longest run first: a fixed order, so that the sum does not depend on the order of
        the rows.
        """
        if jobs is not self._indexed_jobs:
            self._indexed_jobs = jobs
            self._indexed_slots = self._slots(jobs)
        self.received[accelerator, self._indexed_slots] += seconds
        longest_first = (-seconds).argsort(kind="stable")
        np.add.at(self.type_time, accelerator.take(longest_first), seconds.take(longest_first))


class Queues:
    """Orders the eligible (job, type) rows of a ledger by priority; holds what stays the same from round to round.

    Parameters
    ----------
    ledger : shares and time received. Jobs and shares must not change in the life of this object.
    eligible : (M, n) the rows that may be chosen.
    sizes : (n,) GPUs per gang.
    settings : priority, tie_breaks, priority_digits and round_seconds are read.
    """

    def __init__(
        self, ledger: TimeLedger, eligible: NDArray[np.bool_], sizes: _Ids, settings: MechanismSettings
    ) -> None:
        self.ledger = ledger
        self.settings = settings
        self.lengths: list[int] = eligible.sum(axis=1).tolist()
        types, n = eligible.shape
        # Ties are settled once: rows are stored in tie order, and the stable sort of a round keeps it. Sorting is
        # ascending, so everything is negated.
        columns = {"deficit": -ledger.deficits, "share": -ledger.shares}
        ties = [columns[name] for name in reversed(settings.tie_breaks)]
        tie_order = np.lexsort(ties, axis=-1) if ties else np.tile(np.arange(n), (types, 1))
        self._row_start = n * np.arange(types)[:, None]
        self._rows = tie_order + self._row_start
        self._jobs = ledger.active[tie_order]
        if settings.priority == "time_fraction":
            self._negated_shares = np.where(eligible, -ledger.shares, np.inf)
        else:
            place = np.where(eligible, np.where(ledger.shares > 0, 0.0, _LAST), np.inf)
            self._sizes = sizes.astype(np.float64)
            self._base = (-ledger.credit_seconds - ledger.deficits) * self._sizes + place
            self._promise = ledger.shares * self._sizes

    def _negated_priorities(self, clock: float) -> _Floats:
        """(M, n) in tie order; rows that may not be chosen are inf."""
        ledger = self.ledger
        if self.settings.priority == "time_fraction":
            values = self._negated_shares / (ledger.received / ledger.type_time[:, None])
        else:
            promised_for = clock - ledger.counted_since + self.settings.round_seconds
            values = ledger.received * self._sizes + self._base - self._promise * promised_for
        values = values.take(self._rows)
        digits = self.settings.priority_digits
        return values if digits is None else _round_significant(values, digits)

    def per_type(self, clock: float) -> list[list[int]]:
        """For each type the eligible job ids, highest priority first."""
        order = self._negated_priorities(clock).argsort(axis=1, kind="stable")
        order += self._row_start
        jobs = self._jobs.take(order)
        return [row[:length].tolist() for row, length in zip(jobs, self.lengths, strict=True)]

    def merged(self, clock: float, visit_order: Sequence[int]) -> tuple[list[int], list[int]]:
        """All eligible rows as (job ids, types), highest priority first, equal ones in `visit_order` of the types."""
        visit = np.array(visit_order)
        order = self._negated_priorities(clock).take(visit, axis=0).ravel().argsort(kind="stable")
        order = order[: sum(self.lengths)]
        jobs = self._jobs.take(visit, axis=0).take(order)
        return jobs.tolist(), visit.take(order // self._jobs.shape[1]).tolist()


def _round_significant(values: _Floats, digits: int) -> _Floats:
    finite = np.isfinite(values) & (values != 0)
    decade = np.searchsorted(_POWERS_OF_TEN, np.abs(np.where(finite, values, 1.0)), side="right") - 1
    # a power of ten beyond the largest number is not needed: such a value is next to nothing
    scale = _POWERS_OF_TEN[np.minimum(digits - 1 - (decade + _LEAST_POWER), _LARGEST_POWER) - _LEAST_POWER]
    return np.where(finite, np.rint(values * scale) / scale, values)
