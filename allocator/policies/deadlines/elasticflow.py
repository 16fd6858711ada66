"""ElasticFlow: admission by minimum satisfactory shares, elastic use of what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from allocator.policies.deadlines.base import DeadlinePolicy, PlannedJob
from allocator.policies.deadlines.memory import DeadlineMemory
from allocator.policies.deadlines.promises import Promises
from allocator.protocol import ClusterState, Plan
from allocator.registry import register
from formulations.deadlines import FreeProfile, JobPlan, Score, use_left_over
from throughputs import InputError

__all__ = ["ElasticFlow", "ElasticFlowNoAdmission"]

Admission = Literal["each", "batch", "repair"]


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
        use_left_over(self.filling, free, jobs, plans, score=self.score, keep_met=keep_met)
        return self.as_plan(state, memory, pool, jobs, plans, rejected)


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
        together, as published. "repair": one by one, and where least shares in the order of deadlines do not let a job
        in, all are planned by cheapest steps, in several orders (`formulations.deadlines.repair`).
    repair_rounds, repair_jobs : how many orders, and with how many jobs at most.
    score : "saving", or "published": the job whose plan *costs* the most GPU time by it, as the published code has it.
    keep_promises : False, as published: plans are always made anew, and a job that is late keeps all others out.
    levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, margin_seconds : see
        `allocator.policies.deadlines.base.DeadlinePolicy`.

    For clusters with one type of accelerator.
    """

    aliases: ClassVar[tuple[str, ...]] = ("ef-accessctrl",)

    admission: Admission = "each"
    repair_rounds: int = 10
    repair_jobs: int = 100
    keep_promises: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.admission == "repair" and not self.keep_promises:
            expected = "each or batch, where promises are not kept"
            raise InputError("policy elasticflow", field="admission", found=self.admission, expected=expected)
        for name in ("repair_rounds", "repair_jobs"):
            if getattr(self, name) < 1:
                raise InputError("policy elasticflow", field=name, found=getattr(self, name), expected="at least 1")

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        pool = self.pool(state)
        jobs, unserved = self.jobs(state, memory, pool)
        repair_rounds = self.repair_rounds if self.admission == "repair" else 0
        promises = Promises(
            self.filling, float(state.clock), int(state.capacity[pool]), repair_rounds, self.repair_jobs
        )
        let_in = self._keeping_promises if self.keep_promises else self._anew
        turned_away = let_in(jobs, memory, promises)
        planned = promises.jobs, promises.plans, promises.left_over
        rejected = [*unserved.tolist(), *(job.position for job in turned_away)]
        plan = self._finished(state, memory, pool, planned, rejected, keep_met=self.keep_promises)
        memory.promised = {job.label: made for job, made in zip(*planned[:2], strict=True) if job.deadline < inf}
        memory.unpromised = {job.label for job in planned[0] if job.deadline == inf}
        return plan

    def _anew(self, jobs: Sequence[PlannedJob], memory: DeadlineMemory, promises: Promises) -> list[PlannedJob]:
        """Plan all; returns who is turned away. As published."""
        promises.add(job for job in jobs if memory.knows(job.label))
        new = [job for job in jobs if not memory.knows(job.label)]
        turned_away = self._admit(promises, [job for job in new if job.due < inf])
        promises.add(job for job in new if job.due == inf)
        return turned_away

    def _admit(self, promises: Promises, newcomers: list[PlannedJob]) -> list[PlannedJob]:
        """Let newcomers in; returns those that are not."""
        if self.admission == "batch":
            return [] if promises.admit(newcomers) else newcomers
        return [job for job in newcomers if not promises.admit([job])]

    def _keeping_promises(
        self, jobs: Sequence[PlannedJob], memory: DeadlineMemory, promises: Promises
    ) -> list[PlannedJob]:
        """Plan all; returns who is turned away. Whoever was promised a deadline meets it, as far as that can be."""
        now = promises.now
        promised = [job for job in jobs if job.label in memory.promised]
        best_effort = [job for job in jobs if job.due == inf]
        late = [job for job in jobs if job.label in memory.unpromised and job.due < inf]
        newcomers = [job for job in jobs if job.due < inf and not memory.knows(job.label)]
        if not _fill(promises, promised):
            carried = {job.label: self.filling.carried_on(memory.promised[job.label], job, now) for job in promised}
            broken = [job for job in promised if not carried[job.label].met]
            promised = [job for job in promised if carried[job.label].met]
            late += broken
            filled = bool(broken) and _fill(promises, promised)
            if not filled and not promises.fix(promised, [carried[job.label] for job in promised]):
                # GPUs were lost
                late += promised
                promises.fix([], [])
        turned_away = self._admit(promises, newcomers)
        for job in late:
            # what rounding has left of a job may still end within the margin
            job.deadline = job.due + self.margin_seconds
            if job.deadline <= now or not promises.admit([job]):
                job.deadline = inf
                best_effort.append(job)
        promises.add(sorted(best_effort, key=_due))
        return turned_away


def _fill(promises: Promises, jobs: list[PlannedJob]) -> bool:
    """Plan jobs with least shares; whether all meet their deadlines."""
    promises.fix([], [])
    promises.add(jobs)
    return promises.all_met


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
    score, levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, margin_seconds : as in `elasticflow`.
    """

    aliases: ClassVar[tuple[str, ...]] = ("ef",)

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        pool = self.pool(state)
        jobs, unserved = self.jobs(state, memory, pool)
        promises = Promises(self.filling, float(state.clock), int(state.capacity[pool]))
        promises.add(jobs)
        planned = promises.jobs, promises.plans, promises.left_over
        return self._finished(state, memory, pool, planned, unserved.tolist(), keep_met=self.score != "published")


def _due(job: PlannedJob) -> float:
    return job.due
