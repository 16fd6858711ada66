"""ElasticFlow: admission by minimum satisfactory shares, elastic use of what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from allocator.policies.deadlines.base import DeadlinePolicy, PlannedJob
from allocator.policies.deadlines.memory import DeadlineMemory
from allocator.protocol import ClusterState, Plan
from allocator.registry import register
from formulations.deadlines import DeadlineOrder, FreeProfile, JobPlan, Score, use_left_over

__all__ = ["ElasticFlow", "ElasticFlowNoAdmission"]

Admission = Literal["each", "batch"]

_MOST_LOST_SECONDS = 30.0
"""What a decision costs at most, as the published ElasticFlow without admission has it."""


@dataclass(frozen=True)
class _Elastic(DeadlinePolicy):
    """Least shares in the order of deadlines, then what is left over."""

    score: Score = "saving"

    def _finished(
        self,
        state: ClusterState,
        memory: DeadlineMemory,
        pool: int,
        planned: _Planned,
        rejected: Sequence[int],
        *,
        keep_met: bool,
    ) -> Plan:
        """Use what is left over."""
        jobs, plans, free = planned
        listed = use_left_over(self.filling, free, jobs, plans, score=self.score, keep_met=keep_met).listed
        if self.published_list:
            listed.sort(key=lambda j: -plans[j].gpus[0])
            jobs, plans = [jobs[j] for j in listed], [plans[j] for j in listed]
        gpus = [plan.gpus[0] for plan in plans]
        return self.as_plan(state, memory, pool, jobs, gpus, rejected, self.next_change(plans))


_Planned = tuple[list[PlannedJob], list[JobPlan], FreeProfile]


@register(
    "elasticflow",
    paper="Gu et al., ASPLOS 2023, sec. 4",
    program="admit j iff all keep C_j <= D_j with least shares in order of D; then max marginal saving of GPU time",
)
@dataclass(frozen=True)
class ElasticFlow(_Elastic):
    """Admit jobs whose deadlines can be met beside those of all others, and scale them with the GPUs that are left.

    1. Least shares. Jobs i in the order of deadlines D_i take from the free GPUs f(t) what they need, late and thin::

           a_i(t) = min(q_i, f(t)), rounded down to a level of i, from p_i on, and with the level before q_i until then
           q_i = the first level, p_i = the last breakpoint with   int_{p_i}^{D_i} T_i(min(q_i, f(t))) dt >= W_i

       W_i steps left, T_i steps/s by number of GPUs. Best effort comes last, with one GPU from the last breakpoint on.
    2. Admission. A newcomer is admitted if with it every job ends by its deadline. Who is not is rejected for good.
    3. What is left over now goes, level by level, to the job whose plan saves the most GPU time by it per GPU; to jobs
       without any GPU first.

    The promise is kept: where filling anew at a later instant does not find what was promised (it is a heuristic), the
    plan of before is carried on, and newcomers are tried on what that leaves. A job whose promise has become impossible
    to keep is served as best effort and stands in nobody's way.

    Parameters
    ----------
    admission : "each": newcomers are tried one by one. "batch": all that arrive together are admitted or rejected
        together, as published.
    score : "saving", or "published": the job whose plan *costs* the most GPU time by it, as the published code has it.
    keep_promises : False, as published: plans are always made anew, and a job that is late keeps all others out.
    levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, margin_seconds, published_list : see
        `allocator.policies.deadlines.base.DeadlinePolicy`.

    For clusters with one type of accelerator.
    """

    admission: Admission = "each"
    keep_promises: bool = True

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        pool = self.pool(state)
        jobs, unserved = self.jobs(state, memory, pool)
        capacity = int(state.capacity[pool])
        free = FreeProfile(float(state.clock), capacity)
        if self.keep_promises:
            planned, turned_away = self._keeping_promises(jobs, memory, free, capacity)
        else:
            planned, turned_away = self._anew(jobs, memory, free)
        rejected = [*unserved.tolist(), *(job.position for job in turned_away)]
        plan = self._finished(state, memory, pool, planned, rejected, keep_met=self.keep_promises)
        served = zip(planned[0], planned[1], strict=True)
        memory.promised = {job.label: made for job, made in served if job.deadline < inf}
        memory.unpromised = {job.label for job in planned[0] if job.deadline == inf}
        return plan

    def _anew(
        self, jobs: Sequence[PlannedJob], memory: DeadlineMemory, free: FreeProfile
    ) -> tuple[_Planned, list[PlannedJob]]:
        """Plans of all, and who is turned away; as published."""
        order: DeadlineOrder[PlannedJob] = DeadlineOrder.filled(self.filling, free)
        order.add(job for job in jobs if memory.knows(job.label))
        new = [job for job in jobs if not memory.knows(job.label)]
        turned_away = self._admit(order, [job for job in new if job.due < inf])
        order.add(job for job in new if job.due == inf)
        return _planned(order), turned_away

    def _admit(self, order: DeadlineOrder[PlannedJob], newcomers: list[PlannedJob]) -> list[PlannedJob]:
        """Let newcomers in; returns those that are not."""
        if self.admission == "batch":
            return [] if order.admit(newcomers) else newcomers
        return [job for job in newcomers if not order.admit([job])]

    def _keeping_promises(
        self, jobs: Sequence[PlannedJob], memory: DeadlineMemory, free: FreeProfile, capacity: int
    ) -> tuple[_Planned, list[PlannedJob]]:
        """Plans of all, and who is turned away; whoever was promised a deadline meets it, as far as that can be."""
        now = free.times[0]
        promised = [job for job in jobs if job.label in memory.promised]
        best_effort = [job for job in jobs if job.due == inf]
        late = [job for job in jobs if job.label in memory.unpromised and job.due < inf]
        newcomers = [job for job in jobs if job.due < inf and not memory.knows(job.label)]
        fixed: list[PlannedJob] = []
        plans: list[JobPlan] = []
        order = self._order(free, promised)
        if not order.all_met:
            carried = {job.label: self.filling.carried_on(memory.promised[job.label], job, now) for job in promised}
            broken = [job for job in promised if not carried[job.label].met]
            if broken:
                late += broken
                promised = [job for job in promised if carried[job.label].met]
                order = self._order(free, promised)
            if not order.all_met:
                fixed, plans = promised, [carried[job.label] for job in promised]
                for plan in plans:
                    free.take(plan)
                if min(free.free) < 0:
                    # GPUs were lost
                    late += fixed
                    fixed, plans, free = [], [], FreeProfile(now, capacity)
                order = self._order(free, [])
        turned_away = self._admit(order, newcomers)
        due_later = [job for job in late if job.due > now]
        for job in [job for job in late if job.due <= now] + [job for job in due_later if not order.admit([job])]:
            job.deadline = inf
            best_effort.append(job)
        order.add(sorted(best_effort, key=_due))
        return ([*fixed, *order.jobs], [*plans, *order.plans], order.left_over), turned_away

    def _order(self, free: FreeProfile, jobs: list[PlannedJob]) -> DeadlineOrder[PlannedJob]:
        order: DeadlineOrder[PlannedJob] = DeadlineOrder.filled(self.filling, free.copy())
        order.add(jobs)
        return order


@register(
    "elasticflow_no_admission",
    paper="Gu et al., ASPLOS 2023, sec. 6.4 (EDF + elastic scaling)",
    program="least shares in order of D, as many GPUs as can be used once D cannot be kept; then max marginal saving",
)
@dataclass(frozen=True)
class ElasticFlowNoAdmission(_Elastic):
    """ElasticFlow that lets everybody in: earliest deadline first with elastic scaling.

    A job that cannot meet its deadline keeps its place in the order of deadlines and takes what it can use. All else
    is as in `elasticflow`, without promises.

    Parameters
    ----------
    score, levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, margin_seconds, published_list : as in
        `elasticflow`.
    """

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        pool = self.pool(state)
        jobs, unserved = self.jobs(state, memory, pool)
        order: DeadlineOrder[PlannedJob] = DeadlineOrder.filled(
            self.filling, FreeProfile(float(state.clock), int(state.capacity[pool]))
        )
        order.add(jobs)
        if self.published_list:
            return self._by_the_published_list(state, memory, pool, _planned(order), unserved.tolist())
        keep_met = self.score != "published"
        return self._finished(state, memory, pool, _planned(order), unserved.tolist(), keep_met=keep_met)

    def _by_the_published_list(
        self, state: ClusterState, memory: DeadlineMemory, pool: int, planned: _Planned, rejected: Sequence[int]
    ) -> Plan:
        """With the list of those who have started, and with the changes that were noted.

        The first change of each job is noted; it is struck out only when an end that is expected at that instant moves.
        All ends of running jobs move by what the decision costs them, and again with the next decision.
        """
        now = float(state.clock)
        jobs, plans, free = planned
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
        passed = use_left_over(self.filling, free, jobs, plans, score=self.score, keep_met=False).passed_ends
        notes -= passed - {plan.end for plan in plans}
        for job, plan in zip(jobs, plans, strict=True):
            if plan.gpus[0]:
                started.setdefault(job.label, len(started))
        here = [(job, plan) for job, plan in zip(jobs, plans, strict=True) if job.label in started]
        notes |= {plan.starts[1] if len(plan.starts) > 1 else plan.charged_until for _, plan in here}
        notes -= {plan.end for plan in plans if plan.gpus[0]} - {plan.end for plan in plans if not plan.gpus[0]}
        server = int(state.cluster.gpus_per_server[state.cluster.accelerators[pool]])
        here.sort(key=lambda row: started[row[0].label])
        here.sort(key=lambda row: -min(row[1].gpus[0], server))
        waiting = [job for job in jobs if job.label not in started]
        gpus = [plan.gpus[0] for _, plan in here] + [0] * len(waiting)
        made = self.as_plan(
            state, memory, pool, [*(job for job, _ in here), *waiting], gpus, rejected, min(notes, default=inf)
        )
        memory.wake_ups = notes
        memory.expected = {job.label: plan.end for job, plan in zip(jobs, plans, strict=True)}
        memory.listed = sorted((job.label for job, _ in here), key=started.__getitem__)
        return made


def _planned(order: DeadlineOrder[PlannedJob]) -> _Planned:
    return [*order.jobs], [*order.plans], order.left_over


def _due(job: PlannedJob) -> float:
    return job.due
