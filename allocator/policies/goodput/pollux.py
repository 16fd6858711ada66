"""Pollux: the power mean of all speedups, by a program or by its published search (OSDI 2021)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from allocator.conversion import NotNegativeWhole, Part, Positive
from allocator.policies.base.ordering import in_order_of_arrival
from allocator.policies.goodput.selection import OwnGangs, Restarts, Selected, SelectionPolicy, columns_of
from allocator.protocol import ClusterState, Need
from allocator.protocol.state import the_one_type
from allocator.registry import register
from formulations import TOLERANCE
from formulations.goodput import (
    NodeProgram,
    NodeSelection,
    PowerMean,
    fittest_selection,
    solve_on_nodes,
)
from throughputs import Configurations, InputError
from throughputs.arrays import Floats, Ints
from throughputs.entry_points import entries_of


@dataclass(eq=False)
class NodeMemory(Restarts):
    """Restarts, and what the last search ended with.

    Attributes
    ----------
    searches : so far.
    served : labels of the N jobs of the last one, in the order in which they were served.
    gpus : (N, n) of each of them on each node. population : (P, n, g) the job on each GPU, N for none.
    """

    searches: int = 0
    served: tuple[Hashable, ...] = ()
    gpus: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    population: Ints = field(default_factory=lambda: np.zeros((0, 0, 0), dtype=np.int64))

    def recalled(self, jobs: tuple[Hashable, ...], nodes: int, gpus_per_node: int) -> tuple[Ints, Ints | None]:
        """(N, n) GPUs of the current jobs, and the population carried over to them; dropped if the cluster changed."""
        gpus = np.zeros((len(jobs), nodes), dtype=np.int64)
        if self.population.shape[1:] != (nodes, gpus_per_node):
            return gpus, None
        place = {label: i for i, label in enumerate(jobs)}
        now = np.array([*(place.get(label, len(jobs)) for label in self.served), len(jobs)], dtype=np.int64)
        there = np.flatnonzero(now[:-1] < len(jobs))
        gpus[now[there]] = self.gpus[there]
        return gpus, now[self.population]

    def keep(self, jobs: tuple[Hashable, ...], gpus: Ints, population: Ints) -> None:
        """One more search has ended with these."""
        self.searches, self.served, self.gpus, self.population = self.searches + 1, jobs, gpus, population


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
        beside that search, for some ten jobs. GPUs of a last, smaller node are then not used, a job on other
        nodes than before has started anew, and the figures of a column count on however many nodes its GPUs are.
    generations : of the genetic search; 100 as published.
    second : what the genetic search looks at beside fitness, see
        `allocator.published.pollux.genetic.search_on_nodes`.
    seed : of its draws.
    search_seconds : that the program, or branch and bound on nodes, may take for one decision; what was found by then
        is "feasible", with its gap. With a limit that it reaches, answers depend on the machine.
    restart_keeps : part of its goodput that any job keeps if it starts anew; None: by age and restarts, as published.
    types : "one": a cluster of several types is refused. "alike": fair shares are those of all GPUs, and a job has its
        GPUs on any one type; what a column is worth follows from the models, which are the same for all types with
        ``goodput_models=merged``. For search "program"; the published search, as Sia's simulator runs it on several
        types, gives a job GPUs of all of them and takes away those of all but one.

    The published search comes with the published systems, as an entry point of the group ``allocator.searches``.
    """

    needs = Need.CONFIGURATIONS | Need.SERVICE

    power: float = -1.0
    solver: str = "auto"
    search: Literal["program", "nodes", "genetic"] = "program"
    generations: NotNegativeWhole = 200
    second: Literal["utility", "nodes"] = "utility"
    seed: NotNegativeWhole = 0
    search_seconds: Positive = 20.0
    restart_keeps: Part | None = None
    types: Literal["one", "alike"] = "one"

    def __post_init__(self) -> None:
        super().__post_init__()
        PowerMean(self.power)
        if self.types != "one" and self.search != "program":
            expected = "one unless search is program"
            raise InputError(f"policy {self.name}", field="types", found=self.types, expected=expected)

    def new_memory(self) -> NodeMemory:
        """Nobody has run, and nothing was searched."""
        return NodeMemory()

    def choose(self, state: ClusterState, ways: Configurations, held: Ints, kept: Floats, memory: Any) -> Selected:
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
        changes = held[ways.job] != np.arange(ways.n_columns)
        anywhere = np.where(changes, speedup * restarts, speedup)
        if self.search != "program":
            return self._on_nodes(state, kind, ways, held, speedup, restarts, anywhere, memory)
        found = fittest_selection(
            ways, anywhere, state.capacity, PowerMean(self.power), solver=self.solver, seconds=self.search_seconds
        )
        return Selected(found.solution.x, found.fitness, found.bound, "mean speedup", found.solution)

    def _on_nodes(
        self,
        state: ClusterState,
        kind: int,
        ways: Configurations,
        held: Ints,
        speedup: Floats,
        restarts: Floats,
        anywhere: Floats,
        memory: NodeMemory,
    ) -> Selected:
        """The columns of the best GPUs on nodes of the accelerator type `kind`.

        By the genetic search, and beside it by branch and bound; the bound is that of the program without nodes.

        Parameters
        ----------
        held : (N,) column of each job that runs now, -1: none.
        speedup, restarts : (C,) of each column, and what a restart leaves of it.
        anywhere : (C,) the speedup with what a restart leaves where there is one, whatever the nodes.
        """
        mean = PowerMean(self.power)
        capacity = int(state.capacity[kind])
        gpus_per_node = max(min(int(state.cluster.gpus_per_server[state.cluster.accelerators[kind]]), capacity), 1)
        number, order = capacity // gpus_per_node, _in_order(state)
        labels = tuple(state.throughputs.jobs[i] for i in order.tolist())
        base, population = memory.recalled(labels, number, gpus_per_node)
        now = np.where(held >= 0, ways.gpus[held] if ways.n_columns else 0, 0)[order]
        base[base.sum(axis=1) != now] = 0
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        fits = np.flatnonzero(ways.gpus <= number * gpus_per_node)
        fits = fits[np.lexsort((ways.gpus[fits], place[ways.job[fits]]))]
        fewest, most = -(-ways.gpus[fits] // gpus_per_node), np.minimum(ways.gpus[fits], number)
        # each column once for every number of nodes that it may be on
        row = np.repeat(fits, most - fewest + 1)
        first = np.flatnonzero(np.diff(row, prepend=-1))
        nodes = np.arange(len(row)) - np.repeat(first - fewest, most - fewest + 1)
        columns = Configurations(
            place[ways.job[row]],
            np.zeros(len(row), dtype=np.int64),
            ways.gpus[row],
            np.ones(len(row)),
            batch_size=nodes,
            jobs=range(len(order)),
            pools=("nodes",),
        )
        keeps = base.any(axis=1)
        kept = np.where(keeps, speedup[held[order]] if ways.n_columns else 0.0, 0.0)
        program = NodeProgram(columns, nodes, (speedup * restarts)[row], number, gpus_per_node, base, kept, mean)
        rng = np.random.default_rng([self.seed, memory.searches])
        search = entries_of("allocator.searches").get("genetic")
        if search is None:
            expected = "program: the published systems are not installed"
            raise InputError(f"policy {self.name}", field="search", found=self.search, expected=expected)
        found = search.load()(
            program, rng, self.generations, self.second, population=population, without_restarts=speedup[row]
        )
        bound = fittest_selection(ways, anywhere, state.capacity, mean).bound
        status = "optimal" if bound - found.fitness <= TOLERANCE * bound else "feasible"
        best = NodeSelection(found.gpus, found.fitness, max(bound, found.fitness), status, "genetic search")
        if self.search == "nodes":
            exact = solve_on_nodes(program, seconds=self.search_seconds)
            best = exact if exact.fitness >= best.fitness else replace(best, bound=min(best.bound, exact.bound))
        memory.keep(labels, best.gpus, found.population)
        x = (best.gpus.sum(axis=1)[place[ways.job]] == ways.gpus).astype(np.float64)
        return Selected(x, best.fitness, best.bound, "mean speedup", best)


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


def _on_fair_share(ways: Configurations, fair: int) -> Floats:
    """(N,) rate on the most GPUs up to a fair share, on the fewest where a job needs more than that."""
    order = np.lexsort((ways.gpus, ways.job))
    job, value, within = ways.job[order], ways.rate[order], ways.gpus[order] <= fair
    rate = np.zeros(ways.n_jobs)
    # of columns that ascend by GPUs the last one within the share counts, else the first of all
    rate[job[::-1]] = value[::-1]
    rate[job[within]] = value[within]
    return rate


def _in_order(state: ClusterState) -> Ints:
    """(N,) jobs in the order in which they are served: least GPU time first, then the first to arrive."""
    oldest = in_order_of_arrival(state, np.arange(state.n_jobs))
    return np.asarray(oldest[np.argsort(state.gpu_seconds[oldest], kind="stable")])
