"""Tiresias: least attained service first, in a few queues."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np

from allocator.conversion import Positive
from allocator.policies.base.ordering import Turns, fill_state, in_order_of_arrival
from allocator.protocol import Assignment, ClusterState, Need, Plan, PlanPolicy, PlanStep, Trigger
from allocator.protocol.plan import of_each_job
from allocator.registry import register
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints, Values

# Relative: a limit that a job is planned to reach counts as reached, whatever rounding leaves of it.
_ROUNDING = 1e-9

# More than there are jobs and turns.
_TURNS = 1 << 40

_SHORTEST_STEP = 1.0
"""Seconds between two decisions that nothing but the queues calls for."""


@dataclass(eq=False)
class TiresiasMemory(Turns):
    """The queues; in each, jobs have their turn in the order of the line.

    Attributes
    ----------
    queue : (N,) the queue of each, 0 for the first.
    spent : (N,) GPU seconds attained before the last promotion; a promoted job starts from nothing.
    waited : (N,) seconds that the job has waited since its first start or its last promotion.
    clock : time of the last decision, seconds.
    """

    queue: Ints = of_each_job(0)
    spent: Floats = of_each_job(0.0)
    waited: Floats = of_each_job(0.0)
    clock: float = 0.0

    def send(self, jobs: Ints, queue: Ints | int) -> None:
        """Put `jobs` (positions) at the end of the line of their new `queue` (K,), in this order."""
        self.queue[jobs] = queue
        self.send_back(jobs)


@register(
    "tiresias",
    paper="Gu et al. (Tiresias), NSDI 2019, sec. 3.2; as a baseline in Gu et al. (ElasticFlow), ASPLOS 2023, sec. 6",
    program="in order of queue(s_i r_i), then of turn: a gang on the fastest type with room; q_k <= s_i r_i < q_k+1",
)
@dataclass(frozen=True)
class Tiresias(PlanPolicy):
    """Run the jobs first that have attained least GPU time, told apart by a few queues only.

        in order of   queue(s_i r_i),  then of turn            queue k:  limit_k <= s_i r_i < limit_(k+1)

    s_i: GPUs of the gang, or the fraction of one that a job asks for; r_i: seconds that it has trained. Discretised
    two-dimensional least attained service, for which nothing need be known of how long jobs take. A new job is last in
    line in the first queue. One that reaches the limit of its queue is last in line in the next one, of several at once
    the largest gangs first, then those that arrived first. The line is walked through at every arrival, completion,
    demotion and promotion: who fits runs, a gang that does not lets smaller ones pass, and in each queue those that run
    stay ahead of those that wait.

    Source of the details: the simulator published with ElasticFlow, after that of Tiresias.

    Parameters
    ----------
    queue_limits : GPU seconds at which a job leaves the first queue, the second, and so on; ascending.
    promote_after : a job that has waited for so many times what it has trained, both since its last promotion, goes to
        the first queue as if it had attained nothing; None: never, as published: jobs that keep arriving may then hold
        up those that have attained much for as long as they come.
    """

    queue_limits: tuple[float, ...] = (3250.0, 7200.0)
    promote_after: Positive | None = 8.0

    runs_first: ClassVar[bool] = True
    """Whether in each queue those that run stay ahead of those that wait."""

    needs = Need.SERVICE | Need.FRACTIONS
    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION | Trigger.RATES | Trigger.CAPACITY

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = self.queue_limits
        if any(not limit > 0 for limit in limits) or any(not low < high for low, high in pairwise(limits)):
            expected = "GPU seconds above 0, ascending"
            raise InputError(f"policy {self.name}", field="queue_limits", found=limits, expected=expected)

    def new_memory(self) -> TiresiasMemory:
        """Empty queues."""
        return TiresiasMemory()

    def plan(self, state: ClusterState, memory: TiresiasMemory) -> Plan:
        """Who runs until the next arrival, completion, demotion or promotion."""
        elapsed, memory.clock = state.clock - memory.clock, state.clock
        memory.recall(state)
        ran = np.zeros(state.n_jobs, dtype=np.bool_)
        ran[state.running.jobs] = True
        if self.promote_after is not None:
            memory.waited += np.where(~ran & (state.run_seconds > 0), elapsed, 0.0)
        attained: Floats = state.gpu_seconds - memory.spent
        self._demote(state, memory, ran, attained)
        if self.promote_after is not None:
            attained = self._promote(state, memory, ran, attained, self.promote_after)
        order = self._line(state, memory, ran)
        gpus = state.gpus_taken
        chosen, pool = fill_state(state, order)
        waits = np.ones(state.n_jobs, dtype=np.bool_)
        waits[chosen] = False
        if self.runs_first:
            ahead = (memory.queue * 2 + waits).take(order).argsort(kind="stable")
            memory.turn[order.take(ahead)] = np.arange(state.n_jobs)
        seconds = self._until_demotion(memory, chosen, attained.take(chosen), gpus.take(chosen))
        if self.promote_after is not None:
            behind = (waits & (memory.queue > 0)).nonzero()[0]
            left = self.promote_after * attained[behind] / gpus[behind] - memory.waited[behind]
            seconds = min(seconds, float(left.min(initial=np.inf)))
        assignment = Assignment.of(chosen, pool, state.scale_factors.take(chosen))
        return Plan((PlanStep(assignment, max(seconds, _SHORTEST_STEP)),))

    def _line(self, state: ClusterState, memory: TiresiasMemory, ran: Flags) -> Ints:  # noqa: ARG002
        """(N,) positions, the first in line first."""
        return np.asarray((memory.queue * _TURNS + memory.turn).argsort(kind="stable"))

    def _demote(self, state: ClusterState, memory: TiresiasMemory, ran: Flags, attained: Floats) -> None:
        """Let those down who have attained so many GPU seconds (N,) since their last promotion."""
        due = (self._limits[:-1] * (1.0 - _ROUNDING)).searchsorted(attained, side="right")
        down = self.falling(due, memory, ran)
        if not len(down):
            return
        down = in_order_of_arrival(state, down)
        down = down[np.argsort(-state.scale_factors[down], kind="stable")]
        memory.send(down, self.queues_of(due, memory, down))

    def falling(self, due: Ints, memory: TiresiasMemory, ran: Flags) -> Ints:  # noqa: ARG002
        """Positions of the jobs that fall, where they are `due` (N,) in these queues."""
        return (due > memory.queue).nonzero()[0]

    def queues_of(self, due: Ints, memory: TiresiasMemory, down: Ints) -> Ints:  # noqa: ARG002
        """(K,) the queues to which those at `down` fall."""
        return due[down]

    def _promote(
        self, state: ClusterState, memory: TiresiasMemory, ran: Flags, attained: Floats, after: float
    ) -> Floats:
        """Let those up who have waited for `after` times what they have trained; what all have attained then."""
        trained = attained / state.gpus_taken
        enough = memory.waited >= after * trained * (1.0 - _ROUNDING)
        up = (~ran & (memory.queue > 0) & (trained > 0) & enough).nonzero()[0]
        if not len(up):
            return attained
        memory.send(up[np.argsort(memory.turn[up], kind="stable")], 0)
        memory.spent[up], memory.waited[up] = state.gpu_seconds[up], 0.0
        return np.asarray(state.gpu_seconds - memory.spent)

    @cached_property
    def _limits(self) -> Floats:
        """(Q,) GPU seconds at which a job leaves each queue; inf for the last one."""
        return np.array([*self.queue_limits, np.inf])

    def _until_demotion(self, memory: TiresiasMemory, jobs: Ints, attained: Floats, gpus: Values) -> float:
        """Seconds until the first of the `jobs` (K,), which run, reaches a limit; inf for never."""
        if not len(jobs):
            return np.inf
        limits = self._limits.take(memory.queue.take(jobs))
        left = self.seconds_to(limits, attained, gpus)
        return float(left[left.argmin()])

    def seconds_to(self, limits: Floats, attained: Floats, gpus: Values) -> Floats:
        """(K,) until jobs that run have attained so many GPU seconds."""
        return np.asarray((limits - attained) / gpus)
