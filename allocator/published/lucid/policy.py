"""Lucid's policy as its simulator has it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from allocator.policies.lucid.memory import LucidMemory
from allocator.policies.lucid.policy import Changes, Lucid, pool_named
from allocator.protocol import ClusterState
from allocator.room import Room
from formulations.packing import first_hosts
from throughputs import InputError

_TICK_SECONDS = 1.0
"""A line is walked through once a second."""


@dataclass(eq=False)
class PublishedLucidMemory(LucidMemory):
    """With the servers that are lent.

    Attributes
    ----------
    lent : servers that are out of use.
    next_loan : the first of the loans that is to come.
    again : whether there is news of somebody who waits.
    """

    lent: int = 0
    next_loan: int = 0
    again: bool = False


@dataclass(frozen=True)
class PublishedLucid(Lucid):
    """A line is walked through once a second, so that a job that found no host is tried again a second later.

    Parameters
    ----------
    place_first : whether a job looks for free GPUs before it looks for a host.
    guests_recover : whether a guest whose host has ended takes guests itself.
    loans : (seconds, servers) when a server of the pool `lender` goes out of use (-1) or comes back (+1), ascending:
        that pool lends one to the profiler. A server that is in use is not lent.
    lender : name of that pool.
    """

    place_first: bool = False
    guests_recover: bool = False
    loans: tuple[tuple[float, int], ...] = ()
    lender: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(not one[0] < other[0] for one, other in pairwise(self.loans)):
            raise InputError(f"policy {self.name}", field="loans", found=self.loans, expected="ascending seconds")

    def new_memory(self) -> PublishedLucidMemory:
        """Empty lines."""
        return PublishedLucidMemory(guests_recover=self.guests_recover)

    def _serve_all(self, state: ClusterState, memory: LucidMemory, room: Room, profiler: int, changes: Changes) -> None:
        """Walk through every line once, then take servers back and lend others."""
        assert isinstance(memory, PublishedLucidMemory)
        lender, memory.again = pool_named(state, self.lender), False
        for _ in range(memory.lent):
            room.take(lender, _per_server(state, lender))
        for pool, line in enumerate(memory.lines):
            if line.news and line.waiting:
                self._walk_once(state, memory, pool, room, profiler, changes)
            memory.again |= line.news and bool(line.waiting)
        due = self._due(state.clock, memory)
        back = min(memory.lent, sum(change for change in due if change > 0))
        if back:
            memory.lent -= back
            memory.lines[lender].changed()
            memory.again = True
        for _ in range(-sum(change for change in due if change < 0)):
            memory.lent += room.take(lender, _per_server(state, lender))

    def _serve(self, state: ClusterState, memory: LucidMemory, pool: int, room: Room, changes: Changes) -> None:
        """Who finds a host is packed, whether or not there are free GPUs."""
        if self.place_first:
            super()._serve(state, memory, pool, room, changes)
            return
        line = memory.lines[pool]
        waiting, hosts = line.to_consider(room.free(pool), lambda job: memory.jobs[job].gpus)
        line.walked()
        if not waiting:
            return
        gpus, free = [memory.jobs[job].gpus for job in waiting], room.free(pool)
        guests, running, retained = self._known(state, memory, pool, waiting, hosts)
        found = first_hosts(
            guests,
            running,
            retained,
            self._limits,
            start=lambda i: room.take(pool, gpus[i]),
            may_start=np.array([size <= free for size in gpus]),
            place_first=False,
            choice=self.host,
        )
        self._note(found, line, pool, waiting, hosts, changes, state.clock)

    def _due(self, clock: float, memory: PublishedLucidMemory) -> list[int]:
        """Servers that go out of use (below 0) or come back by `clock` (seconds)."""
        due = []
        while memory.next_loan < len(self.loans) and self.loans[memory.next_loan][0] <= clock:
            due.append(self.loans[memory.next_loan][1])
            memory.next_loan += 1
        return due

    def _until(self, state: ClusterState, memory: LucidMemory) -> float:
        """Seconds; to the next tick where there is news, and to the next loan."""
        assert isinstance(memory, PublishedLucidMemory)
        until = super()._until(state, memory)
        if memory.again:
            until = min(until, _TICK_SECONDS)
        if memory.next_loan < len(self.loans):
            until = min(until, self.loans[memory.next_loan][0] - state.clock)
        return max(until, 0.0)


def _per_server(state: ClusterState, pool: int) -> int:
    return int(state.cluster.gpus_per_server[state.cluster.accelerators[pool]])
