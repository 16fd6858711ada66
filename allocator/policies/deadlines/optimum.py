"""ElasticFlow's question answered by an integer program, and how far any answer may be from the best one."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import Literal

import numpy as np

from allocator.policies.deadlines.base import PlannedJob
from allocator.policies.deadlines.elastic import ElasticPolicy
from allocator.policies.deadlines.memory import DeadlineMemory
from allocator.policies.deadlines.promises import Promises
from allocator.protocol import ClusterState, Plan
from allocator.protocol.allocation import Allocation
from allocator.registry import register
from formulations import TOLERANCE, SolverError
from formulations.columns import InfeasibleError
from formulations.deadlines import JobPlan
from formulations.deadlines.program import DeadlineProgram, most_value, solve_deadlines
from throughputs import InputError

__all__ = ["ElasticFlowProgram"]


@register(
    "elasticflow_mip",
    paper="Gu et al., ASPLOS 2023, sec. 4, as an integer program",
    program="max sum_j v_j y_j: sum_sg T_jg tau_js x_jgs >= W_j y_j, sum_jg g x_jgs <= G, x, y in {0,1}; then GPU time",
)
@dataclass(frozen=True)
class ElasticFlowProgram(ElasticPolicy):
    """Admit as many jobs, or as much value, as a program over slots of time finds deadlines for.

    The program is that of `formulations.deadlines.program`: first the most value (priority weights) of jobs whose
    deadlines are met, those of admitted jobs in any case, then the least GPU time, then the most throughput now. Slots
    end with deadlines. Where least shares in the order of deadlines do better - they may change levels within a slot -
    their plans are taken. What is left over goes to jobs as in `elasticflow`, and promises are kept as there.

    The objective of an allocation is the value of the jobs that keep or are given a promise; its bound is that of the
    program of shares between all deadlines, which no schedule exceeds, so the gap is what is left on the table.

    Parameters
    ----------
    slots : slots of time at most; with more deadlines than that some of them lie within slots.
    solver : "auto", "highs" or "cbc"; a solver that fails is named in a warning, and least shares are what remains.
    time_limit_seconds : for each search.
    score, levels, most_gpus, slot_seconds, whole_seconds, restart_seconds, learn_costs, margin_seconds : as in
        `elasticflow`.
    """

    slots: int = 16
    solver: Literal["auto", "highs", "cbc"] = "auto"
    time_limit_seconds: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, valid, expected in (
            ("slots", self.slots >= 1, "at least 1"),
            ("time_limit_seconds", self.time_limit_seconds > 0, "a time above 0"),
        ):
            if not valid:
                raise InputError("policy elasticflow_mip", field=name, found=getattr(self, name), expected=expected)

    def plan(self, state: ClusterState, memory: DeadlineMemory) -> Plan:
        """Who runs on how many GPUs until something changes."""
        started = perf_counter()
        pool = self.pool(state)
        jobs, unserved = self.jobs(state, memory, pool)
        value = dict(zip(state.throughputs.jobs, state.priority_weights.tolist(), strict=True))
        promises = self.promises(state, memory, pool)
        late = self.keep(promises, jobs, memory)
        let_in = len(promises.jobs)
        newcomers = [job for job in jobs if job.due < inf and not memory.knows(job.label)]
        asked = [*promises.jobs, *(job for job in newcomers if job.due > promises.now)]
        for job in newcomers:
            promises.admit([job])
        bound, solver = self._improve(promises, asked, let_in, value) if asked else (0.0, "")
        admitted = {job.label for job in promises.jobs}
        met = sum(value[label] for label in admitted)
        self.serve(promises, late, (job for job in jobs if job.due == inf))
        turned_away = [job.position for job in newcomers if job.label not in admitted]
        plan = self.finished(state, memory, pool, promises, [*unserved.tolist(), *turned_away], keep_met=True)
        return replace(plan, allocation=self._allocation(state, plan, met, max(bound, met), solver, started))

    def _improve(
        self, promises: Promises, asked: list[PlannedJob], let_in: int, value: dict[Hashable, float]
    ) -> tuple[float, str]:
        """Take the plans of the program where they are better; returns the bound and the solver.

        The first `let_in` of the jobs that are `asked` about have promises.
        """
        now, gpus, solver, seconds = promises.now, promises.gpus, self.solver, self.time_limit_seconds
        kept = np.arange(len(asked)) < let_in
        values = np.array([value[job.label] for job in asked])
        ends = sorted({job.deadline for job in asked})
        rank = np.linspace(0, len(ends) - 1, min(self.slots, len(ends))).round().astype(int)
        borders = [now, *(ends[k] for k in np.unique(rank).tolist())]
        shares = DeadlineProgram.interval_bound(asked, gpus, now, let_in=kept, values=values)
        whole = DeadlineProgram(asked, gpus, borders, let_in=kept, values=values)
        bound = inf
        try:
            bound = most_value(shares, solver=solver, seconds=seconds)
            answer = solve_deadlines(whole, solver=solver, seconds=seconds)
        except InfeasibleError:
            # promises that rest on shorter slots than these
            return bound, ""
        except SolverError as error:
            warnings.warn(f"policy {self.name}: {error}; least shares in the order of deadlines remain", stacklevel=2)
            return bound, ""
        assert answer.plans is not None
        chosen = [(job, plan) for job, plan, met in zip(asked, answer.plans, answer.met, strict=True) if met]
        plans = [promises.filling.carried_on(plan, job, now, promises.wait) for job, plan in chosen if plan is not None]
        if len(plans) == len(chosen) and all(plan.met for plan in plans):
            here = sum(value[job.label] for job in promises.jobs), -_gpu_seconds(promises.plans)
            if (sum(value[job.label] for job, _ in chosen), -_gpu_seconds(plans)) > here:
                promises.fix([job for job, _ in chosen], plans)
        return bound, answer.solution.stages[0].solver

    def _allocation(
        self, state: ClusterState, plan: Plan, met: float, bound: float, solver: str, started: float
    ) -> Allocation:
        """The first step as shares of time, with what is proven."""
        first = plan.steps[0].assignment
        shares = np.zeros((state.n_jobs, len(state.capacity)))
        shares[first.jobs, first.pool] = 1.0
        gap = (bound - met) / max(bound, 1.0) if bound < inf else inf
        return Allocation(
            policy=self.name,
            throughputs=state.throughputs,
            shares=shares,
            status="optimal" if gap <= TOLERANCE else "feasible",
            objective=met,
            objective_unit="value of deadlines met",
            bound=bound,
            gap=gap,
            solver=solver,
            seconds=perf_counter() - started,
            assignment=first,
            rejected=tuple(state.throughputs.jobs[i] for i in plan.rejected.tolist()),
            state=state,
            decided_by=self,
        )


def _gpu_seconds(plans: Sequence[JobPlan]) -> float:
    return sum(plan.gpu_seconds(plan.real_end) for plan in plans)
