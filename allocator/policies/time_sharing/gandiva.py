"""Gandiva: gangs of one size share servers and take turns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from allocator.policies.time_sharing.lines import in_order_of_arrival, only_pool
from allocator.policies.time_sharing.node_sets import NodeSets
from allocator.policies.time_sharing.published_sets import PublishedNodeSets
from allocator.protocol import Assignment, ClusterState, Plan, PlanPolicy, PlanStep, Trigger
from allocator.registry import register
from throughputs import InputError

# Relative to the clock.
_ROUNDING = 1e-12

# Decisions that are made ahead, and how far off an end is then at least, seconds.
_MOST_STEPS = 1000
_SECONDS_TO_AN_END = 1.0

_AT_ONCE = 1.0
"""Seconds until the next decision after the last arrival, where the world has no slots."""


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
    published_sets : node sets are filled and rebalanced as in the published simulator, see `PublishedNodeSets`.
    published_turns : decisions as in the published simulator: at arrivals only, so that the GPUs of jobs that end are
        idle until the next one, and at the end of every slot once no arrival is left; jobs take turns when a decision
        falls on a multiple of `turn_seconds`. Decisions that can change nothing are left out, and those up to the first
        slot in which a job may end are made together.
    """

    turn_seconds: float = 60.0
    published_sets: bool = False
    published_turns: bool = False

    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION | Trigger.RATES | Trigger.CAPACITY
    heterogeneity_aware: ClassVar[bool] = False
    one_type: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.turn_seconds > 0:
            found, expected = self.turn_seconds, "seconds above 0"
            raise InputError("policy gandiva_time_slicing", field="turn_seconds", found=found, expected=expected)
        if self.published_turns:
            object.__setattr__(self, "triggers", Trigger.ARRIVAL)

    def new_memory(self) -> NodeSets:
        """No sets."""
        return PublishedNodeSets() if self.published_sets else NodeSets()

    def plan(self, state: ClusterState, memory: NodeSets) -> Plan:
        """Whose turn it is, until the next turn, arrival or completion."""
        pool = only_pool(state, self.name)
        gpus = int(state.capacity[pool])
        per_server = max(1, min(state.cluster.gpus_per_server[state.cluster.accelerators[pool]], gpus))
        memory.resize(gpus // per_server, per_server)
        foresees = self.published_turns and not state.more_arrivals
        before = memory.state() if foresees else None
        labels, sizes = state.throughputs.jobs, state.scale_factors
        able = np.flatnonzero((state.rates[:, pool] > 0) & (sizes <= gpus) & (state.steps_remaining > 0))
        position = {labels[i]: i for i in able.tolist()}
        new = [position[label] for label in position.keys() - memory.known]
        new = in_order_of_arrival(state, np.array(new, dtype=np.int64)).tolist()
        arrived = [(labels[i], int(sizes[i])) for i in new]
        self._decide(memory, state.clock, memory.known - position.keys(), arrived)
        assignment = _whose_turn(memory, position, sizes, pool)
        if not self.published_turns:
            seconds = self._until_next_turn(state, memory)
        elif not foresees:
            seconds = np.inf
        else:
            # A decision that changed nothing is followed by others that do not, as long as nobody ends.
            seconds = self._until_next_slot(state, memory, assignment, settled=memory.state() == before)
        steps = [PlanStep(assignment, seconds)]
        if foresees and seconds == state.slot_seconds:
            left = np.full(state.n_jobs, np.inf)
            left[able] = state.steps_remaining[able] / state.rates[able, pool]
            self._foresee(steps, state.clock, left, lambda: _whose_turn(memory, position, sizes, pool), memory)
        return Plan(tuple(steps))

    def _decide(
        self, memory: NodeSets, clock: float, gone: Set[Hashable], arrived: Sequence[tuple[Hashable, int]]
    ) -> None:
        """Turns, releases, arrivals (label and GPUs) and new sets at `clock` (seconds)."""
        if self._turns_end(clock, memory):
            memory.turn()
            memory.turned = clock
        released = memory.drop(gone)
        for job, size in arrived:
            memory.arrive(job, size)
        if memory.waiting:
            memory.place_waiting(released)
        memory.rebalance()

    def _foresee(
        self,
        steps: list[PlanStep],
        clock: float,
        left: NDArray[np.float64],
        whose_turn: Callable[[], Assignment],
        memory: NodeSets,
    ) -> None:
        """Add the decisions at the ends of the next slots, as long as they change something and no job may end.

        Until then nobody comes or goes, so they are known. `left` (N,) are the seconds that each job has to train.
        """
        slot, before = steps[0].seconds, memory.state()
        while len(steps) < _MOST_STEPS:
            left[steps[-1].assignment.jobs] -= slot
            if left.min(initial=np.inf) <= slot + _SECONDS_TO_AN_END:
                return
            clock += slot
            self._decide(memory, clock, frozenset(), ())
            after = memory.state()
            if after == before:
                return
            before = after
            steps.append(PlanStep(whose_turn(), slot))

    def _turns_end(self, clock: float, memory: NodeSets) -> bool:
        if self.published_turns:
            return int(clock % self.turn_seconds) == 0
        return clock - memory.turned >= self.turn_seconds - _ROUNDING * abs(clock)

    def _until_next_turn(self, state: ClusterState, memory: NodeSets) -> float:
        """Seconds; inf where nobody waits for a turn."""
        if any(one.oversubscribed for _, one in memory):
            return memory.turned + self.turn_seconds - state.clock
        return np.inf

    def _until_next_slot(self, state: ClusterState, memory: NodeSets, assignment: Assignment, settled: bool) -> float:
        """Seconds until the end of the first slot in which a job can end or have its turn."""
        slot = state.slot_seconds
        turns = any(one.oversubscribed for _, one in memory)
        may_turn = turns and (slot % self.turn_seconds > 0 or self._turns_end(state.clock, memory))
        if not slot or not settled or may_turn or not len(assignment):
            return slot or _AT_ONCE
        left = state.steps_remaining[assignment.jobs] / state.rates[assignment.jobs, assignment.pool]
        return max(1.0, float(np.ceil(left.min() / slot * (1.0 - _ROUNDING)))) * slot


def _whose_turn(memory: NodeSets, position: Mapping[Hashable, int], sizes: NDArray[np.int64], pool: int) -> Assignment:
    """Who runs, set by set."""
    chosen = np.array([position[job] for _, one in memory for job in one.running], dtype=np.int64)
    return Assignment.of(chosen, np.full(len(chosen), pool), sizes[chosen])
