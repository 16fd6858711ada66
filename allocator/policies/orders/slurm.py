"""The scheduler that most clusters have: Slurm's multifactor priority with backfill, and preemption by weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, log
from typing import ClassVar

import numpy as np

from allocator.conversion import AtLeastOne, NotNegative, NotNegativeWhole, Positive
from allocator.fractions import WHOLE
from allocator.policies.base.ordering import in_line
from allocator.policies.base.reservations import Timetable
from allocator.protocol import Assignment, ClusterState, Need, Plan, PlanPolicy, Trigger
from allocator.protocol.plan import Memory
from allocator.protocol.policy import Hindrance, Past
from allocator.protocol.views import Needs, Views
from allocator.registry import register
from throughputs.arrays import Floats, Ints, Values
from throughputs.numerics import exp

_DAY = 86400.0

_SMALL_DECAY = 1e-5
"""Exponent of a decay below which two terms of its series are exact to rounding."""

_GRACE_SECONDS = 60.0
"""A job that runs beyond its limit is expected to end within so long."""


@dataclass(eq=False)
class Usage(Memory):
    """GPU seconds that each account has had, the older the less they count.

    Attributes
    ----------
    clock : up to when they are counted, seconds. running : GPUs that each account has from then on.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)
    clock: float = 0.0

    def until(self, clock: float, half_life: float) -> None:
        """Count what has run since, each second decaying from when it was used."""
        seconds = clock - self.clock
        decay = seconds * log(2.0) / half_life
        kept = float(exp(np.array(-decay)))
        # the integral of the decay over the time that has passed, by its series where the difference would round away
        of_one_gpu = seconds * (1.0 - decay / 2.0) if decay < _SMALL_DECAY else seconds * (1.0 - kept) / decay
        accounts = self.seconds.keys() | self.running.keys()
        self.seconds = {
            name: self.seconds.get(name, 0.0) * kept + self.running.get(name, 0.0) * of_one_gpu
            for name in sorted(accounts)
        }
        self.clock = clock


@register(
    "slurm",
    paper="SchedMD, Slurm 24.05 documentation: priority/multifactor and sched/backfill; Lifka, JSSPP 1995 (EASY)",
    program="in order of w_a min(a_i / A, 1) + w_f 2^(-U_k / S_k) + w_s s_i / C + w_q q_i, started where none of the "
    "first R that wait would start later by it",
)
@dataclass(frozen=True)
class Slurm(PlanPolicy):
    """Multifactor priority with backfill by time limits: what most clusters run today.

        p_i = w_a min(a_i / A, 1) + w_f 2^(-U_k / S_k) + w_s s_i / C + w_q q_i / max_l q_l

    a: seconds since submission; U: part of all GPU time, decaying by its half life, that the account k of the job had;
    S: the part that is its due; s: GPUs; C: GPUs of the cluster; q: the job's weight (QOS). Jobs are looked at in this
    order, equal ones as they came. One that finds no room on any of its types, and is among the first `reservations`
    there, is promised the earliest time at which it has room if everybody runs to the time limit; whoever comes after
    may start now where no promise is broken. Types, and partitions that are types, do not hold each other up. A job
    keeps its GPUs to its end.

    Time limits are the predicted lengths (trace column predicted_seconds, where a log's limits go); a job without one
    counts with its true length. The account of a job is its entity, else who submitted it.

    Parameters
    ----------
    age_weight, fairshare_weight, size_weight, priority_weight : w_a, w_f, w_s, w_q; all 0: first come, first served.
    max_age_days : A in days. half_life_days : of GPU time that was used; 0: nothing is forgotten.
    favor_small : 1 - s / C in place of s / C.
    reservations : R, by type; 1 is EASY backfilling, a large number conservative backfilling, 0: whoever fits starts.
    depth : jobs that wait are looked at up to so many.
    preempts : whether a job may take the GPUs of jobs of less weight, those of the least weight and the shortest run
        first, where it can start in no other way. Promises are kept.
    """

    age_weight: NotNegative = 0.0
    fairshare_weight: NotNegative = 0.0
    size_weight: NotNegative = 0.0
    priority_weight: NotNegative = 0.0
    max_age_days: Positive = 7.0
    half_life_days: NotNegative = 7.0
    favor_small: bool = False
    reservations: NotNegativeWhole = 1
    depth: AtLeastOne = 500
    preempts: bool = False

    needs: ClassVar[Needs] = Need.PREDICTIONS | Need.SERVICE | Need.FRACTIONS
    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION | Trigger.RATES | Trigger.CAPACITY
    in_order_of_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fairshare_weight:
            object.__setattr__(self, "needs", self.needs | Views.account | Views.submitter)

    def new_memory(self) -> Usage:
        """Nobody has had anything."""
        return Usage()

    def memory_at(self, started: Mapping[int, float], past: Past | None = None) -> Usage:  # noqa: ARG002
        """What accounts have had, where fair shares count."""
        usage = Usage()
        if past is None or not self.fairshare_weight:
            return usage
        usage.clock, rate = past.clock, log(2.0) / (self.half_life_days * _DAY or inf)
        ended = np.minimum(past.end, past.clock)
        had = past.gpus * (ended - past.start)
        if rate:
            # the integral of the decay since then
            had = past.gpus * (exp(rate * (ended - past.clock)) - exp(rate * (past.start - past.clock))) / rate
        for name in dict.fromkeys(past.account.tolist()):
            mine = past.account == name
            usage.seconds[name] = float(had[mine].sum())
            if running := float(past.gpus[mine & (past.end >= past.clock)].sum()):
                usage.running[name] = running
        return usage

    def plan(self, state: ClusterState, memory: Usage) -> Plan:
        """Who runs from now on: those who run, and those who start."""
        if self.fairshare_weight:
            memory.until(state.clock, self.half_life_days * _DAY or inf)
        search = _Backfill(self, state, self._line(state, memory))
        rows = search.rows()
        if self.fairshare_weight:
            gpus = state.gpus_taken.take(rows.jobs).tolist()
            memory.running = {}
            for name, count in zip(_accounts(state).take(rows.jobs).tolist(), gpus, strict=True):
                memory.running[name] = memory.running.get(name, 0.0) + count
        return Plan.until_next_event(rows)

    def priorities(self, state: ClusterState, memory: Usage) -> Floats:
        """(N,) p, the largest first."""
        size = state.gpus_taken / max(float(state.capacity.sum()), 1.0)
        weights = state.priority_weights
        total = self.age_weight * np.minimum(state.elapsed_seconds / (self.max_age_days * _DAY), 1.0)
        total += self.size_weight * (1.0 - size if self.favor_small else size)
        total += self.priority_weight * (weights / max(float(weights.max(initial=0.0)), 1e-300))
        if self.fairshare_weight:
            total += self.fairshare_weight * self._fair_shares(state, memory)
        return np.asarray(total)

    def _fair_shares(self, state: ClusterState, memory: Usage) -> Floats:
        """(N,) ``2^(-U_k / S_k)`` of the account of each job; S as `_parts_due` says."""
        names, of_job = np.unique(_accounts(state), return_inverse=True)
        used, everything = memory.seconds, sum(memory.seconds.values())
        if not everything:
            return np.ones(state.n_jobs)
        due = _parts_due(dict.fromkeys([*used, *names.tolist()]), state)
        over = [used.get(name, 0.0) / everything / due[name] for name in names.tolist()]
        return np.asarray(exp(-log(2.0) * np.array(over))[of_job])

    def _line(self, state: ClusterState, memory: Usage) -> Ints:
        """Positions of those who wait, the first in line first."""
        waits = np.ones(state.n_jobs, dtype=np.bool_)
        waits[state.running.jobs] = False
        waiting = waits.nonzero()[0]
        if not (self.age_weight or self.fairshare_weight or self.size_weight or self.priority_weight):
            return waiting
        return np.asarray(waiting[np.argsort(-self.priorities(state, memory)[waiting], kind="stable")])

    def hindrance(self, state: ClusterState, job: int) -> Hindrance | None:
        """Its place in line, and the first before it that waits as well and would be delayed."""
        if self.fairshare_weight:
            # what accounts have had is not known here
            return Hindrance("ranked_behind", "its place in line hangs on what its account has had")
        line = self._line(state, Usage())
        place = int((line == job).argmax()) if job in line else 0
        if not place:
            return None
        rows = _Backfill(self, state, line).rows()
        behind, pools = f"place {place + 1} in line", state.runnable_rates > 0
        stuck = [i for i in line[:place].tolist() if i not in rows.jobs and (pools[i] & pools[job]).any()]
        held_up = job not in rows.jobs and self.reservations
        return in_line(state, behind, stuck if held_up else [], "would be delayed")


class _Backfill:
    """Who starts, looked for in the order of a line. GPUs of timetables are in thousandths."""

    def __init__(self, policy: Slurm, state: ClusterState, line: Ints) -> None:
        self.policy, self.state, self.line = policy, state, line[: policy.depth]
        self.room, self.free = state.room(), state.capacity - state.running.gpus_used(len(state.capacity))
        self.gpus, self.limit = state.gpus_taken.tolist(), state.predicted_seconds.tolist()
        self.size = [round(gpus * WHOLE) for gpus in self.gpus]
        self.tables: dict[int, Timetable] = {}
        self.stopped: set[int] = set()

    def rows(self) -> Assignment:
        """Who runs from now on."""
        usable, gpus = self.state.runnable_rates.take(self.line, axis=0), self.state.gpus_taken.take(self.line)
        able, ranked = usable > 0, (-usable).argsort(axis=1, kind="stable").tolist()
        # who cannot start now is looked at as long as promises are given
        fits = np.any(able & (gpus[:, None] <= self.free), axis=1)
        counts = able.sum(axis=1).tolist()
        left = dict.fromkeys(range(able.shape[1]), self.policy.reservations)
        started: list[tuple[int, int]] = []
        for job, may, order, count in zip(self.line.tolist(), fits.tolist(), ranked, counts, strict=True):
            pools = order[:count]
            open_ = [pool for pool in pools if left[pool] > 0]
            if not (may or open_ or self.policy.preempts):
                continue
            pool = self._start(pools, job)
            if pool < 0 and self.policy.preempts:
                pool = self._evict(pools, job)
            if pool >= 0:
                started.append((job, pool))
            elif open_:
                self._promise(open_, job, left)
        return self._assignment(started)

    def _start(self, pools: list[int], job: int) -> int:
        """The pool on which a gang starts now, -1 for none."""
        for pool in pools:
            if self._table(pool).fits_now(self.size[job], self.limit[job]) and self.room.take(pool, self.gpus[job]):
                self._table(pool).take(self.state.clock, self.limit[job], self.size[job])
                return pool
        return -1

    def _promise(self, pools: list[int], job: int, left: dict[int, int]) -> None:
        """Reserve GPUs on the pool that has them first."""
        starts = {pool: self._table(pool).earliest(self.size[job], self.limit[job]) for pool in pools}
        pool = min(starts, key=starts.__getitem__)
        left[pool] -= 1
        if starts[pool] < inf:
            self._table(pool).take(starts[pool], self.limit[job], self.size[job])

    def _evict(self, pools: list[int], job: int) -> int:
        """The pool on which a gang starts now because jobs of less weight stop, -1 for none.

        That where those who stop weigh least, as few as are needed for every promise to be kept.
        """
        weights, found = self.state.priority_weights, {pool: self._victims(pool, job) for pool in pools}
        enough = [pool for pool in pools if found[pool]]
        for pool in sorted(enough, key=lambda pool: (max(weights[i] for i in found[pool]), len(found[pool]))):
            for victim in found[pool]:
                self.room.give_back(victim)
            if self.room.take(pool, self.gpus[job]):
                for victim in found[pool]:
                    self._stop(self._table(pool), victim)
                self.stopped.update(found[pool])
                self._table(pool).take(self.state.clock, self.limit[job], self.size[job])
                return pool
            # as the GPUs lie, the gang finds no room
            for victim in found[pool]:
                self.room.take(pool, self.gpus[victim])
        return -1

    def _victims(self, pool: int, job: int) -> list[int]:
        """Who would stop on a pool for a gang; empty where all of less weight are not enough."""
        state, rows = self.state, self.state.running
        weights, trial, chosen = state.priority_weights, self._table(pool).copy(), list[int]()
        there = rows.jobs[(rows.pool == pool) & (weights[rows.jobs] < weights[job])].tolist()
        for victim in sorted(set(there) - self.stopped, key=lambda i: (weights[i], state.run_seconds[i], i)):
            self._stop(trial, victim)
            chosen.append(victim)
            if trial.fits_now(self.size[job], self.limit[job]):
                return chosen
        return []

    def _stop(self, table: Timetable, job: int) -> None:
        """The GPUs of a job that runs are free from now on."""
        table.take(self.state.clock, self._left(job), -self.size[job])

    def _left(self, job: int) -> float:
        """Seconds to the time limit of a job that runs."""
        left = self.limit[job] - float(self.state.run_seconds[job])
        return left if left > 0 else _GRACE_SECONDS

    def _table(self, pool: int) -> Timetable:
        if pool not in self.tables:
            clock, rows = self.state.clock, self.state.running
            ends = [(clock + self._left(job), self.size[job]) for job in rows.jobs[rows.pool == pool].tolist()]
            self.tables[pool] = Timetable(clock, round(float(self.free[pool]) * WHOLE), ends)
        return self.tables[pool]

    def _assignment(self, started: list[tuple[int, int]]) -> Assignment:
        running = self.state.running
        if self.stopped:
            running = running.without(np.array(sorted(self.stopped)))
        if not started:
            return running
        jobs, pools = np.array(started, dtype=np.int64).T
        return running.followed_by(Assignment.of(jobs, pools, np.maximum(self.state.scale_factors[jobs], 1)))


def _parts_due(accounts: Iterable[str], state: ClusterState) -> dict[str, float]:
    """The part of the cluster that is each account's due; the parts of entities go down their tree by weight.

    An account that is no entity stands beside the topmost ones, with weight 1.
    """
    if state.membership is None:
        names = list(accounts)
        return dict.fromkeys(names, 1.0 / max(len(names), 1))
    entities = state.membership.entities
    weights, parents = np.asarray(entities.weights, dtype=np.float64), np.asarray(entities.parent)
    others = [name for name in accounts if name not in set(entities.names)]
    top = float(weights[parents < 0].sum()) + len(others)
    of_siblings = np.bincount(parents + 1, weights, len(weights) + 1)
    due = weights / np.where(parents < 0, top, of_siblings[parents + 1])
    for place, parent in enumerate(parents.tolist()):
        # parents stand before their members
        if parent >= 0:
            due[place] *= due[parent]
    return dict(zip(entities.names, due.tolist(), strict=True)) | dict.fromkeys(others, 1.0 / top)


def _accounts(state: ClusterState) -> Values:
    """(N,) the entity of each job, else who submitted it."""
    named = state.account.astype(str)
    return np.where(named == "", state.submitter.astype(str), named)
