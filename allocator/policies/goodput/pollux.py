"""Pollux: the power mean of all speedups, by a program (OSDI 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from allocator.policies.base.one_type import the_one_type
from allocator.policies.goodput.selection import Array, Selected, SelectionPolicy, Whole
from allocator.protocol import ClusterState
from allocator.registry import register
from formulations.goodput import PowerMean, fittest_selection
from throughputs import Configurations

__all__ = ["Pollux"]


@register(
    "pollux",
    paper="Qiao et al. (Pollux), OSDI 2021, sec. 4.2",
    program="max_x ((1/N) sum_i (r_i s_i(x) + e)^p)^(1/p), s_i: goodput over that on a fair share, one c per job",
)
@dataclass(frozen=True)
class Pollux(SelectionPolicy):
    """Give jobs the numbers of GPUs with the largest mean of speedups (Pollux).

        max_x  ( (1/N) sum_i (sum_{c of i} r_i s_c x_c + e)^p )^(1/p)              x_c in {0, 1}
        s.t.   sum_{c of i} x_c <= 1,   sum_c GPUs_c x_c <= c

    s: goodput over that on a fair share of the cluster, ``ceil(GPUs / N)``; r: what a restart leaves, 1 for the
    column that the job holds; e = 0.001. A mean with a power is largest where a sum over columns is: the program is
    solved exactly, where the paper searches by a genetic algorithm. For clusters of one accelerator type; nodes are
    left to the placement.

    Parameters
    ----------
    power : p; -1 is the harmonic mean of the paper, 0 the geometric and 1 the arithmetic one.
    solver : "auto", "highs" or "cbc".
    """

    one_type: ClassVar[bool] = True

    power: float = -1.0
    solver: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        PowerMean(self.power)

    def choose(self, state: ClusterState, ways: Configurations, held: Whole, kept: Array) -> Selected:
        """The choice with the largest mean."""
        kind = the_one_type(state, self.name, "its speedups do not tell types apart")
        fair = -(-int(state.capacity[kind]) // max(state.n_jobs, 1))
        speedup = ways.rate / _on_fair_share(ways, fair)[ways.job]
        changes = held[ways.job] != np.arange(ways.n_columns)
        speedup = np.where(changes & (held >= 0)[ways.job], speedup * kept[ways.job], speedup)
        found = fittest_selection(ways, speedup, state.capacity, PowerMean(self.power), solver=self.solver)
        return Selected(found.x, found.fitness, found.bound, "mean speedup", found.solution)


def _on_fair_share(ways: Configurations, fair: int) -> Array:
    """(N,) rate on the most GPUs up to a fair share, on the fewest where a job needs more than that."""
    within = ways.gpus <= fair
    rate = np.zeros(ways.n_jobs)
    # columns of a job ascend by GPUs: the last one within the share counts, else the first of all
    rate[ways.job[::-1]] = ways.rate[::-1]
    rate[ways.job[within]] = ways.rate[within]
    return rate
