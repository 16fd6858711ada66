"""Low-rank completion of a matrix of which some entries are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from throughputs.arrays import Floats
from throughputs.errors import InputError, expect
from throughputs.numerics import matmul
from throughputs.numerics.systems import leading_directions, solve_definite

_SOURCE = "low-rank completion"


@dataclass(frozen=True)
class LowRankCompletion:
    """Alternating least squares with a ridge.

    With X (R, C), of which the entries in Omega are known, and column means c over them,

        min_{U (R, k), V (C, k)}  sum_{(i, j) in Omega} (X_ij - c_j - U_i . V_j)^2 + mu (|U|_F^2 + |V|_F^2),

    solved for U with V held and for V with U held, in turns. A row of which little is known is drawn to the
    column means, and one of which nothing is known becomes them. This is probabilistic matrix factorisation
    (R. Salakhutdinov and A. Mnih, NIPS 2007), as the throughput estimator of D. Narayanan et al., OSDI 2020, uses
    it; without centring (c = 0) it is theirs.

    Parameters
    ----------
    rank : k, at least 1.
    ridge : mu, above 0.
    iterations : most turns.
    tolerance : stop when U V' changes by less than this, root mean square over its entries.
    centred : whether the column means are taken out first.
    """

    rank: int = 10
    ridge: float = 0.01
    iterations: int = 100
    tolerance: float = 1e-4
    centred: bool = True

    def __post_init__(self) -> None:
        limits = {"rank": 1, "iterations": 1, "tolerance": 0}
        for name, least in limits.items():
            if not getattr(self, name) >= least:
                raise InputError(_SOURCE, field=name, found=getattr(self, name), expected=f"at least {least}")
        expect(0 < self.ridge < np.inf, _SOURCE, "ridge", self.ridge, "a finite number above 0")

    def complete(self, values: Floats) -> Floats:
        """(R, C) the low-rank estimate of every entry of `values` (R, C), nan where it is unknown; known ones included.

        The first V comes from the singular vectors of the matrix with its unknown entries at the column means.
        """
        known = ~np.isnan(values)
        weight = known.astype(float)
        counts = weight.sum(axis=0)
        filled = np.where(known, values, 0.0)
        means = filled.sum(axis=0) / np.maximum(counts, 1.0) if self.centred else np.zeros(values.shape[1])
        residual = np.where(known, values - means, 0.0)
        if not values.size or not known.any():
            return np.broadcast_to(means, values.shape).copy()
        k = min(self.rank, *values.shape)
        sizes, right = leading_directions(residual, k)
        # a direction without content would stay without: U and V would both be 0 in it
        V = np.asarray(right.T * np.sqrt(np.maximum(sizes, 1e-3)))
        U = np.zeros((values.shape[0], k))
        estimate = np.zeros_like(residual)
        for _ in range(self.iterations):
            U = self._solve(residual, weight, V)
            V = self._solve(residual.T, weight.T, U)
            previous, estimate = estimate, matmul(U, V.T)
            if np.sqrt(np.mean((estimate - previous) ** 2)) < self.tolerance:
                break
        return means + estimate

    def _solve(self, residual: Floats, weight: Floats, V: Floats) -> Floats:
        """(R, k) the best rows for the columns V: (V_i' V_i + mu I) u_i = V_i' x_i over the known entries of row i."""
        k = V.shape[1]
        outer = (V[:, :, None] * V[:, None]).reshape(len(V), k * k)
        gram = matmul(weight, outer).reshape(-1, k, k) + self.ridge * np.eye(k)
        return solve_definite(gram, matmul(residual, V))
