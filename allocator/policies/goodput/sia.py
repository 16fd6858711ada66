"""Sia: one configuration for each job, by a program over goodputs (SOSP 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.conversion import Positive
from allocator.policies.goodput.selection import Selected, SelectionPolicy
from allocator.protocol import ClusterState, View
from allocator.registry import register
from formulations.goodput import SiaProgram, relative_goodput
from formulations.goodput.pollux import LARGEST_POWER
from formulations.reference.stopping import TIME_LIMIT_SECONDS
from throughputs import Configurations, InputError
from throughputs.arrays import Floats, Ints

STARTING_SECONDS = View[Floats](
    "seconds until a job that runs begins to train, where starts take time",
    name="starting_seconds",
    source=lambda source, state: np.maximum(source.kept("ready_time", 0.0) - state.clock, 0.0),
)


@register(
    "sia",
    paper="Jayaram Subramanya et al. (Sia), SOSP 2023, sec. 3.4",
    program="min_x sum_i w_i (sum_c (r_i g_c)^p x_c + l (1 - sum_c x_c)), one c per job or none, GPUs of c <= c_j",
)
@dataclass(frozen=True)
class Sia(SelectionPolicy):
    """Give each job the accelerator type and the number of GPUs that are worth most to all (Sia).

        min_x  sum_i w_i ( sum_{c of i} (r_i g_c)^p x_c  +  l (1 - sum_{c of i} x_c) )      x_c in {0, 1}
        s.t.   sum_{c of i} x_c <= 1,   sum_{c on j} GPUs_c x_c <= c_j

    g: goodput in multiples of the job's least, which counts as its fewest GPUs; r: what a restart leaves of it, 1 for
    the column that the job holds; w: priority weights. For p > 0 the sum is maximised, less l for each job without
    GPUs. Goodput is the throughput of a job that trains with one batch size, whatever its GPUs.

    Parameters
    ----------
    power : p, not 0 and at most 10 with any sign; the paper's evaluation has -0.5. Below 0 jobs with little goodput
        count most.
    penalty : l, what a job without GPUs costs. Above 1, any GPUs are better than none.
    keeps_starting : jobs that still start keep what they have.
    solver : "auto", "highs" or "cbc".
    time_limit_seconds : of the program; what was found by then is "feasible", with its gap.
    """

    power: float = -0.5
    penalty: Positive = 1.1
    keeps_starting: bool = True
    solver: str = "auto"
    time_limit_seconds: Positive = TIME_LIMIT_SECONDS

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < abs(self.power) <= LARGEST_POWER:
            expected = f"a number of at most {LARGEST_POWER}, with any sign, not 0"
            raise InputError("policy sia", field="power", found=self.power, expected=expected)

    def choose(self, state: ClusterState, ways: Configurations, held: Ints, kept: Floats, memory: Any) -> Selected:
        """The choice of the least cost."""
        del memory
        return self.solved(self.program_of(state, ways, held, kept))

    def program_of(self, state: ClusterState, ways: Configurations, held: Ints, kept: Floats) -> SiaProgram:
        """The program of a state."""
        return SiaProgram(
            ways,
            relative_goodput(ways) * _fewest_where_least(ways)[ways.job],
            state.capacity,
            self.power,
            self.penalty,
            kept,
            held,
            pinned=self.keeps_starting & (held >= 0) & (state[STARTING_SECONDS] > 0),
            weights=state.priority_weights,
        )

    def solved(self, program: SiaProgram) -> Selected:
        """The choice of a program, with what is proven of it."""
        found = program.solve(self.solver, self.time_limit_seconds)
        objective = program.objective(found.x)
        distance = (found.bound - found.objective) * program.unit
        bound, unit = (objective + distance, "value") if program.maximises else (objective - distance, "cost")
        return Selected(found.x, objective, bound, unit, found)


def _fewest_where_least(ways: Configurations) -> Ints:
    """(N,) the fewest GPUs that a job may have on the type where its goodput is least, the last such type."""
    shape = ways.n_jobs, len(ways.pools)
    fewest, least = np.full(shape, np.iinfo(np.int64).max), np.full(shape, np.inf)
    np.minimum.at(fewest, (ways.job, ways.pool), ways.gpus)
    np.minimum.at(least, (ways.job, ways.pool), ways.rate)
    last = shape[1] - 1 - np.argmin(least[:, ::-1], axis=1)
    return np.asarray(fewest[np.arange(ways.n_jobs), last])
