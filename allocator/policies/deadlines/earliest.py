"""Earliest deadline first with any number of GPUs, without and with admission."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from math import inf
from operator import attrgetter

from allocator.policies.deadlines.base import DeadlinePolicy, PlannedJob
from allocator.policies.deadlines.memory import DeadlineMemory
from allocator.protocol import ClusterState, Plan
from allocator.registry import register
from formulations.deadlines import DeadlineOrder, FreeProfile, earliest_share
from throughputs.arrays import Ints


@register(
    "edf",
    paper="Liu and Layland, JACM 1973; as in Gu et al., ASPLOS 2023, sec. 6.1",
    program="in order of D: the largest level within what is free, until the job is through",
)
@dataclass(frozen=True)
class EarliestDeadlineFirst(DeadlinePolicy):
    """Earliest deadline first: each job in turn takes as many GPUs as it can use.

    Nobody is rejected. Jobs that are past their deadlines come first, as their deadlines are the earliest.

    Parameters
    ----------
    levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, learn_costs, margin_seconds : see
        `allocator.policies.deadlines.base.DeadlinePolicy`.
    """

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        line, unserved = self.line(state, memory)
        return all_they_can_use(self, state, memory, line, unserved)


@register(
    "edf_admission",
    paper="Gu et al., ASPLOS 2023, sec. 6.4 (EDF + admission control)",
    program="admit j iff all keep C_j <= D_j when each in order of D takes the largest level within what is free",
)
@dataclass(frozen=True)
class EarliestDeadlineFirstAdmission(DeadlinePolicy):
    """Earliest deadline first, for jobs with which all deadlines are met; the others are rejected.

    Newcomers are tried one by one, in the order of their arrival. A job that was admitted and is late nevertheless is
    served after all others, and stands in nobody's way.

    Parameters
    ----------
    levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, learn_costs, margin_seconds : as in `edf`.
    """

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        line, unserved = self.line(state, memory)
        jobs, rejected = self.planned(state, memory, line), unserved.tolist()
        filling = self.filling(state, memory)
        order: DeadlineOrder[PlannedJob] = DeadlineOrder(
            FreeProfile(float(state.clock), memory.capacity), partial(earliest_share, filling)
        )
        rejected += self.let_in(order, jobs, memory)
        served = self.in_line(jobs, list(order.jobs), memory)
        given = {job.label: plan.gpus[0] for job, plan in zip(order.jobs, order.plans, strict=True)}
        memory.unpromised = set(given)
        gpus = [given[job.label] for job in served]
        return self.as_plan(state, memory, served, gpus, rejected, self.next_change(filling, order.plans))

    def let_in(self, order: DeadlineOrder[PlannedJob], jobs: list[PlannedJob], memory: DeadlineMemory) -> list[int]:
        """Plan jobs by their deadlines, and after them those that have none or are late; positions of the rejected."""
        rejected: list[int] = []
        waiting: list[PlannedJob] = []
        for job in jobs:
            known = memory.knows(job.label)
            if job.due < inf and order.admit([job]):
                continue
            if job.due < inf and not known:
                rejected.append(job.position)
            else:
                job.deadline = inf
                waiting.append(job)
        order.add(sorted(waiting, key=attrgetter("due")))
        return rejected

    def in_line(
        self,
        jobs: list[PlannedJob],  # noqa: ARG002
        served: list[PlannedJob],
        memory: DeadlineMemory,  # noqa: ARG002
    ) -> list[PlannedJob]:
        """Those of the `jobs` that are `served`, in the order in which they are remembered."""
        return served


def all_they_can_use(
    policy: DeadlinePolicy,
    state: ClusterState,
    memory: DeadlineMemory,
    line: list[Hashable],
    unserved: Ints,
) -> Plan:
    """Jobs of a `line` in the order of deadlines, each on the largest level within what those before it leave."""
    line.sort(key=memory.due.__getitem__)
    free = memory.capacity
    served, gpus = [], []
    for label in line:
        if not free:
            break
        curve = memory.curves[label]
        level = curve.level_within[min(free, curve.levels[-1])]
        if level:
            served.append(label)
            gpus.append(level)
            free -= level
    return policy.as_plan(state, memory, policy.planned(state, memory, served), gpus, unserved, line=line)
