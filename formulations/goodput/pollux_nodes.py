"""Pollux' fitness on single nodes, of which each has one distributed job at most (OSDI 2021, sec. 4.2.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from formulations.arguments import figures
from formulations.core.solution import TOLERANCE
from formulations.goodput.pollux import PowerMean
from formulations.reference.mixed_integer import Highs, RowBuilder
from formulations.reference.stopping import StopRule
from throughputs import Configurations, InputError
from throughputs.arrays import Floats, Ints

_SOURCE = "program on nodes"


@dataclass(frozen=True, eq=False)
class NodeProgram:
    """Who has how many GPUs on which node, for the largest power mean of speedups.

    Attributes
    ----------
    ways : columns of N jobs on one pool, without those jobs hold now.
    nodes : (C,) over how many nodes the GPUs of a column are spread.
    speedup : (C,) of each column, restarts included.
    gpus_per_node, n_nodes : the cluster.
    held : (N, n) GPUs of each job on each node now.
    held_speedup : (N,) of who keeps exactly those, which does not start anew and so is no less than that of the column
        with as many GPUs on as many nodes; 0 of a job without any.
    mean : of the speedups.
    """

    ways: Configurations
    nodes: Ints
    speedup: Floats
    n_nodes: int
    gpus_per_node: int
    held: Ints
    held_speedup: Floats
    mean: PowerMean = field(default_factory=PowerMean)

    def __post_init__(self) -> None:
        C, N, n, g = self.ways.n_columns, self.ways.n_jobs, self.n_nodes, self.gpus_per_node
        for name, shape in {"nodes": (C,), "speedup": (C,), "held": (N, n), "held_speedup": (N,)}.items():
            figures(_SOURCE, name, getattr(self, name), shape, "numbers of at least 0")
        gpus, nodes = self.ways.gpus, self.nodes
        fits = (nodes >= 1) & (nodes <= np.minimum(gpus, n)) & (gpus <= nodes * g)
        for name, good, expected in (
            ("ways", len(self.ways.pools) == 1, "one pool"),
            ("held", self.held.sum(axis=0) <= g, f"at most {g} GPUs on each node"),
            ("nodes", fits, f"GPUs on 1 to {n} nodes of {g}"),
        ):
            if not np.all(good):
                raise InputError(_SOURCE, field=name, found=getattr(self, name), expected=expected)

    def fitness(self, gpus: Ints) -> float:
        """The mean for `gpus` (N, n) of jobs on nodes; InputError where a job has no such column."""
        job, spread, total = self.ways.job, (gpus > 0).sum(axis=1), gpus.sum(axis=1)
        keeps = (gpus == self.held).all(axis=1)
        runs = (self.ways.gpus == total[job]) & (self.nodes == spread[job]) & ~keeps[job]
        speedups, lacks = np.where(keeps, self.held_speedup, 0.0), (total > 0) & ~keeps
        speedups[job[runs]], lacks[job[runs]] = self.speedup[runs], False
        if lacks.any():
            raise InputError(_SOURCE, field="gpus", found=gpus[lacks][0].tolist(), expected="a column of the job")
        return self.mean.of(speedups)


@dataclass(frozen=True, eq=False)
class NodeSelection:
    """GPUs on nodes.

    Attributes
    ----------
    gpus : (N, n) of each job on each node.
    fitness : the mean. bound : nothing allowed has more.
    status : "optimal" where the two are equal to 1e-7, else "feasible".
    solver : what answered.
    """

    gpus: Ints
    fitness: float
    bound: float
    status: str
    solver: str = "highs"

    @property
    def gap(self) -> float:
        """Relative distance of fitness and bound."""
        return (self.bound - self.fitness) / max(self.bound, 1e-300)


def solve_on_nodes(program: NodeProgram, *, seconds: float = np.inf) -> NodeSelection:
    """The largest power mean, by branch and bound in HiGHS::

        max  sum_i sum_c f(s_c) x_ic + f(0) (1 - sum_c x_ic)                        f(s) = sign(p) (s + e)^p
        s.t. sum_c x_ic <= 1                              one way to run; to keep what is held is one more column
             sum_n y_in = sum_c gpus_c x_ic               y GPUs on node n
             sum_n a_in = sum_{c: nodes_c = 1} x_ic,   sum_n d_in = sum_{c: nodes_c > 1} nodes_c x_ic
             a_in + d_in <= y_in <= g (a_in + d_in)       a whether these are all of the job's, d: some of them
             sum_i y_in <= g,   sum_i d_in <= 1           one job of several nodes on each
             y_in >= b_in x_ik                            who keeps, keeps each node's

    Parameters
    ----------
    seconds : limit of the search; the best that is found by then, or else what is held, is "feasible".
    """
    ways, held, g = program.ways, program.held, float(program.gpus_per_node)
    N, n = held.shape
    if not held.size:
        return NodeSelection(held, 0.0, 0.0, "optimal")
    holders = np.flatnonzero(held.any(axis=1))
    job = np.concatenate([ways.job, holders])
    gpus = np.concatenate([ways.gpus, held[holders].sum(axis=1)])
    nodes = np.concatenate([program.nodes, (held[holders] > 0).sum(axis=1)])
    speedup = np.concatenate([program.speedup, program.held_speedup[holders]])
    x, y, a, d = np.split(np.arange(len(job) + 3 * N * n), np.cumsum([len(job), N * n, N * n]))
    cells = np.arange(N * n)
    of, on = np.divmod(cells, n)
    rows = RowBuilder(len(job) + 3 * N * n)
    rows.add(N, [(job, x, 1.0)], -np.inf, 1.0)
    for counted, each in ((y, gpus), (a, nodes == 1), (d, nodes * (nodes > 1))):
        rows.add(N, [(job, x, each), (of, counted, -1.0)], 0.0, 0.0)
    rows.add(N * n, [(cells, y, 1.0), (cells, a, -1.0), (cells, d, -1.0)], 0.0, np.inf)
    rows.add(N * n, [(cells, y, 1.0), (cells, a, -g), (cells, d, -g)], -np.inf, 0.0)
    rows.add(n, [(on, y, 1.0)], -np.inf, g)
    rows.add(n, [(on, d, 1.0)], -np.inf, 1.0)
    kept = (holders[:, None] * n + np.arange(n), x[ways.n_columns :, None], -held[holders])
    rows.add(N * n, [(cells, y, 1.0), kept], 0.0, np.inf)
    nothing = float(program.mean.terms(0.0))
    gains = program.mean.terms(speedup) - nothing
    scale = max(float(np.abs(gains).max(initial=0.0)), 1.0)
    cost = np.concatenate([-gains / scale, np.zeros(3 * N * n)])
    most = np.ones(len(cost))
    most[y] = g
    stated = rows.program(cost, 0.0, most, True)
    answer = Highs(stated, {"mip_feasibility_tolerance": 1e-9}).solve(StopRule(absolute_gap=1e-9, seconds=seconds))
    found = held if answer.columns is None else np.rint(answer.columns[y]).astype(np.int64).reshape(N, n)
    fitness = program.fitness(found)
    # nobody gains more than by its best column, however early the search was stopped
    best = np.zeros(N)
    np.maximum.at(best, job, gains)
    total = min(-answer.bound * scale, float(best.sum())) + nothing * N
    bound = max(program.mean.of_sum(total, N), fitness)
    status = "optimal" if bound - fitness <= TOLERANCE * bound else "feasible"
    return NodeSelection(found, fitness, bound, status)
