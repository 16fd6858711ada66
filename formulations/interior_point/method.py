"""A primal-dual interior point method for programs whose jobs couple only through capacity.

The program, for K classes of `count` identical jobs on M accelerator types::

    maximise    t  +  sum_k n_k ( q_k . x_k - h_k/2 |x_k|^2 + B_k log v_k )
    subject to  a_k . x_k - v_k = f_k + w_k t     multiplier lambda_k    (only for jobs with a demand)
                sum_j x_kj + y_k = 1              multiplier m_k
                sum_k n_k s_k x_kj + z_j + g_j t = c_j    multiplier p_j (the price of type j)
                x, v, y, z >= 0

Newton's system splits: every job is a 2x2 block in (lambda_k, m_k), and only the M prices and t
are common, so an iteration costs O(K M^2) and one dense solve of size M + 1. Predictor-corrector steps after
Mehrotra (SIAM J. Optim. 2(4), 1992).

With budgets B the slack v_k is the throughput itself: its complementarity is v_k lambda_k = B_k where the other rows
strive for 0, and everything else is the same.

Near the optimum the blocks are singular to working precision. Their determinants and the diagonal of the common
system are therefore written as sums of positive terms (pairs of types, leave-one-out sums), never as differences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from formulations.interior_point.progress import NEARLY_SOLVED, Progress
from formulations.interior_point.type_pairs import pairs_of
from throughputs.numerics import dot, einsum, matmul
from throughputs.numerics.systems import Factors

__all__ = ["Engine", "InteriorPoint", "StructuredProgram", "solve_structured"]

Array = NDArray[np.float64]

_MOST_ITERATIONS = 250
_STEP_TO_BOUNDARY = 0.9995
_NEARNESS = 0.5
# with budgets: how near the boundary a step may end, the least and the most that may be left of the vanishing products
# (more while budgets are not met), the step below which the predictor is not trusted, and the least product relative
# to what is asked for
_STEP_WITH_BUDGETS = 0.99
_FASTEST, _SLOWEST = 0.005, 0.8
_SHORTEST = 0.1
_SMALLEST = 0.1


@dataclass(frozen=True, eq=False)
class StructuredProgram:
    """Data of the program above; arrays over types and classes are (M, K).

    `slopes` w (K,) makes it a threshold program whose level t is maximised; `floors` f (K,) alone keeps t out of it;
    with neither, no job has a demand. `start` (M, K) are feasible shares to begin near. `drift` g (M,) is what jobs
    outside the program take of each type per unit of the level (what they take at level 0 is not in `capacity`).
    `budgets` B (K,), positive, weigh the logarithms of the throughputs; slopes and floors are then None.
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
    drift: Array | None = None
    budgets: Array | None = None


@dataclass(frozen=True, eq=False)
class InteriorPoint:
    """Last iterate: shares (M, K), multipliers of demands or throughputs (K,), prices (M,) and the level t."""

    shares: Array
    demand_multipliers: Array
    prices: Array
    iterations: int
    level: float = 0.0


Engine = Callable[[StructuredProgram, float], InteriorPoint]
"""Solves a program to a relative gap."""


def solve_structured(program: StructuredProgram, tolerance: float = 1e-10) -> InteriorPoint:
    """Solve the program; the caller certifies the answer.

    Stops when the relative complementarity gap is below `tolerance`, when rounding stops all progress, or after
    250 iterations; the best iterate is returned in every case.
    """
    with np.errstate(all="ignore"):
        return _Iteration(program).run(tolerance)


# The ufunc itself: at tens of classes the method's wrapper costs as much as the sum.
_sum = np.add.reduce


def _total(values: Array, counts: Array) -> float:
    """Sum over the rows of `values` (rows, K), each class as often as it counts (K,)."""
    return float(einsum("ik,k->", values, counts))


class _Iteration:
    """State of one solve.

    Rows of `X` are M shares, then y, then (where jobs have demands) v; rows of `S` are their duals: M reduced costs,
    then m, then lambda. Newton steps work with e = rc / X, the complementarity targets over X.
    """

    def __init__(self, program: StructuredProgram) -> None:
        A, s, n, c = program.rates, program.scale_factors, program.counts, program.capacity
        self.log = program.budgets is not None
        if program.budgets is not None:
            # n jobs of budget B and gangs of s are n w jobs of budget B / w and gangs of s / w, for any w: with the
            # root of B, classes of different budgets are made half alike
            weight = np.sqrt(program.budgets)
            s, n = s / weight, n * weight
            self.B, self.weight = program.budgets / weight, weight
            self.total_budget = dot(n, self.B)
        M, K = A.shape
        self.program = program
        self.A, self.s, self.n, self.c, self.M, self.K = A, s, n, c, M, K
        self.ns = n * s
        self.h = program.curvature
        self.q = program.gains
        self.drift = np.zeros(M) if program.drift is None else program.drift
        self.pairs = pairs_of(M)
        first, second = self.pairs.first, self.pairs.second
        self.difference_squared = (A[first] - A[second]) ** 2
        self.product = A[first] * A[second]
        # cross[pair, l] = (a_j - a_l)(a_k - a_l); zero for l in the pair
        self.cross = (A[first][:, None, :] - A[None]) * (A[second][:, None, :] - A[None])
        self.fixed = program.slopes is None
        self.has_demand = not self.fixed or program.floors is not None or self.log
        self.slope = np.zeros(K) if program.slopes is None else program.slopes
        self.floors = np.zeros(K) if program.floors is None else program.floors
        self.size_of_capacity = np.abs(c) + np.abs(self.drift)
        # rows of X and S whose products vanish at the optimum
        self.vanishing = M + 1 + (self.has_demand and not self.log)
        self.size = float(n.sum() * self.vanishing + M)
        self._start()

    def _start(self) -> None:
        """A point inside, its shares feasible, its duals feasible too."""
        M, K, A, c = self.M, self.K, self.A, self.c
        rows = M + 1 + self.has_demand
        total = float(self.ns.sum())
        X, S = np.empty((rows, K)), np.empty((rows, K))
        # with drift, the level is near 1 and the others' share of capacity near what they take there
        room = c if self.program.drift is None else np.maximum(c - self.drift, 0.01 * self.size_of_capacity)
        X[:M] = (0.5 * np.minimum(1.0 / M, room / total))[:, None]
        if self.log:
            # every job spends its budget evenly, as far as its time allows
            X[:M] = 0.5 * np.minimum(1.0 / M, (c / self.total_budget)[:, None] * (self.B / self.s))
        if self.program.start is not None:
            X[:M] = _NEARNESS * self.program.start + (1.0 - _NEARNESS) * X[:M]
        self.z = c - matmul(X[:M], self.ns)
        X[M] = 1.0 - _sum(X[:M])
        self.t = 0.0
        worth = np.zeros_like(A) if self.q is None else self.q
        if self.log:
            X[M + 1] = _sum(A * X[:M])
            S[M + 1] = self.B / X[M + 1]
            worth = worth + A * S[M + 1]
        elif self.has_demand:
            u = _sum(A * X[:M])
            if not self.fixed:
                self.t = 0.5 * max(float(((u - self.floors) / self.slope).min()), 0.0)
            g = self.floors + self.slope * self.t
            X[M + 1] = np.maximum(u - g, 0.05 * (1e-3 + np.abs(g)))
            if self.program.drift is not None:
                self.z = np.maximum(self.z - self.drift * self.t, 0.05 * self.size_of_capacity)
            S[M + 1] = 1.0 if self.fixed else 1.0 / dot(self.n, self.slope)
            worth = worth + A * S[M + 1]
        weight = float(worth.max()) if self.q is not None else dot(self.n, worth.max(0)) / float(self.n.sum())
        weight = max(weight, 1e-300)
        self.p = 0.5 * weight * np.minimum(1.0, self.n.sum() / (M * room))
        if self.log:
            self.p = 2.0 * self.total_budget / c
        spent = worth - self.s * self.p[:, None]
        S[M] = np.maximum(spent.max(0), 0.0) * 1.05 + 0.1 * (self.B if self.log else weight)
        S[:M] = S[M] - spent
        if self.h is not None:
            S[:M] += self.h * X[:M]
        self.X, self.S = X, S

    def run(self, tolerance: float) -> InteriorPoint:
        progress = Progress(self._snapshot(0))
        if self.log:
            # products need not get smaller than is asked for: budgets are met by full steps only
            self.smallest = _SMALLEST * tolerance * self.total_budget / self.size
        for iteration in range(_MOST_ITERATIONS + 1):
            gap, size = self._gap()
            relative = gap / max(size, 1e-300)
            self._residuals()
            merit = max(relative, self._largest_residual()) if relative < NEARLY_SOLVED else relative
            if not np.isfinite(merit):
                break
            last = iteration == _MOST_ITERATIONS
            progress.see(relative, merit, partial(self._snapshot, iteration), last=last)
            solved = relative < tolerance and not (self.log and self._off_budget() > 10.0 * tolerance)
            if solved or progress.stopped or last or not self._step(gap):
                break
        return progress.best

    def _snapshot(self, iteration: int) -> InteriorPoint:
        M = self.M
        demand = self.S[M + 1].copy() if self.has_demand else np.zeros(self.K)
        if self.log:
            demand *= self.weight
        return InteriorPoint(self.X[:M].copy(), demand, self.p.copy(), iteration, self.t)

    def _gap(self) -> tuple[float, float]:
        """Complementarity gap, and a size of the objective to compare it with."""
        paired = self.vanishing
        self.products = self.X[:paired] * self.S[:paired]
        self.gap_of_jobs = _total(self.products, self.n)
        gap = self.gap_of_jobs + dot(self.z, self.p)
        if not self.fixed:
            return gap, abs(self.t)
        if self.log:
            return gap, self.total_budget
        if self.q is None:
            return gap, float(self.n.sum())
        return gap, abs(dot(_sum(self.q * self.X[: self.M]), self.n))

    def _residuals(self) -> None:
        """Residuals of the equations: dual (M, K), demands (K,), time (K,), capacity (M,), level."""
        M, X, S = self.M, self.X, self.S
        x = X[:M]
        rd = S[M] + self.s * self.p[:, None]
        rd -= S[:M]
        if self.h is not None:
            rd += self.h * x
        if self.q is not None:
            rd -= self.q
        if self.has_demand:
            rd -= self.A * S[M + 1]
            self.rp1 = self.floors + X[M + 1] - _sum(self.A * x)
            if not self.fixed:
                self.rp1 += self.slope * self.t
                self.rt = dot(self.n, S[M + 1] * self.slope) + dot(self.p, self.drift) - 1.0
        self.rd = rd
        self.rp2 = _sum(x) + X[M] - 1.0
        self.rp3 = matmul(x, self.ns) + self.z + self.drift * self.t - self.c

    def _largest_residual(self) -> float:
        """Relative; the level's is left out: it only scales the multipliers, which the certificate does not mind."""
        paid = float(self.S[self.M].max() + self.p.max() * self.s.max())
        worst = max(float(np.abs(self.rp2).max()), float(np.abs(self.rp3 / self.size_of_capacity).max()))
        worst = max(worst, float(np.abs(self.rd).max()) / max(paid, 1e-300))
        if self.log:
            return max(worst, float(np.abs(self.rp1 / self.X[self.M + 1]).max()), self._off_budget())
        return max(worst, float(np.abs(self.rp1).max())) if self.has_demand else worst

    def _off_budget(self) -> float:
        """Largest relative distance of a product v lambda from its budget."""
        return float(np.abs(self.X[self.M + 1] * self.S[self.M + 1] / self.B - 1.0).max())

    def _factor(self) -> None:
        """Blocks of the jobs and the common (M + 1) x (M + 1) system."""
        M, A, pairs = self.M, self.A, self.pairs
        self.over_X = 1.0 / self.X
        ratio = self.S * self.over_X
        d = 1.0 / (ratio[:M] if self.h is None else ratio[:M] + self.h)
        slack = 1.0 / ratio[M]
        both = d.take(pairs.first, axis=0) * d.take(pairs.second, axis=0)
        k22 = _sum(d) + slack
        self.ratio, self.d, self.slack, self.over_k22 = ratio, d, slack, 1.0 / k22
        self.zp = self.z / self.p
        if not self.has_demand:
            self._factor_prices(both, matmul(pairs.others, d) + slack, self.over_k22)
            return
        r = ratio[M + 1]
        self.over_r = 1.0 / r
        Ad = A * d
        A2 = A * Ad
        between = both * self.difference_squared
        self.k12 = _sum(Ad)
        over_det = 1.0 / (k22 + r * (slack * _sum(A2) + _sum(between)))
        self.i11 = r * k22 * over_det
        self.i12 = r * self.k12 * over_det
        # sums over the other types, and over the pairs of other types
        alone = matmul(pairs.others, d + r * slack * A2) + slack + r * matmul(pairs.without, between)
        both *= 1.0 + r * (slack * self.product + einsum("pjk,jk->pk", self.cross, d))
        self._factor_prices(both, alone, over_det)

    def _factor_prices(self, both: Array, alone: Array, over_det: Array) -> None:
        M, n, d, pairs = self.M, self.n, self.d, self.pairs
        weight = self.ns * self.s * over_det
        off = -matmul(both, weight)
        G = np.zeros((M + 1, M + 1))
        G[pairs.first, pairs.second] = off
        G[pairs.second, pairs.first] = off
        G[pairs.diagonal, pairs.diagonal] = matmul(d * alone, weight) + self.zp
        # what a change of (b1, b2) does to the use of capacity, and to the level's equation
        weighted = self.ns * d
        self.R2 = np.empty((M + 1, self.K))
        if self.has_demand:
            lean = self.A - self.k12 * self.over_k22
            self.R2[:M] = weighted * (self.over_k22 - self.i12 * lean)
            self.R2[M] = n * self.slope * self.i12
            self.R1 = np.empty((M + 1, self.K))
            self.R1[:M] = weighted * (self.i11 * lean)
            self.R1[M] = -(n * self.slope * self.i11)
        else:
            self.R2[:M], self.R2[M] = weighted * self.over_k22, 0.0
        if self.fixed:
            G[M, M] = 1.0
        else:
            column = matmul(self.R1, self.slope)
            column[:M] += self.drift
            G[:M, M], G[M, :M], G[M, M] = -column[:M], column[:M], -column[M]
        self.factors = Factors(G)

    def _direction(self, e: Array, ez: Array) -> tuple[Array, Array, Array, Array, float]:
        """Newton direction (dX, dS, dz, dp, dt) for complementarity targets e over X, and ez over z."""
        M = self.M
        dX, d_lambda, omega, dz, dp, dt = self._towards(e, ez)
        dS = np.empty_like(e)
        dS[:M] = e[:M] - self.ratio[:M] * dX[:M]
        dS[M] = -omega
        if self.has_demand:
            dS[M + 1] = d_lambda
        return dX, dS, dz, dp, dt

    def _towards(self, e: Array, ez: Array) -> tuple[Array, Array, Array, Array, Array, float]:
        """The same without dS, of which the rows for demand and time are given: (dX, d lambda, -dm, dz, dp, dt)."""
        M, A, d = self.M, self.A, self.d
        g0 = d * (e[:M] - self.rd)
        b2 = -self.rp2 - e[M] * self.slack - _sum(g0)
        rhs = matmul(self.R2, b2)
        rhs[:M] += self.rp3 + ez * self.zp + matmul(g0, self.ns)
        if self.has_demand:
            b1 = self.rp1 + e[M + 1] * self.over_r - _sum(A * g0)
            rhs += matmul(self.R1, b1)
        rhs[M] = 0.0 if self.fixed else rhs[M] - self.rt
        solution = self.factors.solve(rhs)
        dp, dt = solution[:M], float(solution[M])
        paid = self.s * dp[:, None]
        charge = d * paid
        b2 += _sum(charge)
        dX, d_lambda = np.empty_like(e), b2
        if self.has_demand:
            b1 += _sum(A * charge)
            if not self.fixed:
                b1 += self.slope * dt
            d_lambda = self.i11 * b1 - self.i12 * b2
            omega = (b2 - self.k12 * d_lambda) * self.over_k22
            mix = A * d_lambda
            mix += omega
            dX[M + 1] = (e[M + 1] - d_lambda) * self.over_r
        else:
            omega = b2 * self.over_k22
            mix = np.broadcast_to(omega, A.shape)
        dX[:M] = g0 + d * (mix - paid)
        dX[M] = self.slack * (e[M] + omega)
        return dX, d_lambda, omega, self.zp * (ez - dp), dp, dt

    def _step(self, gap: float) -> bool:
        """Predictor, corrector, and as far along as the boundary allows; False when no step can be found."""
        self._factor()
        if self.log:
            return self._step_with_budgets(gap)
        S, z, p = self.S, self.z, self.p
        dX, _, _, dz, dp, _ = self._towards(-S, -p)
        # where all products are to vanish, X dS + S dX = -X S: what one of them changes by is known from the other
        change = dX * self.over_X
        bend_z = dz * dp
        primal = min(1.0, -1.0 / min(float(change.min()), float((dz / z).min()), -1e-300))
        dual = min(1.0, -1.0 / min(-1.0 - float(change.max()), float((dp / p).min()), -1e-300))
        # the products (X + primal dX) (S + dual dS), summed by powers of the change
        of_change = self.products * change
        after = (1.0 - dual) * self.gap_of_jobs + (primal * (1.0 - dual) - dual) * _total(of_change, self.n)
        of_change *= change
        after -= primal * dual * _total(of_change, self.n)
        left = max((after + dot(z + primal * dz, p + dual * dp)) / gap, 0.0)
        target = gap / self.size * left * left * left
        # targets (target - dX dS) / X - S
        e = (change + 1.0) * change
        e -= 1.0
        e *= S
        e += target * self.over_X
        dX, dS, dz, dp, dt = self._direction(e, (target - bend_z) / z - p)
        primal, dual = self._lengths(dX, dS, dz, dp, _STEP_TO_BOUNDARY)
        if self.h is not None:
            # with curvature, shares enter the dual equations: both sides must move together
            primal = dual = min(primal, dual)
        return self._move(primal, dual, (dX, dS, dz, dp, dt))

    def _step_with_budgets(self, gap: float) -> bool:
        """The step where v lambda = B is wanted.

        The predictor's curvature (`bend`) is taken only as far as the predictor could go, and the other products
        shrink no faster than these near their budgets. Where even that leads straight into the boundary, the
        curvature says nothing: a step without it, back towards the centre.
        """
        X, S, z, p, M = self.X, self.S, self.z, self.p, self.M
        e = -S
        e[M + 1] += self.B * self.over_X[M + 1]
        dX, dS, dz, dp, _ = self._direction(e, -p)
        primal, dual = self._lengths(dX, dS, dz, dp, 1.0)
        products = (X + primal * dX)[: M + 1] * (S + dual * dS)[: M + 1]
        left = max((_total(products, self.n) + dot(z + primal * dz, p + dual * dp)) / gap, 0.0)
        bend, bend_z, mean = dX * dS, dz * dp, gap / self.size
        least = mean * min(_SLOWEST, max(_FASTEST, 2.0 * self._off_budget()))
        target = max(mean * left * left * left, least, self.smallest)
        for weight, goal in ((primal * dual, target), (0.0, max(target, mean))):
            e = (goal - weight * bend) * self.over_X - S
            e[M + 1] += (self.B - goal) * self.over_X[M + 1]
            direction = self._direction(e, (goal - weight * bend_z) / z - p)
            primal, dual = self._lengths(*direction[:4], _STEP_WITH_BUDGETS)
            if min(primal, dual) > _SHORTEST:
                break
        return self._move(primal, dual, direction)

    def _move(self, primal: float, dual: float, direction: tuple[Array, Array, Array, Array, float]) -> bool:
        if not np.isfinite(primal + dual):
            return False
        dX, dS, dz, dp, dt = direction
        self.X += primal * dX
        self.z += primal * dz
        self.t += primal * dt
        self.S += dual * dS
        self.p += dual * dp
        return True

    def _lengths(self, dX: Array, dS: Array, dz: Array, dp: Array, share: float) -> tuple[float, float]:
        """Largest primal and dual steps up to 1 that keep `share` of the way to the boundary."""
        primal = -min(float((dX * self.over_X).min()), float((dz / self.z).min()), -1e-300)
        dual = -min(float((dS / self.S).min()), float((dp / self.p).min()), -1e-300)
        return min(1.0, share / primal), min(1.0, share / dual)
