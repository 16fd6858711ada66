"""ElasticFlow's question answered by an integer program, and how far any answer may be from the best one."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import Literal

import numpy as np

from allocator.conversion import NotNegative, NotNegativeWhole, Positive
from allocator.policies.deadlines.base import PlannedJob
from allocator.policies.deadlines.elastic import ElasticPolicy
from allocator.policies.deadlines.memory import DeadlineMemory
from allocator.policies.deadlines.promises import Promises, Repair
from allocator.protocol import ClusterState, Plan
from allocator.registry import register
from formulations import TOLERANCE, SolverError
from formulations.columns import InfeasibleError
from formulations.deadlines.patterns import plans_by_patterns
from formulations.deadlines.program import DeadlineProgram, MostDeadlines, most_value


@register(
    "elasticflow_mip",
    paper="Gu et al., ASPLOS 2023, sec. 4, by programs",
    program="max sum_j v_j y_j: sum_sp L_s T_j(g_jp) x_sp >= W_j y_j, sum_p x_sp <= 1, sum_j g_jp <= G; then GPU time",
)
@dataclass(frozen=True)
class ElasticFlowProgram(ElasticPolicy):
    """Admit as many jobs, or as much value, as a program finds deadlines for.

    First the most value (priority weights) of jobs whose deadlines are met, those of admitted jobs in any case, then
    the least GPU time; what is left over goes to jobs as in `elasticflow`, and promises are kept as there.

    1. Newcomers are tried one by one, those of more value first, by least shares and then in other orders, as in
       `elasticflow` with admission "repair". Where all are let in, no more value is possible.
    2. Otherwise the interval program (`formulations.deadlines.program`) bounds the value of any schedule. Where there
       is more to have, the newcomers that it lets in, and then each one that is still out, are asked about in a program
       over patterns of the whole cluster (`formulations.deadlines.patterns`), which is exact but for restarts.
    3. The same program, from the plans so far, makes plans of the least GPU time for all who are let in.

    The objective of an allocation is the value of the jobs that keep or are given a promise; its bound is what no
    schedule exceeds that keeps the promises, and the gap what is left on the table. The status is "optimal" only where
    the gap is closed; where time runs out it is "feasible".

    Parameters
    ----------
    solver : "auto", "highs" or "cbc"; a solver that fails is named in a warning, and the plans of step 1 remain.
    time_limit_seconds : for the programs of a decision; a linear program that has begun is ended.
    gpu_time_gap : relative gap of the GPU time at which the search for less ends.
    repair_rounds, repair_jobs : of the first step, as in `elasticflow`; 0: least shares only.
    score, levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, learn_costs, margin_seconds : as in
        `elasticflow`.
    """

    solver: Literal["auto", "highs", "cbc"] = "auto"
    time_limit_seconds: Positive = 2.0
    gpu_time_gap: NotNegative = 0.01
    repair_rounds: NotNegativeWhole = 10
    repair_jobs: NotNegativeWhole = 200

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        started = perf_counter()
        jobs, unserved = self.jobs(state, memory)
        value = dict(zip(state.throughputs.jobs, state.priority_weights.tolist(), strict=True))
        promises = self.promises(state, memory, Repair(self.repair_rounds, self.repair_jobs))
        late = self.keep(promises, jobs, memory)
        newcomers = [job for job in jobs if job.due < inf and not memory.knows(job.label)]
        asking = sorted((job for job in newcomers if job.due > promises.now), key=lambda job: -value[job.label])
        question = _Question(self, promises, asking, value, started)
        question.answer()
        admitted = {job.label for job in promises.jobs}
        met = sum(value[label] for label in admitted)
        self.serve(promises, late, (job for job in jobs if job.due == inf))
        turned_away = [job.position for job in newcomers if job.label not in admitted]
        plan = self.finished(state, memory, promises, [*unserved.tolist(), *turned_away])
        bound = max(question.bound, met)
        gap = (bound - met) / max(bound, 1.0) if bound < inf else inf
        allocation = self.as_shares(
            state,
            plan.steps[0].assignment,
            status="optimal" if gap <= TOLERANCE else "feasible",
            objective=met,
            objective_unit="value of deadlines met",
            bound=bound,
            certified=True,
            gap=gap,
            solver=question.solver,
            seconds=perf_counter() - started,
            rejected=tuple(state.throughputs.jobs[i] for i in plan.rejected.tolist()),
            fallbacks=question.failed,
        )
        return replace(plan, allocation=allocation)


class _Question:
    """Who of the newcomers is let in: by rule, by the bound, by patterns.

    Attributes
    ----------
    bound : no schedule that keeps all promises meets deadlines of more value.
    solver : of the last program; empty where none was needed.
    failed : the solver asked for, where it failed.
    """

    def __init__(
        self,
        policy: ElasticFlowProgram,
        promises: Promises,
        asking: list[PlannedJob],
        value: dict[Hashable, float],
        started: float,
    ) -> None:
        self.policy, self.promises, self.asking, self.value = policy, promises, asking, value
        self.until = started + policy.time_limit_seconds
        self.kept = list(promises.jobs)
        self.bound, self.solver = self._worth([*self.kept, *asking]), ""
        self.failed: tuple[str, ...] = ()

    def answer(self) -> None:
        """Change the promises to the best that is found."""
        for job in self.asking:
            self.promises.admit([job])
        try:
            if self._missed and self._seconds > 0:
                self._search()
            if self.asking:
                # plans of less GPU time for all who are let in
                self._fixed(self.promises.jobs)
        except SolverError as error:
            where = f"policy {self.policy.name}: {error}"
            self.failed = (self.policy.solver,)
            warnings.warn(f"{where}; what least shares and other orders admit remains", stacklevel=4)

    def _search(self) -> None:
        """Let more newcomers in by patterns, those first that the bound lets in."""
        everybody = [*self.kept, *self.asking]
        program = DeadlineProgram(
            everybody,
            self.promises.gpus,
            self.promises.now,
            let_in=np.arange(len(everybody)) < len(self.kept),
            values=[self.value[job.label] for job in everybody],
        )
        self.solver = self.policy.solver
        try:
            most = most_value(program, solver=self.policy.solver, seconds=self._seconds)
        except InfeasibleError:
            # promises that rest on what rounding leaves of a job
            self.bound = inf
            return
        self.solver, self.bound = most.stages[0].solver, min(self.bound, float(most.stages[0].bound))
        if not self._missed:
            return
        goal = [job for job, met in zip(everybody, MostDeadlines(program).met(np.ravel(most.x.T)), strict=True) if met]
        if self._worth(goal) > self._worth(self.promises.jobs) and self._fixed(goal) == "fixed":
            return
        for job in [job for job in self.asking if job not in self.promises.jobs]:
            status = self._fixed([*self.promises.jobs, job]) if self._missed else ""
            if status == "infeasible" and len(self.asking) == 1:
                self.bound = self._worth(self.kept)

    def _fixed(self, jobs: Sequence[PlannedJob]) -> str:
        """Promise all these jobs their deadlines by patterns; "fixed", or why not."""
        promises = self.promises
        before = {job.label: plan for job, plan in zip(promises.jobs, promises.plans, strict=True)}
        ordered = sorted(jobs, key=lambda job: job.label not in before)
        start = [before[job.label] for job in ordered if job.label in before]
        if not ordered or self._seconds <= 0:
            return "unknown"
        solver: Literal["highs", "cbc"] = "cbc" if self.policy.solver == "cbc" else "highs"
        self.solver = solver
        found = plans_by_patterns(
            promises.filling,
            promises.gpus,
            promises.now,
            ordered,
            start,
            solver=solver,
            relative_gap=self.policy.gpu_time_gap,
            seconds=self._seconds,
        )
        if found.plans is None:
            return found.status
        if len(start) == len(ordered) and found.gpu_seconds >= sum(plan.gpu_seconds(plan.real_end) for plan in start):
            return "unknown"
        return "fixed" if promises.fix(ordered, found.plans) else "unknown"

    @property
    def _seconds(self) -> float:
        return self.until - perf_counter()

    @property
    def _missed(self) -> bool:
        """Whether promises of more value may be possible."""
        return self.bound - self._worth(self.promises.jobs) > TOLERANCE * max(self.bound, 1.0)

    def _worth(self, jobs: Sequence[PlannedJob]) -> float:
        return sum(self.value[job.label] for job in jobs)
