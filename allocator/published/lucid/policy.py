"""Lucid's policy as its simulator has it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from allocator.policies.lucid.memory import LucidMemory
from allocator.policies.lucid.policy import Deciding, Lucid, pool_named
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

    def _serve_all(self, d: Deciding) -> None:
        """Walk through every line once, then take servers back and lend others."""
        memory = d.memory
        assert isinstance(memory, PublishedLucidMemory)
        lender, memory.again = pool_named(d.state, self.lender), False
        per_server = int(d.state.cluster.gpus_per_server[d.state.cluster.accelerators[lender]])
        for _ in range(memory.lent):
            d.room.take(lender, per_server)
        for pool, line in enumerate(memory.lines):
            if line.news and line.waiting:
                self._walk(d, pool)
            memory.again |= line.news and bool(line.waiting)
        due = [change for at, change in self.loans[memory.next_loan :] if at <= d.state.clock]
        memory.next_loan += len(due)
        back = min(memory.lent, sum(change for change in due if change > 0))
        if back:
            memory.lent -= back
            memory.lines[lender].news = True
            memory.again = True
        for _ in range(-sum(change for change in due if change < 0)):
            memory.lent += d.room.take(lender, per_server)

    def _serve(self, d: Deciding, pool: int) -> None:
        """Who finds a host is packed, whether or not there are free GPUs."""
        if self.place_first:
            super()._serve(d, pool)
            return
        line, free = d.memory.lines[pool], d.room.free(pool)
        waiting, hosts = [entry[2] for entry in line.waiting], line.hosts
        line.news = False
        found = first_hosts(
            *self._known(d, pool, waiting, hosts),
            self._limits,
            start=lambda i: d.take(pool, waiting[i]),
            may_start=np.array([d.memory.jobs[job].gpus <= free for job in waiting]),
            place_first=False,
            choice=self.host,
        )
        d.note(found, pool, waiting, hosts)

    def _until(self, d: Deciding) -> float:
        """Seconds; to the next tick where there is news, and to the next loan."""
        memory = d.memory
        assert isinstance(memory, PublishedLucidMemory)
        coming = [at - d.state.clock for at, _ in self.loans[memory.next_loan :][:1]]
        return max(min([super()._until(d), *coming, *([_TICK_SECONDS] if memory.again else [])]), 0.0)
