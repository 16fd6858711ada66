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
    """What is left of the equations: `dual` (M, K), `rows` of the jobs (R, K), `capacity` (M,), `level`."""

    dual: Floats
    rows: Floats
    capacity: Floats
    level: float


@dataclass(eq=False, slots=True)
class Direction:
    """A step: of all `values`, of the multipliers of the jobs' rows (R, K), of p (M,) and of t."""

    values: Floats
    multipliers: Floats
    p: Floats
    t: float


class NewtonSystem:
    """The system in the notation of `method`, without the point, which `factor` is given.

    A job has R rows: one of time, and one of demand where there are demands. Values and duals are flat: (M + R, K) by
    class, and M of the types.

    Parameters
    ----------
    rates, scale_factors, counts : a (M, K), s (K,) and n (K,).
    slope : w (K,), None where there is no level.
    drift : g (M,).
    curvature : h (K,), None for none.
    has_demand : whether there are rows of demands, and with them v and lambda.

    Attributes
    ----------
    rows : (R, M, K) coefficients of the shares in the rows of their jobs, 1 and -a.
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
        self.A, self.s, self.M = rates, scale_factors, len(rates)
        self.ns = counts * scale_factors
        self.weight_of_price = self.ns * scale_factors
        self.slope, self.drift, self.h, self.has_demand = slope, drift, curvature, has_demand
        self.pairs = pairs_of(self.M)
        ones = np.ones_like(rates)
        self.rows = np.stack([ones, -rates]) if has_demand else ones[None]
        if has_demand:
            first, second = rates[self.pairs.first], rates[self.pairs.second]
            self.difference_squared = (first - second) ** 2
            self.product = first * second
            # cross[pair, l] = (a_j - a_l)(a_k - a_l); zero for l in the pair
            self.cross = (first[:, None, :] - rates[None]) * (second[:, None, :] - rates[None])
        if slope is not None:
            self.due = counts * slope

    def by_class(self, flat: Floats) -> Floats:
        """(M + R, K) those of values or duals that are of classes."""
        return flat[: -self.M].reshape(-1, self.A.shape[1])

    def factor(self, values: Floats, duals: Floats) -> None:
        """Blocks of the jobs and the common system at a point."""
        M, A, pairs = self.M, self.A, self.pairs
        self.over = 1.0 / values
        self.ratio = duals * self.over
        by_type = values / duals
        ratio, inverse, self.zp = self.by_class(self.ratio), self.by_class(by_type), by_type[-M:]
        self.d = d = inverse[:M] if self.h is None else 1.0 / (ratio[:M] + self.h)
        self.slack = inverse[M:]
        slack = inverse[M]
        both = d.take(pairs.first, axis=0)
        both *= d.take(pairs.second, axis=0)
        k22 = _sum(d)
        k22 += slack
        self.over_k22 = 1.0 / k22
        if not self.has_demand:
            self._factor_prices(both, matmul(pairs.others, d) + slack, self.over_k22)
            return
        r = ratio[M + 1]
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
        M, d, pairs, levelled = self.M, self.d, self.pairs, self.slope is not None
        weight = self.weight_of_price * over_det
        G = np.empty((M + levelled, M + levelled))
        G[pairs.first, pairs.second] = G[pairs.second, pairs.first] = -matmul(both, weight)
        alone *= d
        G[pairs.diagonal, pairs.diagonal] = matmul(alone, weight) + self.zp
        # what a change of the rows does to the use of capacity, and to the level's equation
        effect = np.empty((M + levelled, *self.slack.shape))
        weighted = self.ns * d
        if not self.has_demand:
            np.multiply(weighted, -self.over_k22, out=effect[:, 0])
        else:
            lean = self.k12 * self.over_k22
            lean = np.subtract(self.A, lean, out=effect[:M, 1])
            of_time = np.multiply(lean, self.i12, out=effect[:M, 0])
            of_time -= self.over_k22
            of_time *= weighted
            lean *= self.i11
            lean *= weighted
        if self.slope is not None:
            np.multiply(self.due, self.i12, out=effect[M, 0])
            np.multiply(self.due, self.i11, out=effect[M, 1])
            np.negative(effect[M], out=effect[M])
            of_level = matmul(effect[:, 1], self.slope)
            of_level[:M] += self.drift
            G[M] = of_level
            G[:, M] = -of_level
        self.effect = effect
        self.factors = Factors(G)

    def towards(self, left: Residuals, targets: Floats) -> Direction:
        """Newton's direction for complementarity `targets` over values."""
        M, d, e, ez = self.M, self.d, self.by_class(targets), targets[-self.M :]
        g0 = e[:M] - left.dual
        g0 *= d
        off = einsum("rmk,mk->rk", self.rows, g0)
        off += self.slack * e[M:]
        off += left.rows
        rhs = einsum("mrk,rk->m", self.effect, off)
        rhs[:M] += left.capacity + ez * self.zp + matmul(g0, self.ns)
        if self.slope is not None:
            rhs[M] -= left.level
        solution = self.factors.solve(rhs)
        dp = solution[:M]
        paid = self.s * dp[:, None]
        off -= einsum("rmk,mk->rk", self.rows, d * paid)
        dt = 0.0
        if self.slope is not None:
            dt = float(solution[M])
            off[1] += self.slope * dt
        of_time = off[0]
        if self.has_demand:
            of_demand = off[1]
            of_demand *= self.i11
            of_demand += self.i12 * of_time
            of_time += self.k12 * of_demand
        of_time *= self.over_k22
        values = np.empty_like(targets)
        dX = self.by_class(values)
        mix = einsum("rmk,rk->mk", self.rows, off, out=dX[:M])
        mix += paid
        mix *= d
        np.subtract(g0, mix, out=mix)
        slack = np.subtract(e[M:], off, out=dX[M:])
        slack *= self.slack
        np.multiply(self.zp, ez - dp, out=values[-M:])
        return Direction(values, off, dp, dt)

    def of_duals(self, targets: Floats, step: Direction) -> Floats:
        """The step of the duals that goes with one of values."""
        M = self.M
        duals = self.ratio * step.values
        np.subtract(targets, duals, out=duals)
        self.by_class(duals)[M:] = step.multipliers
        duals[-M:] = step.p
        return duals
