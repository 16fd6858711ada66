"""Low-rank completion of a matrix of which some entries are known."""

from __future__ import annotations

import numpy as np

from throughputs.arrays import Floats
from throughputs.numerics import matmul
from throughputs.numerics.systems import leading_directions, solve_definite


def low_rank_completion(
    values: Floats, *, rank: int = 10, ridge: float = 0.01, iterations: int = 100, tolerance: float = 1e-4
) -> Floats:
    """(R, C) the low-rank estimate of every entry of `values` (R, C), nan where it is unknown; known ones included.

    By alternating least squares with a ridge. With X (R, C), of which the entries in Omega are known, and column means
    c over them,

        min_{U (R, k), V (C, k)}  sum_{(i, j) in Omega} (X_ij - c_j - U_i . V_j)^2 + mu (|U|_F^2 + |V|_F^2),

    solved for U with V held and for V with U held, in turns. A row of which little is known is drawn to the
    column means, and one of which nothing is known becomes them. This is probabilistic matrix factorisation
    (R. Salakhutdinov and A. Mnih, NIPS 2007), as the throughput estimator of D. Narayanan et al., OSDI 2020, uses
    it; theirs is without centring (c = 0). The first V comes from the singular vectors of the matrix with its unknown
    entries at the column means.

    Parameters
    ----------
    rank : k, at least 1.
    ridge : mu, above 0.
    iterations : most turns.
    tolerance : stop when U V' changes by less than this, root mean square over its entries.
    """
    known = ~np.isnan(values)
    weight = known.astype(float)
    means = np.where(known, values, 0.0).sum(axis=0) / np.maximum(weight.sum(axis=0), 1.0)
    residual = np.where(known, values - means, 0.0)
    estimate = np.zeros_like(residual)
    if not known.any():
        return np.asarray(residual + means)
    sizes, right = leading_directions(residual, min(rank, *values.shape))
    # a direction without content would stay without: U and V would both be 0 in it
    V = np.asarray(right.T * np.sqrt(np.maximum(sizes, 1e-3)))
    for _ in range(iterations):
        U = _solve(residual, weight, V, ridge)
        V = _solve(residual.T, weight.T, U, ridge)
        previous, estimate = estimate, matmul(U, V.T)
        if np.sqrt(np.mean((estimate - previous) ** 2)) < tolerance:
            break
    return np.asarray(means + estimate)


def _solve(residual: Floats, weight: Floats, V: Floats, ridge: float) -> Floats:
    """(R, k) the best rows for the columns V: (V_i' V_i + mu I) u_i = V_i' x_i over the known entries of row i."""
    k = V.shape[1]
    outer = (V[:, :, np.newaxis] * V[:, np.newaxis]).reshape(len(V), k * k)
    gram = matmul(weight, outer).reshape(-1, k, k) + ridge * np.eye(k)
    return solve_definite(gram, matmul(residual, V))
