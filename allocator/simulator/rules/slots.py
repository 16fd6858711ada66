"""The world looks now and then only: what happens between two looks waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allocator.conversion import NotNegative
from allocator.protocol.assignment import among_ids
from allocator.simulator.rules.base import Rule, Running
from throughputs.numerics import slot_end

if TYPE_CHECKING:
    from allocator.simulator.world import World

_Floats = NDArray[np.float64]
_Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Slots(Rule):
    """Decisions at events are at least a slot apart.

    Attributes
    ----------
    slot_seconds : after a decision at an event the next one comes so many seconds later at the earliest: whatever
        happens in between waits, and the GPUs of a job that ends are free only then; 0: everything is seen at once.
    slot_grid : slots begin at multiples of slot_seconds from the first arrival on; otherwise with each decision.
    slot_origin_seconds : with slot_grid, where slots begin; None: with the first arrival.
    slot_spares_last_arrival : the last arrival of a trace does not wait for the end of a slot.
    slot_spares_last_end : nor does an end after which nobody is left who has run before, once no more jobs are to
        arrive: jobs that still wait for their first GPUs get them at once instead of with the next slot.
    """

    slot_seconds: NotNegative = 0.0
    slot_grid: bool = False
    slot_origin_seconds: NotNegative | None = None
    slot_spares_last_arrival: bool = False
    slot_spares_last_end: bool = False

    def start(self, world: World) -> Iterable[Running]:
        """Policies are told of slots."""
        world.core.slot_seconds = self.slot_seconds
        return (_Slots(self, world),) if self.slot_seconds or self.slot_spares_last_end else ()


class _Slots(Running):
    """When the world looks next."""

    says_ends = False

    def __init__(self, rule: Slots, world: World) -> None:
        self._rule, self._world = rule, world

    def seen_at(self, time: float) -> float:
        """At the end of the slot."""
        rule, world = self._rule, self._world
        last = rule.slot_spares_last_arrival and world.arrivals.only_last_left and time == world.arrivals.next_time
        if not rule.slot_seconds or last:
            return time
        if rule.slot_grid:
            origin = rule.slot_origin_seconds
            return slot_end(float(world.jobs.arrival_time[0]) if origin is None else origin, rule.slot_seconds, time)
        return max(time, world.core.asked_at + rule.slot_seconds)

    def seen_at_once(self, first: float, finish: _Floats, jobs: _Ids) -> bool:
        """Where all `jobs` that run end at `first`, and nobody else has ever run or is to arrive."""
        world = self._world
        if not self._rule.slot_spares_last_end:
            return False
        if first == np.inf or world.arrivals.next_time < np.inf or (finish > first).any():
            return False
        waiting = world.core.active[~among_ids(world.core.active, np.sort(jobs))]
        return not (world.jobs.steps_done[world.jobs.rows(waiting)] > 0).any()
