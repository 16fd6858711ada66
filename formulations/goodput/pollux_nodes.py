"""Pollux' fitness on single nodes, of which each has one distributed job at most (OSDI 2021, sec. 4.2.1)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from formulations.core.solution import TOLERANCE, SolverError
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
        C, N = self.ways.n_columns, self.ways.n_jobs
        shapes = {"nodes": (C,), "speedup": (C,), "held": (N, self.n_nodes), "held_speedup": (N,)}
        for name, shape in shapes.items():
            if np.shape(getattr(self, name)) != shape:
                raise InputError(_SOURCE, field=name, found=np.shape(getattr(self, name)), expected=f"shape {shape}")
        if len(self.ways.pools) != 1:
            raise InputError(_SOURCE, field="pools", found=self.ways.pools, expected="one")
        fits = (self.nodes >= 1) & (self.nodes <= np.minimum(self.ways.gpus, self.n_nodes))
        if not (fits & (self.ways.gpus <= self.nodes * self.gpus_per_node)).all():
            expected = f"GPUs on 1 to {self.n_nodes} nodes of {self.gpus_per_node}"
            raise InputError(_SOURCE, field="nodes", found=self.nodes.tolist(), expected=expected)

    def fitness(self, gpus: Ints) -> float:
        """The mean for `gpus` (N, n) of jobs on nodes; InputError where a job has no such column."""
        speedups = np.zeros(len(gpus))
        spread, total = (gpus > 0).sum(axis=1), gpus.sum(axis=1)
        for i in np.flatnonzero(total):
            if (gpus[i] == self.held[i]).all():
                speedups[i] = self.held_speedup[i]
                continue
            of_job = slice(self.ways.offsets[i], self.ways.offsets[i + 1])
            same = (self.ways.gpus[of_job] == total[i]) & (self.nodes[of_job] == spread[i])
            if not same.any():
                raise InputError(_SOURCE, field="gpus", found=gpus[i].tolist(), expected="a column of the job")
            speedups[i] = self.speedup[of_job][same][0]
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


def solve_on_nodes(program: NodeProgram, *, seconds: float = np.inf, start: Ints | None = None) -> NodeSelection:
    """The largest power mean, by branch and bound in HiGHS::

        max  sum_i sum_c f(s_c) x_ic + f(h_i) k_i + f(0) (1 - sum_c x_ic - k_i)         f(s) = sign(p) (s + e)^p
        s.t. sum_c x_ic + k_i <= 1                        one way to run, or to keep what is held (k)
             sum_n y_in = sum_c gpus_c x_ic + held_i k_i,   sum_n u_in = sum_c nodes_c x_ic + spread_i k_i
             u_in <= y_in <= g u_in,   sum_i y_in <= g     y GPUs on node n, u whether there are any
             b_in k_i <= y_in <= b_in k_i + g (1 - k_i)    who keeps, keeps each node's
             d_in >= u_in + D_i - 1,   sum_i d_in <= 1     one job of several nodes (D) on each node

    Parameters
    ----------
    seconds : limit of the search; the best that is found by then is "feasible".
    start : (N, n) GPUs on nodes to begin with: nothing worse is returned.

    Raises
    ------
    SolverError
        HiGHS found nothing within `seconds`.
    """
    if not program.held.size:
        return NodeSelection(program.held, 0.0, 0.0, "optimal")
    model = _Model(program)
    answer = Highs(model.stated, {"mip_feasibility_tolerance": 1e-9}).solve(
        StopRule(absolute_gap=1e-9, seconds=seconds), start=None if start is None else model.point(program, start)
    )
    found = answer.columns
    if found is None:
        raise SolverError(f"no GPUs on nodes found: HiGHS stopped with {answer.note}")
    gpus = np.rint(found[model.on_nodes]).astype(np.int64).reshape(program.held.shape)
    fitness = program.fitness(gpus)
    if start is not None and program.fitness(start) > fitness:
        gpus, fitness = start, program.fitness(start)
    N = program.ways.n_jobs
    total = answer.bound * model.scale + float(program.mean.terms(0.0)) * N
    bound = max(program.mean.of_sum(total, N), fitness)
    status = "optimal" if bound - fitness <= TOLERANCE * bound else "feasible"
    return NodeSelection(gpus, fitness, bound, status)


class _Model:
    """The program in matrices; variables: x (C), k (N), y, u and d (N n each)."""

    def __init__(self, program: NodeProgram) -> None:
        ways, g = program.ways, float(program.gpus_per_node)
        C, N, n = ways.n_columns, ways.n_jobs, program.n_nodes
        # only who holds something can keep it
        keeps = np.asarray(program.held.any(axis=1))
        spread, total = (program.held > 0).sum(axis=1), program.held.sum(axis=1)
        base = program.held.ravel().astype(np.float64)
        jobs, cells, several = np.arange(N), np.arange(N * n), np.flatnonzero(program.nodes > 1)
        of, on, apart = cells // n, cells % n, np.asarray(spread > 1)
        x, k, y, u, d = np.split(np.arange(C + N + 3 * N * n), np.cumsum([C, N, N * n, N * n]))
        rows = RowBuilder(C + N + 3 * N * n)
        rows.add(N, [(ways.job, x, 1.0), (jobs, k, 1.0)], -np.inf, 1.0)
        rows.add(N, [(ways.job, x, ways.gpus), (jobs, k, total), (of, y, -1.0)], 0.0, 0.0)
        rows.add(N, [(ways.job, x, program.nodes), (jobs, k, spread), (of, u, -1.0)], 0.0, 0.0)
        rows.add(N * n, [(cells, y, 1.0), (cells, u, -1.0)], 0.0, np.inf)
        rows.add(N * n, [(cells, y, 1.0), (cells, u, -g)], -np.inf, 0.0)
        rows.add(n, [(on, y, 1.0)], -np.inf, g)
        rows.add(N * n, [(cells, k[of], -base), (cells, y, 1.0)], 0.0, np.inf)
        rows.add(N * n, [(cells, k[of], np.where(keeps[of], g - base, 0.0)), (cells, y, 1.0)], -np.inf, g)
        spreads = (ways.job[several, None] * n + np.arange(n), x[several, None], 1.0)
        rows.add(N * n, [spreads, (cells, k[of], apart[of]), (cells, u, 1.0), (cells, d, -1.0)], -np.inf, 1.0)
        rows.add(n, [(on, d, 1.0)], -np.inf, 1.0)
        nothing = float(program.mean.terms(0.0))
        gains = (
            np.concatenate([program.mean.terms(program.speedup), program.mean.terms(program.held_speedup)]) - nothing
        )
        self.scale = max(float(np.abs(gains).max(initial=0.0)), 1.0)
        cost = np.concatenate([gains / self.scale, np.zeros(3 * N * n)])
        most = np.concatenate([np.ones(C), keeps.astype(np.float64), np.full(N * n, g), np.ones(2 * N * n)])
        self.stated = replace(
            rows.program(cost, np.zeros(len(cost)), most, np.arange(len(cost)) < C + N + 2 * N * n), maximise=True
        )
        self.on_nodes = slice(C + N, C + N + N * n)

    def point(self, program: NodeProgram, gpus: Ints) -> Floats:
        """The variables of GPUs on nodes (N, n)."""
        ways = program.ways
        spread, total = (gpus > 0).sum(axis=1), gpus.sum(axis=1)
        keeps = (gpus == program.held).all(axis=1) & program.held.any(axis=1)
        x = (ways.gpus == total[ways.job]) & (program.nodes == spread[ways.job]) & ~keeps[ways.job]
        several = (gpus > 0) & (spread > 1)[:, None]
        parts = (x, keeps, gpus, gpus > 0, several)
        return np.concatenate([np.ravel(part).astype(np.float64) for part in parts])
