"""The vertex at the end of a crossover: shares of the few jobs that are tied at the exact prices.

At the prices of an optimum nearly every job has one best mix, and its shares are closed form. The others are tied
between mixes: as a rule there are one fewer of them than types that cost something, and their shares are what capacity
leaves. An interior point knows which they are, and their shares, with a negligible one on every other type; without
these the shares are the solution of a small linear system.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from throughputs.arrays import Floats
from throughputs.numerics import matmul
from throughputs.numerics.systems import least_squares

_NEGLIGIBLE_SHARE = 1e-8
"""Share of time below which a share of an interior point counts as 0."""

_ACCEPTED_RESIDUAL = 1e-12
"""Relative residual of an equation that is met, and share by which rounding may fall below 0."""

_MOST_SUPPORTS = 4
"""Changes of the support after which no vertex is looked for."""


@dataclass(frozen=True, eq=False)
class Tied:
    """What F tied jobs must fulfil, and what M types have left for them.

    Attributes
    ----------
    rates : (F, M) throughput. loads : (F,) GPUs of each class.
    demand, growth : (F,) throughput that each needs, and its growth with the level relative to where it is; nan for a
        job that has more than it needs.
    shares : (F, M) as the interior point left them.
    left, drift : (M,) GPUs that all others leave, and how fast these take more as the level improves; nan for a type
        that costs nothing, which need not be used up.
    """

    rates: Floats
    loads: Floats
    demand: Floats
    growth: Floats
    shares: Floats
    left: Floats
    drift: Floats


def solve_vertex(tied: Tied) -> tuple[Floats, float] | None:
    """Shares (F, M) that meet every equation, 0 where they were negligible, and by which part the level is better.

    The nearest to those given; None where there are none.
    """
    F, M = tied.rates.shape
    support = tied.shares > _NEGLIGIBLE_SHARE
    idle = 1.0 - tied.shares.sum(axis=1) > _NEGLIGIBLE_SHARE
    costly, bound = np.isfinite(tied.left), np.isfinite(tied.demand)
    if not (F and costly.any()):
        return None
    scale = np.where(bound, tied.demand, 1.0)
    for _ in range(_MOST_SUPPORTS):
        job, kind = np.nonzero(support)
        n = len(job)
        column = np.arange(n)
        # rows: capacity of each type, demand and time of each job; the last column is the level
        matrix, rhs = np.zeros((M + 2 * F, n + 1)), np.zeros(M + 2 * F)
        size = np.maximum(np.abs(tied.left), 1.0)
        matrix[kind, column] = tied.loads[job] / size[kind]
        matrix[:M, n], rhs[:M] = tied.drift / size, tied.left / size
        matrix[M + job, column] = tied.rates[job, kind] / scale[job]
        matrix[M : M + F, n], rhs[M : M + F] = -tied.growth / scale, tied.demand / scale
        matrix[M + F + job, column] = 1.0
        rhs[M + F :] = 1.0
        rows = np.concatenate([costly, bound, ~idle])
        matrix, rhs = matrix[rows], rhs[rows]
        if not (np.isfinite(matrix).all() and np.isfinite(rhs).all()):
            return None
        shares = np.append(tied.shares[job, kind], 0.0)
        for _ in range(2):
            shares += least_squares(matrix, rhs - matmul(matrix, shares))
        if not (np.abs(rhs - matmul(matrix, shares)) <= _ACCEPTED_RESIDUAL).all():
            return None
        below = shares[:n] < -_ACCEPTED_RESIDUAL
        if not below.any():
            found = np.zeros((F, M))
            found[job, kind] = np.maximum(shares[:n], 0.0)
            return found, float(shares[n])
        support[job[below], kind[below]] = False
    return None
