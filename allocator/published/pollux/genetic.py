"""Pollux' genetic search for GPUs on nodes (OSDI 2021, sec. 4.2.1), all of a population at once."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

import numpy as np

from formulations.arguments import figures
from formulations.goodput import NodeProgram
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints

_SOURCE = "genetic search"

_POPULATION = 100
"""Members, as published."""

_RESET, _THINNED = 0.1, 0.1
"""Probabilities that a job has again what it holds, and that some of its nodes are taken; as published."""

_LEAST_UTILITY = 0.35
"""AdaptDL lets the cluster grow where utility is above 0.65, and shrink below 0.35; in a cluster of one size the latter
is what remains of that."""


@dataclass(frozen=True, eq=False)
class Searched:
    """What a search ended with.

    Attributes
    ----------
    gpus : (N, n) of each job on each node.
    fitness : the power mean there; nothing is proven of it.
    population : (P, n, g) the job on each GPU, N for none, of all members; the next search may start from them.
    """

    gpus: Ints
    fitness: float
    population: Ints


def search_on_nodes(
    program: NodeProgram,
    rng: np.random.Generator,
    generations: int = 200,
    second: Literal["utility", "nodes"] = "utility",
    *,
    population: Ints | None = None,
    without_restarts: Floats | None = None,
) -> Searched:
    """Look for the largest power mean of a `NodeProgram` among a population that breeds (NSGA-II).

    A member is a matrix of GPUs by job and node. Children have the first rows of one parent and the others of another;
    rows then return to what jobs hold, lose nodes, or gain GPUs where some are free. What is not allowed is mended:
    of several distributed jobs on a node the first in order stays, and on a node that has too few GPUs the first jobs
    are served. Those that few others beat in fitness and in the second regard survive, the more apart the better. A job
    on a number of GPUs without a column leaves some of them idle.

    Parameters
    ----------
    program : its jobs in the order in which they are served.
    rng : of all draws: the same generator, the same answer.
    generations : how often offspring is bred. Twice the published 100 take a tenth of its time, and find as much.
    second : what keeps the population apart beside fitness: "utility", the speedup of all jobs per GPU of the nodes in
        use, as published; "nodes", as few nodes in use as can be, as AdaptDL has it since. Of the members that no other
        beats in both regards the fittest is taken; with "nodes", the fittest with a utility of 0.35, and where none has
        that, the one with the most.
    population : (P, n, g) members of an earlier search, in jobs of this one; what jobs hold is always one more.
    without_restarts : (C,) speedups of the columns in multiples of a GPU's, that utility counts; those of the program
        if omitted.

    Raises
    ------
    InputError
        The population is of another cluster or of other jobs.

    Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE Trans. Evol. Comput. 6(2), 2002.
    """
    table = NodeTable(program, without_restarts)
    n, g, N = program.n_nodes, program.gpus_per_node, program.ways.n_jobs
    members = table.held[None]
    if population is not None:
        if population.shape[1:] != (n, g) or population.min(initial=0) < 0 or population.max(initial=0) > N:
            expected = f"shape (members, {n}, {g}) of jobs up to {N}"
            raise InputError(_SOURCE, field="population", found=population.shape, expected=expected)
        members = np.concatenate([members, table.mended(population, rng)])
    regards = [0, 1 if second == "utility" else 2]
    score = table.scores(members)
    for _ in range(generations if N and n else 0):
        members, score = _survivors(members, score, regards)
        children = table.children(members, rng)
        members = np.concatenate([members, children])
        score = np.concatenate([score, table.scores(children)])
    members, score = _survivors(members, score, regards)
    enough = second == "utility" or score[:, 1] >= min(_LEAST_UTILITY, score[:, 1].max())
    gpus = table.matrix(members[np.where(enough, score[:, 0], -np.inf).argmax()])
    return Searched(gpus, program.fitness(gpus), members)


class NodeTable:
    """The columns of a `NodeProgram` by job, number of nodes and number of GPUs, and members (P, n, g) by it.

    A number of GPUs without a column counts as the best smaller one on as many nodes. Members have jobs in ascending
    order on each node, N on free GPUs.

    Parameters
    ----------
    program : the jobs, their columns and what they hold.
    worth : (C,) figures of the columns that utility counts; the speedups if omitted.

    Attributes
    ----------
    held : (n, g) the job on each GPU now.
    """

    def __init__(self, program: NodeProgram, worth: Floats | None = None) -> None:
        ways, N, n = program.ways, program.ways.n_jobs, program.n_nodes
        self.program, self.n_jobs, self._job = program, N, np.arange(N)
        counted = program.speedup if worth is None else worth
        worth = figures(_SOURCE, "without_restarts", counted, (ways.n_columns,), "numbers of at least 0")
        self._holds = program.held.sum(axis=1)
        self._most = int(max(ways.gpus.max(initial=0), self._holds.max(initial=0)))
        # who holds GPUs keeps them even where it has no column for as many; of nobody there may be any number
        self._limit = np.append(self._holds, np.iinfo(np.int64).max)
        np.maximum.at(self._limit, ways.job, ways.gpus)
        # nobody is on more nodes than it has GPUs
        shape = N, min(n, self._most) + 1, self._most + 1
        speedup, figure = np.full(shape, -1.0), np.zeros(shape)
        speedup[:, :, 0] = 0.0
        at = ways.job, program.nodes, ways.gpus
        speedup[at], figure[at] = program.speedup, worth
        best = speedup == np.maximum.accumulate(speedup, axis=2)
        self._use = np.maximum.accumulate(np.where(best, np.arange(shape[2]), 0), axis=2)
        self._terms = program.mean.terms(np.take_along_axis(speedup, self._use, axis=2))
        self._worth = np.take_along_axis(figure, self._use, axis=2)
        self._base = np.concatenate([program.held, np.zeros((1, n), dtype=np.int64)]).T
        self._held_terms = program.mean.terms(program.held_speedup)
        self.held = self.on_gpus(program.held)

    def on_gpus(self, gpus: Ints) -> Ints:
        """(n, g) the job on each GPU, N for none, from GPUs by job and node (N, n)."""
        N, n, g = self.n_jobs, self.program.n_nodes, self.program.gpus_per_node
        counts = np.concatenate([gpus, g - gpus.sum(axis=0, keepdims=True)]).T
        return np.repeat(np.tile(np.arange(N + 1), n), counts.ravel()).reshape(n, g)

    def _counted(self, members: Ints, some: Flags | slice = slice(None)) -> Ints:
        """(P, N + 1) GPUs of each job in each member, or some of them."""
        P, N = len(members), self.n_jobs
        row = members + np.arange(P)[:, None, None] * (N + 1)
        return np.bincount(row[some].ravel(), minlength=P * (N + 1)).reshape(P, N + 1)

    def scores(self, members: Ints) -> Floats:
        """(P, 3) the sum that fitness rises with, utility and minus the nodes in use; the more the better."""
        program, N = self.program, self.n_jobs
        starts, places = _starts(members), np.arange(members.shape[-1])
        nth = places - np.maximum.accumulate(np.where(starts, places, 0), axis=-1)
        as_held = nth < self._base[np.arange(program.n_nodes)[:, None], members]
        total, spread, same = (self._counted(members, some)[:, :N] for some in (slice(None), starts, as_held))
        kept = (same == self._holds) & (total == self._holds)
        at = self._job, spread, total
        used = (members < N).any(axis=-1).sum(axis=1)
        fitness = np.add.reduce(np.where(kept, self._held_terms, self._terms[at]), axis=1)
        utility = np.add.reduce(self._worth[at], axis=1) / np.maximum(used * program.gpus_per_node, 1)
        return np.stack([fitness, utility, -used], axis=1)

    def matrix(self, member: Ints) -> Ints:
        """(N, n) GPUs by job and node of one member, without those that a job would leave idle."""
        gpus: Ints = (member[..., None] == self._job).sum(axis=1).T
        spread, total = (gpus > 0).sum(axis=1), gpus.sum(axis=1)
        used = self._use[self._job, spread, total]
        keeps = (gpus == self.program.held).all(axis=1)
        for i in np.repeat(self._job, np.where(keeps, 0, total - used)).tolist():
            gpus[i, gpus[i].argmax()] -= 1
        return gpus

    def children(self, members: Ints, rng: np.random.Generator) -> Ints:
        """Children, mutated and mended, of parents that win a tournament of two; the best of `members` come first."""
        N, half = self.n_jobs, _POPULATION // 2
        parents = members[rng.integers(len(members), size=(2 * half, 2)).min(axis=1)]
        others = np.roll(parents, half, axis=0)
        cut = np.tile(rng.integers(N, size=half), 2)[:, None, None]
        crossed = [np.where(parents < cut, parents, N), np.where(others >= cut, others, N)]
        return self.mended(self._mutated(np.concatenate(crossed, axis=-1), rng), rng)

    def _mutated(self, members: Ints, rng: np.random.Generator) -> Ints:
        """(P, n, W) members whose rows have changed, not yet mended."""
        P, n, _ = members.shape
        N, g, at = self.n_jobs, self.program.gpus_per_node, np.arange(P)[:, None, None]
        reset, thinned = rng.random((2, P, N + 1)) < np.array([_RESET, _THINNED])[:, None, None]
        held = np.where(reset[at, self.held], self.held, N)
        members = np.sort(np.concatenate([np.where(reset[at, members], N, members), held], axis=-1), axis=-1)
        place = (rng.random((P, n)) * (members < N).sum(axis=-1)).astype(np.int64)
        there = members[at[..., 0], np.arange(n), place]
        members = np.where(thinned[at, members] & (rng.random((P, n, 1)) < _THINNED), N, members)
        # one job that may come to each node, and one that was there already, gain GPUs where some are free
        some_free = (members < N).sum(axis=-1) < g
        gains = []
        for job in (rng.integers(N, size=(P, n)), there):
            has = (members == job[..., None]).sum(axis=-1)
            more = (rng.random((P, n)) * (g - has + 1)).astype(np.int64)
            gained = some_free[..., None] & (np.arange(g) < more[..., None])
            gains.append(np.where(gained, job[..., None], N))
        return np.concatenate([members, *gains], axis=-1)

    def mended(self, members: Ints, rng: np.random.Generator) -> Ints:
        """(P, n, g) allowed members from (P, n, W) any."""
        N, at = self.n_jobs, np.arange(len(members))[:, None, None]
        members = np.sort(members, axis=-1)
        spread = self._counted(members, _starts(members))
        several = (spread > 1)[at, members] & (members < N)
        first = np.where(several, members, N).min(axis=-1)[..., None]
        members = np.where(several & (members != first), N, members)
        over = np.nonzero((self._counted(members) > self._limit)[at, members])
        # of GPUs beyond the most of a job those on the first nodes stay, in an order that is drawn
        row, nodes = over[0] * (N + 1) + members[over], rng.permutation(members.shape[1])
        order = np.lexsort((nodes[over[1]], row))
        nth = np.arange(len(order)) - np.searchsorted(row[order], row[order])
        gone = order[nth >= self._limit[members[over]][order]]
        members[tuple(axis[gone] for axis in over)] = N
        return np.sort(members, axis=-1)[..., : self.program.gpus_per_node]


def _starts(members: Ints) -> Flags:
    """Where a job stands for the first time on its node."""
    starts = np.ones(members.shape, dtype=np.bool_)
    starts[..., 1:] = members[..., 1:] != members[..., :-1]
    return starts


def _survivors(members: Ints, scores: Floats, regards: list[int]) -> tuple[Ints, Floats]:
    """The best of the different members, and their scores.

    By front, 0 for those that nobody beats in both regards; in a front those first that are farther from their
    neighbours.
    """
    seen: dict[bytes, int] = {}
    unique = np.array([i for i, member in enumerate(members) if seen.setdefault(member.tobytes(), i) == i])
    score = scores[unique][:, regards]
    P = len(score)
    front = np.empty(P, dtype=np.int64)
    # the fittest first: each front is told by the best second figure in it, and these fall from front to front
    order = np.lexsort((-score[:, 1], -score[:, 0]))
    best: list[float] = []
    for i, second in zip(order.tolist(), (-score[order, 1]).tolist(), strict=True):
        at = bisect_right(best, second)
        best[at : at + 1] = [second]
        front[i] = at
    order = np.lexsort((-score[:, 1], score[:, 0], front))
    ordered, group = score[order], front[order]
    crowding = np.full(P, np.inf)
    inner = np.flatnonzero((group[:-2] == group[1:-1]) & (group[1:-1] == group[2:])) + 1
    span = np.maximum(score.max(axis=0) - score.min(axis=0), 1e-300)
    crowding[order[inner]] = (np.abs(ordered[inner + 1] - ordered[inner - 1]) / span).sum(axis=1)
    kept = unique[np.lexsort((-crowding, front))[:_POPULATION]]
    return members[kept], scores[kept]
