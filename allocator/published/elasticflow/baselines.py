"""The policies that ElasticFlow was compared with, as its simulator has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from allocator.policies.time_sharing.gandiva import GandivaTimeSlicing
from allocator.policies.time_sharing.node_sets import NodeSets
from allocator.policies.time_sharing.themis import Themis, ThemisMemory
from allocator.policies.time_sharing.tiresias import Tiresias, TiresiasMemory
from allocator.protocol import ClusterState, Trigger
from allocator.published.elasticflow.node_sets import PublishedNodeSets
from throughputs.arrays import Flags, Floats, Ints, Values

_AT_ONCE = 1.0
"""Seconds until the next decision after the last arrival, where the world has no slots."""


@dataclass(frozen=True)
class PublishedTiresias(Tiresias):
    """A job of s GPUs is next looked at for a limit when ``(limit - r) / s`` whole seconds have passed, too late for
    gangs unless something else happens, and falls by one queue at a time."""

    def falling(self, due: Ints, memory: TiresiasMemory, ran: Flags) -> Ints:
        """Only who ran."""
        return np.flatnonzero((due > memory.queue) & ran)

    def queues_of(self, due: Ints, memory: TiresiasMemory, down: Ints) -> Ints:  # noqa: ARG002
        """The next one."""
        return memory.queue[down] + 1

    def seconds_to(self, limits: Floats, attained: Floats, gpus: Values) -> Floats:
        """GPU seconds are taken for seconds, twice."""
        return np.asarray(np.ceil((limits - attained / gpus) / gpus))


@dataclass(frozen=True)
class PublishedGandiva(GandivaTimeSlicing):
    """Decisions at arrivals only, so that the GPUs of jobs that end are idle until the next one, and at the end of
    every slot once no arrival is left. Jobs take turns when a decision falls on a multiple of `turn_seconds`."""

    triggers: ClassVar[Trigger] = Trigger.ARRIVAL

    def new_memory(self) -> NodeSets:
        """No sets."""
        return PublishedNodeSets()

    def turns_end(self, clock: float, memory: NodeSets) -> bool:  # noqa: ARG002
        """On a whole turn of the clock."""
        return int(clock % self.turn_seconds) == 0

    def seconds(self, state: ClusterState, memory: NodeSets) -> float:  # noqa: ARG002
        """Until the next arrival; once there is none left, to the end of the slot."""
        return np.inf if state.more_arrivals else state.slot_seconds or _AT_ONCE


@dataclass(frozen=True)
class PublishedThemis(Themis):
    """q_i is the isolated share alone, without T_i, so that rho compares seconds with steps, and e_i ends when the set
    of jobs last changed. Of the shares of jobs that do not determine the worst rho, those at which ECOS ends are taken.

    Solver "auto" asks it where it is installed (an extra: it is under the GPL). Where it is not there is a warning, and
    jobs may be leased GPUs in another order.
    """

    choice: ClassVar[str] = "published"

    def isolated_rate(self, rates: Floats, share: Floats) -> Floats:  # noqa: ARG002
        """The share."""
        return share

    def elapsed(self, state: ClusterState, memory: ThemisMemory) -> Floats:
        """Up to the last change of the set of jobs."""
        return np.asarray(state.elapsed_seconds - (state.clock - memory.changed))
