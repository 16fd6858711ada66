"""Lucid: jobs that hardly disturb each other share GPUs; those predicted to take least GPU time go first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from allocator.policies.lucid.forecast import ArrivalForecast
from allocator.policies.lucid.memory import Line, LucidMemory
from allocator.protocol import Assignment, ClusterState, Need, Plan, PlanPolicy, PlanStep, Trigger
from allocator.protocol.policy import Hindrance
from allocator.registry import register
from allocator.room import Room
from formulations.packing import PackingJobs, PackingLimits, best_pairs, first_hosts
from formulations.packing.greedy import Greedy, HostChoice
from throughputs import InputError

_Ids = NDArray[np.int64]

# Relative to the clock.
_ROUNDING = 1e-12


@dataclass(eq=False)
class Changes:
    """What a decision changes, by id: who starts alone (with the pool), who joins whom, who leaves the profiler."""

    starts: list[tuple[int, int]] = field(default_factory=list)
    joins: list[tuple[int, int]] = field(default_factory=list)
    profiled: list[int] = field(default_factory=list)


@register(
    "lucid",
    paper="Hu et al. (Lucid), ASPLOS 2023, sec. 3",
    program="in order of g_i d_i: on free GPUs, else beside a job with g_i = g_j, s_i + s_j <= S, g_i d_i <= 2 g_j d_j",
)
@dataclass(frozen=True)
class Lucid(PlanPolicy):
    """Pack two jobs on the same GPUs where they hardly disturb each other; least predicted GPU time first.

        in order of  g_i d_i:   free GPUs, else the first host j with
            g_i = g_j <= 8,  s_i + s_j <= S,  both fit into memory,  g_i d_i <= 2 g_j d_j,  j has its GPUs to itself

    g_i: GPUs of the gang; d_i: predicted duration (column `predicted_seconds` of the trace); s_i: sharing score, 0 for
    a job that hardly disturbs others, 1, or 2. Nobody is preempted, and who finds no room lets others pass. A host
    takes one guest at a time. Where a forecast of arrivals says that few are to come, nobody is packed, and the line is
    strict. Each pool (a virtual cluster) has a line of its own; a job that may use several stands where the work in
    line is predicted to be done first.

    With a `profiling_pool` new jobs run there first, for a while at most, those with the fewest GPUs first. What they
    train there counts.

    Parameters
    ----------
    score_budget : S, the most that the scores of two jobs may be together: 0, 1, 2, or 4 for no limit.
    largest_gang, length_ratio : see `formulations.packing.PackingLimits`.
    packs : whether jobs are packed at all.
    host : of several hosts the "first" to have started, or the "fastest": with which the two keep most together.
    scores : sharing scores by job type; others have 0 where a job keeps and leaves at least `score_thresholds[0]` of
        the throughput on the average over the kinds that it may share with, of those that it was looked at beside so
        far, 1 down to `score_thresholds[1]`.
    score_thresholds : as said.
    forecast : of arrivals; None: jobs are always packed.
    quiet_jobs : packing is off while at most so many jobs are predicted to arrive in an interval.
    review_seconds : how often the forecast is looked at.
    profiling_pool : name of the pool for profiling; empty: jobs are not profiled.
    profiling_seconds, profiling_gpus : how long a job is profiled at most, and how large it may be for that.
    """

    score_budget: int = 2
    largest_gang: int = 8
    length_ratio: float = 2.0
    packs: bool = True
    host: HostChoice = "first"
    scores: Mapping[str, int] = field(default_factory=dict)
    score_thresholds: tuple[float, float] = (0.95, 0.85)
    forecast: ArrivalForecast | None = None
    quiet_jobs: float = 2.0
    review_seconds: float = 100.0
    profiling_pool: str = ""
    profiling_seconds: float = 200.0
    profiling_gpus: int = 8

    needs = Need.COLOCATION | Need.PREDICTIONS
    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION | Trigger.RATES | Trigger.CAPACITY
    heterogeneity_aware: ClassVar[bool] = False
    in_order_of_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("review_seconds", "profiling_seconds", "profiling_gpus"):
            if not getattr(self, name) > 0:
                found, expected = getattr(self, name), "above 0"
                raise InputError(f"policy {self.name}", field=name, found=found, expected=expected)
        self._limits  # noqa: B018 - raises where a limit is out of range

    @cached_property
    def _limits(self) -> PackingLimits:
        return PackingLimits(self.score_budget, self.largest_gang, self.length_ratio)

    def new_memory(self) -> LucidMemory:
        """Empty lines."""
        return LucidMemory()

    def plan(self, state: ClusterState, memory: LucidMemory) -> Plan:
        """Who starts, and beside whom, until the next arrival or completion."""
        profiler = pool_named(state, self.profiling_pool)
        memory.recall(state, profiler, self.profiling_gpus)
        room, changes = state.room(), Changes()
        self._end_profiles(state, memory, room, profiler, changes)
        packing = self._packs_at(state.clock)
        if packing != memory.packing:
            memory.packing = packing
            for line in memory.lines:
                line.changed()
        self._serve_all(state, memory, room, profiler, changes)
        return Plan(self._steps(state, changes, self._until(state, memory)))

    def _serve_all(self, state: ClusterState, memory: LucidMemory, room: Room, profiler: int, changes: Changes) -> None:
        """Walk through every line until there is no news of it."""
        for pool, line in enumerate(memory.lines):
            while line.news and line.waiting:
                self._walk_once(state, memory, pool, room, profiler, changes)

    def _walk_once(
        self, state: ClusterState, memory: LucidMemory, pool: int, room: Room, profiler: int, changes: Changes
    ) -> None:
        if pool == profiler:
            self._profile(state, memory, pool, room, changes)
        else:
            self._walk(state, memory, pool, room, changes)

    def hindrance(self, state: ClusterState, job: int) -> Hindrance | None:
        """Its place in line."""
        memory = self.new_memory()
        memory.recall(state, pool_named(state, self.profiling_pool), self.profiling_gpus)
        for line in memory.lines:
            ids = [entry[2] for entry in line.waiting]
            own = int(state.ids[job])
            if own in ids and len(ids) > 1:
                text = f"place {ids.index(own) + 1} of {len(ids)} in line by predicted GPU time"
                return Hindrance("ranked_behind", text)
        return None

    # Walking through a line.

    def _walk(self, state: ClusterState, memory: LucidMemory, pool: int, room: Room, changes: Changes) -> None:
        """Serve the line of a pool; there is news of it again where somebody starts who takes guests."""
        line = memory.lines[pool]
        if memory.packing:
            self._serve(state, memory, pool, room, changes)
            return
        line.walked()
        started = len(changes.starts)
        for _, _, job in line.waiting:
            if not room.take(pool, memory.jobs[job].gpus):
                break
            changes.starts.append((job, pool))
        _take_up(line, changes, started, len(changes.joins), state.clock)
        line.walked()

    def _serve(self, state: ClusterState, memory: LucidMemory, pool: int, room: Room, changes: Changes) -> None:
        """Walk through the line of a pool while jobs are packed."""
        line = memory.lines[pool]
        waiting, hosts = line.to_consider(room.free(pool), lambda job: memory.jobs[job].gpus)
        line.walked()
        if not waiting:
            return
        started = len(changes.starts)
        gpus = [memory.jobs[job].gpus for job in waiting]
        free = room.free(pool)
        # who is packed takes no room, so that it can be told first who starts
        may_start = np.array([size <= free and room.take(pool, size) for size in gpus])
        if may_start.all() or not (hosts or may_start.any()):
            changes.starts += [(job, pool) for job, starts in zip(waiting, may_start, strict=True) if starts]
            _take_up(line, changes, started, len(changes.joins), state.clock)
            return
        guests, running, retained = self._known(state, memory, pool, waiting, hosts)
        found = first_hosts(
            guests,
            running,
            retained,
            self._limits,
            start=lambda _: True,
            may_start=may_start,
            place_first=True,
            choice=self.host,
        )
        self._note(found, line, pool, waiting, hosts, changes, state.clock)

    def _note(
        self,
        found: Greedy,
        line: Line,
        pool: int,
        waiting: list[int],
        hosts: list[int],
        changes: Changes,
        clock: float,
    ) -> None:
        """Who starts on the pool, and who joins whom."""
        started, joined = len(changes.starts), len(changes.joins)
        everybody = [*hosts, *waiting]
        for i, host in enumerate(found.host.tolist()):
            if found.starts[i]:
                changes.starts.append((waiting[i], pool))
            elif host >= 0:
                changes.joins.append((waiting[i], everybody[host]))
        _take_up(line, changes, started, joined, clock)

    def _known(
        self, state: ClusterState, memory: LucidMemory, pool: int, waiting: list[int], hosts: list[int]
    ) -> tuple[PackingJobs, PackingJobs, NDArray[np.float64]]:
        """Guests and hosts as packing sees them, and what their kinds keep beside each other."""
        ids = np.array([*waiting, *hosts], dtype=np.int64)
        kinds, own, retained = memory.known_together(state, pool, ids)
        names = list(memory.kinds)
        score = np.array([self.scores.get(names[kind][0], -1) for kind in kinds.tolist()], dtype=np.int64)
        if (score < 0).any():
            kept = memory.mean_retained(pool, kinds)
            least, middle = self.score_thresholds
            score = np.where(score >= 0, score, np.where(kept >= least, 0, np.where(kept >= middle, 1, 2)))
        n = len(waiting)
        guests = memory.packing_jobs(ids[:n], score[own[:n]], own[:n])
        return guests, memory.packing_jobs(ids[n:], score[own[n:]], own[n:]), retained

    # Times.

    def _packs_at(self, clock: float) -> bool:
        """Whether jobs are packed."""
        if not self.packs or self.forecast is None:
            return self.packs
        reviewed = clock // self.review_seconds * self.review_seconds
        ahead = self.forecast.jobs_ahead(reviewed)
        return ahead is None or ahead > self.quiet_jobs

    @cached_property
    def _turns(self) -> list[float]:
        """When packing is switched on or off, seconds, ascending."""
        begins = () if self.forecast is None or not self.packs else self.forecast.begins
        reviews = [float(np.ceil(begin / self.review_seconds)) * self.review_seconds for begin in begins]
        return [one for before, one in pairwise(reviews) if self._packs_at(before) != self._packs_at(one)]

    def _until_turn(self, clock: float) -> float:
        """Seconds until packing is next switched on or off; inf for never."""
        following = bisect_right(self._turns, clock)
        return self._turns[following] - clock if following < len(self._turns) else np.inf

    def _until(self, state: ClusterState, memory: LucidMemory) -> float:
        """Seconds until the next decision that no arrival or completion calls for."""
        clock = state.clock
        ends = [end - clock for end in memory.profiling.values()]
        if any(line.waiting for line in memory.lines):
            ends.append(self._until_turn(clock))
        return max(min(ends, default=np.inf), 0.0)

    # Profiling.

    def _profile(self, state: ClusterState, memory: LucidMemory, pool: int, room: Room, changes: Changes) -> None:
        """Those with the fewest GPUs first, up to the first that finds no room."""
        line, started = memory.lines[pool], len(changes.starts)
        for _, _, job in line.waiting:
            if not room.take(pool, memory.jobs[job].gpus):
                break
            changes.starts.append((job, pool))
            memory.profiling[job] = state.clock + self.profiling_seconds
        _take_up(line, changes, started, len(changes.joins), state.clock)
        line.walked()

    def _end_profiles(
        self, state: ClusterState, memory: LucidMemory, room: Room, profiler: int, changes: Changes
    ) -> None:
        """Who has been profiled for long enough joins the line of its home."""
        clock = state.clock * (1.0 + _ROUNDING)
        for job in [job for job, end in memory.profiling.items() if end <= clock]:
            position = int(state.ids.searchsorted(job))
            room.give_back(position)
            rates = state.runnable_rates[position]
            memory.profiled(job, memory.home(rates, memory.jobs[job].length, state.capacity, profiler))
            changes.profiled.append(position)

    # The plan.

    def _steps(self, state: ClusterState, changes: Changes, seconds: float) -> tuple[PlanStep, ...]:
        """Those who run, and those who start or join; a guest joins a job that starts now right after that."""
        rows = state.running
        if changes.profiled:
            rows = rows.without(np.array(changes.profiled, dtype=np.int64))
        if not (changes.starts or changes.joins):
            return (PlanStep(rows, seconds),)
        starts = _positions(state, [job for job, _ in changes.starts])
        pools = np.array([pool for _, pool in changes.starts], dtype=np.int64)
        alone = rows.followed_by(Assignment.of(starts, pools, state.scale_factors[starts]))
        if not changes.joins:
            return (PlanStep(alone, seconds),)
        guests = _positions(state, [guest for guest, _ in changes.joins])
        hosts = _positions(state, [host for _, host in changes.joins])
        partner_of = np.full(state.n_jobs, -1, dtype=np.int64)
        partner_of[alone.jobs] = alone.partner
        partner_of[hosts], partner_of[guests] = guests, hosts
        pool_of = np.zeros(state.n_jobs, dtype=np.int64)
        pool_of[alone.jobs] = alone.pool
        jobs = np.concatenate([alone.jobs, guests])
        together = Assignment.of(
            jobs,
            np.concatenate([alone.pool, pool_of[hosts]]),
            np.concatenate([alone.gpus, state.scale_factors[guests]]),
            partner_of[jobs],
        ).in_pairs()
        if np.isin(hosts, starts).any():
            return PlanStep(alone, 0.0), PlanStep(together, seconds)
        return (PlanStep(together, seconds),)


@register(
    "lucid_program",
    paper="ours, after Hu et al. (Lucid), ASPLOS 2023, sec. 3.3",
    program="max sum_ij g_i (w_i - r_i (1/R_ij - 1) - r_j (1/R_ji - 1)) z_ij, one guest a host, one host a guest",
)
@dataclass(frozen=True)
class LucidProgram(Lucid):
    """As `lucid`, but whoever finds no free GPUs is packed by the pairs that save most GPU time together.

    Who may share with whom is the same. A pair is worth the wait w_i that its guest is spared, less what the two lose
    to each other: r_i and r_j, the seconds that they are predicted to need, over the fractions R of their throughput
    that they keep. The wait is that of the work in front: predicted GPU seconds of those who run and of those who stand
    before it in line, over the GPUs of the pool. `formulations.packing.best_pairs` proves the choice. `host` has no
    meaning here.
    """

    def _serve(self, state: ClusterState, memory: LucidMemory, pool: int, room: Room, changes: Changes) -> None:
        """Free GPUs first, in order of the line; then the best pairs."""
        line = memory.lines[pool]
        waiting = [entry[2] for entry in line.waiting]
        started, joined = len(changes.starts), len(changes.joins)
        for job in waiting:
            if memory.jobs[job].gpus <= room.free(pool) and room.take(pool, memory.jobs[job].gpus):
                changes.starts.append((job, pool))
        _take_up(line, changes, started, joined, state.clock)
        line.walked()
        waiting, hosts = [entry[2] for entry in line.waiting], line.hosts
        if not (waiting and hosts):
            return
        guests, running, retained = self._known(state, memory, pool, waiting, hosts)
        left = {job: self._left(memory, line, job, state.clock) for job in line.running}
        ahead = sum(left[job] * memory.jobs[job].gpus for job in line.running if not self._is_guest(line, job))
        before = np.concatenate([[0.0], np.cumsum(guests.length)[:-1]])
        found = best_pairs(
            guests,
            running,
            retained,
            self._limits,
            remaining=guests.length / guests.gpus,
            host_remaining=[left[job] for job in hosts],
            wait=(ahead + before) / int(state.capacity[pool]),
        )
        for i, host in enumerate(found.host.tolist()):
            if host >= 0:
                changes.joins.append((waiting[i], hosts[host]))
        _take_up(line, changes, len(changes.starts), joined, state.clock)

    def _left(self, memory: LucidMemory, line: Line, job: int, clock: float) -> float:
        """Seconds that a job that runs is predicted to need still; 0 for one that has run for longer than predicted."""
        known = memory.jobs[job]
        return max(known.length / known.gpus - (clock - line.running[job]), 0.0)

    def _is_guest(self, line: Line, job: int) -> bool:
        return job in line.guests and job in line.partner


def _take_up(line: Line, changes: Changes, started: int, joined: int, clock: float) -> None:
    """Move those who start or join, from these positions of the changes on, from the waiting to the running."""
    starts, joins = changes.starts[started:], changes.joins[joined:]
    if not (starts or joins):
        return
    host_of = dict(joins)
    gone = {job for job, _ in starts} | set(host_of)
    for _, _, job in line.waiting:
        if job in host_of:
            line.join(job, host_of[job], clock)
        elif job in gone:
            line.start(job, clock)
    line.waiting = [entry for entry in line.waiting if entry[2] not in gone]


def _positions(state: ClusterState, ids: list[int]) -> _Ids:
    return state.ids.searchsorted(np.array(ids, dtype=np.int64))


def pool_named(state: ClusterState, name: str) -> int:
    """Position of the pool of that name; -1 where the cluster has none."""
    names = state.cluster.accelerators
    return names.index(name) if name in names else -1
