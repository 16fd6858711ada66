"""Chronus' policy and placement as its public simulator has them, and the rule by which queued time counts as training.

Placement is a local search: the best of several orders of the gangs. Source: Chronus, SoCC'21, public artifact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from allocator.mechanism.placement.gangs import Consolidated, Gang, Gpus
from allocator.policies.chronus.memory import ChronusMemory
from allocator.policies.chronus.policy import Chronus, Promises, rounded_gpus
from allocator.protocol import ClusterState, Plan
from allocator.protocol.assignment import among_ids
from allocator.simulator.rules.base import Rule, RunningRule, Stretch
from throughputs.arrays import Floats
from throughputs.numerics import log2

if TYPE_CHECKING:
    from allocator.simulator.world import World

_PERIOD = 2
"""Ticks at which GPUs that are left are offered are those that this does not divide."""


@dataclass(eq=False)
class PublishedChronusMemory(ChronusMemory):
    """With what those who start are ahead.

    Attributes
    ----------
    head_starts : label and seconds of those who start now and count as running for so long already.
    """

    head_starts: list[tuple[Any, float]] = field(default_factory=list)


@dataclass(frozen=True)
class PublishedChronus(Chronus):
    """The time in which a job waited since it was last looked at counts as training if it starts with a lease or
    between slots, and starts between slots cost nothing. Between slots GPUs are offered at odd units of time, to jobs
    past hope first. Later deadlines do not help, and a rejected job is in the way of others until the end of its
    slot."""

    promises_may_be_lost: ClassVar[bool] = True
    slots_fill: ClassVar[bool] = False

    def new_memory(self) -> PublishedChronusMemory:
        """An empty memory."""
        return PublishedChronusMemory(noise=super().new_memory().noise)

    def plan(self, state: ClusterState, memory: ChronusMemory) -> Plan:
        """Nobody is ahead of others before somebody starts."""
        assert isinstance(memory, PublishedChronusMemory)
        memory.head_starts = []
        return super().plan(state, memory)

    def begin(self, memory: ChronusMemory, rows: list[int], now: int, offered: bool = False) -> None:
        """Time in which jobs waited counts."""
        assert isinstance(memory, PublishedChronusMemory)
        seen = memory.seen[rows]
        # what a start costs, which offers do not: w(g) = start_cost (1 + log2 g)
        ahead = now - seen + (self.start_cost * (1.0 + log2(memory.gpus[rows])) if offered else 0.0)
        memory.start(rows, now)
        memory.seen[rows] = seen
        memory.head_starts += [
            (memory.jobs[row], units * self.time_unit_seconds) for row, units in zip(rows, ahead.tolist(), strict=True)
        ]

    def considered(self, memory: ChronusMemory, row: int) -> Floats:
        """All of its deadlines."""
        return memory.options[row][0]

    def open_options(self, memory: ChronusMemory, row: int) -> tuple[Floats, Floats]:
        """All of them."""
        return memory.options[row]

    def promise(self, memory: ChronusMemory, promises: Promises, row: int, first: int) -> tuple[int, bool]:
        """Slots of a deadline, and whether there is room.

        All options of the job are packed together, and of those one which has the least slack: the others are of no
        consequence. A job that is rejected stays among them, at the earliest deadline that was found for it, until all
        arrivals of the slot have been looked at.
        """

        def fits(last: int) -> bool:
            promises.options[-1] = (gpus, needed, last, row)
            return promises.fit()

        due = memory.options[row][0]
        gpus, needed = int(rounded_gpus(memory.gpus[row])), int(memory.needed[row])
        slots = self.slots_before(memory, row, due, first)
        promises.add(gpus, needed, slots, row)
        if needed <= slots[-1] and promises.fit():
            memory.granted[row] = len(slots) - 1
            return int(slots[-1]), True
        # all slots that anybody of the pool or with a plan may use, and enough behind them
        horizons = [
            int(self.slots_before(memory, other, memory.options[other][0], first).max()) for other in memory.promised
        ]
        low = max(int(slots[-1]), needed)
        high = max([low, *horizons, *(option[2] for option in promises.options)]) + needed + 1
        while low < high:
            middle = low + (high - low) // 2
            low, high = (low, middle) if fits(middle) else (middle + 1, high)
        promises.options[-1] = (gpus, needed, high, row)
        granted = self.clock.lease * (high + first)
        submitted, last = memory.submitted[row], due[-1]
        if granted - submitted <= int((last - submitted) * self.tolerate_ratio):
            return high, True
        if granted - last <= (self.tolerate_ratio - 1) * 60:
            memory.extend(row, float(granted))
            return high, True
        return high, False

    def offers_at(self, tick: int) -> bool:
        """At odd ones."""
        return tick % _PERIOD != 0

    def offered(self, memory: ChronusMemory) -> list[int]:
        """All who wait, by class, then by urgency."""
        waiting = np.array(memory.waiting, dtype=np.int64)
        memory.waiting = waiting[np.lexsort((memory.urgency[waiting], memory.kind[waiting]))].tolist()
        return memory.waiting


@dataclass(frozen=True)
class WaitingCounts(Rule):
    """A job that starts counts as running for so long already as the planner remembers."""

    def start(self, world: World) -> Iterable[RunningRule]:
        """Under other planners nobody does."""
        memory = world.core.memory
        return (_WaitingCounts(world, memory),) if isinstance(memory, PublishedChronusMemory) else ()


class _WaitingCounts(RunningRule):
    says_ends = False

    def __init__(self, world: World, memory: PublishedChronusMemory) -> None:
        self._memory, self._columns = memory, world.jobs.columns
        world.jobs.register("ready_time", 0.0)

    def begin(self, s: Stretch) -> None:
        """Begin in the past."""
        if not self._memory.head_starts:
            return
        ahead, ready = dict(self._memory.head_starts), self._columns["ready_time"]
        starts = among_ids(s.decision.jobs, s.decision.transition.start)
        seconds = np.array([ahead.get(job, 0.0) for job in s.decision.jobs.tolist()])
        s.begin = np.where(starts, s.begin - seconds, s.begin)
        ready[s.at] = np.where(starts, s.begin, ready[s.at])


class LocalSearch(Consolidated):
    """Gangs keep their GPUs; new ones are placed as by `Consolidated`, larger first or smaller first.

    Of the two orders that one is taken under which gangs have the most reward, a GPU on its own server or servers
    counting 1 over the number of servers that its gang stands on; larger first where both have as much. The public code
    tries two more orders, by the least and the most that a gang can gain; these follow its size where, as there, all
    jobs are taken for the same model. What it calls the reward is speed by profile, which placement does not know.
    """

    def place(self, gangs: list[Gang]) -> dict[int, Gpus]:
        """See PoolRule."""
        if len({size for _, _, size, _ in gangs}) < 2:
            return super().place(gangs)
        begin = self._free.copy(), self._with_free.copy(), self._held.copy()
        placed = super().place(gangs)
        best = self._reward(placed)
        if best == sum(len(gpus) for gpus in placed.values()):
            return placed
        end = self._free, self._with_free, self._held
        self._free, self._with_free, self._held = begin
        other = self._place_in_order(sorted(gangs, key=lambda gang: gang[2]))
        if self._reward(other) > best:
            return other
        self._free, self._with_free, self._held = end
        return placed

    def _reward(self, placed: dict[int, Gpus]) -> float:
        return sum(len(gpus) / self._servers(gpus) for gpus in placed.values())
