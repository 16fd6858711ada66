"""The iteration of `formulations.backends.interior_point`, compiled: the same start, steps and stopping rule.

An iteration is six passes over the blocks of jobs: `factor`, then `aim` and `follow` for the predictor and again for
the corrector, and `move`. See the original for what the names mean; without demands, their rows are zero.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.fast.blocks import (
    BLOCK,
    BUDGET,
    COUNT,
    CURVATURE,
    FLOOR,
    JOB_ROWS,
    LOAD,
    SCALE,
    SCRATCH_ROWS,
    SLOPE,
    STATE_ROWS,
    WEIGHT,
    Program,
    State,
    in_blocks,
    keep,
    largest,
    row_in_blocks,
)
from formulations.fast.compiler import compiled, entry
from formulations.fast.factors import factor
from formulations.fast.steps import aim, follow, move

__all__ = ["iterate"]

Array = NDArray[np.float64]


@compiled
def _worth(program: Program, state: State, k: int, j: int) -> float:
    """What a share of type j is worth to job k at the start."""
    block, i = k // BLOCK, k % BLOCK
    worth: float = program.q[block, j, i] + program.A[block, j, i] * state.s[block, program.M + 1, i]
    return worth


@compiled
def _start(program: Program, state: State, near: Array, nearness: float, jobs: float, budget: float) -> float:
    """A point inside, its shares feasible, its duals feasible too; returns the level."""
    M, K, A, X, S, job = program.M, program.K, program.A, state.x, state.s, program.job
    z, p, c, size = state.z, state.p, program.c, program.size_of_capacity
    total, weighted_slope = 0.0, 0.0
    for k in range(K):
        total += job[k // BLOCK, LOAD, k % BLOCK]
        weighted_slope += job[k // BLOCK, COUNT, k % BLOCK] * job[k // BLOCK, SLOPE, k % BLOCK]
    for j in range(M):
        z[j] = c[j]
    room = c.copy()
    if program.has_drift:
        for j in range(M):
            room[j] = max(c[j] - program.drift[j], 0.01 * size[j])
    lowest = np.inf
    for k in range(K):
        block, i = k // BLOCK, k % BLOCK
        spent, reached = 0.0, 0.0
        for j in range(M):
            most = room[j] / total
            if program.log:
                most = c[j] / budget * (job[block, BUDGET, i] / job[block, SCALE, i])
            x = 0.5 * min(1.0 / M, most)
            if near.size:
                x = nearness * near[j, k] + (1.0 - nearness) * x
            X[block, j, i] = x
            spent += x
            reached += A[block, j, i] * x
            z[j] -= x * job[block, LOAD, i]
        X[block, M, i] = 1.0 - spent
        X[block, M + 1, i] = reached
        if not program.fixed:
            lowest = min(lowest, (reached - job[block, FLOOR, i]) / job[block, SLOPE, i])
    level = 0.0 if program.fixed else 0.5 * max(lowest, 0.0)
    if program.has_drift:
        for j in range(M):
            z[j] = max(z[j] - program.drift[j] * level, 0.05 * size[j])
    weight = 0.0
    for k in range(K):
        block, i = k // BLOCK, k % BLOCK
        if program.log:
            S[block, M + 1, i] = job[block, BUDGET, i] / X[block, M + 1, i]
        elif program.has_demand:
            needed = job[block, FLOOR, i] + job[block, SLOPE, i] * level
            X[block, M + 1, i] = max(X[block, M + 1, i] - needed, 0.05 * (1e-3 + abs(needed)))
            S[block, M + 1, i] = 1.0 if program.fixed else 1.0 / weighted_slope
        else:
            X[block, M + 1, i], S[block, M + 1, i] = 1.0, 0.0
        best = -np.inf
        for j in range(M):
            best = max(best, _worth(program, state, k, j))
        weight = max(weight, best) if program.has_gains else weight + job[block, COUNT, i] * best / jobs
    weight = max(weight, 1e-300)
    for j in range(M):
        p[j] = 2.0 * budget / c[j] if program.log else 0.5 * weight * min(1.0, jobs / (M * room[j]))
    for k in range(K):
        block, i = k // BLOCK, k % BLOCK
        most = 0.0
        for j in range(M):
            most = max(most, _worth(program, state, k, j) - job[block, SCALE, i] * p[j])
        S[block, M, i] = most * 1.05 + 0.1 * (job[block, BUDGET, i] if program.log else weight)
        for j in range(M):
            spare = _worth(program, state, k, j) - job[block, SCALE, i] * p[j]
            S[block, j, i] = S[block, M, i] - spare + job[block, CURVATURE, i] * X[block, j, i]
    return level


_SOURCE = "Array(float64, {0}, 'C', readonly=True)"
_VECTOR, _MATRIX = _SOURCE.format(1), _SOURCE.format(2)


@entry(
    f"Tuple((int64, float64))({_MATRIX}, {', '.join([_VECTOR] * 6)}, {_MATRIX}, {_VECTOR}, {_MATRIX}, {_VECTOR}, "
    f"{_VECTOR}, float64, int64, float64[:, ::1], float64[::1], float64[::1])"
)
def iterate(
    rates: Array,
    scale_factors: Array,
    counts: Array,
    capacity: Array,
    slopes: Array,
    floors: Array,
    drift: Array,
    gains: Array,
    curvature: Array,
    near: Array,
    budgets: Array,
    rules: Array,
    tolerance: float,
    max_iterations: int,
    shares: Array,
    multipliers: Array,
    prices: Array,
) -> tuple[int, float]:
    """Solve a `StructuredProgram`; the parts that it does not have are given as arrays of no elements.

    `rules` are the constants of the original, in the order in which they are unpacked below. The answer is written to
    the last three arrays; returned are the number of iterations and the level.
    """
    nearness, near_end, boundary, boundary_with_budgets = rules[0], rules[1], rules[2], rules[3]
    fastest, slowest, shortest, smallest, weight_of_budgets = rules[4], rules[5], rules[6], rules[7], rules[8]
    M, K = rates.shape
    blocks = (K + BLOCK - 1) // BLOCK
    fixed, log, curved = slopes.size == 0, budgets.size > 0, curvature.size > 0
    has_demand = log or not fixed or floors.size > 0
    job = np.zeros((blocks, JOB_ROWS, BLOCK))
    A, q = np.zeros((blocks, M, BLOCK)), np.zeros((blocks, M, BLOCK))
    in_blocks(rates, A)
    if gains.size:
        in_blocks(gains, q)
    row_in_blocks(slopes, job, SLOPE)
    row_in_blocks(floors, job, FLOOR)
    row_in_blocks(curvature, job, CURVATURE)
    jobs, budget, largest_scale = 0.0, 0.0, 0.0
    for k in range(K):
        # n jobs of budget B and gangs of s are n w jobs of budget B / w and gangs of s / w, for any w
        weight = budgets[k] ** weight_of_budgets if log else 1.0
        scale, count = scale_factors[k] / weight, counts[k] * weight
        block, i = k // BLOCK, k % BLOCK
        job[block, SCALE, i], job[block, COUNT, i], job[block, LOAD, i] = scale, count, count * scale
        job[block, WEIGHT, i] = weight
        if log:
            job[block, BUDGET, i] = budgets[k] / weight
            budget += count * (budgets[k] / weight)
        jobs += count
        largest_scale = max(largest_scale, scale)
    c, drifts, size_of_capacity = np.empty(M), np.zeros(M), np.empty(M)
    for j in range(M):
        c[j] = capacity[j]
        if drift.size:
            drifts[j] = drift[j]
        size_of_capacity[j] = abs(c[j]) + abs(drifts[j])
    program = Program(
        M=M,
        K=K,
        has_demand=has_demand,
        has_gains=gains.size > 0,
        has_drift=drift.size > 0,
        fixed=fixed,
        log=log,
        A=A,
        q=q,
        job=job,
        c=c,
        drift=drifts,
        size_of_capacity=size_of_capacity,
    )
    state = State(
        x=np.ones((blocks, M + 2, BLOCK)),
        s=np.ones((blocks, M + 2, BLOCK)),
        dx=np.zeros((blocks, M + 2, BLOCK)),
        ds=np.zeros((blocks, M + 2, BLOCK)),
        over_x=np.empty((blocks, M + 2, BLOCK)),
        d=np.empty((blocks, M, BLOCK)),
        rd=np.empty((blocks, M, BLOCK)),
        job=np.zeros((blocks, STATE_ROWS, BLOCK)),
        z=np.empty(M),
        p=np.empty(M),
        dz=np.zeros(M),
        dp=np.zeros(M),
        rp3=np.empty(M),
        zp=np.empty(M),
        G=np.empty((M + 1, M + 1)),
        pivots=np.empty(M + 1, dtype=np.int64),
        rhs=np.empty(M + 1),
        scratch=np.zeros((SCRATCH_ROWS, BLOCK)),
    )
    bend_z = np.zeros(M)
    products = jobs * (M + 1 + (has_demand and not log)) + M
    least = smallest * tolerance * budget / products
    level = _start(program, state, near, nearness, jobs, budget)
    keep(program, state, shares, multipliers, prices)
    kept, kept_level, best, stalled = 0, level, np.inf, 0
    primal, dual = 0.0, 0.0
    for iteration in range(max_iterations + 1):
        gap, worth, residual, of_time, worst, of_dual = move(program, state, level, primal, dual)
        off_budget = state.scratch[4, 0] if log else 0.0
        size = abs(worth) if gains.size else jobs
        if not fixed:
            size = abs(level)
        elif log:
            size = budget
        relative = gap / max(size, 1e-300)
        merit = relative
        if relative < near_end:
            paid = max(of_time + largest(state.p, M) * largest_scale, 1e-300)
            merit = max(max(relative, worst), max(of_dual / paid, off_budget))
        if not np.isfinite(merit):
            break
        better = merit < best if relative < near_end else iteration == max_iterations or best == np.inf
        if better:
            keep(program, state, shares, multipliers, prices)
            kept, kept_level = iteration, level
        if relative < near_end:
            stalled = 0 if better else stalled + 1
            best = merit if better else best
        solved = relative < tolerance and not (log and off_budget > 10.0 * tolerance)
        if solved or stalled > 4 or iteration == max_iterations:
            break
        factor(program, state)
        aim(program, state, 0.0, 0.0, bend_z, residual)
        primal, dual, with_X, with_S, with_both = follow(program, state, 1.0)
        after = gap + primal * with_X + dual * with_S + primal * dual * with_both
        mean = gap / products
        goal = mean * max(after / gap, 0.0) ** 3
        for j in range(M):
            bend_z[j] = state.dz[j] * state.dp[j]
        if not log:
            aim(program, state, goal, 1.0, bend_z, residual)
            primal, dual, with_X, with_S, with_both = follow(program, state, boundary)
            if curved:
                # with curvature, shares enter the dual equations: both sides must move together
                primal = dual = min(primal, dual)
        else:
            goal = max(goal, mean * min(slowest, max(fastest, 2.0 * off_budget)), least)
            aim(program, state, goal, primal * dual, bend_z, residual)
            primal, dual, with_X, with_S, with_both = follow(program, state, boundary_with_budgets)
            if not min(primal, dual) > shortest:
                aim(program, state, max(goal, mean), 0.0, bend_z, residual)
                primal, dual, with_X, with_S, with_both = follow(program, state, boundary_with_budgets)
        if not np.isfinite(primal + dual):
            break
        level += primal * float(state.rhs[M])
    return kept, kept_level
