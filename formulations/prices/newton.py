"""Newton steps on the prices of M types, and on the level that goes with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from throughputs.arrays import Floats
from throughputs.numerics import dot, matmul
from throughputs.numerics.systems import eigh, least_squares

_LEAST_EIGENVALUE = 1e-6
"""Smallest eigenvalue of a measured curvature relative to its largest, prices being in units of their size."""

_LEAST_SEEN_CHANGE = 1e-2
"""Part of the expected change that must be seen for a correction."""

_LONGEST_STEP, _LEAST_PRICE = 0.5, 0.25
"""Relative change of a price that a step is cut to; part of the highest price that cheaper ones count as then."""


@dataclass(eq=False)
class Curvature:
    """How much less is used when prices rise (M, M), symmetric and positive definite: the Hessian of the dual."""

    matrix: Floats

    @classmethod
    def measured(cls, usage: Callable[[Floats], Floats], prices: Floats, unit: Floats, part: float) -> Curvature:
        """By differences of `usage` at prices that move by a `part` of their unit (M,)."""
        M = len(prices)
        slopes = np.empty((M, M))
        for j, step in enumerate(part * unit):
            above, below = prices.copy(), prices.copy()
            above[j] += step
            below[j] = max(below[j] - step, 0.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                # a price that nobody pays has no step; that is told below
                slopes[j] = (usage(below) - usage(above)) / (above[j] - below[j])
        scaled = slopes * unit * unit[:, None]
        if not np.isfinite(scaled).all():
            raise RuntimeError("usage cannot be told from prices")
        values, vectors = eigh(0.5 * (scaled + scaled.T))
        whole = matmul(vectors * np.maximum(values, _LEAST_EIGENVALUE * values.max()), vectors.T)
        return cls(whole / unit / unit[:, None])

    def observe(self, moved: Floats, expected: Floats, seen: Floats) -> None:
        """BFGS: the nearest curvature under which the last move of prices (M,) has the effect that was seen.

        `expected` is the excess (M,) that would have been left had usage not answered to prices, `seen` what was left.
        """
        change, linear = expected - seen, matmul(self.matrix, moved)
        least = _LEAST_SEEN_CHANGE * dot(moved, linear)
        if dot(moved, change) > least > 0:
            self.matrix = (
                self.matrix
                + np.outer(change, change) / dot(moved, change)
                - np.outer(linear, linear) / dot(moved, linear)
            )


def newton_step(curvature: Floats, growth: Floats, excess: Floats, prices: Floats) -> tuple[Floats, float]:
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
    if not np.isfinite(excess).all() or (levelled and not dot(prices, growth) > 0.0):
        raise RuntimeError("prices are no guide to the level")
    free = prices > 0
    step = np.zeros(M)
    # prices that all rise alike change nothing, so the level's step is that of the cost
    by = -dot(prices, excess) / dot(prices, growth) if levelled else 0.0
    for _ in range(2 * M):
        step[~free] = -prices[~free]
        n = int(free.sum())
        system = np.zeros((n + levelled, n + levelled))
        rhs = np.zeros(n + levelled)
        system[:n, :n] = curvature[np.ix_(free, free)]
        rhs[:n] = excess[free] - matmul(curvature[np.ix_(free, ~free)], step[~free])
        if levelled:
            system[:n, n] = system[n, :n] = growth[free]
            rhs[n] = matmul(-growth[~free], step[~free])
        solution = least_squares(system, rhs)
        step[free] = solution[:n]
        outside = free & (prices + step < 0.0)
        if outside.any():
            free &= ~outside
            continue
        wanted = ~free & (excess - matmul(curvature, step) + growth * by > 1e-12)
        if not wanted.any():
            break
        free |= wanted
    return step, by


def shortened(step: Floats, by: float, prices: Floats) -> tuple[Floats, float]:
    """A step of prices (M,) and level cut to where its model may still hold.

    A price may fall to nothing at once. How far it may rise is a matter of what is paid now: where hardly anybody
    answers to prices, steps are as long as one likes.
    """
    falls = prices + step <= 0.0
    paid = np.maximum(prices, _LEAST_PRICE * prices.max())
    rises = np.where(falls | (paid <= 0.0), 0.0, np.abs(step) / np.where(paid > 0.0, paid, 1.0))
    cut = min(1.0, _LONGEST_STEP / max(float(rises.max()), abs(by), 1e-300))
    return np.where(falls, step, cut * step), float(np.clip(by * cut, -_LONGEST_STEP, _LONGEST_STEP))
