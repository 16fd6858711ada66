"""GPUs on single nodes: the searches there, and what they keep from one decision to the next."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np

from allocator.policies.base.ordering import in_order_of_arrival
from allocator.policies.goodput.selection import Array, Restarts, Selected, Whole
from allocator.protocol import ClusterState
from formulations.goodput import (
    GeneticSearch,
    NodeProgram,
    NodeSelection,
    PowerMean,
    fittest_selection,
    search_on_nodes,
    solve_on_nodes,
)
from throughputs import Configurations

_PROVEN = 1e-6
"""Relative gap up to which an answer is called optimal."""


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
    gpus: Whole = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    population: Whole = field(default_factory=lambda: np.zeros((0, 0, 0), dtype=np.int64))

    def recalled(self, jobs: tuple[Hashable, ...], nodes: int, gpus_per_node: int) -> tuple[Whole, Whole | None]:
        """(N, n) GPUs of the current jobs, and the population carried over to them; dropped if the cluster changed."""
        gpus = np.zeros((len(jobs), nodes), dtype=np.int64)
        if self.population.shape[1:] != (nodes, gpus_per_node):
            return gpus, None
        place = {label: i for i, label in enumerate(jobs)}
        now = np.array([*(place.get(label, len(jobs)) for label in self.served), len(jobs)], dtype=np.int64)
        there = np.flatnonzero(now[:-1] < len(jobs))
        gpus[now[there]] = self.gpus[there]
        return gpus, now[self.population]

    def keep(self, jobs: tuple[Hashable, ...], gpus: Whole, population: Whole) -> None:
        """One more search has ended with these."""
        self.searches, self.served, self.gpus, self.population = self.searches + 1, jobs, gpus, population


def choose_on_nodes(
    state: ClusterState,
    kind: int,
    ways: Configurations,
    held: Whole,
    speedup: Array,
    restarts: Array,
    memory: NodeMemory,
    *,
    mean: PowerMean,
    search: GeneticSearch,
    seed: int,
    seconds: float | None,
) -> Selected:
    """The columns of the best GPUs on nodes that are found by the genetic search, and from there by branch and bound.

    The bound is that of the program without nodes.

    Parameters
    ----------
    kind : the accelerator type.
    held : (N,) column of each job that runs now, -1: none.
    speedup, restarts : (C,) of each column, and what a restart leaves of it.
    mean : of speedups, to be large.
    search : sizes of the genetic search.
    seed : of its draws; every decision has a generator of its own.
    seconds : for branch and bound; None: it is left out.
    """
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
    rng = np.random.default_rng([seed, memory.searches])
    found = search_on_nodes(program, rng, search, population=population, without_restarts=speedup[row])
    changes = held[ways.job] != np.arange(ways.n_columns)
    anywhere = np.where(changes, speedup * restarts, speedup)
    bound = fittest_selection(ways, anywhere, state.capacity, mean).bound
    status = "optimal" if bound - found.fitness <= _PROVEN * bound else "feasible"
    best = NodeSelection(found.gpus, found.fitness, max(bound, found.fitness), status, "genetic search")
    if seconds is not None:
        exact = solve_on_nodes(program, seconds=seconds, tolerance=_PROVEN, start=best.gpus)
        best = exact if exact.bound <= best.bound else replace(exact, bound=max(best.bound, exact.fitness))
    memory.keep(labels, best.gpus, found.population)
    x = (best.gpus.sum(axis=1)[place[ways.job]] == ways.gpus).astype(np.float64)
    return Selected(x, best.fitness, best.bound, "mean speedup", best)


def _in_order(state: ClusterState) -> Whole:
    """(N,) jobs in the order in which they are served: least GPU time first, then the first to arrive."""
    oldest = in_order_of_arrival(state, np.arange(state.n_jobs))
    return np.asarray(oldest[np.argsort(state.gpu_seconds[oldest], kind="stable")])
