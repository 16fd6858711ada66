"""Gandiva: gangs of one size share servers and take turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from allocator.conversion import PositiveSeconds
from allocator.policies.base.ordering import in_order_of_arrival
from allocator.policies.time_sharing.node_sets import NodeSets
from allocator.protocol import Assignment, ClusterState, Plan, PlanPolicy, PlanStep, Trigger
from allocator.protocol.state import the_one_type
from allocator.registry import register

# Relative to the clock.
_ROUNDING = 1e-12


@register(
    "gandiva_time_slicing",
    paper="Xiao et al. (Gandiva), OSDI 2018, sec. 4; as a baseline in Gu et al. (ElasticFlow), ASPLOS 2023, sec. 6",
    program="node sets for gangs of one size, in proportion to the GPUs they want; in a full set gangs take turns",
)
@dataclass(frozen=True)
class GandivaTimeSlicing(PlanPolicy):
    """Give gangs of one size servers of their own, on which they take turns where they are too many.

    A *node set* is the ``ceil(s / g)`` servers of g GPUs that a gang of s GPUs needs; ``floor(servers g / s)`` gangs
    run on it at the same time. A new job goes to the least loaded set of its size if that has room, to a new one if
    servers are free, to the least loaded one to take turns, or waits. After that each size of gangs has sets opened or
    closed in proportion to the GPUs that its jobs want, and jobs move with them. Every `turn_seconds` the jobs that
    ran on a set with more jobs than places go to the end of its line.

    This is the time slicing of Gandiva. Its packing of two jobs on the same GPUs is a rule for pairs, `gandiva`;
    growing and shrinking of gangs is not part of the simulator from which the details are, the one published with
    ElasticFlow. For clusters with one type of accelerator.

    Parameters
    ----------
    turn_seconds : length of a turn.
    """

    turn_seconds: PositiveSeconds = 60.0

    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION | Trigger.RATES | Trigger.CAPACITY
    heterogeneity_aware: ClassVar[bool] = False

    def new_memory(self) -> NodeSets:
        """No sets."""
        return NodeSets()

    def plan(self, state: ClusterState, memory: NodeSets) -> Plan:
        """Whose turn it is, until the next turn, arrival or completion."""
        pool = the_one_type(state, self.name)
        gpus = int(state.capacity[pool])
        per_server = max(1, min(state.cluster.gpus_per_server[state.cluster.accelerators[pool]], gpus))
        memory.resize(gpus // per_server, per_server)
        labels, sizes = state.throughputs.jobs, state.scale_factors
        able = np.flatnonzero((state.rates[:, pool] > 0) & (sizes <= gpus) & (state.steps_remaining > 0))
        position = {labels[i]: i for i in able.tolist()}
        known = memory.known
        new = np.array([i for label, i in position.items() if label not in known], dtype=np.int64)
        if self.turns_end(state.clock, memory):
            memory.turn(state.clock)
        released = memory.drop(known - position.keys())
        for i in in_order_of_arrival(state, new).tolist():
            memory.arrive(labels[i], int(sizes[i]))
        if memory.waiting:
            memory.place_waiting(released)
        memory.rebalance()
        running = np.array([position[job] for _, one in memory for job in one.running], dtype=np.int64)
        rows = Assignment.of(running, np.full(len(running), pool), sizes[running])
        return Plan((PlanStep(rows, self.seconds(state, memory)),))

    def seconds(self, state: ClusterState, memory: NodeSets) -> float:
        """Seconds until the next turn."""
        oversubscribed = any(one.oversubscribed for _, one in memory)
        return memory.turned + self.turn_seconds - state.clock if oversubscribed else np.inf

    def turns_end(self, clock: float, memory: NodeSets) -> bool:
        """Whether it is time for the next in line."""
        return clock - memory.turned >= self.turn_seconds - _ROUNDING * abs(clock)
