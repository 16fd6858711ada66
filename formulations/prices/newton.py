"""Newton steps on the prices of M types, and on the level that goes with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from throughputs.arrays import Floats
from throughputs.numerics import dot, matmul
from throughputs.numerics.systems import eigh, least_squares

_DIFFERENCE = 0.03
"""Relative change of a price by which slopes are measured."""

_LEAST_PRICE = 0.01
"""Part of the highest price as which lower ones count then."""

_LEAST_EIGENVALUE = 1e-6
"""Smallest eigenvalue of a measured curvature relative to its largest, prices being in units of their size."""

_LEAST_SEEN_CHANGE = 1e-2
"""Part of the expected change that must be seen for a correction."""


@dataclass(eq=False)
class Curvature:
    """How much less is used when prices rise (M, M), symmetric and positive definite: the Hessian of the dual."""

    matrix: Floats

    @classmethod
    def measured(cls, usage: Callable[[Floats], Floats], prices: Floats) -> Curvature:
        """By differences of `usage` at prices that change a little, one after the other."""
        unit = np.maximum(prices, _LEAST_PRICE * prices.max())
        slopes = np.zeros((len(prices), len(prices)))
        for j in np.flatnonzero(unit):
            above, below = prices.copy(), prices.copy()
            above[j] += _DIFFERENCE * unit[j]
            below[j] = max(below[j] - _DIFFERENCE * unit[j], 0.0)
            slopes[j] = (usage(below) - usage(above)) / (above[j] - below[j])
        scaled = 0.5 * (slopes + slopes.T) * unit * unit[:, None]
        if not scaled.any():
            return cls(scaled)
        values, vectors = eigh(scaled)
        whole = matmul(vectors * np.maximum(values, _LEAST_EIGENVALUE * values.max()), vectors.T)
        return cls(whole / unit / unit[:, None])

    def observe(self, moved: Floats, change: Floats) -> None:
        """BFGS: the nearest curvature under which a move of prices (M,) has the effect (M,) on usage that was seen."""
        linear = matmul(self.matrix, moved)
        if dot(moved, change) > _LEAST_SEEN_CHANGE * dot(moved, linear) > 0:
            self.matrix = (
                self.matrix
                + np.outer(change, change) / dot(moved, change)
                - np.outer(linear, linear) / dot(moved, linear)
            )

    def step(self, growth: Floats, excess: Floats, prices: Floats) -> tuple[Floats, float]:
        """Changes of prices (M,) and level after which what is used, more by `excess` (M,), is what there is.

        ``excess - curvature dp + growth dt = 0`` for every type that costs something or is short, with ``growth . dp =
        0``: what one step of the level costs is the unit of prices. No growth: no level. RuntimeError where usage is
        not known.
        """
        M = len(prices)
        free = np.flatnonzero((prices > 0) | (excess > 0))
        rows = np.append(free, M) if growth.any() else free
        system, rhs = np.block([[self.matrix, -growth[:, None]], [growth, 0.0]]), np.append(excess, 0.0)
        if not (np.isfinite(system).all() and np.isfinite(rhs).all()):
            raise RuntimeError("usage cannot be told from prices")
        solution = np.zeros(M + 1)
        solution[rows] = least_squares(system[np.ix_(rows, rows)], rhs[rows])
        return solution[:M], float(solution[M])
