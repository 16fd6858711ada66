"""The discipline of Gavel's scheduler (OSDI'20, sec. 5, and public artifact), and what others made of it.

The priority of a row is its share divided by the fraction of the type's time that it has had,
priority[j, i] = share[j, i] / (received[j, i] / type_time[j]). It forgets the past at every decision: where shares
change in nearly every round, small shares are hardly ever served.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from allocator.mechanism.gang_packing import Vacancies, pack
from allocator.mechanism.ledger import Ledger, pair_number
from allocator.mechanism.rounds import Discipline, Queues, RoundMechanism, Rounds
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from throughputs.arrays import Floats, Ints

# Time received by a pair that no decision has seen yet. Gavel counts none; its share is 0, so any positive number will
# do where a share is divided by it.
_NO_TIME = 1e-300


@dataclass(frozen=True)
class TimeFractions(Discipline):
    """The types choose one after the other, each from its own queue, by share over fraction of time received.

    Rows without a share stand at the end of each queue and fill idle GPUs wherever they come up first. Jobs that the
    policy has not seen yet take GPUs in the queue but do not run. Under policies that pack every pair of active jobs
    with gangs of one size is a row in its own right; their number grows with the square of the jobs.

    Attributes
    ----------
    accelerator_order : the order in which types choose; types not named follow in the cluster's own order. It is drawn
        at random in every round for policies that do not distinguish types.
    """

    name: ClassVar[str] = "time_fraction"

    accelerator_order: tuple[str, ...] = ()

    def start(self, run: Rounds) -> RoundMechanism:
        """See Discipline."""
        types = run.cluster.accelerators
        first = [name for name in self.accelerator_order if name in types]
        order = [types.index(name) for name in (*first, *(name for name in types if name not in first))]
        ledger = EveryPairLedger if run.packs else FractionLedger
        return GavelRounds(run, ledger(run.jobs, len(types), run.seconds), order)


class FractionLedger(Ledger):
    """Adds the time of the types: `type_time` (M,), what all rows together had since the policy was last asked.

    The time of jobs that arrive between decisions does not count into it.
    """

    keeps = (*Ledger.keeps, "type_time")

    def __init__(self, jobs: JobTable, n_types: int, round_seconds: float) -> None:
        super().__init__(jobs, n_types, round_seconds)
        self.type_time: Floats = np.full(n_types, self.credit_seconds)

    def start_count(self, clock: float) -> None:
        """As in Ledger, and the time of the types begins with the credit of their rows."""
        super().start_count(clock)
        # With no job at all the time of a type is only ever divided by; any positive number does.
        self.type_time[:] = self.credit_seconds * max(len(self.numbers), 1)

    def add_time(self, rows: Ints, pool: Ints, seconds: Floats) -> None:
        """As in Ledger; the time of a type is summed longest run first, whatever the order of the rows."""
        super().add_time(rows, pool, seconds)
        longest_first = (-seconds).argsort(kind="stable")
        np.add.at(self.type_time, pool.take(longest_first), seconds.take(longest_first))

    def sums(self) -> list[Floats]:
        """Time received, by row and by type."""
        return [*super().sums(), self.type_time]


class EveryPairLedger(FractionLedger):
    """Every pair of active jobs with gangs of one size is a row with a deficit of its own."""

    def add(self, jobs: Ints) -> None:
        """Take in new `jobs`, and their pairs with those of before and among themselves."""
        before = self.jobs
        super().add(jobs)
        everyone = np.concatenate([before, np.sort(jobs)])
        one, other = np.triu_indices(len(everyone), 1)
        new = other >= len(before)
        one, other = everyone[one[new]], everyone[other[new]]
        sizes, at = self._table.scale_factor, self._table.rows
        alike = sizes[at(one)] == sizes[at(other)]
        low, high = np.minimum(one, other)[alike], np.maximum(one, other)[alike]
        self._insert(pair_number(low, high), self.can_share(low, high), _NO_TIME)

    def _share_debts(self, owed: Floats) -> None:
        """Debts stay with the pairs."""

    def _replace_pairs(self, numbers: Ints) -> None:
        """They are there already."""


class FractionRounds(RoundMechanism):
    """Share over fraction of time received, in a run; rows without a share fill idle GPUs at the end of the queues."""

    ledger: FractionLedger

    def __init__(self, run: Rounds, ledger: FractionLedger) -> None:
        super().__init__(run, ledger)
        self._fills_idle = run.policy.fills_idle_gpus

    def new_queues(self) -> Queues:
        """See RoundMechanism."""
        ledger = self.ledger
        eligible = ledger.can_run if self._fills_idle else ledger.can_run & (ledger.shares > 0)
        self._negated_shares = np.where(eligible, -ledger.shares, np.inf)
        return Queues(self.ties())

    def ties(self) -> tuple[Floats, ...]:
        """What decides between rows of equal priority: the larger deficit, then the larger share."""
        return (-self.ledger.shares, -self.ledger.deficits)

    def negated_priorities(self, clock: float, running: Assignment) -> Floats:  # noqa: ARG002
        """See RoundMechanism."""
        ledger = self.ledger
        negated: Floats = self._negated_shares / (ledger.received / ledger.type_time[:, None])
        return negated

    def steady_rounds(self) -> bool:
        """As in RoundMechanism, where idle GPUs are not drawn for."""
        return not (self.draws_types and self._fills_idle) and super().steady_rounds()


class GavelRounds(FractionRounds):
    """Gavel's discipline in a run."""

    def __init__(self, run: Rounds, ledger: FractionLedger, order: list[int]) -> None:
        super().__init__(run, ledger)
        self._types = order

    def interval_elapsed(self, clock: float) -> bool:
        """A decision at clock 0 does not start the interval: the next change is decided at once."""
        return self._asked_at == 0.0 or super().interval_elapsed(clock)

    def choose(self, clock: float, queues: Queues, negated: Floats, types: list[int]) -> list[list[int]]:  # noqa: ARG002
        """See RoundMechanism."""
        ledger = self.ledger
        left = Vacancies(self._capacity, len(ledger.jobs))
        chosen = pack(in_turn(queues.per_type(negated), types, left.free), ledger.packing, left, self._strict)
        if ledger.decided.all():
            return chosen
        return [[row for row in mine if ledger.decided[row]] for mine in chosen]

    def steady_rounds(self) -> bool:
        """As before, and the policy has seen all jobs."""
        return bool(self.ledger.decided.all()) and super().steady_rounds()


def in_turn(queues: Sequence[Iterable[int]], types: Sequence[int], free: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The rows of one type after the other, for as long as that type has `free` GPUs."""
    for j in types:
        for row in queues[j]:
            if not free[j]:
                break
            yield row, j
