"""Steps of the compiled interior point: a right-hand side, the direction that follows from it, and the move.

Every innermost loop writes one array or adds up one sum: with more the compiler would not use vectors.
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
    I11,
    I12,
    K12,
    LOAD,
    OVER_K22,
    OVER_R,
    RP1,
    RP2,
    SCALE,
    SLACK,
    SLOPE,
    Program,
    State,
    largest,
)
from formulations.fast.compiler import compiled
from formulations.fast.factors import substitute

__all__ = ["aim", "follow", "move"]

Array = NDArray[np.float64]


@compiled
def aim(program: Program, state: State, goal: float, bent: float, bend_z: Array, residual: float) -> None:
    """Right-hand sides for products of `goal` (or the budgets), less `bent` times the last direction's own products.

    Leaves e in dX, and in dS the d (e - rd) of shares, b2 and b1. Then solves for the prices and the level: (M + 1,)
    in `rhs`.
    """
    M, K, rhs, z, p = program.M, program.K, state.rhs, state.z, state.p
    for j in range(M):
        ez = (goal - bent * bend_z[j]) / z[j] - p[j]
        state.dz[j] = ez
        rhs[j] = state.rp3[j] + ez * state.zp[j]
    rhs[M] = 0.0
    scratch = state.scratch
    target, change, lead = scratch[0], scratch[1], scratch[2]
    rows = M + 2 if program.has_demand else M + 1
    for block in range(state.x.shape[0]):
        b = min(BLOCK, K - block * BLOCK)
        S, e, g, over_X, d = state.s[block], state.dx[block], state.ds[block], state.over_x[block], state.d[block]
        A, rd, mine = program.A[block], state.rd[block], state.job[block]
        load, count, slope = program.job[block, LOAD], program.job[block, COUNT], program.job[block, SLOPE]
        slack, over_r, k12, over_k22 = mine[SLACK], mine[OVER_R], mine[K12], mine[OVER_K22]
        i11, i12, rp1, rp2 = mine[I11], mine[I12], mine[RP1], mine[RP2]
        b2, b1 = g[M], g[M + 1]
        for r in range(rows):
            for i in range(b):
                target[i] = goal
            if program.log and r == M + 1:
                for i in range(b):
                    target[i] = program.job[block, BUDGET, i]
            if bent != 0.0:
                for i in range(b):
                    target[i] -= bent * (e[r, i] * g[r, i])
            for i in range(b):
                e[r, i] = target[i] * over_X[r, i] - S[r, i]
        for i in range(b):
            b2[i] = -rp2[i] - e[M, i] * slack[i]
        for i in range(b):
            b1[i] = rp1[i] + e[M + 1, i] * over_r[i] if program.has_demand else 0.0
        for j in range(M):
            for i in range(b):
                g[j, i] = d[j, i] * (e[j, i] - rd[j, i])
            for i in range(b):
                b2[i] -= g[j, i]
        if program.has_demand:
            for j in range(M):
                for i in range(b):
                    b1[i] -= A[j, i] * g[j, i]
        for i in range(b):
            change[i] = i11[i] * b1[i] - i12[i] * b2[i]
        for i in range(b):
            lead[i] = over_k22[i] * b2[i]
        for j in range(M):
            used = 0.0
            for i in range(b):
                lean = A[j, i] - k12[i] * over_k22[i]
                used += load[i] * (g[j, i] + d[j, i] * (lead[i] + lean * change[i]))
            rhs[j] += used
        for i in range(b):
            rhs[M] -= count[i] * slope[i] * change[i]
    rhs[M] = 0.0 if program.fixed else rhs[M] - residual
    substitute(state.G, state.pivots, rhs)


@compiled
def follow(program: Program, state: State, share: float) -> tuple[float, float, float, float, float]:
    """The direction, from where `aim` left off.

    Returns the largest primal and dual steps up to 1 that keep `share` of the way to the boundary (NaN where the
    direction is not finite), and by how much the sum of vanishing products changes with the primal step, with the dual
    step and with their product.
    """
    M, K, p, z = program.M, program.K, state.p, state.z
    dp, dz, dt = state.dp, state.dz, state.rhs[M]
    rows = M + 2 if program.has_demand else M + 1
    paired = M + 1 if program.log else rows
    scratch = state.scratch
    low_X, low_S, change, omega, line = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    for i in range(BLOCK):
        low_X[i] = -1e-300
        low_S[i] = -1e-300
    with_X, with_S, with_both, check = 0.0, 0.0, 0.0, dt
    for j in range(M):
        dp[j] = state.rhs[j]
        dz[j] = state.zp[j] * (dz[j] - dp[j])
        low_X[0] = min(low_X[0], dz[j] / z[j])
        low_S[0] = min(low_S[0], dp[j] / p[j])
        with_X += dz[j] * p[j]
        with_S += dp[j] * z[j]
        with_both += dz[j] * dp[j]
    for block in range(state.x.shape[0]):
        b = min(BLOCK, K - block * BLOCK)
        X, S, dX, dS, over_X = state.x[block], state.s[block], state.dx[block], state.ds[block], state.over_x[block]
        d, A, mine = state.d[block], program.A[block], state.job[block]
        scale, count, slope = program.job[block, SCALE], program.job[block, COUNT], program.job[block, SLOPE]
        slack, over_r, k12, over_k22 = mine[SLACK], mine[OVER_R], mine[K12], mine[OVER_K22]
        i11, i12, b2, b1 = mine[I11], mine[I12], dS[M], dS[M + 1]
        for j in range(M):
            for i in range(b):
                line[i] = d[j, i] * (scale[i] * dp[j])
            for i in range(b):
                b2[i] += line[i]
            if program.has_demand:
                for i in range(b):
                    b1[i] += A[j, i] * line[i]
        for i in range(b):
            b1[i] += slope[i] * dt
        for i in range(b):
            change[i] = i11[i] * b1[i] - i12[i] * b2[i]
        for i in range(b):
            omega[i] = (b2[i] - k12[i] * change[i]) * over_k22[i]
        for j in range(M):
            for i in range(b):
                line[i] = dS[j, i] + d[j, i] * (A[j, i] * change[i] + omega[i] - scale[i] * dp[j])
            for i in range(b):
                dS[j, i] = dX[j, i] - S[j, i] * over_X[j, i] * line[i]
            for i in range(b):
                dX[j, i] = line[i]
        for i in range(b):
            dS[M, i] = -omega[i]
        for i in range(b):
            dX[M, i] = slack[i] * (dX[M, i] + omega[i])
        if program.has_demand:
            for i in range(b):
                dS[M + 1, i] = change[i]
            for i in range(b):
                dX[M + 1, i] = (dX[M + 1, i] - change[i]) * over_r[i]
        for r in range(rows):
            for i in range(b):
                low = dX[r, i] * over_X[r, i]
                low_X[i] = low if low < low_X[i] else low_X[i]
            for i in range(b):
                low = dS[r, i] / S[r, i]
                low_S[i] = low if low < low_S[i] else low_S[i]
            for i in range(b):
                check += dX[r, i] + dS[r, i]
        for r in range(paired):
            for i in range(b):
                with_X += count[i] * (dX[r, i] * S[r, i])
            for i in range(b):
                with_S += count[i] * (dS[r, i] * X[r, i])
            for i in range(b):
                with_both += count[i] * (dX[r, i] * dS[r, i])
    primal, dual = -1e-300, -1e-300
    for i in range(BLOCK):
        primal, dual = min(primal, low_X[i]), min(dual, low_S[i])
    if not np.isfinite(check):
        return np.nan, np.nan, with_X, with_S, with_both
    return min(1.0, -share / primal), min(1.0, -share / dual), with_X, with_S, with_both


@compiled
def move(
    program: Program, state: State, level: float, primal: float, dual: float
) -> tuple[float, float, float, float, float, float]:
    """Take the step, then look around: residuals, and the sums and maxima that the rules need.

    Returns the gap, the worth of the shares, the level's residual, the largest multiplier of time, the largest residual
    of time, demands and capacity, and the largest of the duals. The largest distance from a budget is left in
    ``scratch[4, 0]``.
    """
    M, K = program.M, program.K
    z, p, rp3 = state.z, state.p, state.rp3
    for j in range(M):
        z[j] += primal * state.dz[j]
        p[j] += dual * state.dp[j]
        rp3[j] = z[j] + program.drift[j] * level - program.c[j]
    rows = M + 2 if program.has_demand else M + 1
    paired = M + 1 if program.log else rows
    gap, worth, slopes = 0.0, 0.0, 0.0
    scratch = state.scratch
    for row in range(5):
        for i in range(BLOCK):
            scratch[row, i] = 0.0
    of_time, of_row, of_demand, of_dual, off_budget = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    line = scratch[5]
    for block in range(state.x.shape[0]):
        b = min(BLOCK, K - block * BLOCK)
        X, S, dX, dS = state.x[block], state.s[block], state.dx[block], state.ds[block]
        A, q, rd = program.A[block], program.q[block], state.rd[block]
        scale, count, load = program.job[block, SCALE], program.job[block, COUNT], program.job[block, LOAD]
        slope, floor = program.job[block, SLOPE], program.job[block, FLOOR]
        budget, curvature = program.job[block, BUDGET], program.job[block, CURVATURE]
        rp1, rp2 = state.job[block, RP1], state.job[block, RP2]
        x_idle, s_idle, x_slack, s_slack = X[M], S[M], X[M + 1], S[M + 1]
        for r in range(rows):
            for i in range(b):
                X[r, i] += primal * dX[r, i]
            for i in range(b):
                S[r, i] += dual * dS[r, i]
        for r in range(paired):
            for i in range(b):
                gap += count[i] * (X[r, i] * S[r, i])
        for i in range(b):
            rp2[i] = 0.0
        for i in range(b):
            rp1[i] = 0.0
        for j in range(M):
            price, used = p[j], 0.0
            for i in range(b):
                used += load[i] * X[j, i]
            rp3[j] += used
            for i in range(b):
                worth += count[i] * (q[j, i] * X[j, i])
            for i in range(b):
                rp2[i] += X[j, i]
            for i in range(b):
                rp1[i] -= A[j, i] * X[j, i]
            for i in range(b):
                rd[j, i] = s_idle[i] + scale[i] * price - S[j, i]
            for i in range(b):
                rd[j, i] += curvature[i] * X[j, i] - q[j, i] - A[j, i] * s_slack[i]
            for i in range(b):
                off = abs(rd[j, i])
                of_dual[i] = off if off > of_dual[i] else of_dual[i]
        for i in range(b):
            rp2[i] += x_idle[i] - 1.0
        for i in range(b):
            of_time[i] = s_idle[i] if s_idle[i] > of_time[i] else of_time[i]
        for i in range(b):
            off = abs(rp2[i])
            of_row[i] = off if off > of_row[i] else of_row[i]
        if program.has_demand:
            for i in range(b):
                rp1[i] += floor[i] + x_slack[i] + slope[i] * level
            for i in range(b):
                slopes += count[i] * (s_slack[i] * slope[i])
            for i in range(b):
                line[i] = 1.0
            if program.log:
                for i in range(b):
                    line[i] = x_slack[i]
                for i in range(b):
                    off = abs(x_slack[i] * s_slack[i] / budget[i] - 1.0)
                    off_budget[i] = off if off > off_budget[i] else off_budget[i]
            for i in range(b):
                off = abs(rp1[i] / line[i])
                of_demand[i] = off if off > of_demand[i] else of_demand[i]
    residual = slopes - 1.0
    worst = max(largest(of_row, BLOCK), largest(of_demand, BLOCK))
    for j in range(M):
        gap += z[j] * p[j]
        residual += p[j] * program.drift[j]
        worst = max(worst, abs(rp3[j] / program.size_of_capacity[j]))
    off_budget[0] = largest(off_budget, BLOCK)
    return gap, worth, residual, largest(of_time, BLOCK), worst, largest(of_dual, BLOCK)
