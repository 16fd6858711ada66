"""Earliest deadline first with any number of GPUs, without and with admission."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from math import inf

import numpy as np
from numpy.typing import NDArray

from allocator.policies.deadlines.base import DeadlinePolicy, PlannedJob
from allocator.policies.deadlines.memory import DeadlineMemory
from allocator.protocol import ClusterState, Plan
from allocator.registry import register
from formulations.deadlines import DeadlineOrder, FreeProfile, earliest_share


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
    levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, learn_costs, margin_seconds, published_list : see
        `allocator.policies.deadlines.base.DeadlinePolicy`.
    """

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        pool = self.pool(state)
        line, unserved = self.line(state, memory, pool)
        return _all_they_can_use(self, state, memory, pool, line, unserved)


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
    late_block : True, as published: it keeps its place and all newcomers out.
    levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, learn_costs, margin_seconds, published_list :
        as in `edf`.
    """

    late_block: bool = False

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        pool = self.pool(state)
        line, unserved = self.line(state, memory, pool)
        if self.late_block and all(map(memory.knows, line)):
            return _all_they_can_use(self, state, memory, pool, line, unserved)
        jobs, rejected = self.planned(state, memory, line), unserved.tolist()
        filling = self.filling(state, memory)
        order: DeadlineOrder[PlannedJob] = DeadlineOrder(
            FreeProfile(float(state.clock), int(state.capacity[pool])), partial(earliest_share, filling)
        )
        waiting: list[PlannedJob] = []
        order.add(job for job in jobs if self.late_block and memory.knows(job.label) and job.due < inf)
        for job in jobs:
            known = memory.knows(job.label)
            if job.due == inf or (known and not self.late_block and not order.admit([job])):
                job.deadline = inf
                waiting.append(job)
            elif not known and not order.admit([job]):
                rejected.append(job.position)
        order.add(sorted(waiting, key=lambda job: job.due))
        served, gpus = list(order.jobs), [plan.gpus[0] for plan in order.plans]
        if self.published_list and any(not memory.knows(job.label) for job in served):
            # the published list is sorted only when nobody was let in
            given = {job.label: held for job, held in zip(served, gpus, strict=True)}
            served = [job for job in jobs if job.label in given]
            gpus = [given[job.label] for job in served]
        memory.unpromised = {job.label for job in served}
        return self.as_plan(state, memory, pool, served, gpus, rejected, self.next_change(filling, order.plans))


def _all_they_can_use(
    policy: DeadlinePolicy,
    state: ClusterState,
    memory: DeadlineMemory,
    pool: int,
    line: list[Hashable],
    unserved: NDArray[np.int64],
) -> Plan:
    """Jobs of a `line` in the order of deadlines, each on the largest level within what those before it leave."""
    line.sort(key=memory.due.__getitem__)
    free = int(state.capacity[pool])
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
    return policy.as_plan(state, memory, pool, policy.planned(state, memory, served), gpus, unserved, line=line)
