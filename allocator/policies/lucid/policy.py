"""Lucid: jobs that hardly disturb each other share GPUs; those predicted to take least GPU time go first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise, takewhile
from typing import ClassVar

import numpy as np

from allocator.conversion import AtLeastOne, PositiveSeconds
from allocator.policies.lucid.memory import LucidMemory
from allocator.policies.lucid.profiling import ArrivalForecast
from allocator.protocol import Assignment, ClusterState, Need, Plan, PlanPolicy, PlanStep, Trigger
from allocator.protocol.policy import Hindrance
from allocator.registry import register
from allocator.room import Room
from formulations.packing import (
    Greedy,
    HostChoice,
    PackingJobs,
    PackingLimits,
    best_pairs,
    first_hosts,
    pair_savings,
)
from throughputs.arrays import Floats

# Relative to the clock.
_ROUNDING = 1e-12


@dataclass(eq=False)
class Deciding:
    """A decision as it takes shape.

    Attributes
    ----------
    state, memory : what it is made of.
    room : the GPUs that are free.
    profiler : position of the pool for profiling; -1: none.
    starts : ids of those who start alone. joins : (guest, host), by id.
    profiled : positions of those who leave the profiler.
    """

    state: ClusterState
    memory: LucidMemory
    room: Room
    profiler: int
    starts: list[int] = field(default_factory=list)
    joins: list[tuple[int, int]] = field(default_factory=list)
    profiled: list[int] = field(default_factory=list)

    def take(self, pool: int, job: int) -> bool:
        """Take GPUs for a job, if it finds room."""
        return self.room.take(pool, self.memory.jobs[job].gpus)

    def take_up(self, pool: int, starts: list[int], joins: list[tuple[int, int]]) -> None:
        """Of those who wait for a pool some start, in this order, and some join a host."""
        self.memory.lines[pool].take_up(set(starts), dict(joins), self.state.clock)
        self.starts += starts
        self.joins += joins

    def note(self, found: Greedy, pool: int, waiting: list[int], hosts: list[int]) -> None:
        """Who starts on a pool, and who joins whom."""
        everybody = [*hosts, *waiting]
        rows = list(zip(waiting, found.host.tolist(), found.starts.tolist(), strict=True))
        starts = [job for job, _, alone in rows if alone]
        self.take_up(pool, starts, [(job, everybody[host]) for job, host, alone in rows if host >= 0 and not alone])

    def steps(self, seconds: float) -> tuple[PlanStep, ...]:
        """Those who run, and those who start or join; a guest joins a job that starts now right after that."""
        rows = self.state.running
        if self.profiled:
            rows = rows.without(np.array(self.profiled))
        alone = self._with(rows, self.starts) if self.starts else rows
        if not self.joins:
            return (PlanStep(alone, seconds),)
        guests, hosts = (self.state.ids.searchsorted(ids) for ids in np.array(self.joins).T)
        together = self._with(alone, [guest for guest, _ in self.joins])
        partner = np.full(self.state.n_jobs, -1)
        partner[together.jobs] = together.partner
        partner[hosts], partner[guests] = guests, hosts
        pairs = replace(together, partner=partner[together.jobs]).in_pairs()
        if set(self.starts).isdisjoint(host for _, host in self.joins):
            return (PlanStep(pairs, seconds),)
        return PlanStep(alone, 0.0), PlanStep(pairs, seconds)

    def _with(self, rows: Assignment, ids: list[int]) -> Assignment:
        """These rows, and then those of other jobs, on the pools in whose line they stood."""
        jobs, pools = self.state.ids.searchsorted(np.array(ids)), [self.memory.jobs[job].pool for job in ids]
        return rows.followed_by(Assignment.of(jobs, pools, self.state.scale_factors[jobs]))


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
    review_seconds: PositiveSeconds = 100.0
    profiling_pool: str = ""
    profiling_seconds: PositiveSeconds = 200.0
    profiling_gpus: AtLeastOne = 8

    needs = Need.COLOCATION | Need.PREDICTIONS
    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION | Trigger.RATES | Trigger.CAPACITY
    heterogeneity_aware: ClassVar[bool] = False
    in_order_of_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._limits  # noqa: B018 - raises where a limit is out of range

    @cached_property
    def _limits(self) -> PackingLimits:
        return PackingLimits(self.score_budget, self.largest_gang, self.length_ratio)

    def new_memory(self) -> LucidMemory:
        """Empty lines."""
        return LucidMemory()

    def plan(self, state: ClusterState, memory: LucidMemory) -> Plan:
        """Who starts, and beside whom, until the next arrival or completion."""
        d = Deciding(state, memory, state.room(), pool_named(state, self.profiling_pool))
        memory.recall(state, d.profiler, self.profiling_gpus)
        self._end_profiles(d)
        packing = self._packs_at(state.clock)
        if packing != memory.packing:
            memory.packing = packing
            for line in memory.lines:
                line.news = True
        self._serve_all(d)
        return Plan(d.steps(self._until(d)))

    def hindrance(self, state: ClusterState, job: int) -> Hindrance | None:
        """Its place in line."""
        memory, own = self.new_memory(), int(state.ids[job])
        memory.recall(state, pool_named(state, self.profiling_pool), self.profiling_gpus)
        for line in memory.lines:
            ids = [entry[2] for entry in line.waiting]
            if own in ids and len(ids) > 1:
                text = f"place {ids.index(own) + 1} of {len(ids)} in line by predicted GPU time"
                return Hindrance("ranked_behind", text)
        return None

    # Walking through a line.

    def _serve_all(self, d: Deciding) -> None:
        """Walk through every line until there is no news of it."""
        for pool, line in enumerate(d.memory.lines):
            while line.news and line.waiting:
                self._walk(d, pool)

    def _walk(self, d: Deciding, pool: int) -> None:
        """Serve the line of a pool; there is news of it again where somebody starts who takes guests."""
        line = d.memory.lines[pool]
        if d.memory.packing and pool != d.profiler:
            self._serve(d, pool)
            return
        starts = list(takewhile(partial(d.take, pool), (entry[2] for entry in line.waiting)))
        if pool == d.profiler:
            d.memory.profiling |= dict.fromkeys(starts, d.state.clock + self.profiling_seconds)
        d.take_up(pool, starts, [])
        line.news = False

    def _serve(self, d: Deciding, pool: int) -> None:
        """Walk through the line of a pool while jobs are packed."""
        line, free = d.memory.lines[pool], d.room.free(pool)
        waiting, hosts = [entry[2] for entry in line.waiting], line.hosts
        line.news = False
        # who is packed takes no room, so that it can be told first who starts
        may_start = np.array([d.memory.jobs[job].gpus <= free and d.take(pool, job) for job in waiting])
        if may_start.all() or not (hosts or may_start.any()):
            d.take_up(pool, [job for job, starts in zip(waiting, may_start, strict=True) if starts], [])
            return
        packing = self._known(d, pool, waiting, hosts)
        found = first_hosts(
            *packing, self._limits, start=lambda _: True, may_start=may_start, place_first=True, choice=self.host
        )
        d.note(found, pool, waiting, hosts)

    def _known(
        self, d: Deciding, pool: int, waiting: list[int], hosts: list[int]
    ) -> tuple[PackingJobs, PackingJobs, Floats]:
        """Guests and hosts as packing sees them, and what their kinds keep beside each other."""
        memory, ids = d.memory, np.array([*waiting, *hosts], dtype=np.int64)
        _, gpus, length, kind = np.array([memory.jobs[job] for job in (*waiting, *hosts)]).T
        kinds, own, retained = memory.known_together(d.state, pool, ids, kind.astype(np.int64))
        names = list(memory.kinds)
        score = np.array([self.scores.get(names[kind][0], -1) for kind in kinds.tolist()], dtype=np.int64)
        if (score < 0).any():
            kept = memory.mean_retained(pool, kinds)
            least, middle = self.score_thresholds
            score = np.where(score >= 0, score, np.where(kept >= least, 0, np.where(kept >= middle, 1, 2)))
        n, everybody = len(waiting), PackingJobs(gpus, score[own], length, own)
        return everybody.part(slice(n)), everybody.part(slice(n, None)), retained

    # Times.

    def _packs_at(self, clock: float) -> bool:
        """Whether jobs are packed."""
        if not self.packs or self.forecast is None:
            return self.packs
        ahead = self.forecast.jobs_ahead(clock // self.review_seconds * self.review_seconds)
        return ahead is None or ahead > self.quiet_jobs

    @cached_property
    def _turns(self) -> list[float]:
        """When packing is switched on or off, seconds, ascending."""
        begins = () if self.forecast is None or not self.packs else self.forecast.begins
        reviews = [float(np.ceil(begin / self.review_seconds)) * self.review_seconds for begin in begins]
        return [one for before, one in pairwise(reviews) if self._packs_at(before) != self._packs_at(one)]

    def _until(self, d: Deciding) -> float:
        """Seconds until the next decision that no arrival or completion calls for."""
        clock = d.state.clock
        ends = [end - clock for end in d.memory.profiling.values()]
        if any(line.waiting for line in d.memory.lines):
            ends += [turn - clock for turn in self._turns[bisect_right(self._turns, clock) :][:1]]
        return max(min(ends, default=np.inf), 0.0)

    def _end_profiles(self, d: Deciding) -> None:
        """Who has been profiled for long enough joins the line of its home."""
        memory, clock = d.memory, d.state.clock * (1.0 + _ROUNDING)
        for job in [job for job, end in memory.profiling.items() if end <= clock]:
            position = int(d.state.ids.searchsorted(job))
            d.room.give_back(position)
            rates = d.state.runnable_rates[position]
            memory.profiled(job, memory.home(rates, memory.jobs[job].length, d.profiler))
            d.profiled.append(position)


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
    before it in line, over the GPUs of the pool. `formulations.packing.best_pairs` is exact. `host` has no meaning
    here.
    """

    def _serve(self, d: Deciding, pool: int) -> None:
        """Free GPUs first, in order of the line; then the best pairs."""
        memory, line = d.memory, d.memory.lines[pool]
        d.take_up(pool, [entry[2] for entry in line.waiting if d.take(pool, entry[2])], [])
        line.news = False
        waiting, hosts = [entry[2] for entry in line.waiting], line.hosts
        if not (waiting and hosts):
            return
        guests, running, retained = self._known(d, pool, waiting, hosts)
        left = {
            # none of one that has run for longer than predicted
            job: max(memory.jobs[job].length / memory.jobs[job].gpus - (d.state.clock - since), 0.0)
            for job, since in line.running.items()
        }
        ahead = sum(left[job] * memory.jobs[job].gpus for job in line.running if job not in line.guests)
        before = np.concatenate([[0.0], np.cumsum(guests.length)[:-1]])
        savings = pair_savings(
            guests,
            running,
            retained,
            self._limits,
            remaining=guests.length / guests.gpus,
            host_remaining=[left[job] for job in hosts],
            wait=(ahead + before) / int(d.state.capacity[pool]),
        )
        pairs = zip(waiting, best_pairs(savings).tolist(), strict=True)
        d.take_up(pool, [], [(job, hosts[host]) for job, host in pairs if host >= 0])


def pool_named(state: ClusterState, name: str) -> int:
    """Position of the pool of that name; -1 where the cluster has none."""
    names = state.cluster.accelerators
    return names.index(name) if name in names else -1
