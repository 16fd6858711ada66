"""Newton steps on the prices of M types, and on the level that goes with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Curvature", "newton_step"]

Array = NDArray[np.float64]

_FLATTEST = 1e-6
"""Smallest eigenvalue of a measured curvature relative to its largest, prices being in units of their size."""

_LEAST_SEEN = 1e-2
"""Part of the expected change that must be seen for a correction."""


@dataclass(eq=False)
class Curvature:
    """How much less is used when prices rise (M, M), symmetric and positive definite: the Hessian of the dual."""

    matrix: Array

    @classmethod
    def measured(cls, usage: Callable[[Array], Array], prices: Array, unit: Array, part: float) -> Curvature:
        """By differences of `usage` at prices that move by a `part` of their unit (M,)."""
        M = len(prices)
        slopes = np.empty((M, M))
        for j, step in enumerate(part * unit):
            above, below = prices.copy(), prices.copy()
            above[j] += step
            below[j] = max(below[j] - step, 0.0)
            slopes[j] = (usage(below) - usage(above)) / (above[j] - below[j])
        scaled = slopes * unit * unit[:, None]
        if not np.isfinite(scaled).all():
            raise RuntimeError("usage cannot be told from prices")
        values, vectors = np.linalg.eigh(0.5 * (scaled + scaled.T))
        whole = (vectors * np.maximum(values, _FLATTEST * values.max())) @ vectors.T
        return cls(whole / unit / unit[:, None])

    def observe(self, moved: Array, expected: Array, seen: Array) -> None:
        """BFGS: the nearest curvature under which the last move of prices (M,) has the effect that was seen.

        `expected` is the excess (M,) that would have been left had usage not answered to prices, `seen` what was left.
        """
        change, linear = expected - seen, self.matrix @ moved
        least = _LEAST_SEEN * float(moved @ linear)
        if float(moved @ change) > least > 0:
            self.matrix = (
                self.matrix
                + np.outer(change, change) / float(moved @ change)
                - np.outer(linear, linear) / float(moved @ linear)
            )


def newton_step(curvature: Array, growth: Array, excess: Array, prices: Array) -> tuple[Array, float]:
    """Changes of prices (M,) and level after which what is used, less by `excess` (M,), is what there is.

    ``excess - curvature dp + growth dt = 0`` for every type that costs something, with ``growth . dp = 0``: what one
    step of the level costs is the unit of prices. A type that costs nothing may be left over. No growth: no level.

    Raises
    ------
    RuntimeError
        The types that cost something are not what the level is made of.
    """
    M = len(prices)
    levelled = bool(growth.any())
    if not np.isfinite(excess).all() or (levelled and not float(prices @ growth) > 0.0):
        raise RuntimeError("prices are no guide to the level")
    free = prices > 0
    step = np.zeros(M)
    # prices that all rise alike change nothing, so the level's step is that of the cost
    by = -float(prices @ excess) / float(prices @ growth) if levelled else 0.0
    for _ in range(2 * M):
        step[~free] = -prices[~free]
        n = int(free.sum())
        system = np.zeros((n + levelled, n + levelled))
        rhs = np.zeros(n + levelled)
        system[:n, :n] = curvature[np.ix_(free, free)]
        rhs[:n] = excess[free] - curvature[np.ix_(free, ~free)] @ step[~free]
        if levelled:
            system[:n, n] = system[n, :n] = growth[free]
            rhs[n] = -growth[~free] @ step[~free]
        solution = np.linalg.lstsq(system, rhs, rcond=None)[0]
        step[free] = solution[:n]
        outside = free & (prices + step < 0.0)
        if outside.any():
            free &= ~outside
            continue
        wanted = ~free & (excess - curvature @ step + growth * by > 1e-12)
        if not wanted.any():
            break
        free |= wanted
    return step, by
