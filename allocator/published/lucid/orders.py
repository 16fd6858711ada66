"""Orders as the simulator of Lucid has them, which that of Helios grew into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from allocator.conversion import PositiveSeconds
from allocator.policies.base.waiting_line import LineMemory, Pools
from allocator.policies.orders.in_line import QuasiShortestServiceFirst
from allocator.policies.time_sharing.tiresias import Tiresias, TiresiasMemory
from allocator.protocol import ClusterState, Plan, PlanStep
from allocator.protocol.assignment import among_ids
from allocator.protocol.plan import of_each_job
from allocator.protocol.policy import Past
from throughputs.arrays import Flags, Ints


@dataclass(eq=False)
class BurstMemory(LineMemory):
    """With those who came to an empty line.

    Attributes
    ----------
    burst : by id the pools and GPUs of those who still stand there by their GPUs alone.
    burst_until : up to when they do, seconds.
    """

    burst: dict[int, tuple[Pools, float]] = field(default_factory=dict)
    burst_until: float = -np.inf

    def clear(self) -> None:
        """Nobody waits."""
        super().clear()
        self.burst = {}


@dataclass(frozen=True)
class PublishedQssf(QuasiShortestServiceFirst):
    """Jobs that come to an empty line stand there by their GPUs alone for a while: in the second of a burst there are
    no predictions.

    Parameters
    ----------
    burst_seconds : for so long.
    """

    burst_seconds: PositiveSeconds = 1.0

    def new_memory(self) -> BurstMemory:
        """An empty line."""
        return BurstMemory()

    def memory_at(self, started: Mapping[int, float], past: Past | None = None) -> None:
        """None: who still stands in line by GPUs is not told."""

    def plan(self, state: ClusterState, memory: LineMemory) -> Plan:
        """Until the burst is over, if some of it wait."""
        assert isinstance(memory, BurstMemory)
        plan = super().plan(state, memory)
        rows = plan.steps[0].assignment
        for job in state.ids[rows.jobs].tolist() if memory.burst else ():
            memory.burst.pop(job, None)
        return Plan((PlanStep(rows, memory.burst_until - state.clock),)) if memory.burst else plan

    def _join(self, state: ClusterState, memory: LineMemory) -> None:
        assert isinstance(memory, BurstMemory)
        if memory.burst and state.clock >= memory.burst_until:
            burst, memory.burst = memory.burst, {}
            for pools, gpus in set(burst.values()):
                for place in [place for place in memory.lines[pools][gpus] if place[1] in burst]:
                    memory.remove(pools, gpus, place)
            ids = np.array(sorted(burst), dtype=np.int64)
            self._add(memory, state.take(state.ids.searchsorted(ids[among_ids(ids, state.ids)])))
        super()._join(state, memory)

    def _add_new(self, memory: LineMemory, own: ClusterState) -> None:
        assert isinstance(memory, BurstMemory)
        occupied = list({pool for pools in memory.lines for pool in pools})
        late = np.any(own.runnable_rates[:, occupied] > 0, axis=1)
        self._add(memory, own.take(np.flatnonzero(late)))
        if not late.all():
            alone = own.take(np.flatnonzero(~late))
            early = self._add(memory, alone, alone.gpus_taken.astype(np.float64)[:, None])
            memory.burst |= {job: (pools, gpus) for pools, gpus, (_, job) in early}
            memory.burst_until = own.clock + self.burst_seconds


@dataclass(eq=False)
class ArrivalMemory(TiresiasMemory):
    """With who ran.

    Attributes
    ----------
    ran : (N,) whether the job ran up to the last decision.
    """

    ran: Flags = of_each_job(False)


@dataclass(frozen=True)
class TiresiasByArrival(Tiresias):
    """In a queue goes first who arrived first, wherever the job has been before, and of those who arrived together who
    runs already, then who has done so, or waited, for longest."""

    runs_first: ClassVar[bool] = False

    def new_memory(self) -> ArrivalMemory:
        """Empty queues."""
        return ArrivalMemory()

    def _line(self, state: ClusterState, memory: TiresiasMemory, ran: Flags) -> Ints:
        assert isinstance(memory, ArrivalMemory)
        changed = np.flatnonzero(ran != memory.ran)
        memory.send_back(changed[np.argsort(memory.turn[changed], kind="stable")])
        memory.ran = ran
        return np.lexsort((memory.turn, ~ran, -state.elapsed_seconds, memory.queue))
