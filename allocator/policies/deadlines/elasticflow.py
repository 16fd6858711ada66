"""ElasticFlow: admission by minimum satisfactory shares, elastic use of what is left."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from allocator.conversion import AtLeastOne, Part
from allocator.policies.deadlines.base import PlannedJob
from allocator.policies.deadlines.elastic import ElasticPolicy
from allocator.policies.deadlines.memory import DeadlineMemory
from allocator.policies.deadlines.promises import Promises, Repair
from allocator.protocol import ClusterState, Plan
from allocator.registry import register

Admission = Literal["each", "repair"]


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
    admission : newcomers are tried one by one. "repair": where least shares in the order of deadlines do not let a job
        in, all are planned by cheapest steps, in several orders (`formulations.deadlines.repair`).
    repair_rounds, repair_jobs : how many orders, and with how many jobs at most.
    repair_quantile : of the GPU time that those who were let in still need at least: who needs more is not let in by
        repair. It takes room from jobs to come, so most deadlines are met if it is left to small jobs: a threshold, as
        for online knapsacks (Zhou, Chakrabarty and Lukose, WINE 2008).
    levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, learn_costs, margin_seconds : see
        `allocator.policies.deadlines.base.DeadlinePolicy`.

    For clusters with one type of accelerator.
    """

    admission: Admission = "each"
    repair_rounds: AtLeastOne = 10
    repair_jobs: AtLeastOne = 100
    repair_quantile: Part = 0.5

    @property
    def repair(self) -> Repair:
        """When admission tries other orders, and how many."""
        rounds = self.repair_rounds if self.admission == "repair" else 0
        return Repair(rounds, self.repair_jobs, self.repair_quantile)

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        jobs, unserved = self.jobs(state, memory)
        promises = self.promises(state, memory, self.repair)
        new = [job for job in jobs if not memory.knows(job.label)]
        turned_away = self.let_in(promises, jobs, new, memory)
        rejected = [*unserved.tolist(), *(job.position for job in turned_away)]
        return self.finished(state, memory, promises, rejected)

    def let_in(
        self, promises: Promises, jobs: list[PlannedJob], new: list[PlannedJob], memory: DeadlineMemory
    ) -> list[PlannedJob]:
        """Plan all `jobs`, of which some are `new`; returns those of them that are not admitted."""
        late = self.keep(promises, jobs, memory)
        turned_away = [job for job in new if job.due < inf and not promises.admit([job])]
        self.serve(promises, late, (job for job in jobs if job.due == inf))
        return turned_away


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
    levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, learn_costs, margin_seconds : as in `elasticflow`.
    """

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        jobs, unserved = self.jobs(state, memory)
        promises = self.promises(state, memory)
        promises.add(jobs)
        return self.finished(state, memory, promises, unserved.tolist())
