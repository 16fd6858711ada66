"""What the round mechanism knew in the rounds of a finished run: shares, time received, priorities.

The mechanism itself is led through the run once more with the decisions that were written down; nothing is decided anew
on the way. What it would choose is compared with who ran.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.cluster import Cluster
from allocator.conversion import kinds_of
from allocator.explanations.run import LEAST_SHARE, FinishedRun, Rows
from allocator.mechanism.isolated import IsolatedTime
from allocator.mechanism.rounds import RoundMechanism
from allocator.mechanism.settings import MechanismSettings
from allocator.presets import discipline_named, preset_of
from allocator.protocol.assignment import Assignment
from allocator.protocol.entities import Entities
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Need, SharePolicy
from throughputs import Trace
from throughputs.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Standing:
    """Where a job stood in a round in which it waited.

    Attributes
    ----------
    clock : start of the round, seconds.
    decided : whether the policy had been asked since the job arrived.
    shares : (M,) of time, by the decision in force.
    owed : time that it was promised by shares and had not had, seconds, as the mechanism counts it.
    priority, last_priority : (M,) its priority on each type, and the least among those with a share that ran there; nan
        where it had no share, or nobody ran.
    ahead : (M,) jobs that ran there and came before it; those that it comes behind without a share included.
    left_at_turn : (M,) GPUs of each type that those before it had left.
    """

    clock: float
    decided: bool
    shares: Floats
    owed: float
    priority: Floats
    last_priority: Floats
    ahead: Ints
    left_at_turn: Ints


@dataclass(frozen=True, eq=False)
class Instant:
    """All that a policy and the mechanism knew when a decision was made, or a round was chosen by the last one.

    Attributes
    ----------
    clock : seconds.
    asked : whether the policy was asked at this instant; otherwise its shares of before hold.
    table : the jobs as they were.
    active : (n,) ids of the active jobs, ascending.
    running : who ran before.
    mechanism : state of the round mechanism before the decision; None in a world of events.
    ran : ids of the jobs that ran from then on, ascending.
    gpus, started : in a world of events, by row of `running`: ids of the GPUs, and since when it holds them, seconds.
    """

    clock: float
    asked: bool
    table: JobTable
    active: Ints
    running: Assignment
    mechanism: dict[str, Any] | None
    ran: Ints
    gpus: tuple[tuple[int, ...], ...] = ()
    started: tuple[float, ...] = ()


def job_table(run: FinishedRun) -> JobTable:
    """The jobs as they were submitted.

    Raises
    ------
    InputError
        Jobs that no trace may have.
    """
    columns = ("job_type", "scale_factor", "total_steps", "arrival_time", "priority_weight", "deadline", "user")
    told = run.jobs.predicted_seconds
    trace = Trace(
        **{name: getattr(run.jobs, name) for name in (*columns, "gpu_fraction")},
        entity=np.where(run.jobs.account == "", run.jobs.entity, run.jobs.account),
        predicted_seconds=np.where(told > 0, told, np.nan),
        source=run.source,
    )
    given = run.settings.get("entities")
    entities = None if given is None else Entities.parse(given)
    return JobTable.from_trace(trace, run.jobs.rates, run.cluster, entities=entities)


def mechanism_of(run: FinishedRun, table: JobTable, cluster: Cluster) -> RoundMechanism:
    """A new round mechanism as in the run, for the jobs of `table` on `cluster`."""
    assert isinstance(run.policy, SharePolicy)
    return preset_of(run.settings).mechanism.start(run.policy, cluster, table, int(run.settings.get("seed", 0)))


class RoundReplay:
    """Leads the round mechanism through a finished run.

    Parameters
    ----------
    run : one that `can_replay`.
    """

    def __init__(self, run: FinishedRun) -> None:
        assert isinstance(run.policy, SharePolicy)
        self.run, self.policy = run, run.policy
        self.table = job_table(run)
        self.mechanism = mechanism_of(run, self.table, run.cluster)
        self._isolated = IsolatedTime(self.table, run.cluster)
        self._active: Ints = np.empty(0, dtype=np.int64)
        self._running = Assignment.none()
        self._idle_gap: bool = bool(run.settings.get("idle_gap_counts_as_service"))
        self._leaving = np.argsort(run.jobs.gone, kind="stable")
        self._gone = run.jobs.gone[self._leaving]
        self._left = self._arrived = 0
        self._bounds = [run.rows.round.searchsorted(run.rounds.round, side) for side in ("left", "right")]

    @staticmethod
    def can_replay(run: FinishedRun) -> bool:
        """Whether the run has rounds of shares, of jobs alone, and says all that the mechanism needs to know."""
        policy, settings = run.policy, run.settings
        if not len(run.decisions) or run.decisions.packed or policy is None or policy.answers != "shares":
            return False
        # where nodes failed, GPUs came and went
        if not run.in_rounds or Need.COLOCATION in policy.needs or settings.get("mtbf_hours") is not None:
            return False
        discipline = discipline_named(settings.get("discipline", ""))
        if discipline is None or (np.diff(run.rows.round) < 0).any():
            return False
        return all(name in settings for name in (*kinds_of(MechanismSettings), *kinds_of(type(discipline))))

    def follow(
        self, windows: Mapping[int, tuple[float, float]], instants: Collection[float]
    ) -> tuple[dict[int, list[Standing]], list[Instant]]:
        """Standings by job in the rounds of its window (seconds) in which it waited, and the decisions made, or rounds
        chosen, at the `instants` (seconds).
        """
        rounds, decided = self.run.rounds, self.run.decisions.time
        wanted = set(instants)
        last = max([until for _, until in windows.values()] + list(wanted), default=-np.inf)
        clocks = np.unique(np.concatenate([decided, rounds.start_time]))
        standings: dict[int, list[Standing]] = {job: [] for job in windows}
        found: list[Instant] = []
        number = position = 0
        previous_end, drawn_at = 0.0, -np.inf
        for clock in clocks[clocks <= last].tolist():
            if self.mechanism.draws_types and drawn_at < previous_end < clock:
                self.mechanism.next(previous_end, self._running)  # nobody ran from then on
            self._arrive(clock)
            here = position < len(rounds.round) and rounds.start_time[position] == clock
            upto = int(decided.searchsorted(clock, "right"))
            if clock in wanted and (here or number < upto):
                found.append(self._instant(clock, position if here else None, asked=number < upto))
            for decision in range(number, upto):
                self._decide(clock, decision)
            number = upto
            if self.mechanism.draws_types:
                # the mechanism draws the order of types whenever it chooses, be it from nobody
                self.mechanism.next(clock, self._running)
                drawn_at = clock
            if not here:
                continue
            asked_about = [job for job, (since, until) in windows.items() if since <= clock < until]
            for job, standing in self._standings(asked_about, clock, position):
                standings[job].append(standing)
            self._run(position, previous_end)
            previous_end = float(rounds.end_time[position])
            position += 1
        return standings, found

    def _arrive(self, clock: float) -> None:
        new = np.arange(self._arrived, self.run.jobs.arrival_time.searchsorted(clock, "right"))
        if len(new):
            self.mechanism.arrived(new)
            self._active, self._arrived = np.concatenate([self._active, new]), self._arrived + len(new)

    def _decide(self, clock: float, number: int) -> None:
        self._isolated.advance(self._active)
        shares = self.run.decisions.shares(number, self._active)
        self.mechanism.decided(clock, shares)
        if not self.policy.preemptive:
            self.table.current_accelerator[self._active] = np.where(shares.max(axis=1) > 0, shares.argmax(axis=1), -1)

    def _run(self, position: int, previous_end: float) -> None:
        """The round went as it did."""
        ran, rows = self._ran(position), self._assigned(position)
        start = previous_end if self._idle_gap else ran.start_time
        self.mechanism.record(rows, ran.end_time - start)
        np.add.at(self.table.steps_done, rows.jobs, ran.steps)
        self._running = rows
        left = np.sort(self._leaving[self._left : self._gone.searchsorted(self.run.rounds.end_time[position], "right")])
        if len(left):
            self._left += len(left)
            self.mechanism.left(left)
            self._active = self._active[~np.isin(self._active, left)]

    def _ran(self, position: int) -> Rows:
        first, until = (bounds[position] for bounds in self._bounds)
        return self.run.rows.take(slice(first, until))

    def _assigned(self, position: int) -> Assignment:
        ran = self._ran(position)
        return Assignment(ran.job_id, ran.pool, ran.gpu_count, ran.partner)

    def _standings(self, jobs: list[int], clock: float, position: int) -> Iterator[tuple[int, Standing]]:
        """Of those of the jobs that were there and did not run."""
        rows, ledger, capacity = self._assigned(position), self.mechanism.ledger, self.run.cluster.capacity
        waiting = np.setdiff1d(np.intersect1d(jobs, ledger.jobs), rows.jobs)
        if not len(waiting):
            return
        priorities, owed = self.mechanism.priorities(clock, self._running), ledger.owed(clock)
        among = ledger.jobs.searchsorted(rows.jobs)
        theirs, by_share = priorities[rows.pool, among], ledger.shares[rows.pool, among] > LEAST_SHARE
        last = np.full(len(capacity), np.inf)
        np.minimum.at(last, rows.pool[by_share], theirs[by_share])
        for job, at in zip(waiting.tolist(), ledger.jobs.searchsorted(waiting).tolist(), strict=True):
            shares = ledger.shares[:, at].copy()
            # of equal ones those that ran came first; what filled idle GPUs without a share came after all that had one
            mine = np.where(shares > LEAST_SHARE, priorities[:, at], np.nan)
            before = theirs >= mine[rows.pool]
            yield (
                job,
                Standing(
                    clock=clock,
                    decided=bool(ledger.decided[at]),
                    shares=shares,
                    owed=float(owed[at]),
                    priority=np.where(np.isfinite(mine), mine, np.nan),
                    last_priority=np.where(np.isinf(last), np.nan, last),
                    ahead=np.bincount(rows.pool[before], minlength=len(capacity)),
                    left_at_turn=capacity
                    - np.bincount(rows.pool[before], rows.gpus[before], len(capacity)).astype(int),
                ),
            )

    def _instant(self, clock: float, position: int | None, *, asked: bool) -> Instant:
        table, isolated = deepcopy((self.table, self._isolated))
        if asked:
            isolated.advance(self._active)
        return Instant(
            clock=clock,
            asked=asked,
            table=table,
            active=self._active.copy(),
            running=self._running.among(self._active),
            mechanism=deepcopy(self.mechanism.state()),
            ran=np.sort(Assignment.none().jobs if position is None else self._assigned(position).jobs),
        )
