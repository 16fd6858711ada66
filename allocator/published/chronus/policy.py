"""Chronus' policy as its public simulator has it, and the rule by which time in the queue counts as training there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from allocator.policies.chronus.admission import OptionPool, Promises, extend, option_slots, unplanned_rows
from allocator.policies.chronus.clock import LeaseClock
from allocator.policies.chronus.memory import Array, ChronusMemory, Integers
from allocator.policies.chronus.opportunistic import Offers
from allocator.policies.chronus.policy import Chronus
from allocator.policies.chronus.rules import LeaseRules, rounded_gpus
from allocator.protocol import ClusterState, Plan
from allocator.protocol.assignment import among_ids
from allocator.simulator.rules.base import Rule, Running, Stretch

if TYPE_CHECKING:
    from allocator.simulator.world import World

_PERIOD = 2
"""Ticks at which GPUs that are left are offered are those that this does not divide."""


class _Promises(Promises):
    """Later deadlines do not help, and a rejected job is in the way of others until the end of its slot."""

    may_be_lost: ClassVar[bool] = True

    def considered(self, memory: ChronusMemory, row: int) -> Array:
        """All of them."""
        return memory.options[row][0]

    def open_options(self, memory: ChronusMemory, row: int) -> tuple[Array, Array]:
        """All of them."""
        return memory.options[row]

    def fits(
        self, memory: ChronusMemory, rules: LeaseRules, pool: OptionPool, taken: Integers, row: int, first: int
    ) -> tuple[int, bool]:
        """Slots of a deadline, and whether there is room.

        All options of the job are in the pool together, and of those that one is packed which has the least slack: the
        others are of no consequence. A job that is rejected stays in the pool, at the earliest deadline that was found
        for it, until all arrivals of the slot have been looked at.
        """
        due = memory.options[row][0]
        gpus, needed = int(rounded_gpus(memory.gpus[row])), int(memory.needed[row])
        slots = option_slots(due, rules.clock.lease, first, needed)
        pool.add(gpus, needed, slots, row)
        if needed <= slots[-1] and pool.fits(rules.capacity, taken):
            memory.granted[row] = len(slots) - 1
            return int(slots[-1]), True
        # all slots that anybody of the pool or with a plan may use, and enough behind them
        horizons = [
            int(option_slots(memory.options[other][0], rules.clock.lease, first, int(memory.needed[other])).max())
            for other in unplanned_rows(memory)
        ]
        horizon = max(horizons, default=0)
        pool.slots[-1] = max(pool.slots[-1], needed)
        low, high = pool.slots[-1], max(*pool.slots, horizon) + needed + 1
        while low < high:
            pool.slots[-1] = low + (high - low) // 2
            if pool.fits(rules.capacity, taken):
                high = pool.slots[-1]
            else:
                low = pool.slots[-1] + 1
        pool.slots[-1] = high
        granted = rules.clock.lease * (high + first)
        submitted, last = memory.submitted[row], due[-1]
        if granted - submitted <= int((last - submitted) * rules.tolerate_ratio):
            return high, True
        if granted - last <= (rules.tolerate_ratio - 1) * 60:
            extend(memory, row, float(granted))
            return high, True
        return high, False


class _Offers(Offers):
    """At odd units of time, to jobs past hope first. Time in which a job waited counts as training."""

    waiting_counts: ClassVar[bool] = True

    def are_made_at(self, tick: int, clock: LeaseClock) -> bool:  # noqa: ARG002
        """At odd ones."""
        return tick % _PERIOD != 0

    def end_at_slots(self) -> bool:
        """No."""
        return False

    def in_order(self, memory: ChronusMemory) -> list[int]:
        """By class, then by urgency."""
        waiting = np.array(memory.waiting)
        order: list[int] = waiting[np.lexsort((memory.urgency[waiting], memory.kind[waiting]))].tolist()
        return order

    def able(self, memory: ChronusMemory, rules: LeaseRules) -> list[int]:  # noqa: ARG002
        """All."""
        return memory.waiting


class PublishedChronusMemory(ChronusMemory):
    """With what those who start are ahead.

    Attributes
    ----------
    head_starts : label and seconds of those who start now and count as running for so long already.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.head_starts: list[tuple[Any, float]] = []

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return super().state() | {"head_starts": self.head_starts}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        super().restore(state)
        self.head_starts = [(label, seconds) for label, seconds in state["head_starts"]]


@dataclass(frozen=True)
class PublishedChronus(Chronus):
    """The time in which a job waited since it was last looked at counts as training if it starts with a lease or
    between slots, and starts between slots cost nothing."""

    def new_memory(self) -> PublishedChronusMemory:
        """An empty memory."""
        return PublishedChronusMemory(self.noise_seed)

    def plan(self, state: ClusterState, memory: ChronusMemory) -> Plan:
        """Nobody is ahead of others before somebody starts."""
        assert isinstance(memory, PublishedChronusMemory)
        memory.head_starts = []
        return super().plan(state, memory)

    def _note_starts(
        self,
        memory: ChronusMemory,
        rules: LeaseRules,
        tick: int,
        leased: list[int],
        waited_since: Array,
        offered: list[int],
    ) -> None:
        assert isinstance(memory, PublishedChronusMemory)
        ahead = {row: tick - waited_since[row] for row in leased}
        if offered:
            units = tick - memory.seen[offered] + rules.start_units(memory.gpus[offered])
            ahead |= dict(zip(offered, units.tolist(), strict=True))
        memory.head_starts = [(memory.labels[row], units * self.time_unit_seconds) for row, units in ahead.items()]

    def _promises(self) -> Promises:
        return _Promises()

    def _offers(self) -> Offers:
        return _Offers()


@dataclass(frozen=True)
class WaitingCounts(Rule):
    """A job that starts counts as running for so long already as the planner remembers."""

    def start(self, world: World) -> Iterable[Running]:
        """Under other planners nobody does."""
        memory = world.core.memory
        return (_WaitingCounts(world, memory),) if isinstance(memory, PublishedChronusMemory) else ()


class _WaitingCounts(Running):
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
