"""Planners of deadlines as the published code has them, which keeps one list of jobs from plan to plan.

It sorts that list now and then, by deadline, by score or by GPUs, so that jobs with equal keys stand in the order of
whatever it was sorted by before, and gangs are placed in that order. With it recorded runs are repeated to the second.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import inf

from allocator.policies.deadlines.base import DeadlinePolicy, PlannedJob
from allocator.policies.deadlines.earliest import (
    EarliestDeadlineFirst,
    EarliestDeadlineFirstAdmission,
    all_they_can_use,
)
from allocator.policies.deadlines.elasticflow import ElasticFlow, ElasticFlowNoAdmission
from allocator.policies.deadlines.memory import DeadlineMemory
from allocator.policies.deadlines.promises import Promises
from allocator.protocol import ClusterState, Plan
from allocator.published.elasticflow.scaling import scale_as_published
from formulations.deadlines import DeadlineOrder, Filling, JobPlan
from throughputs.arrays import Ints

_MOST_LOST_SECONDS = 30.0
"""What a decision costs at most in ElasticFlow without admission."""


@dataclass(eq=False)
class ListMemory(DeadlineMemory):
    """With the list.

    Attributes
    ----------
    listed : labels of jobs in the order of the list.
    wake_ups : seconds at which changes are noted, though they may be planned no more.
    expected : when the GPUs of each job are to come back by its plan, seconds.
    """

    listed: list[Hashable] = field(default_factory=list)
    wake_ups: set[float] = field(default_factory=set)
    expected: dict[Hashable, float] = field(default_factory=dict)


class _Listed(DeadlinePolicy):
    """Jobs stand, and gangs are placed, in the order of the list."""

    def new_memory(self) -> ListMemory:
        """An empty list."""
        return ListMemory()

    def listed(self, memory: DeadlineMemory) -> Sequence[Hashable]:
        """The list."""
        assert isinstance(memory, ListMemory)
        return memory.listed

    def placed(self, running: list[tuple[PlannedJob, int]]) -> list[tuple[PlannedJob, int]]:
        """As they stand."""
        return running

    def patience(self, filling: Filling) -> float:  # noqa: ARG002
        """For ever."""
        return inf

    def as_plan(
        self,
        state: ClusterState,
        memory: DeadlineMemory,
        jobs: Sequence[PlannedJob],
        gpus: Sequence[int],
        rejected: Sequence[int] | Ints,
        until: float = inf,
        line: Sequence[Hashable] | None = None,
    ) -> Plan:
        """The list is then that of the jobs, or the `line` of those and others that wait."""
        plan = super().as_plan(state, memory, jobs, gpus, rejected, until, line)
        assert isinstance(memory, ListMemory)
        memory.listed = [job.label for job in jobs] if line is None else list(line)
        return plan


@dataclass(frozen=True)
class ListedEarliestDeadlineFirst(_Listed, EarliestDeadlineFirst):
    """As in `edf` otherwise."""


@dataclass(frozen=True)
class ListedEarliestDeadlineFirstAdmission(_Listed, EarliestDeadlineFirstAdmission):
    """A job that is late keeps its place, and all newcomers out."""

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Nothing is tried where nobody is new."""
        line, unserved = self.line(state, memory)
        if all(map(memory.knows, line)):
            return all_they_can_use(self, state, memory, line, unserved)
        return super().plan(state, memory)

    def let_in(self, order: DeadlineOrder[PlannedJob], jobs: list[PlannedJob], memory: DeadlineMemory) -> list[int]:
        """Those that are there first, and each newcomer if all deadlines are met beside it."""
        order.add(job for job in jobs if memory.knows(job.label) and job.due < inf)
        others = [job for job in jobs if not (memory.knows(job.label) and job.due < inf)]
        return super().let_in(order, others, memory)

    def in_line(self, jobs: list[PlannedJob], served: list[PlannedJob], memory: DeadlineMemory) -> list[PlannedJob]:
        """The list is sorted only when nobody was let in."""
        if all(memory.knows(job.label) for job in served):
            return served
        kept = {job.label for job in served}
        return [job for job in jobs if job.label in kept]


@dataclass(frozen=True)
class ListedElasticFlow(_Listed, ElasticFlow):
    """Plans are made anew at every event, a job that is late keeps all others out, and jobs that arrive together are
    admitted or rejected together. What is left over goes to the job whose plan costs the most GPU time by it."""

    def let_in(
        self, promises: Promises, jobs: list[PlannedJob], new: list[PlannedJob], memory: DeadlineMemory
    ) -> list[PlannedJob]:
        """All newcomers with deadlines, or none."""
        promises.add(job for job in jobs if memory.knows(job.label))
        newcomers = [job for job in new if job.due < inf]
        turned_away = [] if promises.admit(newcomers) else newcomers
        promises.add(job for job in new if job.due == inf)
        return turned_away

    def scale(self, promises: Promises, jobs: list[PlannedJob], plans: list[JobPlan]) -> list[int]:
        """As they stand after the scaling, larger gangs first."""
        listed, _ = scale_as_published(promises.filling, promises.left_over, jobs, plans)
        return sorted(listed, key=lambda j: -plans[j].gpus[0])


@dataclass(frozen=True)
class ListedElasticFlowNoAdmission(_Listed, ElasticFlowNoAdmission):
    """With the list of those who have started, and with the changes that were noted."""

    def finished(  # type: ignore[override]
        self,
        state: ClusterState,
        memory: ListMemory,
        promises: Promises,
        rejected: Sequence[int],
    ) -> Plan:
        """The first change of each job is noted. It is struck out only when an end that is expected then moves.

        All ends of running jobs move by what the decision costs them, and again with the next decision.
        """
        now = float(state.clock)
        jobs, plans, free = promises.jobs, promises.plans, promises.left_over
        notes = {time for time in memory.wake_ups if time > now}
        lost, running = state.lost_seconds.tolist(), set(state.running.jobs.tolist())
        ends = dict(memory.expected)
        for job in jobs:
            if job.label in ends:
                notes.discard(ends.pop(job.label) + (lost[job.position] if job.position in running else 0.0))
        # what those lost who ended sooner than expected is not known
        notes -= {time for time in notes for end in ends.values() if now < end <= time <= end + _MOST_LOST_SECONDS}
        started = {label: k for k, label in enumerate(memory.listed)}
        notes |= {p.starts[1] for job, p in zip(jobs, plans, strict=True) if job.label not in started and not p.gpus[0]}
        starting = [job for job, plan in zip(jobs, plans, strict=True) if plan.gpus[0] and job.label not in started]
        for job in sorted(starting, key=lambda job: job.position):
            started[job.label] = len(started)
        _, passed_ends = scale_as_published(promises.filling, free, jobs, plans)
        notes -= passed_ends - {plan.end for plan in plans}
        for job, plan in zip(jobs, plans, strict=True):
            if plan.gpus[0]:
                started.setdefault(job.label, len(started))
        here = [(job, plan) for job, plan in zip(jobs, plans, strict=True) if job.label in started]
        notes |= {plan.starts[1] if len(plan.starts) > 1 else plan.charged_until for _, plan in here}
        notes -= {plan.end for plan in plans if plan.gpus[0]} - {plan.end for plan in plans if not plan.gpus[0]}
        server = int(state.cluster.gpus_per_server[state.cluster.accelerators[memory.pool]])
        here.sort(key=lambda row: started[row[0].label])
        here.sort(key=lambda row: -min(row[1].gpus[0], server))
        waiting = [job for job in jobs if job.label not in started]
        gpus = [plan.gpus[0] for _, plan in here] + [0] * len(waiting)
        made = self.as_plan(
            state, memory, [*(job for job, _ in here), *waiting], gpus, rejected, min(notes, default=inf)
        )
        memory.wake_ups = notes
        memory.expected = {job.label: plan.end for job, plan in zip(jobs, plans, strict=True)}
        memory.listed = sorted((job.label for job, _ in here), key=started.__getitem__)
        return made
