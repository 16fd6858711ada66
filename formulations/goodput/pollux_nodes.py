"""Pollux' fitness on single nodes, of which each has one distributed job at most (OSDI 2021, sec. 4.2.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.core.highs_model import with_model
from formulations.core.solution import SolverError
from formulations.goodput.pollux import PowerMean
from throughputs import Configurations, InputError

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
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
    nodes: Whole
    speedup: Array
    n_nodes: int
    gpus_per_node: int
    held: Whole
    held_speedup: Array
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

    def fitness(self, gpus: Whole) -> float:
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
    status : "optimal" where the two are equal within the tolerance, else "feasible".
    solver : what answered.
    """

    gpus: Whole
    fitness: float
    bound: float
    status: str
    solver: str = "highs"

    @property
    def gap(self) -> float:
        """Relative distance of fitness and bound."""
        return (self.bound - self.fitness) / max(self.bound, 1e-300)


def solve_on_nodes(
    program: NodeProgram, *, seconds: float = np.inf, tolerance: float = 1e-6, start: Whole | None = None
) -> NodeSelection:
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
    tolerance : relative gap up to which an answer is called optimal.
    start : (N, n) GPUs on nodes to begin with: nothing worse is returned.

    Raises
    ------
    SolverError
        HiGHS found nothing within `seconds`.
    """
    if not program.held.size:
        return NodeSelection(program.held, 0.0, 0.0, "optimal")
    model = _Model(program)
    solver = with_model(
        model.matrix,
        model.cost,
        (model.lower, model.upper),
        upper=model.most,
        maximise=True,
        whole=model.whole,
        options={
            "mip_rel_gap": 0.0,
            "mip_abs_gap": 1e-9,
            "mip_feasibility_tolerance": 1e-9,
            "time_limit": min(seconds, 1e9),
        },
    )
    if start is not None:
        import highspy

        known = highspy.HighsSolution()
        known.col_value = model.point(program, start).tolist()
        solver.setSolution(known)
    solver.run()
    info = solver.getInfo()
    found = np.asarray(solver.getSolution().col_value)
    if not len(found) or not np.isfinite(info.objective_function_value):
        raise SolverError(
            f"no GPUs on nodes found: HiGHS stopped with {solver.modelStatusToString(solver.getModelStatus())}"
        )
    gpus = np.rint(found[model.on_nodes]).astype(np.int64).reshape(program.held.shape)
    fitness = program.fitness(gpus)
    if start is not None and program.fitness(start) > fitness:
        gpus, fitness = start, program.fitness(start)
    N = program.ways.n_jobs
    total = float(info.mip_dual_bound) * model.scale + float(program.mean.terms(0.0)) * N
    bound = max(program.mean.of_sum(total, N), fitness)
    status = "optimal" if bound - fitness <= tolerance * bound else "feasible"
    return NodeSelection(gpus, fitness, bound, status)


class _Model:
    """The program in matrices; variables: x (C), k (N), y, u and d (N n each)."""

    def __init__(self, program: NodeProgram) -> None:
        from scipy.sparse import block_array, csr_array, eye_array, kron

        ways, g = program.ways, float(program.gpus_per_node)
        C, N, n = ways.n_columns, ways.n_jobs, program.n_nodes
        # only who holds something can keep it
        keeps = program.held.any(axis=1)
        spread, total = (program.held > 0).sum(axis=1), program.held.sum(axis=1)
        base = program.held.ravel().astype(np.float64)
        held = np.repeat(keeps, n)
        of_job = csr_array((np.ones(C), (ways.job, np.arange(C))), shape=(N, C))

        def columns(values: Any) -> Any:
            return of_job * np.asarray(values, dtype=np.float64)[None]

        def diagonal(values: Any) -> Any:
            return csr_array(np.diag(np.asarray(values, dtype=np.float64)))

        one, cells = eye_array(N), eye_array(N * n)
        sum_nodes, sum_jobs = kron(one, np.ones((1, n))), kron(np.ones((1, N)), eye_array(n))
        each = kron(one, np.ones((n, 1)))
        several = program.nodes > 1
        blocks: list[tuple[list[Any], Any, Any]] = [
            ([of_job, one, None, None, None], -np.inf, 1.0),
            ([columns(ways.gpus), diagonal(total), -sum_nodes, None, None], 0.0, 0.0),
            ([columns(program.nodes), diagonal(spread), None, -sum_nodes, None], 0.0, 0.0),
            ([None, None, cells, -cells, None], 0.0, np.inf),
            ([None, None, cells, -g * cells, None], -np.inf, 0.0),
            ([None, None, sum_jobs, None, None], -np.inf, g),
            ([None, -each * base[:, None], cells, None, None], 0.0, np.inf),
            ([None, each * np.where(held, g - base, 0.0)[:, None], cells, None, None], -np.inf, g),
            ([each @ columns(several), each @ diagonal(spread > 1), None, cells, -cells], -np.inf, 1.0),
            ([None, None, None, None, sum_jobs], -np.inf, 1.0),
        ]
        self.matrix = csr_array(block_array(_filled([row for row, _, _ in blocks], (C, N, N * n, N * n, N * n))))
        sizes = [next(block for block in row if block is not None).shape[0] for row, _, _ in blocks]
        self.lower = np.repeat([low for _, low, _ in blocks], sizes).astype(np.float64)
        self.upper = np.repeat([high for _, _, high in blocks], sizes).astype(np.float64)
        nothing = float(program.mean.terms(0.0))
        gains = (
            np.concatenate([program.mean.terms(program.speedup), program.mean.terms(program.held_speedup)]) - nothing
        )
        self.scale = max(float(np.abs(gains).max(initial=0.0)), 1.0)
        self.cost = np.concatenate([gains / self.scale, np.zeros(3 * N * n)])
        self.most = np.concatenate([np.ones(C), keeps.astype(np.float64), np.full(N * n, g), np.ones(2 * N * n)])
        self.whole = np.arange(len(self.cost)) < C + N + 2 * N * n
        self.on_nodes = slice(C + N, C + N + N * n)

    def point(self, program: NodeProgram, gpus: Whole) -> Array:
        """The variables of GPUs on nodes (N, n)."""
        ways = program.ways
        spread, total = (gpus > 0).sum(axis=1), gpus.sum(axis=1)
        keeps = (gpus == program.held).all(axis=1) & program.held.any(axis=1)
        x = (ways.gpus == total[ways.job]) & (program.nodes == spread[ways.job]) & ~keeps[ways.job]
        several = (gpus > 0) & (spread > 1)[:, None]
        parts = (x, keeps, gpus, gpus > 0, several)
        return np.concatenate([np.ravel(part).astype(np.float64) for part in parts])


def _filled(rows: list[list[Any]], widths: tuple[int, ...]) -> list[list[Any]]:
    """Rows of blocks in which empty ones have their shape."""
    from scipy.sparse import csr_array

    heights = [next(block for block in row if block is not None).shape[0] for row in rows]
    return [
        [csr_array((height, width)) if block is None else block for block, width in zip(row, widths, strict=True)]
        for row, height in zip(rows, heights, strict=True)
    ]
