"""Priorities: who is furthest behind its share of time.

Two rules, over what a `TimeLedger` keeps:

- "time_fraction": share divided by the fraction of the type's time received (Gavel, OSDI'20, sec. 5),
  priority[j, i] = share[j, i] / (received[j, i] / type_time[j]). It forgets the past at every decision: where shares
  change in nearly every round, small shares are hardly ever served.
- "deficit": GPU time owed at the end of the coming round if the job does not run in it,
  priority[j, i] = s_i (deficit[j, i] + share[j, i] (time since the decision + round) - received[j, i]).
  It does not forget, so the time that jobs get follows the shares however often these change.

Hysteresis (`MechanismSettings.hysteresis_rounds`) adds h GPU seconds to the priority of *incumbents*, the rows that run
and those of jobs that have not trained yet, and h share[j, i] to that of the others. So a row that waits, k, takes the
place of one that runs, i, if

    s_k owed_k - s_i owed_i > h (1 - share_k),

owed being deficit[j, i] + share[j, i] (time since the decision + round) - received[j, i]: a restart must be worth some
GPU time that was owed. A job with a small share will have to give its GPUs back soon, so it must be owed more; one with
a share of 1 keeps them and need not wait. A newcomer does not wait for the hysteresis of others either.

Every priority is changed by 0 to h only, so with gangs of one GPU on one type, n jobs whose shares sum to the GPUs, and
no bound on what is held against a job, the time owed to any job stays within (n - 1) (round + h) / 2 of 0, however the
shares change. Let f(k) be the largest total that any k jobs are owed, Q = round + h. Take k jobs that are owed most
after a round. r of them are owed no more than one that waited, the other j = k - r ran; m jobs ran that are not among
the k. No job that ran is owed less, after it, than a job that waited by more than Q, so that
f(k) <= m / (r + m) f(j) + r / (r + m) f(k + m) + Q r m / (r + m) if r and m are above 0, and no more than before the
round otherwise. Q k (n - k) / 2 fulfils that with equality for r = m = 1 and is above it elsewhere; it is 0 for k = n,
and the least that any job is owed follows from k = n - 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allocator.mechanism.ledger import TimeLedger
from allocator.mechanism.settings import MechanismSettings

# Negated deficit of rows without a share: behind every row with one, and before those that may not be chosen.
_LAST = 1e300

_LEAST_POWER, _LARGEST_POWER = -323, 308
_POWERS_OF_TEN = np.array([float(f"1e{power}") for power in range(_LEAST_POWER, _LARGEST_POWER + 1)])
"""All that there are. Read as text they are the nearest numbers; the power function's depend on the processor."""

_Floats = NDArray[np.float64]
_Flags = NDArray[np.bool_]
_Ids = NDArray[np.int64]


class Queues:
    """Orders the eligible (job, type) rows of a ledger by priority; holds what stays the same from round to round.

    Parameters
    ----------
    ledger : shares and time received. Jobs and shares must not change in the life of this object.
    eligible : (M, n) the rows that may be chosen.
    settings : priority, tie_breaks, priority_digits, round_seconds and hysteresis_rounds are read.

    Where the answers for a round take `due`, (M, n), only these rows may be chosen in it; None: all that are eligible.
    """

    def __init__(self, ledger: TimeLedger, eligible: _Flags, settings: MechanismSettings) -> None:
        self.ledger = ledger
        self.settings = settings
        self._eligible = eligible
        self._lengths: list[int] = eligible.sum(axis=1).tolist()
        types, n = eligible.shape
        # Ties are settled once: rows are stored in tie order, and the stable sort of a round keeps it. Sorting is
        # ascending, so everything is negated.
        columns = {"deficit": -ledger.deficits, "share": -ledger.shares}
        ties = [columns[name] for name in reversed(settings.tie_breaks)]
        tie_order = np.lexsort(ties, axis=-1) if ties else np.tile(np.arange(n), (types, 1))
        self._row_start = n * np.arange(types)[:, None]
        self._rows = tie_order + self._row_start
        self._tie_order = tie_order
        if settings.priority == "time_fraction":
            self._negated_shares = np.where(eligible, -ledger.shares, np.inf)
        else:
            place = np.where(eligible, np.where(ledger.shares > 0, 0.0, _LAST), np.inf)
            self._sizes = ledger.row_gpus.astype(np.float64)
            self._base = (-ledger.credit_seconds - ledger.deficits) * self._sizes + place
            self._promise = ledger.shares * self._sizes
            self._stay: _Floats | None = None
            if settings.hysteresis_rounds:
                waiting = np.minimum(ledger.shares, 1.0) * ledger.hysteresis_seconds
                self._base = self._base - waiting
                self._stay = ledger.hysteresis_seconds - waiting

    def _lengths_of(self, due: _Flags | None) -> list[int]:
        """(M,) rows that may be chosen."""
        return self._lengths if due is None else (due & self._eligible).sum(axis=1).tolist()

    def _negated_priorities(self, clock: float, due: _Flags | None) -> _Floats:
        """(M, n) in tie order; rows that may not be chosen are inf."""
        ledger = self.ledger
        if self.settings.priority == "time_fraction":
            values = self._negated_shares / (ledger.received / ledger.type_time[:, None])
        else:
            promised_for = clock - ledger.counted_since + self.settings.round_seconds
            values = ledger.received * self._sizes + self._base - self._promise * promised_for
            if self._stay is not None:
                values -= self._stay * ledger.incumbent
        if due is not None:
            values = np.where(due, values, np.inf)
        values = values.take(self._rows)
        digits = self.settings.priority_digits
        return values if digits is None else _round_significant(values, digits)

    def priorities(self, clock: float, due: _Flags | None = None) -> _Floats:
        """(M, n) in the order of the ledger, the highest first served; nan for rows that may not be chosen."""
        found = np.empty(self._rows.shape)
        found.ravel()[self._rows] = -self._negated_priorities(clock, due)
        eligible = found > -np.inf
        # behind all with a share
        return np.where(eligible, np.where(found <= -0.5 * _LAST, -np.inf, found), np.nan)

    def per_type(self, clock: float, due: _Flags | None = None) -> list[list[int]]:
        """For each type the eligible rows, as positions in the ledger, highest priority first."""
        order = self._negated_priorities(clock, due).argsort(axis=1, kind="stable")
        order += self._row_start
        rows = self._tie_order.take(order)
        return [row[:length].tolist() for row, length in zip(rows, self._lengths_of(due), strict=True)]

    def merged(
        self, clock: float, visit_order: Sequence[int], due: _Flags | None = None
    ) -> tuple[list[int], list[int]]:
        """All eligible (row, type), highest priority first, equal ones in `visit_order` of the types."""
        visit = np.array(visit_order)
        order = self._negated_priorities(clock, due).take(visit, axis=0).ravel().argsort(kind="stable")
        order = order[: sum(self._lengths_of(due))]
        rows = self._tie_order.take(visit, axis=0).take(order)
        return rows.tolist(), visit.take(order // self._tie_order.shape[1]).tolist()


def _round_significant(values: _Floats, digits: int) -> _Floats:
    finite = np.isfinite(values) & (values != 0)
    decade = np.searchsorted(_POWERS_OF_TEN, np.abs(np.where(finite, values, 1.0)), side="right") - 1
    # a power of ten beyond the largest number is not needed: such a value is next to nothing
    scale = _POWERS_OF_TEN[np.minimum(digits - 1 - (decade + _LEAST_POWER), _LARGEST_POWER) - _LEAST_POWER]
    return np.where(finite, np.rint(values * scale) / scale, values)
