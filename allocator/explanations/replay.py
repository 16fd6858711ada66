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
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.conversion import kinds_of
from allocator.explanations.columns import LEAST_SHARE
from allocator.explanations.run import FinishedRun
from allocator.mechanism.isolated import IsolatedTime
from allocator.mechanism.rounds import Discipline, RoundMechanism
from allocator.mechanism.settings import MechanismSettings
from allocator.presets import Preset, discipline_named, preset, preset_names
from allocator.protocol.assignment import Assignment
from allocator.protocol.entities import Entities
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Need, SharePolicy
from throughputs import Trace

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


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
    shares: _Floats
    owed: float
    priority: _Floats
    last_priority: _Floats
    ahead: _Ints
    left_at_turn: _Ints


@dataclass(frozen=True, eq=False)
class Instant:
    """All that a policy and the mechanism knew when a decision was made, or a round was chosen by the last one.

    Attributes
    ----------
    clock : seconds.
    decision : number of the decision; -1 where the run wrote none down.
    asked : whether the policy was asked at this instant; otherwise its shares of before hold.
    table : the jobs as they were.
    active : (n,) ids of the active jobs, ascending.
    running : who ran before.
    mechanism : state of the round mechanism before the decision; None in a world of events.
    ran : ids of the jobs that ran from then on, ascending.
    gpus, started : in a world of events, by row of `running`: ids of the GPUs, and since when it holds them, seconds.
    """

    clock: float
    decision: int
    asked: bool
    table: JobTable
    active: _Ints
    running: Assignment
    mechanism: dict[str, Any] | None
    ran: _Ints
    gpus: tuple[tuple[int, ...], ...] = ()
    started: tuple[float, ...] = ()


def job_table(run: FinishedRun) -> JobTable:
    """The jobs as they were submitted.

    Raises
    ------
    InputError
        Jobs that no trace may have.
    """
    jobs = run.jobs
    trace = Trace(
        jobs.kind,
        jobs.gpus,
        jobs.steps,
        jobs.arrival,
        priority_weight=jobs.weight,
        deadline=jobs.deadline,
        entity=jobs.entity,
        gpu_fraction=jobs.fraction,
        source=run.source,
    )
    given = run.settings.get("entities")
    return JobTable(trace, jobs.rates, run.cluster, None if given is None else Entities.parse(given))


def settings_of(run: FinishedRun) -> Preset:
    """Settings of mechanism and simulator in the run.

    Raises
    ------
    InputError
        A setting that is out of range.
    """
    named, discipline = run.settings.get("preset"), _discipline_of(run)
    chosen = preset(named if named in preset_names() else "default")
    chosen = chosen if discipline is None else chosen.replace(discipline=discipline)
    names = chosen.kinds().keys() - {"discipline"}
    return chosen.replace(**{name: run.settings[name] for name in names if name in run.settings})


def _discipline_of(run: FinishedRun) -> Discipline | None:
    """With its usual settings; None where it is not known here."""
    return discipline_named(run.settings.get("discipline", ""))


def mechanism_of(run: FinishedRun, table: JobTable, cluster: Cluster) -> RoundMechanism:
    """A new round mechanism as in the run, for the jobs of `table` on `cluster`."""
    assert isinstance(run.policy, SharePolicy)
    settings, seed = settings_of(run).mechanism, int(run.settings.get("seed", 0))
    return settings.start(run.policy, cluster, table, seed)


class RoundReplay:
    """Leads the round mechanism through a finished run.

    Parameters
    ----------
    run : one that `can_replay`.
    """

    def __init__(self, run: FinishedRun) -> None:
        assert run.decisions is not None
        assert isinstance(run.policy, SharePolicy)
        self.run, self.policy, self.decisions = run, run.policy, run.decisions
        self.table = job_table(run)
        self.mechanism = mechanism_of(run, self.table, run.cluster)
        self._isolated = IsolatedTime(self.table, run.cluster)
        self._active: _Ints = np.empty(0, dtype=np.int64)
        self._running = Assignment.none()
        self._idle_gap: bool = bool(run.settings.get("idle_gap_counts_as_service"))
        self._leaving = np.argsort(run.jobs.gone, kind="stable")
        self._left = self._arrived = 0
        rows = run.rows
        self._first = rows.round.searchsorted(run.round_index, "left")
        self._until = rows.round.searchsorted(run.round_index, "right")

    @staticmethod
    def can_replay(run: FinishedRun) -> bool:
        """Whether the run has rounds of shares, of jobs alone, and says all that the mechanism needs to know."""
        decisions, policy = run.decisions, run.policy
        if decisions is None or decisions.packed or policy is None or policy.answers != "shares":
            return False
        if run.settings.get("mtbf_hours") is not None:
            return False  # GPUs came and went
        if run.ideal or not run.in_rounds or Need.COLOCATION in policy.needs:
            return False
        ascending = bool((np.diff(run.rows.round) >= 0).all())
        discipline = _discipline_of(run)
        names = () if discipline is None else (*kinds_of(MechanismSettings), *kinds_of(type(discipline)))
        return ascending and bool(names) and all(name in run.settings for name in names)

    def follow(
        self, windows: Mapping[int, tuple[float, float]], instants: Collection[float]
    ) -> tuple[dict[int, list[Standing]], list[Instant]]:
        """Standings by job in the rounds of its window (seconds) in which it waited, and the decisions made, or rounds
        chosen, at the `instants` (seconds).
        """
        run, decisions = self.run, self.decisions
        wanted = set(instants)
        last = max([until for _, until in windows.values()] + list(wanted), default=-np.inf)
        clocks = np.unique(np.concatenate([decisions.time, run.round_start]))
        standings: dict[int, list[Standing]] = {job: [] for job in windows}
        found: list[Instant] = []
        number = position = 0
        previous_end, drawn_at = 0.0, -np.inf
        for clock in clocks[clocks <= last].tolist():
            if self.mechanism.draws_types and drawn_at < previous_end < clock:
                self.mechanism.next(previous_end, self._running)  # nobody ran from then on
            self._arrive(clock)
            here = position < len(run.round_start) and run.round_start[position] == clock
            asked = number < len(decisions.time) and decisions.time[number] == clock
            if here and not asked and clock in wanted:
                found.append(self._instant(clock, number - 1, position, asked=False))
            while asked:
                if clock in wanted:
                    wanted.discard(clock)
                    found.append(self._instant(clock, number, position if here else None, asked=True))
                self._decide(clock, number)
                number += 1
                asked = number < len(decisions.time) and decisions.time[number] == clock
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
            previous_end = float(run.round_end[position])
            position += 1
        return standings, found

    def _arrive(self, clock: float) -> None:
        upto = int(self.run.jobs.arrival.searchsorted(clock, "right"))
        if upto > self._arrived:
            new = np.arange(self._arrived, upto)
            self.mechanism.arrived(new)
            self._active, self._arrived = np.concatenate([self._active, new]), upto

    def _decide(self, clock: float, number: int) -> None:
        self._isolated.advance(self._active)
        shares = self.decisions.shares(number, self._active, len(self.run.cluster.accelerators))
        self.mechanism.decided(clock, shares)
        if not self.policy.preemptive:
            self.table.current_accelerator[self._active] = np.where(shares.max(axis=1) > 0, shares.argmax(axis=1), -1)

    def _run(self, position: int, previous_end: float) -> None:
        """The round went as it did."""
        run, rows = self.run, self._rows_of(position)
        at = slice(self._first[position], self._until[position])
        start = previous_end if self._idle_gap else run.rows.start[at]
        self.mechanism.record(rows, run.rows.finish[at] - start)
        np.add.at(self.table.steps_done, rows.jobs, run.rows.steps[at])
        self._running = rows
        gone, end = run.jobs.gone, float(run.round_end[position])
        first = self._left
        while self._left < len(gone) and gone[self._leaving[self._left]] <= end:
            self._left += 1
        if self._left > first:
            left = np.sort(self._leaving[first : self._left])
            self.mechanism.left(left)
            self._active = self._active[~np.isin(self._active, left)]

    def _rows_of(self, position: int) -> Assignment:
        rows, at = self.run.rows, slice(self._first[position], self._until[position])
        return Assignment(rows.job[at], rows.pool[at], rows.gpus[at], rows.partner[at])

    def _standings(self, jobs: list[int], clock: float, position: int) -> Iterator[tuple[int, Standing]]:
        """Of those of the jobs that were there and did not run."""
        rows, ledger = self._rows_of(position), self.mechanism.ledger
        at = ledger.jobs.searchsorted(jobs)
        ran = set(rows.jobs.tolist())
        waiting = [
            (job, k)
            for job, k in zip(jobs, at.tolist(), strict=True)
            if job not in ran and k < len(ledger.jobs) and ledger.jobs[k] == job
        ]
        if waiting:
            priorities, owed = self.mechanism.priorities(clock, self._running), ledger.owed(clock)
            among = ledger.jobs.searchsorted(rows.jobs)
            for job, k in waiting:
                yield job, self._standing(k, clock, rows, among, priorities, float(owed[k]))

    def _standing(
        self, at: int, clock: float, rows: Assignment, among: _Ints, priorities: _Floats, owed: float
    ) -> Standing:
        """Of the job at a position of the ledger, where the `rows` that ran are `among` the others."""
        ledger, mine = self.mechanism.ledger, priorities[:, at]
        theirs = priorities[rows.pool, among]
        types = len(mine)
        # of equal ones those that ran came first; what filled idle GPUs without a share came after all that had one
        mine = np.where(ledger.shares[:, at] > LEAST_SHARE, mine, np.nan)
        before = theirs >= mine[rows.pool]
        by_share = ledger.shares[rows.pool, among] > LEAST_SHARE
        last = np.full(types, np.inf)
        np.minimum.at(last, rows.pool[by_share], theirs[by_share])
        return Standing(
            clock=clock,
            decided=bool(ledger.decided[at]),
            shares=ledger.shares[:, at].copy(),
            owed=owed,
            priority=np.where(np.isfinite(mine), mine, np.nan),
            last_priority=np.where(np.isinf(last), np.nan, last),
            ahead=np.bincount(rows.pool[before], minlength=types),
            left_at_turn=self.run.cluster.capacity
            - np.bincount(rows.pool[before], rows.gpus[before], types).astype(int),
        )

    def _instant(self, clock: float, number: int, position: int | None, *, asked: bool) -> Instant:
        table, isolated = deepcopy((self.table, self._isolated))
        if asked:
            isolated.advance(self._active)
        ran = np.empty(0, dtype=np.int64) if position is None else np.sort(self._rows_of(position).jobs)
        return Instant(
            clock=clock,
            decision=number,
            asked=asked,
            table=table,
            active=self._active.copy(),
            running=self._running.among(self._active),
            mechanism=deepcopy(self.mechanism.state()),
            ran=ran,
        )
