"""What policies have in common under which jobs wait in line and, once started, run to their end."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from allocator.policies.base.reservations import Reservations
from allocator.protocol import Assignment, ClusterState, Need, Plan, PlanPolicy, PlanStep, Trigger
from allocator.protocol.assignment import among_ids
from allocator.protocol.policy import Hindrance
from allocator.room import Room
from throughputs import InputError

__all__ = ["BACKFILLS", "LineMemory", "LinePolicy"]

_Floats = NDArray[np.float64]
_Ids = NDArray[np.int64]

BACKFILLS = ("off", "skip", "easy")

_Lane = tuple[tuple[int, ...], int]
"""Jobs that want the same: the pools that can run them, the fastest first, and the GPUs of their gang."""

_Place = tuple[list[float], int]
"""Of a job in line: its key, and its id."""

_Start = tuple[int, int, int]
"""Id, pool and GPUs of a job that starts."""


@dataclass(eq=False)
class LineMemory:
    """Who waits.

    Attributes
    ----------
    lanes : by what they want those who wait, as heaps; none is empty.
    waiting : how many there are.
    last : the highest id that has joined, -1 for none.
    rates_version : of the state by whose rates the lanes are.
    since : by id when jobs started, seconds; some are through by now.
    first : ids and lanes of those who joined an empty line and still stand in the order of their first key.
    first_until : up to when they do, seconds.
    """

    lanes: dict[_Lane, list[_Place]] = field(default_factory=dict)
    waiting: int = 0
    last: int = -1
    rates_version: int = 0
    since: dict[int, float] = field(default_factory=dict)
    first: dict[int, _Lane] = field(default_factory=dict)
    first_until: float = -np.inf

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        listed = {name: list(getattr(self, name).items()) for name in ("lanes", "since", "first")}
        return dict(vars(self)) | listed

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        vars(self).update(state)
        self.lanes = {
            (tuple(pools), gpus): [(list(key), job) for key, job in places] for (pools, gpus), places in state["lanes"]
        }
        self.since = dict(state["since"])
        self.first = {job: (tuple(pools), gpus) for job, (pools, gpus) in state["first"]}

    def drop_first(self) -> list[int]:
        """Take those out of line who stand there by their first key; their ids, ascending."""
        dropped, self.first = self.first, {}
        for lane in set(dropped.values()):
            kept = [place for place in self.lanes.pop(lane) if place[1] not in dropped]
            if kept:
                heapify(kept)
                self.lanes[lane] = kept
        self.waiting -= len(dropped)
        return sorted(dropped)


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

    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION | Trigger.RATES | Trigger.CAPACITY
    needs: ClassVar[Need] = Need.PREDICTIONS

    def __post_init__(self) -> None:
        if self.backfill not in BACKFILLS:
            expected = "off, skip or easy"
            raise InputError(f"policy {self.name}", field="backfill", found=self.backfill, expected=expected)

    @abstractmethod
    def key(self, state: ClusterState) -> _Floats:
        """(N, K) smallest first, the columns one after the other; equal ones in the order of their ids.

        A job is asked about once, when it joins the line; `state` has the jobs that join.
        """

    def first_key(self, state: ClusterState) -> tuple[_Floats, float] | None:  # noqa: ARG002
        """The key by which those stand in line who join an empty one, and for how many seconds; None: `key`."""
        return None

    def new_memory(self) -> LineMemory:
        """An empty line."""
        return LineMemory()

    def plan(self, state: ClusterState, memory: LineMemory) -> Plan:
        """Who runs from now on: those who run, and those who start."""
        self._join(state, memory)
        started = self._backfilled(state, memory) if self.backfill == "easy" else self._started(memory, state.room())
        running = state.running
        for job, _, _ in started:
            memory.first.pop(job, None)
        seconds = memory.first_until - state.clock if memory.first else np.inf
        if not started:
            return Plan((PlanStep(Assignment.of(running.jobs, running.pool, running.gpus), seconds),))
        ids, pools, gpus = (np.array(column, dtype=np.int64) for column in zip(*started, strict=True))
        rows = Assignment.of(
            np.concatenate([running.jobs, state.ids.searchsorted(ids)]),
            np.concatenate([running.pool, pools]),
            np.concatenate([running.gpus, gpus]),
        )
        return Plan((PlanStep(rows, seconds),))

    def _join(self, state: ClusterState, memory: LineMemory) -> None:
        """Let those join who are new, or everybody who waits where the line is no longer theirs."""
        if memory.first and state.clock >= memory.first_until:
            again = np.array(memory.drop_first(), dtype=np.int64)
            again = again[among_ids(again, state.ids)]
            self._add(state, memory, state.ids.searchsorted(again))
        newcomers = np.arange(state.ids.searchsorted(memory.last, side="right"), state.n_jobs)
        waits = state.n_jobs - len(state.running)
        if memory.rates_version != state.rates_version or memory.waiting + len(newcomers) != waits:
            memory.lanes, memory.waiting, memory.first = {}, 0, {}
            memory.rates_version = state.rates_version
            away = np.ones(state.n_jobs, dtype=np.bool_)
            away[state.running.jobs] = False
            self._add(state, memory, away.nonzero()[0])
        elif len(newcomers):
            self._add_new(state, memory, newcomers)
        memory.last = int(state.ids[-1]) if state.n_jobs else memory.last

    def _add_new(self, state: ClusterState, memory: LineMemory, jobs: _Ids) -> None:
        """Put `jobs` (positions, ascending) in line who come for the first time."""
        first = self.first_key(state.columns_of(jobs))
        if first is None:
            self._add(state, memory, jobs)
            return
        keys, seconds = first
        occupied = list({pool for pools, _ in memory.lanes for pool in pools})
        late = (state.columns_of(jobs).runnable_rates[:, occupied] > 0).any(axis=1)
        self._add(state, memory, jobs[late])
        if not late.all():
            memory.first |= self._add(state, memory, jobs[~late], keys[~late])
            memory.first_until = state.clock + seconds

    def _add(
        self, state: ClusterState, memory: LineMemory, jobs: _Ids, keys: _Floats | None = None
    ) -> dict[int, _Lane]:
        """Put `jobs` (positions, ascending) in line, by other `keys` if there are any; their lanes by id."""
        if not len(jobs):
            return {}
        own = state.columns_of(jobs)
        keys = np.asarray(self.key(own) if keys is None else keys, dtype=np.float64)
        if keys.ndim != 2 or len(keys) != len(jobs) or np.count_nonzero(keys != keys):
            expected = f"shape ({len(jobs)}, K), numbers for each job"
            raise InputError(f"policy {self.name}", field="key", found=keys.tolist(), expected=expected)
        rates = own.runnable_rates
        order, able = (-rates).argsort(axis=1, kind="stable").tolist(), (rates > 0).sum(axis=1).tolist()
        columns = zip(
            state.ids.take(jobs).tolist(), keys.tolist(), order, able, own.scale_factors.tolist(), strict=True
        )
        joined = {}
        for job, place, pools, count, gpus in columns:
            lane = joined[job] = tuple(pools[:count]), gpus
            heappush(memory.lanes.setdefault(lane, []), (place, job))
        memory.waiting += len(jobs)
        return joined

    def _started(self, memory: LineMemory, room: Room) -> list[_Start]:
        """Who starts, if nobody may pass a gang that finds no room, or whoever fits."""
        lanes, strict = memory.lanes, self.backfill == "off"
        heads = [(places[0], lane) for lane, places in lanes.items()]
        heapify(heads)
        closed: set[int] = set()
        started: list[_Start] = []
        while heads:
            (_, job), lane = heappop(heads)
            pools, gpus = lane
            pool = next((p for p in pools if p not in closed and room.take(p, gpus)), -1)
            if pool < 0:
                # Those of the same lane want the same, and find none either.
                if strict:
                    closed.update(pools)
                continue
            started.append((job, pool, gpus))
            places = lanes[lane]
            heappop(places)
            if places:
                heappush(heads, (places[0], lane))
            else:
                del lanes[lane]
        memory.waiting -= len(started)
        return started

    def _backfilled(self, state: ClusterState, memory: LineMemory) -> list[_Start]:
        """Who starts, if those may pass who do not delay the first one that finds no room."""
        line = sorted((place, lane) for lane, places in memory.lanes.items() for place in places)
        jobs = state.ids.searchsorted(np.array([job for (_, job), _ in line], dtype=np.int64))
        lengths = state.predicted_seconds.take(jobs).tolist()
        reservations = Reservations(state, memory.since)
        started = []
        for ((key, job), (pools, gpus)), length in zip(line, lengths, strict=True):
            pool = reservations.start(pools, gpus, length)
            if pool >= 0:
                started.append((job, pool, gpus))
                memory.since[job] = state.clock
                places = memory.lanes[pools, gpus]
                places.remove((key, job))
                heapify(places)
                if not places:
                    del memory.lanes[pools, gpus]
        memory.waiting -= len(started)
        return started

    def hindrance(self, state: ClusterState, job: int) -> Hindrance | None:
        """Its place in line, and which gang before it lets nobody pass."""
        memory = self.new_memory()
        self._join(state, memory)
        labels, line = state.throughputs.jobs, []
        for (pools, gpus), places in memory.lanes.items():
            line += [(place, set(pools), gpus) for place in places]
        line.sort(key=lambda one: one[0])
        at = next((i for i, ((_, other), _, _) in enumerate(line) if other == state.ids[job]), None)
        if at is None:
            return None
        _, own, gpus = line[at]
        before = [(other, size) for (_, other), pools, size in line[:at] if pools & own]
        if not before:
            return None
        behind = f"place {len(before) + 1} in line"
        first, size = before[0]
        room = state.room()
        if self.backfill != "skip" and any(room.take(pool, gpus) for pool in sorted(own)):
            name = labels[int(state.ids.searchsorted(first))]
            rule = "lets nobody pass" if self.backfill == "off" else "would be delayed"
            return Hindrance("queue_blocked", f"{behind}; job {name} before it needs {size} GPUs, and {rule}")
        return Hindrance("ranked_behind", behind)
