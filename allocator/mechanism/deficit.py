"""The usual discipline: who is furthest behind its share of time comes first.

The priority of a row is the GPU time that it is owed at the end of the coming round if it does not run in it,
priority[j, i] = s_i (deficit[j, i] + share[j, i] (time since the decision + round) - received[j, i]).
It does not forget, so the time that jobs get follows the shares however often these change.

Hysteresis (`DeficitQueue.hysteresis_rounds`) adds h GPU seconds to the priority of *incumbents*, the rows that run
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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from allocator.conversion import NotNegative
from allocator.mechanism.executor import Step
from allocator.mechanism.gang_packing import Vacancies, pack, preference
from allocator.mechanism.ledger import Ledger
from allocator.mechanism.rounds import Discipline, Queues, RoundMechanism, Rounds
from allocator.protocol.assignment import Assignment, among_ids
from throughputs.arrays import Flags, Floats

NOTHING = 1e-6
"""Part of a round that counts as nothing: shares of solvers are exact to fewer digits than times are."""


@dataclass(frozen=True)
class DeficitQueue(Discipline):
    """One queue of all (row, type), whoever is owed most GPU time first.

    Attributes
    ----------
    max_overdraft_rounds : time beyond its share that is held against a job at the next decision, in rounds, at most;
        None: all of it. Without a bound, a job that had an idle cluster to itself would starve when others come.
    hysteresis_rounds : a job that waits takes the place of one that runs only if it is owed so much more GPU time, in
        rounds of one GPU, times one less its share. Saves restarts. 0: whoever is owed more runs.
    idle_fill : who runs on GPUs that would idle. "best_type": once all rows with a share had their turn, each waiting
        job takes the fastest type that has room (the first in order, for policies that do not distinguish types).
        "off": nobody has more than its share, not even a job that has one; a row then runs only in rounds in which
        its time is due (`DeficitRounds.rows_due`). None: "best_type", and "off" for policies with `fills_idle_gpus`
        false. Under these "best_type" fills nothing either, but a job with a share may have more than it.
    """

    name: ClassVar[str] = "deficit"

    max_overdraft_rounds: NotNegative | None = 3.0
    hysteresis_rounds: NotNegative = 0.0
    idle_fill: Literal["off", "best_type"] | None = None

    def start(self, run: Rounds) -> RoundMechanism:
        """See Discipline."""
        return DeficitRounds(self, run)


class DeficitRounds(RoundMechanism):
    """The usual discipline in a run."""

    def __init__(self, discipline: DeficitQueue, run: Rounds) -> None:
        bound, policy = discipline.max_overdraft_rounds, run.policy
        least = -np.inf if bound is None else -bound * run.seconds
        super().__init__(run, Ledger(run.jobs, len(run.cluster.accelerators), run.seconds, least))
        self._stay_seconds = discipline.hysteresis_rounds * run.seconds
        self._fills_idle = policy.fills_idle_gpus and discipline.idle_fill != "off"
        binding = not policy.fills_idle_gpus and not policy.relative_shares
        self._only_due = discipline.idle_fill == "off" or (discipline.idle_fill is None and binding)
        self._aware, self._packs = policy.heterogeneity_aware, run.packs
        self._incumbents_of: tuple[Assignment, int] | None = None
        self._runs = self._incumbent = self._due = self.ledger.can_run
        self._new = self.ledger.decided
        # Types of the active jobs, fastest first.
        self._preferred: list[list[int]] | None = None

    def new_queues(self) -> Queues:
        """See RoundMechanism."""
        ledger = self.ledger
        eligible = ledger.can_run & (ledger.shares > 0)
        self._sizes = ledger.row_gpus.astype(np.float64)
        self._base = (-ledger.credit_seconds - ledger.deficits) * self._sizes + np.where(eligible, 0.0, np.inf)
        self._promise = ledger.shares * self._sizes
        if self._stay_seconds:
            waiting = np.minimum(ledger.shares, 1.0) * self._stay_seconds
            self._base -= waiting
            self._stay = self._stay_seconds - waiting
        self._preferred = None
        return Queues((-ledger.shares, -ledger.deficits))

    def negated_priorities(self, clock: float, running: Assignment) -> Floats:
        """See RoundMechanism."""
        ledger = self.ledger
        promised_for = clock - ledger.counted_since + self._seconds
        negated: Floats = ledger.received * self._sizes + self._base - self._promise * promised_for
        if self._stay_seconds or self._only_due:
            self._note_incumbents(running)
        if self._stay_seconds:
            negated -= self._stay * self._incumbent
        if self._only_due:
            self._due = self.rows_due(clock)
            negated[~self._due] = np.inf
        return negated

    def choose(self, clock: float, queues: Queues, negated: Floats, types: list[int]) -> list[list[int]]:
        """See RoundMechanism."""
        ledger = self.ledger
        left = Vacancies(self._due_gpus(clock) if self._only_due else self._capacity, len(ledger.jobs))
        chosen = pack(zip(*queues.merged(negated, types), strict=True), ledger.packing, left, self._strict)
        if self._fills_idle and left.waiting and any(left.free):
            for mine, more in zip(chosen, pack(self._idle_queue(clock, types), ledger.packing, left), strict=True):
                mine += more
        return chosen

    def _idle_queue(self, clock: float, types: list[int]) -> Iterator[tuple[int, int]]:
        """All jobs alone on every type that can run them, the fastest first; those that are owed most time first."""
        ledger, table = self.ledger, self._table
        if self._preferred is None:
            self._preferred = preference(table.rates[table.rows(ledger.jobs)])
        owed = ledger.owed(clock)
        if self._stay_seconds:
            owed = owed + self._incumbent[:, ledger.alone].any(axis=0) * self._stay_seconds
        alone = ledger.alone.tolist()
        for job in (-owed).argsort(kind="stable").tolist():
            able = self._preferred[job]
            for j in able if self._aware else [j for j in types if j in able]:
                yield alone[job], j

    def _note_incumbents(self, running: Assignment) -> None:
        """The rows `running` ran in the round before; they and all rows of jobs that have not trained yet and wait are
        the incumbents."""
        ledger, known = self.ledger, self._incumbents_of
        if known is not None and known[0] is running and known[1] == ledger.version:
            return
        self._incumbents_of = running, ledger.version
        untrained = self._table.steps_done[self._table.rows(ledger.jobs)] <= 0
        self._runs = ledger.running(running)
        self._new = ledger.any_member(untrained & ~among_ids(ledger.jobs, np.sort(running.jobs)))
        self._incumbent = self._runs | self._new

    def rows_due(self, clock: float) -> Flags:
        """(M, R) rows whose time is due in a round at `clock` (seconds).

        What a row is owed counts with the promise of that round. A row that waits runs once it is owed a whole round,
        and from then on for as long as it is owed anything, so that no row ever has more than a round beyond its share,
        and one with half of the time starts once in four rounds, not in two. A job that has not trained yet starts when
        it is owed half a round: over many short jobs, what some have too much others have too little. Both jobs of a
        pair must be owed anything over all their rows: a debt that is carried over stands in each of these, and is paid
        once.
        """
        ledger, end = self.ledger, clock + self._seconds
        least = np.where(self._runs, NOTHING, self._least_to_start())
        due = ledger.row_owed(end) > least * self._seconds
        return due & ledger.both_members(ledger.owed(end) > NOTHING * self._seconds) if self._packs else due

    def _least_to_start(self) -> Floats:
        """(R,) rounds that a row which waits must be owed."""
        return np.where(self._new, 0.5, 1.0) - NOTHING

    def _due_gpus(self, clock: float) -> list[int]:
        """GPUs of each type to give away in a round at `clock` among the rows that are due.

        What all rows of the type together are owed, in whole GPUs, and as many more as the largest gang may need: what
        it has too much is missing in the next round, so that the type as a whole never has more than a gang beyond the
        shares. All GPUs under a policy that packs: several rows repeat one debt there.
        """
        if self._packs:
            return self._capacity
        sizes = self.ledger.row_gpus
        owed = (self.ledger.row_owed(clock + self._seconds) * sizes).sum(axis=1) / self._seconds
        largest = np.where(self._due, sizes, 1).max(axis=1, initial=1)
        gpus = np.where(owed > NOTHING, np.ceil(owed - NOTHING) + largest - 1, 0.0)
        return [min(int(some), all_) for some, all_ in zip(gpus, self._capacity, strict=True)]

    def due_at(self, clock: float) -> float:
        """The beginning of the next round in which somebody's time is due; inf where nobody waits for his time."""
        ledger = self.ledger
        ever = ledger.can_run & (ledger.shares > 0)
        if not self._only_due or not ever.any():
            return np.inf
        missing = self._least_to_start() - ledger.row_owed(clock + self._seconds) / self._seconds
        rounds = np.ceil(missing[ever] / ledger.shares[ever]).min()
        return clock + max(float(rounds), 1.0) * self._seconds

    def starved(self, step: Step, news: bool) -> bool:
        """Nobody runs although some are there, and something is news."""
        return news and len(self.ledger.jobs) > 0 and not len(step.assignment)

    def rates_changed(self) -> None:
        """Other types may be the fastest now."""
        self._preferred = None

    def steady_rounds(self) -> bool:
        """As in RoundMechanism, and nobody waits until his time is due."""
        shares = self.ledger.shares
        drawn = self.draws_types and self._fills_idle
        waits = self._only_due and ((shares > 0) & (shares < 1)).any()
        return not drawn and not waits and super().steady_rounds()
