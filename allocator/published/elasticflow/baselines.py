"""The policies that ElasticFlow was compared with, as its simulator has them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from allocator.policies.base.programs import Array
from allocator.policies.time_sharing.gandiva import GandivaTimeSlicing, whose_turn
from allocator.policies.time_sharing.node_sets import NodeSets
from allocator.policies.time_sharing.themis import Themis, ThemisMemory
from allocator.policies.time_sharing.tiresias import Tiresias, TiresiasMemory
from allocator.protocol import Assignment, ClusterState, PlanStep, Trigger
from allocator.published.elasticflow.node_sets import PublishedNodeSets

_Ids = NDArray[np.int64]

_ROUNDING = 1e-12
"""Relative to a number of slots."""

_MOST_STEPS, _SECONDS_TO_AN_END = 1000, 1.0
"""Decisions that are made ahead, and how far off an end is then at least."""

_AT_ONCE = 1.0
"""Seconds until the next decision after the last arrival, where the world has no slots."""


@dataclass(frozen=True)
class PublishedTiresias(Tiresias):
    """A job of s GPUs is next looked at for a limit when ``(limit - r) / s`` whole seconds have passed, too late for
    gangs unless something else happens, and falls by one queue at a time."""

    def falling(self, due: _Ids, memory: TiresiasMemory, ran: NDArray[np.bool_]) -> _Ids:
        """Only who ran."""
        return np.flatnonzero((due > memory.queue) & ran)

    def queues_of(self, due: _Ids, memory: TiresiasMemory, down: _Ids) -> _Ids:  # noqa: ARG002
        """The next one."""
        return memory.queue[down] + 1

    def seconds_to(self, limits: Array, attained: Array, gpus: NDArray[Any]) -> Array:
        """GPU seconds are taken for seconds, twice."""
        return np.asarray(np.ceil((limits - attained / gpus) / gpus))


@dataclass(frozen=True)
class PublishedGandiva(GandivaTimeSlicing):
    """Decisions at arrivals only, so that the GPUs of jobs that end are idle until the next one, and at the end of
    every slot once no arrival is left. Jobs take turns when a decision falls on a multiple of `turn_seconds`.

    Decisions that can change nothing are left out, and those up to the first slot in which a job may end are made
    together.
    """

    triggers: ClassVar[Trigger] = Trigger.ARRIVAL

    def new_memory(self) -> NodeSets:
        """No sets."""
        return PublishedNodeSets()

    def decide(
        self, memory: NodeSets, clock: float, gone: Set[Hashable], arrived: Sequence[tuple[Hashable, int]]
    ) -> None:
        """Keeps what was before."""
        assert isinstance(memory, PublishedNodeSets)
        memory.before = memory.standing
        super().decide(memory, clock, gone, arrived)

    def turns_end(self, clock: float, memory: NodeSets) -> bool:  # noqa: ARG002
        """On a whole turn of the clock."""
        return int(clock % self.turn_seconds) == 0

    def steps(
        self, state: ClusterState, memory: NodeSets, position: Mapping[Hashable, int], pool: int
    ) -> list[PlanStep]:
        """Until the next arrival; once there is none left, slot by slot."""

        def whose() -> Assignment:
            return whose_turn(memory, position, state.scale_factors, pool)

        assert isinstance(memory, PublishedNodeSets)
        assignment = whose()
        if state.more_arrivals:
            return [PlanStep(assignment, np.inf)]
        # a decision that changed nothing is followed by others that do not, as long as nobody ends
        seconds = self._until_next_slot(state, memory, assignment, settled=memory.standing == memory.before)
        steps = [PlanStep(assignment, seconds)]
        if seconds == state.slot_seconds:
            able = list(position.values())
            left = np.full(state.n_jobs, np.inf)
            left[able] = state.steps_remaining[able] / state.rates[able, pool]
            self._foresee(steps, state.clock, left, whose, memory)
        return steps

    def _foresee(
        self,
        steps: list[PlanStep],
        clock: float,
        left: NDArray[np.float64],
        whose_turn: Callable[[], Assignment],
        memory: PublishedNodeSets,
    ) -> None:
        """Add the decisions at the ends of the next slots, as long as they change something and no job may end.

        Until then nobody comes or goes, so they are known. `left` (N,) are the seconds that each job has to train.
        """
        slot, before = steps[0].seconds, memory.standing
        while len(steps) < _MOST_STEPS:
            left[steps[-1].assignment.jobs] -= slot
            if left.min(initial=np.inf) <= slot + _SECONDS_TO_AN_END:
                return
            clock += slot
            self.decide(memory, clock, frozenset(), ())
            after = memory.standing
            if after == before:
                return
            before = after
            steps.append(PlanStep(whose_turn(), slot))

    def _until_next_slot(self, state: ClusterState, memory: NodeSets, assignment: Assignment, settled: bool) -> float:
        """Seconds until the end of the first slot in which a job can end or have its turn."""
        slot = state.slot_seconds
        turns = any(one.oversubscribed for _, one in memory)
        may_turn = turns and (slot % self.turn_seconds > 0 or self.turns_end(state.clock, memory))
        if not slot or not settled or may_turn or not len(assignment):
            return slot or _AT_ONCE
        left = state.steps_remaining[assignment.jobs] / state.rates[assignment.jobs, assignment.pool]
        return max(1.0, float(np.ceil(left.min() / slot * (1.0 - _ROUNDING)))) * slot


@dataclass(frozen=True)
class PublishedThemis(Themis):
    """q_i is the isolated share alone, without T_i, so that rho compares seconds with steps, and e_i ends when the set
    of jobs last changed. Of the shares of jobs that do not determine the worst rho, those at which ECOS ends are taken.

    Solver "auto" asks it where it is installed (an extra: it is under the GPL). Where it is not there is a warning, and
    jobs may be leased GPUs in another order.
    """

    choice: ClassVar[str] = "published"

    def isolated_rate(self, rates: Array, share: Array) -> Array:  # noqa: ARG002
        """The share."""
        return share

    def elapsed(self, state: ClusterState, memory: ThemisMemory) -> Array:
        """Up to the last change of the set of jobs."""
        return np.asarray(state.elapsed_seconds - (state.clock - memory.changed))
