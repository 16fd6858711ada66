"""The world looks now and then only: what happens between two looks waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from allocator.conversion import NotNegative
from allocator.simulator.rules.base import Rule, Running
from throughputs.numerics import slot_end

if TYPE_CHECKING:
    from allocator.simulator.world import World


@dataclass(frozen=True)
class Slots(Rule):
    """Decisions at events are at least a slot apart.

    Attributes
    ----------
    slot_seconds : after a decision at an event the next one comes so many seconds later at the earliest: whatever
        happens in between waits, and the GPUs of a job that ends are free only then; 0: everything is seen at once.
    slot_grid : slots begin at multiples of slot_seconds from the first arrival on; otherwise with each decision.
    """

    slot_seconds: NotNegative = 0.0
    slot_grid: bool = False

    def start(self, world: World) -> Iterable[Running]:
        """Policies are told of slots."""
        world.core.slot_seconds = self.slot_seconds
        return (self.in_a_run(world),) if self.slot_seconds else ()

    def in_a_run(self, world: World) -> SlotsInRun:
        """When the world looks."""
        return SlotsInRun(self, world)

    def origin(self, world: World) -> float:
        """When the first slot of the grid begins, seconds."""
        return float(world.jobs.arrival_time[0])


class SlotsInRun(Running):
    """When the world looks next."""

    says_ends = False

    def __init__(self, rule: Slots, world: World) -> None:
        self.rule, self.world = rule, world

    def seen_at(self, time: float) -> float:
        """At the end of the slot."""
        rule, world = self.rule, self.world
        if rule.slot_grid:
            return slot_end(rule.origin(world), rule.slot_seconds, time)
        return max(time, world.core.asked_at + rule.slot_seconds)
