"""A selection: the policy chooses the number of GPUs, one column per job, by a program over configurations."""

from dataclasses import dataclass

import numpy as np

from allocator import Assignment, Need, Plan, PlanPolicy
from formulations.columns import ColumnProgram, Total, solve_columns


@dataclass(frozen=True)
class BestSpeedup(PlanPolicy):
    """Run every job with the number of GPUs that makes the sum of speed-ups largest."""

    needs = Need.CONFIGURATIONS
    paper = "an example"
    program = "max sum_c T_c / min_c' T_c' y_c, y_c in {0, 1}, one column per job, sum_c g_c y_c <= c_j"

    def plan(self, state, memory):
        """Who runs on how many GPUs until the next arrival or completion."""
        ways = state.configurations
        slowest = np.full(ways.n_jobs, np.inf)
        np.minimum.at(slowest, ways.job, ways.rate)
        program = ColumnProgram(ways, state.capacity, whole=True)
        speedup = Total(ways.rate / slowest[ways.job])
        chosen = solve_columns(program, [speedup, Total(ways.gpus, maximise=False)]).x > 0.5
        return Plan.until_next_event(Assignment.of(ways.job[chosen], ways.pool[chosen], ways.gpus[chosen]))
