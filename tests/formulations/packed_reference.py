"""Random programs with space sharing, and the same program stated over all pairs of jobs."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, vstack

from formulations import FinishTimeFairness, Makespan, MaxMin, MaxSum, proportional_throughput
from formulations.packed import PackedPolytope
from throughputs.packed import PackedColumns

KINDS = ("max_min", "makespan", "finish_time", "max_sum")


def draw_packed(seed, largest=8):
    """Groups with ties and zero rates, mixed gangs, some above capacity, weights over decades, little capacity."""
    rng = np.random.default_rng(seed)
    N, G, M = int(rng.integers(1, largest + 1)), int(rng.integers(1, 6)), int(rng.integers(1, 4))
    alone = rng.uniform(0.01, 1, (G, M)) * 10.0 ** rng.uniform(-1, 2, (G, 1))
    if rng.random() < 0.4:
        alone = np.maximum(np.round(alone, 1), 0.1)
    if rng.random() < 0.4:
        alone[rng.random((G, M)) < 0.3] = 0
    sizes = rng.choice([1, 2, 4], G, p=[0.7, 0.2, 0.1]) if rng.random() < 0.5 else np.ones(G, dtype=np.int64)
    together = alone[:, None, :] * rng.uniform(0.2, 1.0, (G, G, M))
    if rng.random() < 0.5:
        together[rng.random((G, G, M)) < 0.4] = 0
    if rng.random() < 0.2:
        together = np.round(together, 1)
    together[sizes[:, None] != sizes[None, :]] = 0
    capacity = rng.integers(0 if rng.random() < 0.3 else 1, N + 2, M).astype(float)
    if rng.random() < 0.15:
        capacity[rng.integers(0, M)] = 10.0 ** -rng.integers(2, 7)
    group = rng.integers(0, G, N)
    columns = PackedColumns(group, alone, together, sizes)
    polytope = PackedPolytope(columns, capacity)
    yardstick = proportional_throughput(columns.rates, capacity)
    yardstick = np.where(yardstick > 0, yardstick, 1.0)
    weights = 10.0 ** rng.uniform(-3, 3, N) if rng.random() < 0.3 else rng.choice([1.0, 1.0, 5.0], N)
    steps = 10.0 ** rng.uniform(2, 5, N) if rng.random() < 0.7 else np.full(N, 100.0)
    elapsed = rng.uniform(0, 1e4, N) * (rng.random() < 0.7)
    objectives = {
        "max_min": MaxMin(weights * yardstick / columns.scale_factors),
        "makespan": Makespan(steps),
        "finish_time": FinishTimeFairness(elapsed, steps, steps / yardstick + rng.uniform(0, 1e4, N)),
        "max_sum": MaxSum(rng.choice([0.5, 1.0, 2.0], N)),
    }
    return polytope, objectives


def explicit(polytope, served, weights=None, gains=None, floors=None):
    """Optimum of the program over all pairs of served jobs, by simplex: of the level, or of the sum with floors."""
    general = polytope.columns.general
    capacity = polytope.capacity
    kept = np.array([all(served[i] for i in members) for members in general.members])
    kept &= capacity[general.accelerator] > 0
    time, rate, usage = general.time[:, kept], general.rate[:, kept], general.usage[:, kept]
    N, C = rate.shape
    # rows in units of their limits, and time in units of what there is: tolerances of the solver are absolute
    unit = min(1.0, float(capacity.max()))
    usage = usage.multiply(unit / np.where(capacity > 0, capacity, 1.0)[:, None])
    rows, limits = [time, usage], [np.full(N, 1 / unit), np.ones(len(capacity))]
    cost = np.zeros(C) if gains is None else -(gains @ rate)
    jobs = np.flatnonzero(served)
    if floors is not None:
        rows.append(-rate[jobs])
        limits.append(-floors[jobs] / unit)
    matrix = vstack(rows)
    if weights is not None:
        fastest = rate.max(axis=1).toarray().ravel()[jobs]
        slopes = weights[jobs] / fastest
        top = slopes.max()
        demand = hstack([-rate[jobs].multiply(1 / fastest[:, None]), csr_array((slopes / top)[:, None])])
        matrix = vstack([hstack([matrix, csr_array((matrix.shape[0], 1))]), demand])
        limits.append(np.zeros(len(jobs)))
        cost = np.append(cost, -1.0)
        unit = unit / top
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    result = linprog(cost, A_ub=matrix, b_ub=np.concatenate(limits), bounds=(0, None), method="highs", options=options)
    assert result.status == 0, result.message
    return -unit * float(result.fun)


def check_feasible(polytope, solution):
    assert polytope.violation(solution.shares, solution.pairs) <= 1e-12
    pairs = solution.pairs
    assert (pairs.first < pairs.second).all()
    assert (pairs.share > 0).all()
    assert len(set(zip(pairs.first, pairs.second, pairs.accelerator, strict=True))) == len(pairs)
