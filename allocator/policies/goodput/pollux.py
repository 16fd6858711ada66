"""Pollux: the power mean of all speedups, by a program or by its published search (OSDI 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from allocator.conversion import NotNegativeWhole, Part, Positive
from allocator.policies.goodput.on_nodes import NodeMemory, choose_on_nodes
from allocator.policies.goodput.selection import Array, OwnGangs, Selected, SelectionPolicy, Whole, columns_of
from allocator.protocol import ClusterState, Need
from allocator.protocol.state import the_one_type
from allocator.registry import register
from formulations.goodput import GeneticSearch, PowerMean, fittest_selection
from throughputs import Configurations, InputError


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

    s: goodput over that on a fair share of the cluster, ``ceil(GPUs / N)``; r: what a start or restart leaves, 1 for
    the column that the job holds; e = 0.001. A mean with a power is largest where a sum over columns is: the program is
    solved exactly, where the paper searches by a genetic algorithm. For clusters of one accelerator type, or of several
    that count as one; nodes are left to the placement.

    The form that AdaptDL has had since, for sums of speedups, is ``power=1, restart_keeps=0.9, second="nodes"``, with
    ``search="genetic"``.

    Parameters
    ----------
    power : p; -1 is the harmonic mean of the paper, 0 the geometric and 1 the arithmetic one.
    solver : "auto", "highs" or "cbc", for the program.
    search : "program": as above. "genetic": GPUs on single nodes, of which each has one job of several nodes at most,
        by the published search, which goes on from its last population. "nodes": the same program by branch and bound
        from what that search finds, for some ten jobs. GPUs of a last, smaller node are then not used, a job on other
        nodes than before has started anew, and the figures of a column count on however many nodes its GPUs are.
    generations : of the genetic search; 100 as published.
    second : what the genetic search looks at beside fitness, see `formulations.goodput.GeneticSearch`.
    seed : of its draws.
    search_seconds : that the program, or branch and bound on nodes, may take for one decision; what was found by then
        is "feasible", with its gap. With a limit that it reaches, answers depend on the machine.
    restart_keeps : part of its goodput that any job keeps if it starts anew; None: by age and restarts, as published.
    types : "one": a cluster of several types is refused. "alike": fair shares are those of all GPUs, and a job has its
        GPUs on any one type; what a column is worth follows from the models, which are the same for all types with
        ``goodput_models=merged``. For search "program"; the published search, as Sia's simulator runs it on several
        types, gives a job GPUs of all of them and takes away those of all but one.
    """

    needs = Need.CONFIGURATIONS | Need.SERVICE

    power: float = -1.0
    solver: str = "auto"
    search: Literal["program", "nodes", "genetic"] = "program"
    generations: int = 200
    second: Literal["utility", "nodes"] = "utility"
    seed: NotNegativeWhole = 0
    search_seconds: Positive = 20.0
    restart_keeps: Part | None = None
    types: Literal["one", "alike"] = "one"

    def __post_init__(self) -> None:
        super().__post_init__()
        PowerMean(self.power)
        GeneticSearch(generations=self.generations, second=self.second)
        if self.types != "one" and self.search != "program":
            expected = "one unless search is program"
            raise InputError(f"policy {self.name}", field="types", found=self.types, expected=expected)

    def new_memory(self) -> NodeMemory:
        """Nobody has run, and nothing was searched."""
        return NodeMemory()

    def choose(self, state: ClusterState, ways: Configurations, held: Whole, kept: Array, memory: Any) -> Selected:
        """The choice with the largest mean."""
        alike = self.types == "alike"
        kind = 0 if alike else the_one_type(state, self.name, "its speedups do not tell types apart (types=alike)")
        gpus = int(state.capacity.sum() if alike else state.capacity[kind])
        fair = -(-gpus // max(state.n_jobs, 1))
        speedup = ways.rate / _on_fair_share(columns_of(state), fair)[ways.job]
        if self.restart_keeps is not None:
            kept = np.full(state.n_jobs, self.restart_keeps)
        # a waiting job's start counts as a restart (Pollux, sec. 4.2.1): without it jobs would take turns for ever
        restarts = kept[ways.job]
        mean = PowerMean(self.power)
        if self.search != "program":
            genetic = GeneticSearch(generations=self.generations, second=self.second)
            seconds = self.search_seconds if self.search == "nodes" else None
            job = state, kind, ways, held, speedup, restarts, memory
            return choose_on_nodes(*job, mean=mean, search=genetic, seed=self.seed, seconds=seconds)
        changes = held[ways.job] != np.arange(ways.n_columns)
        speedup = np.where(changes, speedup * restarts, speedup)
        found = fittest_selection(ways, speedup, state.capacity, mean, solver=self.solver, seconds=self.search_seconds)
        return Selected(found.x, found.fitness, found.bound, "mean speedup", found.solution)


@register(
    "pollux_fixed",
    paper="Pollux with the GPUs that jobs ask for, as in Jayaram Subramanya et al. (Sia), SOSP 2023, sec. 4",
    program="max_x ((1/N) sum_i (r_i s_i x_i + e)^p)^(1/p), s_i: goodput over that on a fair share, sum_i s_i x_i <= c",
)
@dataclass(frozen=True)
class PolluxFixed(OwnGangs, Pollux):
    """Run the jobs with the largest mean of speedups, each on as many GPUs as it asks for.

    `pollux` without a choice of GPUs: speedups are still those over a fair share of the cluster, whatever a job asks
    for.
    """


def _on_fair_share(ways: Configurations, fair: int) -> Array:
    """(N,) rate on the most GPUs up to a fair share, on the fewest where a job needs more than that."""
    order = np.lexsort((ways.gpus, ways.job))
    job, value, within = ways.job[order], ways.rate[order], ways.gpus[order] <= fair
    rate = np.zeros(ways.n_jobs)
    # of columns that ascend by GPUs the last one within the share counts, else the first of all
    rate[job[::-1]] = value[::-1]
    rate[job[within]] = value[within]
    return rate
