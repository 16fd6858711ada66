"""A primal-dual interior point method for programs whose jobs couple only through capacity.

The program, for K classes of `count` identical jobs on M accelerator types::

    maximise    t  +  sum_k n_k ( q_k . x_k - h_k/2 |x_k|^2 )
    subject to  a_k . x_k - v_k = f_k + w_k t     multiplier lambda_k    (only for jobs with a demand)
                sum_j x_kj + y_k = 1              multiplier m_k
                sum_k n_k s_k x_kj + z_j = c_j    multiplier p_j         (the price of type j)
                x, v, y, z >= 0

Newton's system splits: every job is a 2x2 block in (lambda_k, m_k), and only the M prices and t
are common, so an iteration costs O(K M^2) and one dense solve of size M + 1. Predictor-corrector steps after
Mehrotra (SIAM J. Optim. 2(4), 1992).

Near the optimum the blocks are singular to working precision. Their determinants and the diagonal of the common
system are therefore written as sums of positive terms (pairs of types, leave-one-out sums), never as differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

__all__ = ["InteriorPoint", "StructuredProgram", "solve_structured"]

Array = NDArray[np.float64]

_STEP_TO_BOUNDARY = 0.9995
_NEARLY_SOLVED = 1e-5
_NEARNESS = 0.5


@dataclass(frozen=True, eq=False)
class StructuredProgram:
    """Data of the program above; arrays over types and classes are (M, K).

    `slopes` w (K,) makes it a threshold program whose level t is maximised; `floors` f (K,) alone keeps t out of it;
    with neither, no job has a demand. `start` (M, K) are feasible shares to begin near.
    """

    rates: Array
    scale_factors: Array
    counts: Array
    capacity: Array
    slopes: Array | None = None
    floors: Array | None = None
    gains: Array | None = None
    curvature: Array | None = None
    start: Array | None = None


@dataclass(frozen=True, eq=False)
class InteriorPoint:
    """Last iterate: shares (M, K), t, multipliers of demands (K,), of time (K,) and prices (M,)."""

    shares: Array
    level: float
    demand_multipliers: Array
    time_multipliers: Array
    prices: Array
    gap: float
    iterations: int


class _Pairs:
    """Constant index helpers for the M(M-1)/2 pairs of types."""

    def __init__(self, M: int) -> None:
        pairs = list(combinations(range(M), 2))
        self.first = np.array([j for j, _ in pairs], dtype=np.intp)
        self.second = np.array([k for _, k in pairs], dtype=np.intp)
        self.others = 1.0 - np.eye(M)
        # without[j, pair] = 1 when type j is not in the pair
        self.without = np.array([[float(j not in pair) for pair in pairs] for j in range(M)]).reshape(M, len(pairs))


def solve_structured(
    program: StructuredProgram, *, tolerance: float = 1e-10, max_iterations: int = 80
) -> InteriorPoint:
    """Solve the program; the caller certifies the answer.

    Stops when the relative complementarity gap is below `tolerance`, when rounding stops all progress, or after
    `max_iterations`; the best iterate is returned in every case.
    """
    with np.errstate(all="ignore"):
        return _Iteration(program).run(tolerance, max_iterations)


class _Iteration:
    """State of one solve. Rows of `X` and `S`: M shares | v | y, and their duals: M reduced costs | lambda | m."""

    def __init__(self, program: StructuredProgram) -> None:
        A, s, n, c = program.rates, program.scale_factors, program.counts, program.capacity
        M, K = A.shape
        self.program = program
        self.A, self.s, self.n, self.c, self.M, self.K = A, s, n, c, M, K
        self.ns = n * s
        self.h = np.zeros(K) if program.curvature is None else program.curvature
        self.q = program.gains
        self.pairs = _Pairs(M)
        first, second = self.pairs.first, self.pairs.second
        self.difference_squared = (A[first] - A[second]) ** 2
        self.product = A[first] * A[second]
        # cross[pair, l] = (a_j - a_l)(a_k - a_l); zero for l in the pair
        self.cross = (A[first][:, None, :] - A[None]) * (A[second][:, None, :] - A[None])
        self.fixed = program.slopes is None
        self.has_demand = program.slopes is not None or program.floors is not None
        self.slope = np.zeros(K) if program.slopes is None else program.slopes
        self.floors = np.zeros(K) if program.floors is None else program.floors
        self.size = float(n.sum() * (M + 1 + self.has_demand) + M)
        self._start()

    def _start(self) -> None:
        M, K, A, c = self.M, self.K, self.A, self.c
        total = float(self.ns.sum())
        share = 0.5 * np.minimum(1.0 / M, c / total)
        X, S = np.empty((M + 2, K)), np.empty((M + 2, K))
        X[:M] = share[:, None]
        if self.program.start is not None:
            X[:M] = _NEARNESS * self.program.start + (1.0 - _NEARNESS) * X[:M]
        self.z = c - X[:M] @ self.ns
        u = (A * X[:M]).sum(0)
        X[M + 1] = 1.0 - X[:M].sum(0)
        self.t = 0.0
        weight = 1.0
        if not self.has_demand:
            X[M], S[M] = 1.0, 0.0
            worth = self.q if self.q is not None else np.zeros_like(A)
            weight = float(np.max(worth)) if K else 1.0
        else:
            self.t = 0.0 if self.fixed else 0.5 * max(float(((u - self.floors) / self.slope).min()), 0.0)
            g = self.floors + self.slope * self.t
            X[M] = np.maximum(u - g, 0.05 * (1e-3 + np.abs(g)))
            S[M] = 1.0 if self.fixed else 1.0 / float(self.n @ self.slope)
            worth = A * S[M] + (self.q if self.q is not None else 0.0)
            weight = float(np.max(worth)) if self.q is not None else float((self.n @ worth.max(0)) / self.n.sum())
        weight = max(weight, 1e-300)
        self.p = 0.5 * weight * np.minimum(1.0, self.n.sum() / (M * c))
        spent = worth - self.s * self.p[:, None]
        S[M + 1] = np.maximum(spent.max(0), 0.0) * 1.05 + 0.1 * weight
        S[:M] = S[M + 1] - spent + self.h * X[:M]
        self.X, self.S = X, S

    def run(self, tolerance: float, max_iterations: int) -> InteriorPoint:
        best, best_merit, stalled = self._snapshot(0, np.inf), np.inf, 0
        for iteration in range(max_iterations + 1):
            gap, size = self._gap()
            relative = gap / max(size, 1e-300)
            merit = max(relative, self._residuals())
            if not np.isfinite(merit):
                break
            if merit < best_merit:
                best, best_merit, stalled = self._snapshot(iteration, relative), merit, 0
            elif best_merit < _NEARLY_SOLVED:
                stalled += 1
            if relative < tolerance or stalled > 4 or iteration == max_iterations:
                break
            if not self._step(gap / self.size, gap):
                break
        return best

    def _snapshot(self, iteration: int, gap: float) -> InteriorPoint:
        M = self.M
        return InteriorPoint(
            self.X[:M].copy(),
            self.t,
            self.S[M].copy(),
            self.S[M + 1].copy(),
            self.p.copy(),
            float(gap),
            iteration,
        )

    def _gap(self) -> tuple[float, float]:
        """Complementarity gap, and a size of the objective to compare it with."""
        gap = float((self.X * self.S).sum(0) @ self.n + self.z @ self.p)
        if not self.fixed:
            return gap, abs(self.t)
        if self.q is None:
            return gap, float(self.n.sum())
        return gap, abs(float((self.q * self.X[: self.M]).sum(0) @ self.n))

    def _residuals(self) -> float:
        """Residuals of the four sets of equations, kept for the step; returns the largest, relative."""
        M, A, X, S = self.M, self.A, self.X, self.S
        x = X[:M]
        reduced = S[M + 1] + self.s * self.p[:, None] - S[:M] + self.h * x
        if self.has_demand:
            reduced -= A * S[M]
        if self.q is not None:
            reduced -= self.q
        self.rd = reduced
        self.rp2 = x.sum(0) + X[M + 1] - 1.0
        self.rp3 = x @ self.ns + self.z - self.c
        worst = max(float(np.abs(self.rp2).max()), float(np.abs(self.rp3 / self.c).max()))
        paid = float(S[M + 1].max() + self.p.max() * self.s.max())
        worst = max(worst, float(np.abs(reduced).max()) / max(paid, 1e-300))
        if not self.has_demand:
            self.rp1 = np.zeros(self.K)
            self.rt = 0.0
        else:
            self.rp1 = self.floors + self.slope * self.t + X[M] - (A * x).sum(0)
            self.rt = 0.0 if self.fixed else float(self.n @ (S[M] * self.slope)) - 1.0
            # a residual in t only scales the multipliers, which the certificate does not mind
            worst = max(worst, float(np.abs(self.rp1).max()))
        return worst

    def _factor(self) -> None:
        """Blocks of the jobs and the common (M + 1) x (M + 1) system."""
        M, A, n, pairs = self.M, self.A, self.n, self.pairs
        X, S = self.X, self.S
        d = X[:M] / (S[:M] + self.h * X[:M])
        Ad = A * d
        slack = X[M + 1] / S[M + 1]
        D, k12 = d.sum(0), Ad.sum(0)
        A2 = A * Ad
        r = S[M] / X[M] if self.has_demand else np.zeros(self.K)
        between = d[pairs.first] * d[pairs.second] * self.difference_squared
        k22 = D + slack
        scaled = r * (slack * A2.sum(0) + between.sum(0))
        det = k22 + scaled
        self.d, self.Ad, self.slack, self.r, self.k12, self.k22, self.det = d, Ad, slack, r, k12, k22, det
        weight = self.ns * self.s / det
        W = (self.cross * d).sum(1)
        off = -((d[pairs.first] * d[pairs.second] * (1.0 + r * (slack * self.product + W))) @ weight)
        alone = pairs.others @ d + slack + r * (slack * (pairs.others @ A2) + pairs.without @ between)
        G = np.zeros((M + 1, M + 1))
        G[pairs.first, pairs.second] = off
        G[pairs.second, pairs.first] = off
        G[np.arange(M), np.arange(M)] = (d * alone) @ weight + self.z / self.p
        if self.fixed:
            G[M, M] = 1.0
        else:
            # [a_j 1] K^-1 e_1 = r (a_j k22 - k12) / det
            lean = A * k22 - k12
            column = (d * lean) @ (self.ns * self.slope * r / det)
            G[:M, M], G[M, :M] = -column, column
            G[M, M] = float(n @ (self.slope**2 * r * k22 / det))
        self.G = G

    def _block_solve(self, b1: Array, b2: Array) -> tuple[Array, Array]:
        """Solve every job's 2x2 block: (d lambda, -d m)."""
        d_lambda = self.r * (b1 * self.k22 - self.k12 * b2) / self.det
        return d_lambda, (b2 - self.k12 * d_lambda) / self.k22

    def _direction(self, rc: Array, rcz: Array) -> tuple[Array, Array, Array, Array, float]:
        """Newton direction for complementarity targets `rc` (M + 2, K) and `rcz` (M,)."""
        M, A, X, S, d = self.M, self.A, self.X, self.S, self.d
        g0 = d * (rc[:M] / X[:M] - self.rd)
        b1 = self.rp1 - (A * g0).sum(0)
        if self.has_demand:
            b1 = b1 + rc[M] / S[M]
        b2 = -self.rp2 - rc[M + 1] / S[M + 1] - g0.sum(0)
        w1, w2 = self._block_solve(b1, b2)
        rhs = np.zeros(M + 1)
        rhs[:M] = self.rp3 + rcz / self.p + (g0 + d * (A * w1 + w2)) @ self.ns
        if not self.fixed:
            rhs[M] = -self.rt - float(self.n @ (self.slope * w1))
        solution = np.linalg.solve(self.G, rhs)
        dp, dt = solution[:M], float(solution[M])
        paid = self.s * dp[:, None]
        charge = d * paid
        b1 = b1 + (A * charge).sum(0)
        if self.has_demand:
            b1 = b1 + self.slope * dt
        d_lambda, omega = self._block_solve(b1, b2 + charge.sum(0))
        dX, dS = np.empty_like(X), np.empty_like(S)
        dX[:M] = g0 + d * (A * d_lambda + omega - paid)
        dS[:M] = (rc[:M] - S[:M] * dX[:M]) / X[:M]
        if self.has_demand:
            dX[M] = (rc[M] - X[M] * d_lambda) / S[M]
            dS[M] = d_lambda
        else:
            dX[M] = dS[M] = 0.0
        dX[M + 1] = (rc[M + 1] + X[M + 1] * omega) / S[M + 1]
        dS[M + 1] = -omega
        return dX, dS, (rcz - self.z * dp) / self.p, dp, dt

    def _step(self, mu: float, gap: float) -> bool:
        X, S, z, p = self.X, self.S, self.z, self.p
        self._factor()
        try:
            dX, dS, dz, dp, dt = self._direction(-X * S, -z * p)
            primal, dual = self._lengths(dX, dS, dz, dp, 1.0)
            after = float(((X + primal * dX) * (S + dual * dS)).sum(0) @ self.n + (z + primal * dz) @ (p + dual * dp))
            target = mu * max(after / gap, 0.0) ** 3
            dX, dS, dz, dp, dt = self._direction(target - X * S - dX * dS, target - z * p - dz * dp)
        except np.linalg.LinAlgError:
            return False
        primal, dual = self._lengths(dX, dS, dz, dp, _STEP_TO_BOUNDARY)
        if self.program.curvature is not None:
            # with curvature, shares enter the dual equations: both sides must move together
            primal = dual = min(primal, dual)
        if not np.isfinite(primal + dual):
            return False
        X += primal * dX
        z += primal * dz
        self.t += primal * dt
        S += dual * dS
        p += dual * dp
        return True

    def _lengths(self, dX: Array, dS: Array, dz: Array, dp: Array, share: float) -> tuple[float, float]:
        primal = -min(float((dX / self.X).min()), float((dz / self.z).min()), -1e-300)
        steps = dS / self.S if self.has_demand else np.delete(dS, self.M, 0) / np.delete(self.S, self.M, 0)
        dual = -min(float(steps.min()), float((dp / self.p).min()), -1e-300)
        primal, dual = min(1.0, share / primal), min(1.0, share / dual)
        return primal, dual
