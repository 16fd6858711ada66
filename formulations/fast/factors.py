"""The factors of a Newton step: blocks of the jobs, and the common system of the prices and the level.

Determinants and the diagonal are sums of positive terms, as in `formulations.backends.interior_point`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.fast.blocks import (
    BLOCK,
    COUNT,
    CURVATURE,
    I11,
    I12,
    K12,
    LOAD,
    OVER_K22,
    OVER_R,
    SCALE,
    SLACK,
    SLOPE,
    Program,
    State,
)
from formulations.fast.compiler import compiled

__all__ = ["factor", "substitute"]

Array = NDArray[np.float64]


@compiled
def factor(program: Program, state: State) -> None:
    """Blocks of the jobs and the common (M + 1) x (M + 1) system."""
    M, K, G = program.M, program.K, state.G
    for j in range(M + 1):
        for k in range(M + 1):
            G[j, k] = 0.0
    for j in range(M):
        state.zp[j] = state.z[j] / state.p[j]
        G[j, j] = state.zp[j]
    scratch = state.scratch
    r, det, weight, line, sum_d, sum_A2 = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4], scratch[5]
    for block in range(state.x.shape[0]):
        b = min(BLOCK, K - block * BLOCK)
        X, S, over_X, d, A = state.x[block], state.s[block], state.over_x[block], state.d[block], program.A[block]
        job, mine = program.job[block], state.job[block]
        scale, load, count, slope, curvature = job[SCALE], job[LOAD], job[COUNT], job[SLOPE], job[CURVATURE]
        slack, over_r, k12, over_k22 = mine[SLACK], mine[OVER_R], mine[K12], mine[OVER_K22]
        i11, i12 = mine[I11], mine[I12]
        for row in range(M + 2):
            for i in range(b):
                over_X[row, i] = 1.0 / X[row, i]
        for i in range(b):
            slack[i] = X[M, i] / S[M, i]
        for i in range(b):
            r[i] = S[M + 1, i] * over_X[M + 1, i]
        if program.has_demand:
            for i in range(b):
                over_r[i] = X[M + 1, i] / S[M + 1, i]
        for i in range(b):
            k12[i] = 0.0
        for i in range(b):
            sum_d[i] = slack[i]
        for i in range(b):
            sum_A2[i] = 0.0
        for j in range(M):
            for i in range(b):
                d[j, i] = 1.0 / (S[j, i] * over_X[j, i] + curvature[i])
            for i in range(b):
                sum_d[i] += d[j, i]
            for i in range(b):
                k12[i] += A[j, i] * d[j, i]
            for i in range(b):
                sum_A2[i] += A[j, i] * A[j, i] * d[j, i]
        for i in range(b):
            det[i] = slack[i] * sum_A2[i]
        for j in range(M):
            for k in range(j + 1, M):
                for i in range(b):
                    apart = A[j, i] - A[k, i]
                    det[i] += d[j, i] * d[k, i] * (apart * apart)
        for i in range(b):
            over_k22[i] = 1.0 / sum_d[i]
        for i in range(b):
            det[i] = 1.0 / (sum_d[i] + r[i] * det[i])
        for i in range(b):
            i11[i] = r[i] * sum_d[i] * det[i]
        for i in range(b):
            i12[i] = r[i] * k12[i] * det[i]
        for i in range(b):
            weight[i] = load[i] * scale[i] * det[i]
        for j in range(M):
            for k in range(j + 1, M):
                _between_types(program.has_demand, A, d, j, k, line, b)
                entry_jk = 0.0
                for i in range(b):
                    bend = 1.0 + r[i] * (slack[i] * (A[j, i] * A[k, i]) + line[i])
                    entry_jk += weight[i] * (d[j, i] * d[k, i]) * bend
                G[j, k] -= entry_jk
            _without_type(program.has_demand, A, d, slack, j, line, sum_d, b)
            entry_jj = 0.0
            for i in range(b):
                entry_jj += weight[i] * (d[j, i] * (sum_d[i] + r[i] * line[i]))
            G[j, j] += entry_jj
            if not program.fixed:
                column = 0.0
                for i in range(b):
                    lean = A[j, i] - k12[i] * over_k22[i]
                    column += load[i] * d[j, i] * (i11[i] * lean) * slope[i]
                G[M, j] += column
        for i in range(b):
            G[M, M] += count[i] * slope[i] * i11[i] * slope[i]
    for j in range(M):
        for k in range(j):
            G[j, k] = G[k, j]
        G[M, j] = 0.0 if program.fixed else G[M, j] + program.drift[j]
        G[j, M] = -G[M, j]
    if program.fixed:
        G[M, M] = 1.0
    _eliminate(G, state.pivots)


@compiled
def _between_types(has_demand: bool, A: Array, d: Array, j: int, k: int, line: Array, b: int) -> None:
    """``sum_l (a_j - a_l)(a_k - a_l) d_l`` into `line`."""
    for i in range(b):
        line[i] = 0.0
    if has_demand:
        for l in range(A.shape[0]):  # noqa: E741
            if l not in (j, k):
                for i in range(b):
                    line[i] += (A[j, i] - A[l, i]) * (A[k, i] - A[l, i]) * d[l, i]


@compiled
def _without_type(
    has_demand: bool, A: Array, d: Array, slack: Array, j: int, line: Array, alone: Array, b: int
) -> None:
    """A job's block without type j: ``sum_k d_k + slack`` into `alone`, the rest of its determinant into `line`."""
    M = A.shape[0]
    for i in range(b):
        alone[i] = slack[i]
    for i in range(b):
        line[i] = 0.0
    for k in range(M):
        if k != j:
            for i in range(b):
                alone[i] += d[k, i]
            if has_demand:
                for i in range(b):
                    line[i] += slack[i] * (A[k, i] * A[k, i] * d[k, i])
                for l in range(k + 1, M):  # noqa: E741
                    if l != j:
                        for i in range(b):
                            apart = A[k, i] - A[l, i]
                            line[i] += d[k, i] * d[l, i] * (apart * apart)


@compiled
def _eliminate(G: Array, pivots: NDArray[np.int64]) -> None:
    """LU factors of G in its place, rows exchanged."""
    size = len(G)
    for c in range(size):
        best = c
        for r in range(c + 1, size):
            if abs(G[r, c]) > abs(G[best, c]):
                best = r
        pivots[c] = best
        if best != c:
            for k in range(size):
                G[c, k], G[best, k] = G[best, k], G[c, k]
        for r in range(c + 1, size):
            G[r, c] /= G[c, c]
            for k in range(c + 1, size):
                G[r, k] -= G[r, c] * G[c, k]


@compiled
def substitute(G: Array, pivots: NDArray[np.int64], rhs: Array) -> None:
    """Solve with the factors, in the place of `rhs`."""
    size = len(G)
    for c in range(size):
        best = pivots[c]
        rhs[c], rhs[best] = rhs[best], rhs[c]
    for r in range(size):
        for c in range(r):
            rhs[r] -= G[r, c] * rhs[c]
    for back in range(size):
        r = size - 1 - back
        for c in range(r + 1, size):
            rhs[r] -= G[r, c] * rhs[c]
        rhs[r] /= G[r, r]
