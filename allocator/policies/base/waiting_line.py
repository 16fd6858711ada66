"""What policies have in common under which jobs wait in line and, once started, run to their end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import ClassVar, Literal

import numpy as np

from allocator.fractions import ROUNDING_OF_SUMS, WHOLE
from allocator.policies.base.ordering import in_line
from allocator.policies.base.reservations import Timetable
from allocator.protocol import Assignment, ClusterState, Need, Plan, PlanPolicy, PlanStep, Trigger
from allocator.protocol.plan import Memory
from allocator.protocol.policy import Hindrance, Past
from allocator.protocol.views import Needs
from throughputs import InputError
from throughputs.arrays import Floats, Values

Pools = tuple[int, ...]

_Place = tuple[list[float], int]
"""Of a job in line: its key, and its id."""

Standing = tuple[Pools, float, _Place]
"""Where somebody stands: the pools that can run the job, its GPUs, and its place among those who want the same."""

_Start = tuple[int, int, float]
"""Id, pool and GPUs of a job that starts; less than one GPU where it shares one."""


@dataclass(eq=False)
class LineMemory(Memory):
    """Who waits.

    Attributes
    ----------
    lines : by the pools that can run them, the fastest first, and then by GPUs (less than 1: a fraction of one) those
        who wait, as heaps; none is empty.
    free : (M,) GPUs of each pool that nobody had after the last decision. news : pools with new jobs since then.
    waiting : how many there are.
    last : the highest id that has joined, -1 for none.
    rates_version, capacity : of the state by whose rates and GPUs of each pool the lanes are.
    since : by id when those started who run, seconds, where jobs with reservations are passed (`backfill="easy"`).
    """

    lines: dict[Pools, dict[float, list[_Place]]] = field(default_factory=dict)
    free: Values = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    news: set[int] = field(default_factory=set)
    waiting: int = 0
    last: int = -1
    rates_version: int = 0
    capacity: list[int] = field(default_factory=list)
    since: dict[int, float] = field(default_factory=dict)

    def add(self, pools: Pools, gpus: float, place: _Place) -> None:
        """One more is in line."""
        heappush(self.lines.setdefault(pools, {}).setdefault(gpus, []), place)
        self.news.update(pools)
        self.waiting += 1

    def remove(self, pools: Pools, gpus: float, place: _Place) -> None:
        """One of them is not any more."""
        places = self.lines[pools][gpus]
        if places[0] == place:
            heappop(places)
        else:
            places.remove(place)
            heapify(places)
        self.waiting -= 1
        if not places:
            del self.lines[pools][gpus]
            if not self.lines[pools]:
                del self.lines[pools]

    def clear(self) -> None:
        """Nobody waits, and nothing is known of free GPUs."""
        self.lines, self.waiting, self.free = {}, 0, self.free[:0]

    def with_news(self, free: Values) -> list[list[Pools]]:
        """The lines of pools with new jobs, or with other GPUs than before: those together that share pools."""
        same = len(self.free) == len(free)
        news, self.news = self.news, set()
        news.update((free != self.free).nonzero()[0].tolist() if same else range(len(free)))
        near = [pools for pools in self.lines if not news.isdisjoint(pools)]
        return [[pools] for pools in near] if all(len(pools) == 1 for pools in near) else [list(self.lines)]


@dataclass(frozen=True)
class LinePolicy(PlanPolicy):
    """Jobs in line by a key; the first ones start where they find room, and whoever runs is left alone.

    Decides at arrivals and completions. A gang that finds no room on any of its pools lets nobody pass there, unless
    `backfill` says otherwise; lines of pools that have no job in common do not hold each other up, so that each virtual
    cluster has its own.

    Parameters
    ----------
    backfill : who may pass a gang that finds no room: "off": nobody; "skip": whoever fits; "easy": who does not delay
        it, as far as predicted lengths tell (`allocator.policies.base.reservations`).
    """

    backfill: Literal["off", "skip", "easy"] = "off"

    needs: ClassVar[Needs] = Need.FRACTIONS
    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION | Trigger.RATES | Trigger.CAPACITY

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backfill == "easy":
            object.__setattr__(self, "needs", self.needs | Need.PREDICTIONS)

    @abstractmethod
    def key(self, state: ClusterState) -> Floats:
        """(N, K) smallest first, the columns one after the other; equal ones in the order of their ids.

        A job is asked about once, when it joins the line; `state` has the jobs that join.
        """

    def new_memory(self) -> LineMemory:
        """An empty line."""
        return LineMemory()

    def memory_at(self, started: Mapping[int, float], past: Past | None = None) -> LineMemory | None:  # noqa: ARG002
        """An empty line, which all who wait join by their keys."""
        return LineMemory(since=dict(started))

    def plan(self, state: ClusterState, memory: LineMemory) -> Plan:
        """Who runs from now on: those who run, and those who start."""
        self._join(state, memory)
        running = state.running
        if self.backfill == "easy":
            runs = state.ids.take(running.jobs).tolist()
            memory.since = {job: memory.since[job] for job in runs if job in memory.since}
        free = state.capacity - running.gpus_used(len(state.capacity))
        if state.gpu_thousandths is not None:
            free = free.astype(np.float64)
        started: list[_Start] = []
        start = self._backfilled if self.backfill == "easy" else self._started
        for lines in memory.with_news(free):
            started += start(state, memory, lines, free)
        for _, pool, gpus in started:
            free[pool] -= gpus
        memory.free = free
        if not started:
            return Plan((PlanStep(running),))
        if state.gpu_thousandths is not None:
            started = [(job, pool, max(gpus, 1)) for job, pool, gpus in started]
        ids, pools, counts = np.array(started, dtype=np.int64).T
        rows = running.followed_by(Assignment.alone(state.ids.searchsorted(ids), pools, counts))
        return Plan((PlanStep(rows),))

    def _join(self, state: ClusterState, memory: LineMemory) -> None:
        """Let those join who are new, or everybody who waits where the line is no longer theirs."""
        ids, n_jobs = state.ids, state.n_jobs
        known = int(ids.searchsorted(memory.last, side="right")) if n_jobs and ids[-1] > memory.last else n_jobs
        waits = n_jobs - len(state.running)
        capacity = state.capacity.tolist()
        other = memory.rates_version != state.rates_version or (memory.capacity or capacity) != capacity
        memory.capacity = capacity
        if other or memory.waiting + n_jobs - known != waits:
            memory.clear()
            memory.rates_version = state.rates_version
            away = np.ones(n_jobs, dtype=np.bool_)
            away[state.running.jobs] = False
            self._add(memory, state.take(away.nonzero()[0]))
        elif known < n_jobs:
            self._add_new(memory, state.take(np.arange(known, n_jobs)))
        memory.last = int(ids[-1]) if n_jobs else memory.last

    def _add_new(self, memory: LineMemory, own: ClusterState) -> None:
        """Put those in line who come for the first time."""
        self._add(memory, own)

    def _add(self, memory: LineMemory, own: ClusterState, keys: Floats | None = None) -> list[Standing]:
        """Put the jobs of a state in line, by other `keys` if there are any; where they stand."""
        if not own.n_jobs:
            return []
        keys = np.asarray(self.key(own) if keys is None else keys, dtype=np.float64)
        if keys.ndim != 2 or len(keys) != own.n_jobs or np.count_nonzero(keys != keys):
            expected = f"shape ({own.n_jobs}, K), numbers for each job"
            raise InputError(f"policy {self.name}", field="key", found=keys.tolist(), expected=expected)
        joined: list[Standing] = []
        capacity, sizes = own.capacity.tolist(), own.scale_factors.tolist()
        gpus_taken = sizes if own.gpu_thousandths is None else own.gpus_taken.tolist()
        jobs = zip(own.ids.tolist(), keys.tolist(), sizes, gpus_taken, _ways(own), strict=True)
        for job, key, size, gpus, pools in jobs:
            standing = tuple([pool for pool in pools if size <= capacity[pool]]), gpus, (key, job)
            memory.add(*standing)
            joined.append(standing)
        return joined

    def _started(self, state: ClusterState, memory: LineMemory, lines: list[Pools], free: Values) -> list[_Start]:
        """Who starts of some `lines`, if nobody may pass a gang that finds no room, or whoever fits; `free` (M,)."""
        room, strict = state.room(), self.backfill == "off"
        # where a gang needs more GPUs than are free, nobody need ask how they lie
        most = (free + ROUNDING_OF_SUMS).tolist()
        heads = [(places[0], pools, gpus) for pools in lines for gpus, places in memory.lines[pools].items()]
        heapify(heads)
        closed: set[int] = set()
        started: list[_Start] = []
        while heads:
            place, pools, gpus = heappop(heads)
            for pool in pools:
                if gpus <= most[pool] and pool not in closed and room.take(pool, gpus):
                    break
            else:
                # Others of as many GPUs in this line want the same, and find none either.
                if strict:
                    closed.update(pools)
                    heads = [head for head in heads if not closed.issuperset(head[1])]
                    heapify(heads)
                continue
            most[pool] -= gpus
            started.append((place[1], pool, gpus))
            memory.remove(pools, gpus, place)
            left = memory.lines.get(pools, {}).get(gpus)
            if left:
                heappush(heads, (left[0], pools, gpus))
        return started

    def _backfilled(self, state: ClusterState, memory: LineMemory, lines: list[Pools], free: Values) -> list[_Start]:
        """Who starts of some `lines`, if those may pass who do not delay the first one that finds no room."""
        line = sorted(
            (place, pools, gpus) for pools in lines for gpus, places in memory.lines[pools].items() for place in places
        )
        jobs = state.ids.searchsorted(np.array([place[1] for place, _, _ in line], dtype=np.int64))
        lengths = state.predicted_seconds.take(jobs).tolist()
        room, clock, tables, promised = state.room(), state.clock, self._timetables(state, memory, free), set[int]()
        started = []
        for (place, pools, gpus), length in zip(line, lengths, strict=True):
            size = round(gpus * WHOLE)
            pool = next((j for j in pools if tables[j].fits_now(size, length) and room.take(j, gpus)), -1)
            if pool >= 0:
                tables[pool].take(clock, length, size)
                started.append((place[1], pool, gpus))
                memory.since[place[1]] = clock
                memory.remove(pools, gpus, place)
            elif pools and promised.isdisjoint(pools):
                # reserved on the pool that has enough of them first
                starts = {pool: tables[pool].earliest(size, np.inf, later=False) for pool in pools}
                pool = min(starts, key=starts.__getitem__)
                promised.add(pool)
                tables[pool].take(starts[pool], np.inf, size)
        return started

    def _timetables(self, state: ClusterState, memory: LineMemory, free: Values) -> list[Timetable]:
        """What is free of each pool if everybody ends when predicted; who is late ends now."""
        rows, clock = state.running, state.clock
        ends: list[list[tuple[float, int]]] = [[] for _ in free]
        lengths, ids = state.predicted_seconds.take(rows.jobs).tolist(), state.ids.take(rows.jobs).tolist()
        for job, pool, gpus, length in zip(ids, rows.pool.tolist(), rows.gpus_taken.tolist(), lengths, strict=True):
            ends[pool].append((max(memory.since.get(job, clock) + length, clock), round(gpus * WHOLE)))
        return [Timetable(clock, round(float(count) * WHOLE), some) for count, some in zip(free, ends, strict=True)]

    def hindrance(self, state: ClusterState, job: int) -> Hindrance | None:
        """Its place in line, and which gang before it does not start either and lets nobody pass."""
        memory = self.new_memory()
        self._join(state, memory)
        line = [
            (*place, pools, gpus)
            for pools, own_line in memory.lines.items()
            for gpus, places in own_line.items()
            for place in places
        ]
        line.sort(key=lambda one: one[:2])
        at = next((i for i, (_, other, _, _) in enumerate(line) if other == state.ids[job]), None)
        if at is None:
            return None
        _, _, own, gpus = line[at]
        before = [other for _, other, pools, _ in line[:at] if not set(own).isdisjoint(pools)]
        if not before:
            return None
        started = self.plan(state, memory).steps[0].assignment.without(state.running.jobs)
        stuck = state.ids.searchsorted([other for other in before if other not in state.ids[started.jobs]])
        room = state.room()
        for pool, taken in zip(started.pool.tolist(), state.gpus_taken.take(started.jobs).tolist(), strict=True):
            room.take(pool, taken)
        held_up = self.backfill != "skip" and any(room.take(pool, gpus) for pool in sorted(own))
        rule = "lets nobody pass" if self.backfill == "off" else "would be delayed"
        return in_line(state, f"place {len(before) + 1} in line", stuck.tolist() if held_up else [], rule)


def _ways(state: ClusterState) -> list[list[int]]:
    """By job the pools with a rate for it, the fastest first."""
    own = state.own_pools
    if own is not None:
        return [[pool] if pool >= 0 else [] for pool in own.tolist()]
    return [
        sorted([pool for pool, rate in enumerate(rates) if rate > 0], key=rates.__getitem__, reverse=True)
        for rates in state.rates.tolist()
    ]
