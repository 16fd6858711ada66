"""A planner with a memory: jobs take turns, and who runs keeps its GPUs until its turn is over."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator import Assignment, Need, Plan, PlanPolicy, PlanStep
from allocator.policies.base.ordering import fill_state
from allocator.protocol.plan import JobMemory, of_each_job


@dataclass(eq=False)
class Began(JobMemory):
    """When the turn of each job began, seconds."""

    clock: Any = of_each_job(-np.inf)


@dataclass(frozen=True)
class Turns(PlanPolicy):
    """Turns of `seconds`; those that have had the least GPU time go next."""

    seconds: float = 3600.0

    needs = Need.SERVICE
    in_order_of_rows = True  # of equals, who came first
    paper = "where it is from"
    program = "in order of G_i, those first whose turn is not over"

    def new_memory(self):
        """What `plan` brings up to date; checkpoints keep it."""
        return Began()

    def plan(self, state, memory):
        """Who runs until the first turn is over, or until something happens."""
        memory.align(state.throughputs.jobs)
        runs = np.isin(np.arange(state.n_jobs), state.running.jobs)
        over = ~runs | (state.clock >= memory.clock + self.seconds)
        chosen, pool = fill_state(state, np.lexsort([state.gpu_seconds, over]))
        memory.clock[chosen[over[chosen]]] = state.clock
        left = (memory.clock[chosen] + self.seconds - state.clock).min(initial=np.inf)
        return Plan((PlanStep(Assignment.of(chosen, pool, state.scale_factors[chosen]), left),))
