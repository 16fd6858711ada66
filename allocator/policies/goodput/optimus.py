"""Optimus: GPUs to those whose remaining time they shorten most (EuroSys 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from allocator.conversion import Positive
from allocator.policies.goodput.selection import Selected, SelectionPolicy
from allocator.protocol import ClusterState, Need
from allocator.protocol.state import the_one_type
from allocator.registry import register
from formulations.goodput import least_remaining_time, marginal_gains
from formulations.reference.stopping import TIME_LIMIT_SECONDS
from throughputs import Configurations
from throughputs.arrays import Floats, Ints


@register(
    "optimus",
    paper="Peng et al. (Optimus), EuroSys 2018, sec. 4.1, as the baseline of Qiao et al. (Pollux), OSDI 2021",
    program="max_x sum_c x_c, then min_x sum_c n_i / T_c x_c, one c per job or none, GPUs of c <= c_j",
)
@dataclass(frozen=True)
class Optimus(SelectionPolicy):
    """Let as many jobs run as can, with the least sum of remaining times (Optimus).

        max_x  sum_c x_c,    then    min_x  sum_i n_i sum_{c of i} x_c / T_c       x_c in {0, 1}
        s.t.   sum_{c of i} x_c <= 1,   sum_{c on j} GPUs_c x_c <= c_j

    n: steps left; T: throughput. The paper gives one GPU to each job in the order of arrival, and each further one to
    the job whose remaining time it shortens most, which is the optimum where all remaining times are convex in GPUs.
    Where there are figures for some numbers of GPUs only, jobs begin with the least of them, and a step to a larger one
    counts by the time that it saves per GPU. Restarts are not counted.

    Parameters
    ----------
    search : "program", or "marginal_gains" as in the paper; the latter is for clusters of one accelerator type.
    solver : of the program, "auto", "highs" or "cbc".
    time_limit_seconds : of the program; what was found by then is "feasible", with its gap.
    """

    needs = Need.CONFIGURATIONS | Need.LENGTHS

    single_steps: ClassVar[bool] = False
    """Whether marginal gains are those of one GPU at a time; otherwise of any number of them."""

    search: Literal["program", "marginal_gains"] = "program"
    solver: str = "auto"
    time_limit_seconds: Positive = TIME_LIMIT_SECONDS

    def choose(self, state: ClusterState, ways: Configurations, held: Ints, kept: Floats, memory: Any) -> Selected:
        """The choice with the least remaining time."""
        del held, kept, memory
        remaining = state.steps_remaining[ways.job] / ways.rate
        if self.search == "marginal_gains":
            x = self._by_gains(state, ways, remaining)
            return Selected(x, float(np.add.reduce(remaining * x)), unit="s left, of all")
        found = least_remaining_time(
            ways, remaining, state.capacity, solver=self.solver, seconds=self.time_limit_seconds
        )
        last = found.stages[-1]
        return Selected(found.x, last.objective, last.bound, "s left, of all", found)

    def _by_gains(self, state: ClusterState, ways: Configurations, remaining: Floats) -> Floats:
        kind = the_one_type(state, self.name, 'marginal gains do not tell types apart (search="program" does)')
        N, R = ways.n_jobs, int(ways.gpus.max(initial=1))
        times = np.full((N, R), np.inf)
        times[ways.job, ways.gpus - 1] = remaining
        given = marginal_gains(times, int(state.capacity[kind]), single_steps=self.single_steps)
        x = np.zeros(ways.n_columns)
        x[ways.gpus == given[ways.job]] = 1.0
        return x
