"""The ledger of the round mechanism: shares of time, and the time that was received.

Counted since the policy was last asked: ``received[j, i]``, the time row i had on type j (tau), and ``type_time[j]``,
the time all rows had on it (Theta). The *deficit*, the time that shares promised and rounds did not give, is carried
over from count to count.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.mechanism.gang_packing import Rows
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol.assignment import Assignment
from throughputs import InputError

if TYPE_CHECKING:
    from allocator.protocol.jobs import JobTable
    from formulations import Pairs

_Floats = NDArray[np.float64]
_Ids = NDArray[np.int64]

NOTHING = 1e-6
"""Part of a round that counts as nothing: shares of solvers are exact to fewer digits than times are."""

_COLUMNS = ("active", "decided", "can_run", "shares", "received", "deficits", "type_time", "counted_since")


class TimeLedger:
    """Shares of the active jobs on M types and the time they have received; arrays are (M, rows), ids ascending.

    The rows of this ledger are jobs alone; those of `PairLedger` are jobs alone and pairs.

    Parameters
    ----------
    jobs : the job table; scale factors are read.
    n_types : M.
    settings : round_seconds, initial_credit_rounds, late_jobs_add_type_time, max_overdraft_rounds, time_counted,
        share_decimals and hysteresis_rounds are read.

    Attributes
    ----------
    active : (R,) numbers of the rows, ascending: ids of jobs.
    version : another number whenever rows came or went.
    incumbent : (M, R) rows that keep their GPUs unless others are owed clearly more, see `note_incumbents`.
    hysteresis_seconds : how much more, in GPU seconds.
    """

    def __init__(self, jobs: JobTable, n_types: int, settings: MechanismSettings) -> None:
        self._table = jobs
        self.credit_seconds = credit_seconds = settings.initial_credit_rounds * settings.round_seconds
        self.late_jobs_add_type_time = settings.late_jobs_add_type_time
        self.never_forgets = settings.time_counted == "since_arrival"
        self._share_decimals = settings.share_decimals
        overdraft = settings.max_overdraft_rounds
        self.least_deficit = -np.inf if overdraft is None else -overdraft * settings.round_seconds
        self.active: _Ids = np.empty(0, dtype=np.int64)
        self.decided: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self.can_run: NDArray[np.bool_] = np.empty((n_types, 0), dtype=np.bool_)
        self.shares, self.received, self.deficits = (np.empty((n_types, 0)) for _ in range(3))
        self.type_time: _Floats = np.full(n_types, credit_seconds)
        self.counted_since = 0.0
        self.hysteresis_seconds = settings.hysteresis_rounds * settings.round_seconds
        self.round_seconds = settings.round_seconds
        self.incumbent = self._runs = self._new = self.can_run
        self._incumbent_at: tuple[Assignment, int] | None = None
        self.version = 0
        # A round that repeats the one before comes with the same array of jobs: its rows are looked up once.
        self._indexed_jobs: _Ids | None = None
        self._indexed_slots: _Ids = self.active
        self._rows: Rows | None = None
        self._row_gpus: _Ids | None = None

    @property
    def jobs(self) -> _Ids:
        """(n,) ids of the active jobs, ascending."""
        return self.active

    @property
    def row_gpus(self) -> _Ids:
        """(R,) GPUs that each row takes."""
        if self._row_gpus is None:
            self._row_gpus = self._gpus_of_rows()
        return self._row_gpus

    def _gpus_of_rows(self) -> _Ids:
        return np.asarray(self._table.scale_factor[self._table.rows(self.active)])

    @property
    def rows(self) -> Rows:
        """The rows, for gang packing."""
        if self._rows is None:
            self._rows = self._packing_rows()
        return self._rows

    def _packing_rows(self) -> Rows:
        n = len(self.active)
        return Rows(list(range(n)), [-1] * n, self.row_gpus.tolist())

    def alone(self, jobs: _Ids) -> _Ids:
        """Rows in which the active jobs at these positions run alone."""
        return jobs

    def assignment(self, chosen: list[list[int]], order: list[int]) -> Assignment:
        """The rows that were `chosen` for each type, type by type in this order, as an assignment."""
        rows, pool = joined(chosen, order)
        return Assignment(self.active[rows], pool, self.row_gpus[rows], _nobody(len(rows)))

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
        self._rows_changed()
        merged = np.concatenate([self.active, jobs])
        order = merged.argsort(kind="stable")
        self.active = merged[order]

        def join(values: _Floats, fill: float) -> _Floats:
            return np.concatenate([values, np.full((len(values), k), fill)], axis=1).take(order, axis=1)

        self.decided = np.concatenate([self.decided, np.zeros(k, dtype=np.bool_)])[order]
        self.can_run = np.concatenate([self.can_run, can_run], axis=1).take(order, axis=1)
        self.shares, self.deficits = join(self.shares, 0.0), join(self.deficits, 0.0)
        self.received = join(self.received, credit_seconds)

    def refresh(self) -> None:
        """Look again where jobs can run."""
        self.can_run = self._table.rates[self._table.rows(self.active)].T > 0
        self._rows_changed()

    def remove(self, jobs: _Ids) -> None:
        """Forget `jobs`; the time they had still counts for the types."""
        self._keep(np.delete(np.arange(len(self.active)), self._slots(jobs)))

    def _keep(self, kept: _Ids) -> None:
        self._rows_changed()
        self.active, self.decided = self.active.take(kept), self.decided.take(kept)
        self.can_run, self.shares = self.can_run.take(kept, axis=1), self.shares.take(kept, axis=1)
        self.received, self.deficits = self.received.take(kept, axis=1), self.deficits.take(kept, axis=1)

    def _rows_changed(self) -> None:
        self._indexed_jobs = self._rows = self._row_gpus = None
        self.version += 1

    def _slots(self, rows: _Ids) -> _Ids:
        """Positions of `rows`, which must be active, in the arrays."""
        slots = self.active.searchsorted(rows)
        if not np.array_equal(self.active.take(slots, mode="clip") if len(self.active) else self.active, rows):
            raise InputError("jobs", found=rows.tolist(), expected="active jobs")
        return slots

    def start_count(self, clock: float) -> None:
        """Carry the deficits over and count anew from `clock` (seconds); what counts since arrival goes on."""
        if self.never_forgets:
            self.counted_since = clock
            return
        promised = self.shares * (clock - self.counted_since)
        self.deficits += promised - (self.received - self.credit_seconds)
        np.maximum(self.deficits, self.least_deficit, out=self.deficits)
        self.received[:] = self.credit_seconds
        # With no job at all the time of a type is only ever divided by; any positive number does.
        self.type_time[:] = self.credit_seconds * max(len(self.active), 1)
        self.counted_since = clock

    def owed(self, clock: float) -> _Floats:
        """(n,) time each job was promised and has not received up to `clock`, over all types, in seconds."""
        return np.asarray(self._row_owed(clock).sum(axis=0))

    def due(self, clock: float) -> NDArray[np.bool_]:
        """(M, R) rows whose time is due in a round at `clock` (seconds), by `note_incumbents` of the round before it.

        What a row is owed counts with the promise of that round. A row that waits runs once it is owed a whole round,
        and from then on for as long as it is owed anything, so that no row ever has more than a round beyond its share,
        and one with half of the time starts once in four rounds, not in two. A job that has not trained yet starts when
        it is owed half a round: over many short jobs, what some have too much others have too little.
        """
        least = np.where(self._runs, NOTHING, self._least_to_start())
        return self._row_owed(clock + self.round_seconds) > least * self.round_seconds

    def _least_to_start(self) -> _Floats:
        """(R,) rounds that a row which waits must be owed."""
        return np.where(self._new, 0.5, 1.0) - NOTHING

    def _row_owed(self, clock: float) -> _Floats:
        """(M, R) time that each row was promised and has not received up to `clock`, in seconds."""
        promised = self.shares * (clock - self.counted_since)
        owed: _Floats = self.deficits + promised - (self.received - self.credit_seconds)
        return owed

    def due_gpus(self, due: NDArray[np.bool_], clock: float, capacity: list[int]) -> list[int]:
        """GPUs of each type to give away in a round at `clock` among the rows that are `due` (M, R).

        What all rows of the type together are owed, in whole GPUs, and as many more as the largest gang may need: what
        it has too much is missing in the next round, so that the type as a whole never has more than a gang beyond the
        shares.
        """
        sizes = self.row_gpus
        owed = (self._row_owed(clock + self.round_seconds) * sizes).sum(axis=1) / self.round_seconds
        largest = np.where(due, sizes, 1).max(axis=1, initial=1)
        gpus = np.where(owed > NOTHING, np.ceil(owed - NOTHING) + largest - 1, 0.0)
        return [min(int(some), all_) for some, all_ in zip(gpus, capacity, strict=True)]

    def rounds_to_due(self, clock: float) -> float:
        """Whole rounds from `clock` (seconds), when nobody runs, until the first row is due; inf if none ever is."""
        missing = self._least_to_start() - self._row_owed(clock + self.round_seconds) / self.round_seconds
        ever = self.can_run & (self.shares > 0)
        return float(np.ceil(missing[ever] / self.shares[ever]).min(initial=np.inf))

    def set_shares(self, shares: _Floats, pairs: Pairs | None = None) -> None:
        """Set the (n, M) `shares` of all active jobs; this ledger has no rows for `pairs`."""
        assert pairs is None or not len(pairs)
        self._set(shares)

    def _set(self, shares: _Floats) -> None:
        self.shares = np.ascontiguousarray(shares.T)
        if self._share_decimals is not None:
            self.shares = np.clip(np.round(self.shares, self._share_decimals), 0.0, 1.0)
        self.decided[:] = True

    def record(self, assignment: Assignment, seconds: _Floats) -> None:
        """Add the (K,) `seconds` that the jobs of a round ran."""
        self._add_time(assignment.jobs, assignment.pool, seconds)

    def _add_time(self, rows: _Ids, pool: _Ids, seconds: _Floats) -> None:
        """Add the `seconds` that active `rows` ran on `pool`.

        The time of a type is summed longest run first: a fixed order, so that the sum does not depend on the order of
        the rows.
        """
        if rows is not self._indexed_jobs:
            self._indexed_jobs = rows
            self._indexed_slots = self._slots(rows)
        self.received[pool, self._indexed_slots] += seconds
        longest_first = (-seconds).argsort(kind="stable")
        np.add.at(self.type_time, pool.take(longest_first), seconds.take(longest_first))

    def note_incumbents(self, running: Assignment) -> None:
        """The rows `running` ran in the round before; they and all rows of jobs that have not trained yet and wait are
        the incumbents."""
        at = self._incumbent_at
        if at is not None and at[0] is running and at[1] == self.version:
            return
        self._incumbent_at = running, self.version
        jobs = self.jobs
        new = (self._table.steps_done[self._table.rows(jobs)] <= 0) & ~np.isin(jobs, running.jobs)
        rows, pool = self._rows_running(running)
        there = np.isin(rows, self.active)
        self._runs = np.zeros(self.shares.shape, dtype=np.bool_)
        self._runs[pool[there], self.active.searchsorted(rows[there])] = True
        self._new = self._rows_with(new)
        self.incumbent = self._runs | self._new

    def _rows_with(self, jobs: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(R,) the rows in which any of the `jobs` is; these are marked among the (n,) active ones."""
        return jobs

    def _rows_running(self, running: Assignment) -> tuple[_Ids, _Ids]:
        """Numbers of the rows that run, active or not, and the type of each."""
        return running.jobs, running.pool

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {name: getattr(self, name) for name in _COLUMNS}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        for name in _COLUMNS:
            setattr(self, name, state[name])
        self._rows_changed()


def joined(chosen: list[list[int]], order: list[int]) -> tuple[_Ids, _Ids]:
    """The rows that were chosen for each type, type by type in this order, and the type of each."""
    rows: list[int] = []
    for j in order:
        rows += chosen[j]
    return np.array(rows, dtype=np.int64), np.repeat(order, [len(chosen[j]) for j in order])


@lru_cache(maxsize=1024)
def _nobody(rows: int) -> _Ids:
    """(rows,) -1: nobody shares. Shared by all rounds of so many rows."""
    partner = np.full(rows, -1, dtype=np.int64)
    partner.flags.writeable = False
    return partner
