"""ElasticFlow: admission by minimum satisfactory shares, elastic use of what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from allocator.policies.deadlines.base import PlannedJob
from allocator.policies.deadlines.elastic import ElasticPolicy
from allocator.policies.deadlines.memory import DeadlineMemory
from allocator.policies.deadlines.promises import Promises, Repair
from allocator.protocol import ClusterState, Plan
from allocator.registry import register
from formulations.deadlines import use_left_over
from throughputs import InputError

Admission = Literal["each", "batch", "repair"]

_MOST_LOST_SECONDS = 30.0
"""What a decision costs at most, as the published ElasticFlow without admission has it."""


@register(
    "elasticflow",
    paper="Gu et al., ASPLOS 2023, sec. 4",
    program="admit j iff all keep C_j <= D_j with least shares in order of D; then max marginal saving of GPU time",
)
@dataclass(frozen=True)
class ElasticFlow(ElasticPolicy):
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

    Decisions cost time. The most that starts turn out to take is part of the plans, so that a job is moved to other
    GPUs only where it gains more than that, and who is let in has time in reserve for decisions that cost those who run
    on (`learn_costs`). So an admitted job is in time unless GPUs are lost, throughputs fall, or starts and decisions
    cost more than they ever did before it was admitted, than the world tells (`state.restart_seconds`), and than the
    setting `restart_seconds`: where nobody tells, the first jobs of all are admitted before any start has. The next
    decision is made when something has happened, or when a plan would otherwise be missed.

    Parameters
    ----------
    admission : "each": newcomers are tried one by one. "batch": all that arrive together are admitted or rejected
        together, as published. "repair": one by one, and where least shares in the order of deadlines do not let a job
        in, all are planned by cheapest steps, in several orders (`formulations.deadlines.repair`).
    repair_rounds, repair_jobs : how many orders, and with how many jobs at most.
    repair_quantile : of the GPU time that those who were let in still need at least: who needs more is not let in by
        repair. It takes room from jobs to come, so most deadlines are met if it is left to small jobs: a threshold, as
        for online knapsacks (Zhou, Chakrabarty and Lukose, WINE 2008).
    score : "saving", or "published": the job whose plan *costs* the most GPU time by it, as the published code has it.
    keep_promises : False, as published: plans are always made anew, and a job that is late keeps all others out.
    levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, learn_costs, margin_seconds, published_list : see
        `allocator.policies.deadlines.base.DeadlinePolicy`.

    For clusters with one type of accelerator.
    """

    admission: Admission = "each"
    repair_rounds: int = 10
    repair_jobs: int = 100
    repair_quantile: float = 0.5
    keep_promises: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.admission == "repair" and not self.keep_promises:
            expected = "each or batch, where promises are not kept"
            raise InputError("policy elasticflow", field="admission", found=self.admission, expected=expected)
        for name in ("repair_rounds", "repair_jobs"):
            if getattr(self, name) < 1:
                raise InputError("policy elasticflow", field=name, found=getattr(self, name), expected="at least 1")
        if not 0 <= self.repair_quantile <= 1:
            found = self.repair_quantile
            raise InputError("policy elasticflow", field="repair_quantile", found=found, expected="from 0 to 1")

    @property
    def repair(self) -> Repair:
        """When admission tries other orders, and how many."""
        rounds = self.repair_rounds if self.admission == "repair" else 0
        return Repair(rounds, self.repair_jobs, self.repair_quantile)

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        pool = self.pool(state)
        jobs, unserved = self.jobs(state, memory, pool)
        promises = self.promises(state, memory, pool, self.repair)
        new = [job for job in jobs if not memory.knows(job.label)]
        with_deadline = [job for job in new if job.due < inf]
        if self.keep_promises:
            late = self.keep(promises, jobs, memory)
            turned_away = self._admit(promises, with_deadline)
            self.serve(promises, late, (job for job in jobs if job.due == inf))
        else:
            promises.add(job for job in jobs if memory.knows(job.label))
            turned_away = self._admit(promises, with_deadline)
            promises.add(job for job in new if job.due == inf)
        rejected = [*unserved.tolist(), *(job.position for job in turned_away)]
        return self.finished(state, memory, pool, promises, rejected, keep_met=self.keep_promises)

    def _admit(self, promises: Promises, newcomers: list[PlannedJob]) -> list[PlannedJob]:
        """Let newcomers in; returns those that are not."""
        if self.admission == "batch":
            return [] if promises.admit(newcomers) else newcomers
        return [job for job in newcomers if not promises.admit([job])]


@register(
    "elasticflow_no_admission",
    paper="Gu et al., ASPLOS 2023, sec. 6.4 (EDF + elastic scaling)",
    program="least shares in order of D, as many GPUs as can be used once D cannot be kept; then max marginal saving",
)
@dataclass(frozen=True)
class ElasticFlowNoAdmission(ElasticPolicy):
    """ElasticFlow that lets everybody in: earliest deadline first with elastic scaling.

    A job that cannot meet its deadline keeps its place in the order of deadlines and takes what it can use. All else
    is as in `elasticflow`, without promises.

    Parameters
    ----------
    score, levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, learn_costs, margin_seconds,
        published_list : as in `elasticflow`.
    """

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        pool = self.pool(state)
        jobs, unserved = self.jobs(state, memory, pool)
        promises = self.promises(state, memory, pool)
        promises.add(jobs)
        if self.published_list:
            return self._by_the_published_list(state, memory, pool, promises, unserved.tolist())
        keep_met = self.score != "published"
        return self.finished(state, memory, pool, promises, unserved.tolist(), keep_met=keep_met)

    def _by_the_published_list(
        self, state: ClusterState, memory: DeadlineMemory, pool: int, promises: Promises, rejected: Sequence[int]
    ) -> Plan:
        """With the list of those who have started, and with the changes that were noted.

        The first change of each job is noted; it is struck out only when an end that is expected at that instant moves.
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
        passed = use_left_over(promises.filling, free, jobs, plans, score=self.score, keep_met=False).passed_ends
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
