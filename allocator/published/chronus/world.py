"""The simulator of Chronus (Gao et al., SoCC 2021, public artifact): time in the queue may count as training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from allocator.policies.chronus.memory import ChronusMemory
from allocator.protocol.assignment import among_ids
from allocator.simulator.rules.base import Rule, Running, Stretch

if TYPE_CHECKING:
    from allocator.simulator.world import World


@dataclass(frozen=True)
class WaitingCounts(Rule):
    """A job that starts counts as running for so long already as the planner remembers (`free_progress`)."""

    def start(self, world: World) -> Iterable[Running]:
        """Under other planners nobody does."""
        memory = world.core.memory
        return (_WaitingCounts(world, memory),) if isinstance(memory, ChronusMemory) else ()


class _WaitingCounts(Running):
    says_ends = False

    def __init__(self, world: World, memory: ChronusMemory) -> None:
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
