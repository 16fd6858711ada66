"""The linear system of the homogeneous method, solved on the structure of the polytope.

The program, for K classes of `count` n_k identical jobs on M accelerator types, is ``min c.x, G x + s = h, s >= 0``::

    minimise    y  -  sum_k n_k q_k . x_k             y: minus the level; only where there is one
    subject to  -x_kj               <= 0              multiplier z_kj    (bounds)
                sum_j x_kj          <= 1              multiplier m_k     (time)
                -a_k . x_k  -  y    <= -f_k           multiplier l_k     (demand; only where there is one)
                sum_k n_k s_k x_kj  <= c_j            multiplier p_j     (capacity)

and the system, for any V > 0::

    [ delta E^2   G' ] [x, y       ]   [b_x, b_y          ]
    [ G           -V ] [z, m, l, p ] = [b_z, b_m, b_l, b_p]

Bounds and shares are eliminated entry by entry, every job is then a 2x2 block in (l_k, -m_k), and only the M prices
and y are common: O(K M^2) and one dense system of size M + 1. Determinants and the diagonal of the common system are
sums of positive terms, never differences, as in `backends.interior_point`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

__all__ = ["REGULARISATION", "EmbeddedProgram", "Layout", "Scaling", "System"]

Array = NDArray[np.float64]

REGULARISATION = 7e-8
"""delta: what the published solver adds to (subtracts from) the diagonal of the equilibrated system."""

_EQUILIBRATIONS = 3
_NO_ENTRY = 1e-6


@dataclass(frozen=True, eq=False)
class EmbeddedProgram:
    """Data of the program above; arrays over types and classes are (M, K).

    `demand` a (M, K) brings in the demand rows, with right-hand sides `floors` f (K,), 0 if None; `levelled` makes them
    relative to the level -y, which is then maximised. `gains` q (M, K) is the worth of shares.
    """

    scale_factors: Array
    counts: Array
    capacity: Array
    demand: Array | None = None
    floors: Array | None = None
    levelled: bool = False
    gains: Array | None = None


class Layout:
    """Where the parts of a stacked vector ``[x (M K), y, z (M K), m (K), l (K), p (M)]`` lie."""

    def __init__(self, M: int, K: int, has_demand: bool) -> None:
        self.M, self.K, self.has_demand = M, K, has_demand
        self.y = M * K
        self.rows = self.y + 1
        self.bounds = slice(self.rows, self.rows + M * K)
        self.time = slice(self.bounds.stop, self.bounds.stop + K)
        self.demand = slice(self.time.stop, self.time.stop + (K if has_demand else 0))
        self.prices = slice(self.demand.stop, self.demand.stop + M)
        self.size = self.prices.stop

    def stack(
        self,
        shares: Array | float,
        y: float,
        bounds: Array | float,
        time: Array | float,
        demand: Array | float,
        prices: Array | float,
    ) -> Array:
        """A stacked vector with these parts."""
        stacked = np.empty(self.size)
        self.shares_of(stacked)[:], stacked[self.y], self.bounds_of(stacked)[:] = shares, y, bounds
        stacked[self.time], stacked[self.demand], stacked[self.prices] = (
            time,
            demand if self.has_demand else 0.0,
            prices,
        )
        return stacked

    def shares_of(self, stacked: Array) -> Array:
        """(..., M, K) x."""
        return stacked[..., : self.y].reshape(*stacked.shape[:-1], self.M, self.K)

    def bounds_of(self, stacked: Array) -> Array:
        """(..., M, K) rows of the bounds."""
        return stacked[..., self.bounds].reshape(*stacked.shape[:-1], self.M, self.K)


class Scaling:
    """Equilibration of G: rows and columns are divided by the roots of their largest entries, three times.

    Attributes
    ----------
    squares : stacked vector of E^2 (for x, y) and F^2 (for the rows), the products of the divisors.
    """

    def __init__(self, program: EmbeddedProgram, layout: Layout) -> None:
        M, K = layout.M, layout.K
        has_demand = program.demand is not None
        # entries of bounds, time, capacity and demand rows in the columns of x, and of y in the demand rows
        entries = np.empty((3 + has_demand, M, K))
        entries[:2], entries[2] = 1.0, program.scale_factors
        if program.demand is not None:
            entries[3] = program.demand
        of_y = np.full(K, float(program.levelled))
        self.squares = np.ones(layout.size)
        columns, of_rows = layout.shares_of(self.squares), np.empty_like(entries)
        bounds = layout.bounds_of(self.squares)
        for _ in range(_EQUILIBRATIONS):
            largest = _divisors(entries.max(axis=0))
            of_rows[0], of_rows[1] = _divisors(entries[0]), _divisors(entries[1].max(axis=0))
            of_rows[2] = _divisors(entries[2].max(axis=1))[:, None]
            if has_demand:
                of_rows[3] = _divisors(np.maximum(entries[3].max(axis=0), of_y))
                largest_y = float(_divisors(of_y.max()))
                self.squares[layout.y] *= largest_y
                self.squares[layout.demand] *= of_rows[3, 0]
                of_y /= of_rows[3, 0] * largest_y
            columns *= largest
            bounds *= of_rows[0]
            self.squares[layout.time] *= of_rows[1, 0]
            self.squares[layout.prices] *= of_rows[2, :, 0]
            entries /= of_rows
            entries /= largest
        self.squares *= self.squares


def _divisors(largest: Array) -> Array:
    return np.sqrt(np.where(largest < _NO_ENTRY, 1.0, largest))


class _Pairs:
    """Constant index helpers for the M (M - 1)/2 pairs of types."""

    def __init__(self, M: int) -> None:
        pairs = list(combinations(range(M), 2))
        self.first = np.array([j for j, _ in pairs], dtype=np.intp)
        self.second = np.array([k for _, k in pairs], dtype=np.intp)
        self.diagonal = np.arange(M)
        self.others = 1.0 - np.eye(M)
        # without[j, pair] = 1 when type j is not in the pair
        self.without = np.array([[float(j not in pair) for pair in pairs] for j in range(M)]).reshape(M, len(pairs))


@lru_cache(maxsize=16)
def _pairs(M: int) -> _Pairs:
    return _Pairs(M)


class System:
    """The matrix above and its solutions; `factor` before `solve`."""

    def __init__(self, program: EmbeddedProgram, layout: Layout, scaling: Scaling) -> None:
        M, K = layout.M, layout.K
        self.layout, self.pairs = layout, _pairs(M)
        self.levelled = program.levelled
        self.has_demand = program.demand is not None
        self.n, self.s = program.counts, program.scale_factors
        self.ns = self.n * self.s
        self.nss = self.ns * self.s
        self.A = np.zeros((M, K)) if program.demand is None else program.demand
        self.regularisation = REGULARISATION * scaling.squares
        self.of_shares = layout.shares_of(self.regularisation)
        A, first, second = self.A, self.pairs.first, self.pairs.second
        # difference[j, l] = a_j - a_l
        self.difference = A[:, None] - A[None]
        self.difference_squared = self.difference[first, second] ** 2
        self.product = A[first] * A[second]
        # cross[pair, l] = (a_j - a_l)(a_k - a_l); zero for l in the pair
        self.cross = self.difference[first] * self.difference[second]

    def apply(self, stacked: Array) -> Array:
        """``[G'z, G x]`` for ``[x, z]``."""
        at = self.layout
        out = np.empty(at.size)
        x = at.shares_of(stacked)
        columns = stacked[at.time] + self.s * stacked[at.prices, None]
        columns -= at.bounds_of(stacked)
        out[at.y] = 0.0
        if self.has_demand:
            multipliers = stacked[at.demand]
            columns -= self.A * multipliers
            out[at.demand] = -(self.A * x).sum(axis=0)
            if self.levelled:
                out[at.demand] -= stacked[at.y]
                out[at.y] = -(self.n @ multipliers)
        out[: at.y] = columns.reshape(-1)
        out[at.bounds] = -stacked[: at.y]
        out[at.time] = x.sum(axis=0)
        out[at.prices] = x @ self.ns
        return out

    def multiply(self, stacked: Array) -> Array:
        """The whole matrix times a vector."""
        at = self.layout
        scaled = self.diagonal * stacked
        out = self.apply(stacked)
        out[: at.rows] += scaled[: at.rows]
        out[at.rows :] -= scaled[at.rows :]
        return out

    def factor(self, ratio: Array) -> None:
        """Take ``V = ratio + delta F^2``, one entry per row."""
        at, pairs, A = self.layout, self.pairs, self.A
        M = at.M
        V = self.diagonal = self.regularisation.copy()
        V[at.rows :] += ratio
        bounds = at.bounds_of(V)
        self.d = d = bounds / (1.0 + self.of_shares * bounds)
        Ad = A * d
        slack = V[at.time]
        self.r = r = 1.0 / V[at.demand] if self.has_demand else np.zeros(at.K)
        self.Ad, self.k12, self.k22 = Ad, Ad.sum(axis=0), d.sum(axis=0) + slack
        A2 = A * Ad
        paired = d.take(pairs.first, axis=0) * d.take(pairs.second, axis=0)
        between = paired * self.difference_squared
        self.det = self.k22 + r * (slack * A2.sum(axis=0) + between.sum(axis=0))
        off = paired * (1.0 + r * (slack * self.product + (self.cross * d).sum(axis=1)))
        alone = pairs.others @ d + slack + r * (slack * (pairs.others @ A2) + pairs.without @ between)
        weight = self.nss / self.det
        common = np.zeros((M + 1, M + 1))
        common[pairs.first, pairs.second] = common[pairs.second, pairs.first] = -(off @ weight)
        common[pairs.diagonal, pairs.diagonal] = (d * alone) @ weight + V[at.prices]
        common[M, M] = 1.0
        if self.levelled:
            # a_j k22 - k12, without the cancellation of a_j d_j
            lean = A * slack + (self.difference * d).sum(axis=1)
            common[:M, M] = (d * lean) @ (self.ns * r / self.det)
            common[M, :M] = -common[:M, M]
            common[M, M] = self.n @ (r * self.k22 / self.det) + V[at.y]
        self.inverse = np.linalg.inv(common).T

    def solve(self, b: Array) -> Array:
        """Solutions (B, size) for right-hand sides b (B, size)."""
        at, A, V = self.layout, self.A, self.diagonal
        M = at.M
        g = self.d * (at.shares_of(b) - at.bounds_of(b) / at.bounds_of(V))
        b1 = -(A * g).sum(axis=1)
        if self.has_demand:
            b1 -= b[:, at.demand]
        b2 = b[:, at.time] - g.sum(axis=1)
        multipliers, time = self._block_solve(b1, b2)
        x = g + self.Ad * multipliers[:, None] + self.d * time[:, None]
        common = np.zeros((len(b), M + 1))
        common[:, :M] = x @ self.ns - b[:, at.prices]
        if self.levelled:
            common[:, M] = b[:, at.y] + multipliers @ self.n
        common = common @ self.inverse
        prices = common[:, :M]
        charge = self.s * prices[:, :, None]
        multipliers, time = self._block_solve(
            b1 - common[:, M:] + self.s * (prices @ self.Ad), b2 + self.s * (prices @ self.d)
        )
        out = np.empty_like(b)
        shares = at.shares_of(out)
        np.multiply(self.d, A * multipliers[:, None] + time[:, None] - charge, out=shares)
        shares += g
        out[:, at.y] = common[:, M]
        out[:, at.bounds] = (out[:, : at.y] + b[:, at.bounds]) / -V[at.bounds]
        out[:, at.time] = -time
        if self.has_demand:
            out[:, at.demand] = multipliers
        out[:, at.prices] = prices
        return out

    def _block_solve(self, b1: Array, b2: Array) -> tuple[Array, Array]:
        """Every job's 2x2 block: (l, -m)."""
        multipliers = self.r * (b1 * self.k22 - self.k12 * b2) / self.det
        return multipliers, (b2 - self.k12 * multipliers) / self.k22
