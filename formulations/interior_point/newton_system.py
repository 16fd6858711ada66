"""Newton's system of the interior point method: a 2x2 block for each job, and M prices and the level in common.

Near the optimum the blocks are singular to working precision. Their determinants and the diagonal of the common
system are therefore written as sums of positive terms (pairs of types, leave-one-out sums), never as differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np

from throughputs.arrays import Floats, Positions
from throughputs.numerics import einsum, matmul
from throughputs.numerics.systems import Factors


@dataclass(frozen=True, eq=False)
class Pairs:
    """The M (M - 1)/2 pairs of M types.

    Attributes
    ----------
    first, second : the members of each pair.
    diagonal : 0 .. M - 1, for indexing a diagonal.
    others : (M, M) ``others[j]`` sums over the types but j.
    without : (M, pairs) ``without[j]`` sums over the pairs without j.
    """

    first: Positions
    second: Positions
    diagonal: Positions
    others: Floats
    without: Floats


@cache
def pairs_of(M: int) -> Pairs:
    """The helpers for M types."""
    pairs = list(combinations(range(M), 2))
    without = np.array([[float(j not in pair) for pair in pairs] for j in range(M)]).reshape(M, len(pairs))
    return Pairs(
        np.array([j for j, _ in pairs], dtype=np.intp),
        np.array([k for _, k in pairs], dtype=np.intp),
        np.arange(M),
        1.0 - np.eye(M),
        without,
    )


# The ufunc itself: at tens of classes the method's wrapper costs as much as the sum.
_sum = np.add.reduce


@dataclass(eq=False, slots=True)
class Residuals:
    """What is left of the equations: `dual` (M, K), `demand` (K,), `time` (K,), `capacity` (M,), `level`."""

    dual: Floats
    demand: Floats
    time: Floats
    capacity: Floats
    level: float


@dataclass(eq=False, slots=True)
class Direction:
    """A step: of X (rows, K), of lambda (K,), of -m (K,), of z (M,), p (M,) and t."""

    X: Floats
    multipliers: Floats
    time: Floats
    z: Floats
    p: Floats
    t: float


class NewtonSystem:
    """The system in the notation of `method`, without the point, which `factor` is given.

    Parameters
    ----------
    rates, scale_factors, counts : a (M, K), s (K,) and n (K,).
    slope : w (K,), None where there is no level.
    drift : g (M,).
    curvature : h (K,), None for none.
    has_demand : whether there are rows of demands, and with them v and lambda.
    """

    def __init__(
        self,
        rates: Floats,
        scale_factors: Floats,
        counts: Floats,
        *,
        slope: Floats | None,
        drift: Floats,
        curvature: Floats | None,
        has_demand: bool,
    ) -> None:
        self.A, self.s, self.n, self.M = rates, scale_factors, counts, len(rates)
        self.ns = counts * scale_factors
        self.slope, self.drift, self.h, self.has_demand = slope, drift, curvature, has_demand
        self.pairs = pairs_of(self.M)
        if has_demand:
            first, second = rates[self.pairs.first], rates[self.pairs.second]
            self.difference_squared = (first - second) ** 2
            self.product = first * second
            # cross[pair, l] = (a_j - a_l)(a_k - a_l); zero for l in the pair
            self.cross = (first[:, None, :] - rates[None]) * (second[:, None, :] - rates[None])

    def factor(self, X: Floats, S: Floats, z: Floats, p: Floats) -> None:
        """Blocks of the jobs and the common (M + 1) x (M + 1) system at a point."""
        M, A, pairs = self.M, self.A, self.pairs
        self.over_X = 1.0 / X
        ratio = S * self.over_X
        d = 1.0 / (ratio[:M] if self.h is None else ratio[:M] + self.h)
        slack = 1.0 / ratio[M]
        both = d.take(pairs.first, axis=0)
        both *= d.take(pairs.second, axis=0)
        k22 = _sum(d)
        k22 += slack
        self.ratio, self.d, self.slack, self.over_k22 = ratio, d, slack, 1.0 / k22
        self.zp = z / p
        if not self.has_demand:
            self._factor_prices(both, matmul(pairs.others, d) + slack, self.over_k22)
            return
        r = ratio[M + 1]
        self.over_r = 1.0 / r
        Ad = A * d
        self.k12 = _sum(Ad)
        # r times the slack of time times a^2 d, and r times what the pairs differ by
        A2 = np.multiply(A, Ad, out=Ad)
        A2 *= r * slack
        between = both * self.difference_squared
        between *= r
        det = _sum(A2)
        det += _sum(between)
        det += k22
        over_det = np.divide(1.0, det, out=det)
        self.i12 = r * over_det
        self.i11 = self.i12 * k22
        self.i12 *= self.k12
        # sums over the other types, and over the pairs of other types
        A2 += d
        alone = matmul(pairs.others, A2)
        alone += slack
        alone += matmul(pairs.without, between)
        mixed = einsum("pjk,jk->pk", self.cross, d)
        mixed += slack * self.product
        mixed *= r
        mixed += 1.0
        both *= mixed
        self._factor_prices(both, alone, over_det)

    def _factor_prices(self, both: Floats, alone: Floats, over_det: Floats) -> None:
        M, n, d, pairs = self.M, self.n, self.d, self.pairs
        weight = self.ns * self.s * over_det
        off = -matmul(both, weight)
        G = np.zeros((M + 1, M + 1))
        G[pairs.first, pairs.second] = off
        G[pairs.second, pairs.first] = off
        alone *= d
        G[pairs.diagonal, pairs.diagonal] = matmul(alone, weight) + self.zp
        # what a change of (b1, b2) does to the use of capacity, and to the level's equation
        weighted = self.ns * d
        if not self.has_demand:
            self.R2 = weighted * self.over_k22
        else:
            lean = self.A - self.k12 * self.over_k22
            self.R2 = self.over_k22 - self.i12 * lean
            self.R2 *= weighted
            lean *= self.i11
            lean *= weighted
            self.R1 = lean
        if self.slope is None:
            G[M, M] = 1.0
        else:
            due = n * self.slope
            self.to_level = due * self.i12, due * self.i11
            G[:M, M] = -(matmul(self.R1, self.slope) + self.drift)
            G[M, :M] = -G[:M, M]
            G[M, M] = _sum(self.to_level[1] * self.slope)
        self.factors = Factors(G)

    def towards(self, left: Residuals, e: Floats, ez: Floats) -> Direction:
        """Newton's direction for complementarity targets `e` over X, and `ez` over z."""
        M, A, d = self.M, self.A, self.d
        g0 = e[:M] - left.dual
        g0 *= d
        b2 = e[M] * self.slack
        b2 += left.time
        b2 += _sum(g0)
        np.negative(b2, out=b2)
        rhs = np.zeros(M + 1)
        rhs[:M] = matmul(self.R2, b2)
        rhs[:M] += left.capacity + ez * self.zp + matmul(g0, self.ns)
        if self.has_demand:
            b1 = e[M + 1] * self.over_r
            b1 += left.demand
            b1 -= _sum(A * g0)
            rhs[:M] += matmul(self.R1, b1)
            if self.slope is not None:
                by_time, by_demand = self.to_level
                rhs[M] = _sum(by_time * b2) - _sum(by_demand * b1) - left.level
        solution = self.factors.solve(rhs)
        dp, dt = solution[:M], float(solution[M])
        paid = self.s * dp[:, None]
        charge = d * paid
        b2 += _sum(charge)
        dX = np.empty_like(e)
        mix = dX[:M]
        if self.has_demand:
            charge *= A
            b1 += _sum(charge)
            if self.slope is not None:
                b1 += self.slope * dt
            b1 *= self.i11
            b1 -= self.i12 * b2
            d_lambda = b1
            omega = b2 - self.k12 * d_lambda
            omega *= self.over_k22
            np.multiply(A, d_lambda, out=mix)
            mix += omega
            mix -= paid
            np.subtract(e[M + 1], d_lambda, out=dX[M + 1])
            dX[M + 1] *= self.over_r
        else:
            d_lambda = b2
            omega = b2 * self.over_k22
            np.subtract(omega, paid, out=mix)
        mix *= d
        mix += g0
        np.add(e[M], omega, out=dX[M])
        dX[M] *= self.slack
        return Direction(dX, d_lambda, omega, self.zp * (ez - dp), dp, dt)

    def of_duals(self, e: Floats, step: Direction) -> Floats:
        """(rows, K) the step of S that goes with one of X."""
        M = self.M
        dS = np.empty_like(e)
        np.multiply(self.ratio[:M], step.X[:M], out=dS[:M])
        np.subtract(e[:M], dS[:M], out=dS[:M])
        np.negative(step.time, out=dS[M])
        if self.has_demand:
            dS[M + 1] = step.multipliers
        return dS
