"""A primal-dual interior point method for times beside groups: prices of types, and of partners.

The program of `formulations.packed.program` with n_k jobs in class k, x over the options o of a class (alone on type j,
or on type j beside group b)::

    maximise    t + sum_kj n_k g_kj u_kj - sum_j d_j v_j      v_j: GPUs of type j in use
    subject to  u_k = a_k . x_k,   u_k - v_k = f_k + w_k t       multiplier lambda_k
                sum_o x_ko + y_k = 1                             multiplier m_k
                capacity of type j, slack z_j                    multiplier p_j, its price
                balance of groups a < b on type j                multiplier pi_abj, what a pays b for company

An option of class k costs its share of a GPU's price, and plus or minus what company costs. So classes couple only
through these prices: each is a 2 x 2 block in (lambda_k, m_k), and one dense system over all prices is left, whose size
does not depend on the number of jobs. Predictor-corrector steps after Mehrotra (SIAM J. Optim. 2(4), 1992). That
nobody is beside itself is left out here.

Near the optimum a class has at most two options of weight d = x / s without limit (slacks y and v count as options) and
all others vanish; eliminating its two rows by sums over d would lose the small ones to rounding. So each class takes
its two heaviest independent options as *pivots*, writes every other option as a combination of them, and keeps only
differences from the pivots.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from formulations.interior_point.progress import NEARLY_SOLVED, Progress
from formulations.packed.methods.partner_options import Options
from formulations.packed.program import Goal, PackedProgram
from throughputs.numerics import dot, matmul
from throughputs.numerics.systems import cholesky, solve_cholesky

__all__ = ["PartnerPoint", "solve_partner_prices"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_STEP_TO_BOUNDARY = 0.9995
_MOST_ITERATIONS = 80


@dataclass(frozen=True, eq=False)
class PartnerPoint:
    """Last iterate: times (C,) of the options, multipliers of demand and time (K,), prices (M,)."""

    times: Array
    demand_multipliers: Array
    time_multipliers: Array
    prices: Array
    iterations: int


def solve_partner_prices(program: PackedProgram, options: Options, goal: Goal, tolerance: float) -> PartnerPoint:
    """Solve for a goal whose figures are in units of each class's fastest rate; the caller certifies the answer."""
    with np.errstate(all="ignore"):
        return _Iteration(program, options, goal).run(tolerance)


class _Iteration:
    """State of one solve: X (C,) times and slacks, S (C,) their duals (m for y, lambda for v), z and p for capacity."""

    def __init__(self, program: PackedProgram, options: Options, goal: Goal) -> None:
        self.o = options
        self.n, self.A, self.K = program.counts, options.rate, program.n_classes
        # where GPUs are few for the jobs, times are small: they are counted in this unit
        self.unit = min(1.0, float(program.capacity.sum() / (matmul(program.counts, program.gangs))))
        self.c, self.life = program.capacity / self.unit, 1.0 / self.unit
        self.fixed = goal.slopes is None
        self.has_demand = goal.slopes is not None or goal.floors is not None
        K = self.K
        self.w = np.zeros(K) if goal.slopes is None else goal.slopes
        self.f = np.zeros(K) if goal.floors is None else goal.floors / self.unit
        gains = goal.gains_by_type(program)
        self.earned = np.where(options.real, self.A * gains[options.of, options.type], 0.0)
        self.worth = self.earned - options.gpus * goal.costs(program)[options.type]
        # without demands v is free, and has no dual
        self.live = np.ones(len(self.A), dtype=bool)
        self.live[options.of_v] = self.has_demand
        self.weight = np.where(self.live, options.n, 0.0)
        self.size = float(self.weight.sum()) + len(self.c)
        self._start(program, gains)

    def _start(self, program: PackedProgram, gains: Array) -> None:
        o, n, c, A = self.o, self.n, self.c, self.A
        jobs = program.total(np.ones(self.K))
        mine, theirs = jobs[program.group][o.of], jobs[np.maximum(o.partner, 0)]
        # both sides of a pair of groups get the same in total
        part = np.where(o.sign != 0, theirs / (mine + theirs), 1.0) / (np.bincount(o.of)[o.of] - 2)
        total = np.bincount(o.type, o.n_gpus * part, minlength=o.M)
        self.X = np.where(o.real, 0.5 * part * np.minimum(self.life, (c / total)[o.type]), 0.0)
        self.X[o.of_y] = self.life - o.sum(self.X)
        self.z = np.maximum(c - o.common(self.X)[: o.M], 0.05 * c)
        self.t, lam = 0.0, np.zeros(self.K)
        u = o.sum(np.where(o.real, A * self.X, 0.0))
        self.X[o.of_v] = 1.0
        if self.has_demand:
            if not self.fixed:
                rising = self.w > 0
                self.t = 0.5 * max(float(((u - self.f)[rising] / self.w[rising]).min()), 0.0)
            wanted = self.f + self.w * self.t
            self.X[o.of_v] = np.maximum(u - wanted, 0.05 * (1e-3 + np.abs(wanted)))
            lam[:] = (float(gains.mean()) if gains.any() else 1.0) if self.fixed else 1.0 / dot(n, self.w)
        worth = np.where(o.real, self.worth + A * lam[o.of], 0.0)
        typical = max(dot(n, np.maximum.reduceat(worth, o.starts)) / float(n.sum()), 1e-300)
        self.p = np.zeros(o.M + o.balances)
        self.p[: o.M] = 0.5 * typical * np.minimum(1.0, n.sum() / (o.M * c))
        spent = worth - o.paid(self.p)
        m = np.maximum(np.maximum.reduceat(spent, o.starts), 0.0) * 1.05 + 0.1 * typical
        self.S = m[o.of] - spent
        self.S[o.of_y], self.S[o.of_v] = m, lam

    def run(self, tolerance: float) -> PartnerPoint:
        progress = Progress(self._snapshot(0))
        for iteration in range(_MOST_ITERATIONS + 1):
            gap, size = self._gap()
            relative = gap / max(size, 1e-300)
            self._residuals()
            merit = max(relative, self._largest_residual()) if relative < NEARLY_SOLVED else relative
            if not np.isfinite(merit):
                break
            progress.see(relative, merit, partial(self._snapshot, iteration))
            if merit < tolerance or progress.stopped or iteration == _MOST_ITERATIONS or not self._step(gap):
                break
        return progress.best

    def _snapshot(self, iteration: int) -> PartnerPoint:
        o = self.o
        return PartnerPoint(self.unit * self.X, self.S[o.of_v], self.S[o.of_y], self.p[: o.M].copy(), iteration)

    def _gap(self) -> tuple[float, float]:
        """Complementarity gap, and a size of the objective to compare it with."""
        gap = float(matmul(self.weight, self.X * self.S) + matmul(self.z, self.p[: self.o.M]))
        return gap, abs(self.t) if not self.fixed else abs(dot(self.o.n, self.earned * self.X))

    def _residuals(self) -> None:
        """Residuals of the equations: dual (C,), time and demand (K,), common rows, level."""
        o, X, S = self.o, self.X, self.S
        m, lam = S[o.of_y], S[o.of_v]
        dual = m[o.of] + o.paid(self.p) - self.worth - self.A * lam[o.of] - S
        self.r_dual = np.where(o.real, dual, 0.0)
        self.r_time = o.sum(o.time * X) - self.life
        self.r_common = o.common(X)
        self.r_common[: o.M] += self.z - self.c
        self.r_demand = self.f + self.w * self.t - o.sum(self.A * X) if self.has_demand else np.zeros(self.K)
        self.r_level = 0.0 if self.fixed else dot(self.n, lam * self.w) - 1.0

    def _largest_residual(self) -> float:
        """Relative to what is paid and to the limits of the rows."""
        o = self.o
        paid = max(float(self.S[o.of_y].max() + self.p[: o.M].max()), 1e-300)
        worst = max(float(np.abs(self.r_time).max()) / self.life, float(np.abs(self.r_common[: o.M] / self.c).max()))
        worst = max(worst, float(np.abs(self.r_common[o.M :]).max(initial=0.0)))
        return max(worst, float(np.abs(self.r_dual).max()) / paid, float(np.abs(self.r_demand).max()))

    def _pivot(self) -> None:
        """Two pivots for each class, and every option as ``a * first + b * second`` in the rows of its class."""
        o, A = self.o, self.A
        self.d = np.where(self.live, self.X / self.S, 1e300)
        self.first = self._heaviest(np.where(o.time > 0, self.d, -1.0))
        apart = A - A[self.first][o.of] * o.time
        weight = self.d * apart**2
        weight[self.first] = -1.0
        self.second = self._heaviest(weight)
        self.det = apart[self.second]
        self.b = apart / self.det[o.of]
        self.a = o.time - o.time[self.second][o.of] * self.b
        self.light = self.d.copy()
        self.light[self.first] = self.light[self.second] = 0.0
        aD, bD = self.a * self.light, self.b * self.light
        S11, S12, S22 = o.sum(self.a * aD), o.sum(self.a * bD), o.sum(self.b * bD)
        # Cholesky factor of the 2 x 2 matrix of each class, the pivots' own weights included
        self.l11 = np.sqrt(self.d[self.first] + S11)
        self.l21 = S12 / self.l11
        self.l22 = np.sqrt(self.d[self.second] + np.maximum(S22 - self.l21**2, 0.0))
        self.aD, self.bD, self.S11, self.S12, self.S22 = aD, bD, S11, S12, S22

    def _heaviest(self, weight: Array) -> Index:
        """(K,) place of the largest weight of each class."""
        o = self.o
        top: Index = np.flatnonzero(weight == np.maximum.reduceat(weight, o.starts)[o.of])
        of = o.of[top]
        first: Index = top[np.append(True, of[1:] != of[:-1])]
        return first

    def _factor(self) -> None:
        """The system over all prices: what a change of prices does to the use of the common rows."""
        self._pivot()
        o, M, n = self.o, self.o.M, self.n
        self.zp = self.z / self.p[:M]
        left1, left2 = self.aD.copy(), self.bD.copy()
        left1[self.first], left1[self.second] = -0.5 * self.S11, -self.S12
        left2[self.second] = -0.5 * self.S22
        low1 = self.aD.copy()
        low1[self.first], low1[self.second] = -self.S11, -self.S12
        low2 = self.bD.copy()
        low2[self.first], low2[self.second] = -self.S12, -self.S22
        low1 /= self.l11[o.of]
        low2 = (low2 - self.l21[o.of] * low1) / self.l22[o.of]
        at1, at2 = np.zeros_like(left1), np.zeros_like(left2)
        at1[self.first], at2[self.second] = n, n
        root = np.sqrt(o.n)
        low1, low2, diagonal = low1 * root, low2 * root, self.light * o.n
        G = np.zeros((len(self.p), len(self.p)))
        for options, shape, coefficients, common in o.blocks:
            to_pivots = matmul(left1[options].reshape(shape).T, at1[options].reshape(shape))
            to_pivots += matmul(left2[options].reshape(shape).T, at2[options].reshape(shape))
            one, two = low1[options].reshape(shape), low2[options].reshape(shape)
            Q = -(to_pivots + to_pivots.T) - matmul(one.T, one) - matmul(two.T, two)
            Q[np.diag_indices(shape[1])] += diagonal[options].reshape(shape).sum(axis=0)
            G[np.ix_(common, common)] += matmul(matmul(coefficients, Q), coefficients.T)
        G[np.arange(M), np.arange(M)] += self.zp
        self.scale = 1.0 / np.sqrt(np.maximum(np.diagonal(G), 1e-300))
        G *= self.scale[:, None] * self.scale
        # rounding may leave the system a little short of definite
        for shift in (0.0, 1e-15, 1e-13, 1e-11, 1e-9, 1e-7):
            G[np.arange(len(G)), np.arange(len(G))] = 1.0 + shift
            factor = cholesky(G)
            if factor is not None:
                break
        # an indefinite one has no step, which is what a factor that is not a number leads to
        self.cholesky = np.full_like(G, np.nan) if factor is None else factor
        if not self.fixed:
            dX, _, lam = self._project(np.zeros_like(self.X), np.zeros(self.K), self.w)
            self.column = o.common(dX)
            self.column_solved = self._solve(self.column)
            self.level_pivot = float(matmul(n, self.w * lam) + matmul(self.column, self.column_solved))

    def _solve(self, rhs: Array) -> Array:
        return np.asarray(self.scale * solve_cholesky(self.cholesky, self.scale * rhs))

    def _project(self, gradient: Array, time: Array, demand: Array) -> tuple[Array, Array, Array]:
        """The step ``dX = d (gradient - time dm + rate dlambda)`` (C,) whose rows come to `time` and `demand` (K,).

        Returned with the dm and dlambda (K,) that bring it about.
        """
        o, first, second, det = self.o, self.first, self.second, self.det
        # multipliers at which both pivots are content; the others are moved by what is left to them
        g1, g2 = gradient[first], gradient[second]
        base = self.light * (gradient - self.a * g1[o.of] - self.b * g2[o.of])
        A1, t2, A2 = self.A[first], o.time[second], self.A[second]
        # what is missing in the rows, in terms of the pivots
        q2 = (demand - A1 * time) / det
        q1 = time - t2 * q2
        q1, q2 = q1 - o.sum(self.a * base), q2 - o.sum(self.b * base)
        h2 = (q2 - self.l21 * (q1 / self.l11)) / self.l22**2
        h1 = (q1 / self.l11 - self.l21 * h2) / self.l11
        dX = base + self.light * (self.a * h1[o.of] + self.b * h2[o.of])
        dX[first], dX[second] = self.d[first] * h1, self.d[second] * h2
        # at the pivots:  -dm + A1 dlambda = h1 - g1,   -t2 dm + A2 dlambda = h2 - g2
        e1, e2 = h1 - g1, h2 - g2
        lam = (e2 - t2 * e1) / (A2 - t2 * A1)
        return dX, -(e1 - A1 * lam), lam

    def _direction(self, e: Array, ez: Array) -> tuple[Array, Array, Array, Array, float]:
        """Newton direction (dX, dS, dz, dp, dt) for complementarity targets e over X, and ez over z."""
        o, M = self.o, self.o.M
        gradient = e - self.r_dual
        gradient[~self.live] = 0.0
        dX, _, lam = self._project(gradient, -self.r_time, self.r_demand)
        rhs = self.r_common + o.common(dX)
        rhs[:M] += ez * self.zp
        dp, dt = self._solve(rhs), 0.0
        if not self.fixed:
            dt = (-self.r_level - dot(self.n, self.w * lam) - dot(self.column, dp)) / self.level_pivot
            dp = dp + self.column_solved * dt
        dX, dm, lam = self._project(gradient - o.paid(dp), -self.r_time, self.r_demand + self.w * dt)
        dS = np.where(self.live, e - dX / self.d, 0.0)
        dS[o.of_y] = dm
        if self.has_demand:
            dS[o.of_v] = lam
        return dX, dS, self.zp * (ez - dp[:M]), dp, dt

    def _step(self, gap: float) -> bool:
        """Predictor, corrector, and as far along as the boundary allows; False when no step can be found."""
        X, S, z, M = self.X, self.S, self.z, self.o.M
        p = self.p[:M]
        self._factor()
        dX, dS, dz, dp, dt = self._direction(-S, -p)
        primal, dual = self._lengths(dX, dS, dz, dp[:M], 1.0)
        after = float(
            matmul(self.weight, (X + primal * dX) * (S + dual * dS)) + matmul(z + primal * dz, p + dual * dp[:M])
        )
        left = max(after / gap, 0.0)
        target = gap / self.size * left * left * left
        dX, dS, dz, dp, dt = self._direction((target - dX * dS) / X - S, (target - dz * dp[:M]) / z - p)
        primal, dual = self._lengths(dX, dS, dz, dp[:M], _STEP_TO_BOUNDARY)
        if not np.isfinite(primal + dual):
            return False
        X += np.where(self.live, primal * dX, 0.0)
        z += primal * dz
        self.t += primal * dt
        S += dual * dS
        self.p += dual * dp
        return True

    def _lengths(self, dX: Array, dS: Array, dz: Array, dp: Array, share: float) -> tuple[float, float]:
        """Largest primal and dual steps up to 1 that keep `share` of the way to the boundary."""
        live = self.live
        primal = min(float((dX / self.X)[live].min()), float((dz / self.z).min()), -1e-300)
        dual = min(float((dS / self.S)[live].min()), float((dp / self.p[: len(dp)]).min()), -1e-300)
        return min(1.0, -share / primal), min(1.0, -share / dual)
