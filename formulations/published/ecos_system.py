"""The linear system of the homogeneous method, solved on the structure of the polytope.

The program, for K classes of `count` n_k identical jobs on M accelerator types, is ``min c.x, G x + s = h, s >= 0``::

    minimise    y  -  sum_k n_k q_k . x_k             y: minus the level; only where there is one
    subject to  -x_kj               <= 0              multiplier z_kj    (bounds)
                -a_k . x_k  -  y    <= -f_k           multiplier l_k     (demand; only where there is one)
                sum_j x_kj          <= 1              multiplier m_k     (time)
                sum_k n_k s_k x_kj  <= c_j            multiplier p_j     (capacity)

and the system, for any V > 0::

    [ delta E^2   G' ] [x, y       ]   [b_x, b_y          ]
    [ G           -V ] [z, l, m, p ] = [b_z, b_l, b_m, b_p]

Bounds and shares are eliminated entry by entry, every job is then a 2x2 block in (l_k, -m_k), and only the M prices
and y are common: O(K M^2) and one dense system of size M + 1. Determinants and the diagonal of the common system are
sums of positive terms, never differences, as in `interior_point.method`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.interior_point.type_pairs import pairs_of
from throughputs.numerics import matmul
from throughputs.numerics.systems import solve

Array = NDArray[np.float64]

REGULARISATION = 7e-8
"""delta: what the published solver adds to (subtracts from) the diagonal of the equilibrated system."""

EQUILIBRATIONS = 3
"""Passes of the equilibration."""

NO_ENTRY = 1e-6
"""Largest entry up to which a row or column counts as empty."""

# Refinement: sensitivity of a share to its reduced cost from which it is needed, and when it is done.
_LOOSE = 1e5
_REFINED = 1e-5
_MOST_REFINEMENTS = 4


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


@dataclass(eq=False)
class PathLayout:
    """Where the rows of a stacked vector of columns and rows begin, and how long it is."""

    rows: int
    size: int


class PathSystem(ABC):
    """``K = [[D, G'], [G, -V]]``, factored anew for each V: `factor` before `multiply`, `solve` and `refine`.

    Attributes
    ----------
    diagonal : (size,) that of D and V.
    d : sensitivity of each share to its reduced cost.
    """

    layout: PathLayout
    diagonal: Array
    d: Array

    @abstractmethod
    def apply(self, stacked: Array) -> Array:
        """``[G'z, G x]``."""

    @abstractmethod
    def factor(self, ratio: Array) -> None:
        """Take ``V = ratio + delta F^2``, one entry per row."""

    @abstractmethod
    def solve(self, b: Array) -> Array:
        """Solutions (B, size) for right-hand sides (B, size)."""

    def multiply(self, stacked: Array) -> Array:
        """The whole matrix times a vector."""
        rows = self.layout.rows
        scaled = self.diagonal * stacked
        out = self.apply(stacked)
        out[:rows] += scaled[:rows]
        out[rows:] -= scaled[rows:]
        return out

    def refine(self, solutions: Array, b: Array) -> None:
        """Iterative refinement in place, where shares are held so loosely that rounding shows.

        Each round shrinks the error about as much as the one before, so a small correction is the last.
        """
        if not len(b) or self.d.max() < _LOOSE:
            return
        for _ in range(_MOST_REFINEMENTS):
            residual = b - np.stack([self.multiply(solution) for solution in solutions])
            correction = self.solve(residual)
            solutions += correction
            if np.abs(correction).max() <= _REFINED * np.abs(solutions).max():
                return


class Layout(PathLayout):
    """Where the parts of a stacked vector ``[x (M K), y, z (M K), l (K), m (K), p (M)]`` lie; l only with demands."""

    def __init__(self, M: int, K: int, has_demand: bool) -> None:
        self.M, self.K, self.has_demand = M, K, has_demand
        self.y = M * K
        rows = self.y + 1
        self.bounds = slice(rows, rows + M * K)
        self.demand = slice(self.bounds.stop, self.bounds.stop + (K if has_demand else 0))
        self.time = slice(self.demand.stop, self.demand.stop + K)
        self.prices = slice(self.time.stop, self.time.stop + M)
        super().__init__(rows, self.prices.stop)

    def stack(
        self,
        shares: Array | float,
        y: float,
        bounds: Array | float,
        demand: Array | float,
        time: Array | float,
        prices: Array | float,
    ) -> Array:
        """A stacked vector with these parts."""
        stacked = np.empty(self.size)
        self.shares_of(stacked)[:], stacked[self.y], self.bounds_of(stacked)[:] = shares, y, bounds
        stacked[self.demand] = demand if self.has_demand else 0.0
        stacked[self.time], stacked[self.prices] = time, prices
        return stacked

    def shares_of(self, stacked: Array) -> Array:
        """(..., M, K) x, a view."""
        return stacked[..., : self.y].reshape(*stacked.shape[:-1], self.M, self.K)

    def bounds_of(self, stacked: Array) -> Array:
        """(..., M, K) rows of the bounds, a view."""
        return stacked[..., self.bounds].reshape(*stacked.shape[:-1], self.M, self.K)


class Scaling:
    """Equilibration of G: rows and columns are divided by the roots of their largest entries, three times.

    Source: Ruiz, "A scaling algorithm to equilibrate both rows and columns norms in matrices", 2001.

    Attributes
    ----------
    squares : stacked vector of E^2 (for x, y) and F^2 (for the rows), the squared products of the divisors.
    """

    def __init__(self, program: EmbeddedProgram, layout: Layout) -> None:
        M, K = layout.M, layout.K
        # entries of the rows of bounds, demand, time and capacity in the columns of x; of y in the demand rows
        entries = np.ones((3 + layout.has_demand, M, K))
        if program.demand is not None:
            entries[1] = program.demand
        entries[-1] = program.scale_factors
        of_y = np.full(K, float(program.levelled))
        rows, columns, column_y = np.ones_like(entries), np.ones((M, K)), 1.0
        for _ in range(EQUILIBRATIONS):
            largest = entries.max(axis=1)
            by_row = entries.copy()
            by_row[1:-1] = largest[1:-1, None]
            by_row[-1] = entries[-1].max(axis=1)[:, None]
            if program.levelled:
                by_row[1] = np.maximum(largest[1], of_y)
            by_row = divisors(by_row)
            by_column = divisors(entries.max(axis=0))
            if program.levelled:
                by_column_y = float(np.sqrt(of_y.max()))
                of_y /= by_row[1, 0] * by_column_y
                column_y *= by_column_y
            rows *= by_row
            columns *= by_column
            entries /= by_row
            entries /= by_column
        squares = layout.stack(columns, column_y, rows[0], rows[1, 0], rows[-2, 0], rows[-1, :, 0])
        self.squares = squares * squares


def divisors(largest: Array) -> Array:
    """Roots; 1 for a row or column without entries."""
    return np.asarray(np.sqrt(np.where(largest < NO_ENTRY, 1.0, largest)))


class System(PathSystem):
    """The matrix above and its solutions.

    Without demands the coefficients a are 0 and 1/V of their rows is 0: every l is then 0.
    """

    def __init__(self, program: EmbeddedProgram, layout: Layout, scaling: Scaling) -> None:
        M, K = layout.M, layout.K
        self.layout: Layout = layout
        self.pairs = pairs_of(M)
        self.levelled, self.has_demand = program.levelled, layout.has_demand
        self.n, self.s = program.counts, program.scale_factors
        self.ns = self.n * self.s
        self.nss = self.ns * self.s
        self.A = A = np.zeros((M, K)) if program.demand is None else program.demand
        self.regularisation = REGULARISATION * scaling.squares
        self.of_shares = layout.shares_of(self.regularisation)
        first, second = self.pairs.first, self.pairs.second
        # a^0, a^1, a^2
        self.powers = np.stack([np.ones((M, K)), A, A * A])
        # differences[j, l] = a_j - a_l for types, then (a_j - a_l)(a_k - a_l) for pairs (zero for l in the pair)
        difference = A[:, None] - A
        self.differences = np.concatenate([difference, difference[first] * difference[second]])
        self.difference_squared = difference[first, second] ** 2
        self.product = A[first] * A[second]
        # how prices and y enter the right-hand sides of the blocks: s (a_j d_j, d_j) and (-1, 0)
        self.entry = np.zeros((M + 1, 2, K))
        self.entry[M, 0] = -float(self.levelled)
        self.by_entry = np.zeros((M + 1, 2, K))
        self.r = np.zeros(K)

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
                out[at.y] = -matmul(self.n, multipliers)
        out[: at.y] = columns.reshape(-1)
        out[at.bounds] = -stacked[: at.y]
        out[at.time] = x.sum(axis=0)
        out[at.prices] = matmul(x, self.ns)
        return out

    def factor(self, ratio: Array) -> None:
        """Take ``V = ratio + delta F^2``, one entry per row."""
        at, pairs = self.layout, self.pairs
        M = at.M
        V = self.diagonal = self.regularisation.copy()
        V[at.rows :] += ratio
        bounds, slack = at.bounds_of(V), V[at.time]
        # eliminating a share leaves d = 1 / (delta E^2 + 1/V)
        self.of_rows = 1.0 / (1.0 + self.of_shares * bounds)
        self.d = d = bounds * self.of_rows
        if self.has_demand:
            self.r = 1.0 / V[at.demand]
        r = self.r
        moments = self.powers * d
        summed = moments.sum(axis=1)
        self.k12, self.k22 = summed[1], summed[0] + slack
        leaning = np.einsum("pjk,jk->pk", self.differences, d)
        paired = d.take(pairs.first, axis=0) * d.take(pairs.second, axis=0)
        between = paired * self.difference_squared
        det = self.k22 + r * (slack * summed[2] + between.sum(axis=0))
        off = paired * (1.0 + r * (slack * self.product + leaning[M:]))
        others = matmul(pairs.others, moments[::2])
        alone = others[0] + slack + r * (slack * others[1] + matmul(pairs.without, between))
        self._invert_blocks(moments, leaning, r / det, slack)
        weight = self.nss / det
        common = np.zeros((M + 1, M + 1))
        common[pairs.first, pairs.second] = common[pairs.second, pairs.first] = -matmul(off, weight)
        common[pairs.diagonal, pairs.diagonal] = matmul(d * alone, weight) + V[at.prices]
        common[M, M] = 1.0
        if self.levelled:
            common[M, :M] = -matmul(self.by_entry[:M, 0], self.n)
            common[:M, M] = -common[M, :M]
            common[M, M] = matmul(self.n, self.from_b1) + V[at.y]
        self.inverse = solve(common, np.eye(M + 1)).T

    def _invert_blocks(self, moments: Array, leaning: Array, r_det: Array, slack: Array) -> None:
        """Inverse of the blocks, and (l, -m) per unit of price and of y (`by_entry`)."""
        M = self.layout.M
        self.from_b1, self.from_b2 = self.k22 * r_det, self.k12 * r_det
        np.multiply(moments[1::-1].swapaxes(0, 1), self.s, out=self.entry[:M])
        by = self.by_entry
        # l of a price: r d (a_j k22 - k12) / det, without the cancellation of a_j d_j
        np.multiply(self.A * slack + leaning[:M], self.s * self.d * r_det, out=by[:M, 0])
        np.divide(self.entry[:M, 1] - self.k12 * by[:M, 0], self.k22, out=by[:M, 1])
        if self.levelled:
            by[M, 0], by[M, 1] = self.from_b1, -self.from_b2
        self.owed = by.reshape(M + 1, -1).T

    def solve(self, b: Array) -> Array:
        """Solutions (B, size) for right-hand sides b (B, size)."""
        at, A, d, V, B = self.layout, self.A, self.d, self.diagonal, len(b)
        M, K = at.M, at.K
        # as if all rows but the bounds were absent
        g = d * at.shares_of(b) - self.of_rows * at.bounds_of(b)
        blocks = np.zeros((B, 2, K))
        np.subtract(b[:, at.time], g.sum(axis=1), out=blocks[:, 1])
        if self.has_demand:
            np.subtract(-b[:, at.demand], (A * g).sum(axis=1), out=blocks[:, 0])
        # the blocks are symmetric: what they owe the common rows is what the common rows put into them
        common = np.empty((B, M + 1))
        common[:, :M], common[:, M] = matmul(g, self.ns) - b[:, at.prices], b[:, at.y]
        common += matmul((blocks * self.n).reshape(B, -1), self.owed)
        common = matmul(common, self.inverse)
        blocks += (matmul(common, self.entry.reshape(M + 1, -1))).reshape(B, 2, K)
        multipliers = self.from_b1 * blocks[:, 0] - self.from_b2 * blocks[:, 1]
        time = (blocks[:, 1] - self.k12 * multipliers) / self.k22
        out = np.empty_like(b)
        shares = at.shares_of(out)
        np.multiply(d, time[:, None] - self.s * common[:, :M, None] + A * multipliers[:, None], out=shares)
        shares += g
        out[:, at.y], out[:, at.prices] = common[:, M], common[:, :M]
        out[:, at.bounds] = (out[:, : at.y] + b[:, at.bounds]) / -V[at.bounds]
        np.negative(time, out=out[:, at.time])
        if self.has_demand:
            out[:, at.demand] = multipliers
        return out
