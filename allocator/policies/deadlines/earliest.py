"""Earliest deadline first with any number of GPUs, without and with admission."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf

from allocator.policies.deadlines.base import DeadlinePolicy, PlannedJob
from allocator.policies.deadlines.memory import DeadlineMemory
from allocator.protocol import ClusterState, Plan
from allocator.registry import register
from formulations.deadlines import DeadlineOrder, FreeProfile, earliest_share, take_as_published

__all__ = ["EarliestDeadlineFirst", "EarliestDeadlineFirstAdmission"]


@dataclass(frozen=True)
class _Earliest(DeadlinePolicy):
    """Job after job takes what it can use."""

    published_returns: bool = False

    def _order(self, state: ClusterState, pool: int) -> DeadlineOrder[PlannedJob]:
        """An order of no jobs."""
        return DeadlineOrder(
            FreeProfile(float(state.clock), int(state.capacity[pool])),
            partial(earliest_share, self.filling),
            take_as_published if self.published_returns else FreeProfile.take,
        )


@register(
    "edf",
    paper="Liu and Layland, JACM 1973; as in Gu et al., ASPLOS 2023, sec. 6.1",
    program="in order of D: the largest level within what is free, until the job is through",
)
@dataclass(frozen=True)
class EarliestDeadlineFirst(_Earliest):
    """Earliest deadline first: each job in turn takes as many GPUs as it can use.

    Nobody is rejected. Jobs that are past their deadlines come first, as their deadlines are the earliest.

    Parameters
    ----------
    published_returns : as the published code has it: where the GPUs of a job come back at an instant at which the plan
        changes anyway, that change is lost (`formulations.deadlines.take_as_published`).
    levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, margin_seconds, published_list : see
        `allocator.policies.deadlines.base.DeadlinePolicy`.
    """

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        pool = self.pool(state)
        jobs, unserved = self.jobs(state, memory, pool)
        order = self._order(state, pool)
        order.add(jobs)
        return self.as_plan(state, memory, pool, order.jobs, order.plans, unserved)


@register(
    "edf_admission",
    paper="Gu et al., ASPLOS 2023, sec. 6.4 (EDF + admission control)",
    program="admit j iff all keep C_j <= D_j when each in order of D takes the largest level within what is free",
)
@dataclass(frozen=True)
class EarliestDeadlineFirstAdmission(_Earliest):
    """Earliest deadline first, for jobs with which all deadlines are met; the others are rejected.

    Newcomers are tried one by one, in the order of their arrival. A job that was admitted and is late nevertheless is
    served after all others, and stands in nobody's way.

    Parameters
    ----------
    late_block : True, as published: it keeps its place and all newcomers out.
    published_returns, levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, margin_seconds,
    published_list : as in `edf`.
    """

    late_block: bool = False

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        pool = self.pool(state)
        jobs, unserved = self.jobs(state, memory, pool)
        order = self._order(state, pool)
        waiting: list[PlannedJob] = []
        rejected = unserved.tolist()
        order.add(job for job in jobs if self.late_block and memory.knows(job.label) and job.due < inf)
        for job in jobs:
            known = memory.knows(job.label)
            if job.due == inf or (known and not self.late_block and not order.admit([job])):
                job.deadline = inf
                waiting.append(job)
            elif not known and not order.admit([job]):
                rejected.append(job.position)
        order.add(sorted(waiting, key=lambda job: job.due))
        served, plans = list(order.jobs), list(order.plans)
        if self.published_list and any(not memory.knows(job.label) for job in served):
            # the published list is sorted only when nobody was let in
            plan_of = {job.label: plan for job, plan in zip(served, plans, strict=True)}
            served = [job for job in jobs if job.label in plan_of]
            plans = [plan_of[job.label] for job in served]
        memory.unpromised = {job.label for job in served}
        return self.as_plan(state, memory, pool, served, plans, rejected)
