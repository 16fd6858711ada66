"""Pollux' genetic search for GPUs on nodes (OSDI 2021, sec. 4.2.1), all of a population at once."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

import numpy as np

from formulations.goodput.node_table import NodeTable
from formulations.goodput.pollux_nodes import NodeProgram
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints, Positions

_SOURCE = "genetic search"

_RESET, _THINNED = 0.1, 0.1
"""Probabilities that a job has again what it holds, and that some of its nodes are taken; as published."""


@dataclass(frozen=True)
class GeneticSearch:
    """How a genetic search goes on, and which member of its last generation is taken.

    Attributes
    ----------
    population : members, 100 as published.
    generations : how often offspring is bred. Twice the published 100 take a tenth of its time, and find as much.
    second : what keeps the population apart beside fitness: "utility", the speedup of all jobs per GPU of the nodes in
        use, as published; "nodes", as few nodes in use as can be, as AdaptDL has it since.
    least_utility : with "nodes", of the members that no other beats in both regards the fittest is taken that has this
        utility; where none has, that with the most. AdaptDL lets the cluster grow where utility is above 0.65, and
        shrink below 0.35; in a cluster of one size the latter is what remains of that.

    Raises
    ------
    InputError
        Fewer than two members, generations below 0, or another second regard.
    """

    population: int = 100
    generations: int = 200
    second: Literal["utility", "nodes"] = "utility"
    least_utility: float = 0.35

    def __post_init__(self) -> None:
        for name, least in (("population", 2), ("generations", 0)):
            if getattr(self, name) < least:
                raise InputError(_SOURCE, field=name, found=getattr(self, name), expected=f"at least {least}")
        if self.second not in ("utility", "nodes"):
            raise InputError(_SOURCE, field="second", found=self.second, expected="utility or nodes")
        if not self.least_utility >= 0:
            raise InputError(_SOURCE, field="least_utility", found=self.least_utility, expected="at least 0")


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
    search: GeneticSearch | None = None,
    *,
    population: Ints | None = None,
    without_restarts: Floats | None = None,
) -> Searched:
    """Look for the largest power mean of a `NodeProgram` among a population that breeds (NSGA-II).

    A member is a matrix of GPUs by job and node. Children have the first rows of one parent and the others of another;
    rows then return to what jobs hold, lose nodes, or gain GPUs where some are free. What is not allowed is mended:
    of several distributed jobs on a node the first in order stays, a job has no more GPUs than its largest column,
    and on a node that has too few the first jobs are served. Those that few others beat in fitness and in the second
    regard survive, the more apart the better. A job on a number of GPUs without a column leaves some of them idle.

    Parameters
    ----------
    program : its jobs in the order in which they are served.
    rng : of all draws: the same generator, the same answer.
    search : the usual sizes if omitted.
    population : (P, n, g) members of an earlier search, in jobs of this one; what jobs hold is always one more.
    without_restarts : (C,) speedups of the columns in multiples of a GPU's, that utility counts; those of the program
        if omitted.

    Raises
    ------
    InputError
        The population is of another cluster or of other jobs.

    Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE Trans. Evol. Comput. 6(2), 2002.
    """
    search = GeneticSearch() if search is None else search
    table = NodeTable(program, without_restarts)
    n, g, N = program.n_nodes, program.gpus_per_node, program.ways.n_jobs
    members = table.held[None]
    if population is not None:
        if population.shape[1:] != (n, g) or population.min(initial=0) < 0 or population.max(initial=0) > N:
            expected = f"shape (members, {n}, {g}) of jobs up to {N}"
            raise InputError(_SOURCE, field="population", found=population.shape, expected=expected)
        members = np.concatenate([members, np.sort(population, axis=-1)])
    breed = _Breed(table, rng)
    if population is not None:
        members = breed.mended(members)
    members = members[_different(members)][: search.population]
    score = table.scores(members, search.second)
    for _ in range(search.generations if N and n else 0):
        children = breed.children(members, *_ranks(score), search.population)
        members = np.concatenate([members, children])
        score = np.concatenate([score, table.scores(children, search.second)])
        kept = _different(members)
        front, crowding = _ranks(score[kept])
        kept = kept[np.lexsort((-crowding, front))[: search.population]]
        members, score = members[kept], score[kept]
    gpus = table.matrix(members[_chosen(table, members, score, search)])
    return Searched(gpus, program.fitness(gpus), members)


def _chosen(table: NodeTable, members: Ints, score: Floats, search: GeneticSearch) -> int:
    """The member that is taken."""
    if search.second == "utility":
        return int(score[:, 0].argmax())
    best = np.flatnonzero(_ranks(score)[0] == 0)
    utility = table.scores(members[best], "utility")[:, 1]
    enough = best[utility >= search.least_utility]
    return int(enough[score[enough, 0].argmax()] if len(enough) else best[utility.argmax()])


class _Breed:
    """Crossover, mutation and repair of members (P, n, g): jobs in ascending order on each node, N on free GPUs."""

    def __init__(self, table: NodeTable, rng: np.random.Generator) -> None:
        self.table, self.rng = table, rng
        self.nobody = table.n_jobs

    def children(self, members: Ints, front: Ints, crowding: Floats, count: int) -> Ints:
        """(count, n, g) children of parents that win a tournament of two."""
        half = -(-count // 2)
        drawn = self.rng.integers(len(members), size=(4 * half, 2))
        one, two = drawn[:, 0], drawn[:, 1]
        wins = (front[one] < front[two]) | ((front[one] == front[two]) & (crowding[one] >= crowding[two]))
        parents = members[np.where(wins, one, two)[: 2 * half]]
        cut = np.tile(self.rng.integers(self.nobody, size=half), 2)[:, None, None]
        others = np.concatenate([parents[half:], parents[:half]])
        crossed = np.concatenate(
            [np.where(parents < cut, parents, self.nobody), np.where(others >= cut, others, self.nobody)], axis=-1
        )
        return self.mended(self._mutated(crossed[:count]))

    def _mutated(self, members: Ints) -> Ints:
        """(P, n, W) members whose rows have changed, not yet mended."""
        P, n, _ = members.shape
        N, g, rng = self.nobody, self.table.gpus_per_node, self.rng
        at = np.arange(P)[:, None, None]
        reset = rng.random((P, N + 1)) < _RESET
        reset[:, N] = False
        held = np.broadcast_to(self.table.held, (P, n, g))
        members = np.sort(
            np.concatenate(
                [np.where(reset[at, members], N, members), np.where(reset[at, held], held, N)],
                axis=-1,
            ),
            axis=-1,
        )
        place = (rng.random((P, n)) * (members < N).sum(axis=-1)).astype(np.int64)
        there = members[at[..., 0], np.arange(n), place]
        thinned = rng.random((P, N + 1)) < _THINNED
        first = _first_of_run(members)
        taken = np.take_along_axis(rng.random(members.shape) < _THINNED, first, axis=-1)
        members = np.where(thinned[at, members] & taken, N, members)
        # one job that may come to each node, and one that is there already, gain GPUs where some are free
        some_free = (members < N).sum(axis=-1) < g
        anyone = rng.integers(N, size=(P, n))
        gains = []
        for job in (anyone, there):
            has = (members == job[..., None]).sum(axis=-1)
            more = (rng.random((P, n)) * (g - has + 1)).astype(np.int64)
            gained = some_free[..., None] & (np.arange(g) < more[..., None])
            gains.append(np.where(gained, job[..., None], N))
        return np.concatenate([members, *gains], axis=-1)

    def mended(self, members: Ints) -> Ints:
        """(P, n, g) allowed members from (P, n, W) any."""
        N, table = self.nobody, self.table
        members = np.sort(members, axis=-1)
        at = np.arange(len(members))[:, None, None]
        row = members + at * (N + 1)
        spread = np.bincount(row[_starts(members)], minlength=len(members) * (N + 1))
        several = (spread > 1)[row] & (members < N)
        leader = np.where(several, members, N).min(axis=-1)[..., None]
        members[several & (members != leader)] = N
        row = members + at * (N + 1)
        total = np.bincount(row.ravel(), minlength=len(members) * (N + 1))
        over = np.flatnonzero((total > np.tile(table.most, len(members)))[row])
        if len(over):
            nodes = self.rng.permuted(np.tile(np.arange(members.shape[1]), (len(members), 1)), axis=1)
            row_over = row.ravel()[over]
            order = np.lexsort((np.broadcast_to(nodes[..., None], members.shape).ravel()[over], row_over))
            sorted_rows = row_over[order]
            nth = np.arange(len(over)) - np.searchsorted(sorted_rows, sorted_rows)
            most = table.most[sorted_rows % (N + 1)]
            members.ravel()[over[order[nth >= most]]] = N
        return np.sort(members, axis=-1)[..., : table.gpus_per_node]


def _starts(members: Ints) -> Flags:
    """Where a job stands for the first time on its node."""
    starts = np.ones(members.shape, dtype=np.bool_)
    starts[..., 1:] = members[..., 1:] != members[..., :-1]
    return starts


def _first_of_run(members: Ints) -> Ints:
    """(P, n, W) position at which the job of each GPU stands for the first time on the node."""
    places = np.where(_starts(members), np.arange(members.shape[-1]), 0)
    return np.asarray(np.maximum.accumulate(places, axis=-1))


def _different(members: Ints) -> Positions:
    """Positions of members without those that are the same as an earlier one."""
    seen: dict[bytes, int] = {}
    for i, member in enumerate(members):
        seen.setdefault(member.tobytes(), i)
    return np.fromiter(seen.values(), dtype=np.intp, count=len(seen))


def _ranks(score: Floats) -> tuple[Ints, Floats]:
    """(P,) front of each member, 0 for those that nobody beats in both regards, and its distance to its neighbours."""
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
    if P > 2:
        inner = np.flatnonzero((group[:-2] == group[1:-1]) & (group[1:-1] == group[2:])) + 1
        span = np.maximum(score.max(axis=0) - score.min(axis=0), 1e-300)
        apart = np.abs(ordered[inner + 1] - ordered[inner - 1]) / span
        crowding[order[inner]] = apart[:, 0] + apart[:, 1]
    return front, crowding
