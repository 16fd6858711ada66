"""The published choice among allocations of a packed makespan: where the published solver stops, pairs written out.

Gavel bisects on the time T and acts on the centre of what is feasible at the last feasible T, up to 5 % above the
optimum. Every two jobs with gangs of one size are a column on every type there, also where they cannot share: such
columns are worth nothing, and still have a part in the centre. This module walks the path of
`formulations.published.ecos_path` on that program::

    -x_r <= 0,   sum_r s_r x_rj <= c_j,   sum_(r with i) sum_j x_rj <= 1,   -sum_(r with i) sum_j T_rij x_rj <= -n_i / T

with a row r for each job alone and for each pair. Bounds and shares are eliminated entry by entry; what is left is one
dense system over types, times and demands, of size M + 2 N.

Source: D. Narayanan et al., OSDI 2020, sections 3.1 and 4.2, public artifact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.core.objectives import Makespan, relative_gap
from formulations.packed.polytope import PackedPolytope, Pairs
from formulations.packed.solver import PackedSolution
from formulations.published.ecos_path import EcosPath
from formulations.published.ecos_system import EQUILIBRATIONS, REGULARISATION, PathLayout, PathSystem, divisors
from formulations.solving.choice import bisected_makespan
from throughputs.numerics.systems import cholesky, solve_cholesky

Array = NDArray[np.float64]


def published_makespan(polytope: PackedPolytope, objective: Makespan, solution: PackedSolution) -> PackedSolution:
    """The optimal `solution` with the allocation that the published system would act on in its place.

    Its objective is that of the allocation; bound and prices are those of the optimum.
    """
    level = objective.level(polytope.throughput(solution.shares, solution.pairs))
    if not level > 0:
        return solution
    floors = objective.demand(1.0 / bisected_makespan(1.0 / level))
    rows = _Rows(polytope)
    try:
        x = _Path(rows, polytope.capacity.astype(np.float64), floors).point_found()
    except RuntimeError:
        return solution  # at the last feasible time the path may find nothing
    shares, pairs = rows.allocation(x)
    value = objective.value(polytope.throughput(shares, pairs))
    gap = relative_gap(value, solution.bound)
    return replace(solution, shares=shares, pairs=pairs, objective=value, gap=gap, status="feasible")


class _Rows:
    """The R rows of the program, jobs alone before pairs; columns are (R, M), one after the other.

    Attributes
    ----------
    n, M : jobs and types.
    one, other : (P,) the two jobs of each pair.
    matrix : (M + 2 n, R M) capacity, time and demand rows, sparse.
    """

    def __init__(self, polytope: PackedPolytope) -> None:
        from scipy.sparse import csr_array

        columns = polytope.columns
        sizes, group, together = columns.scale_factors, columns.group, columns.together
        one, other = np.triu_indices(len(sizes), 1)
        alike = sizes[one] == sizes[other]
        self.one, self.other = one, other = one[alike], other[alike]
        self.n, self.M = n, M = len(sizes), columns.n_accelerators
        first = np.concatenate([np.arange(n), one])
        own = np.concatenate([columns.rates, together[group[one], group[other]]])
        beside = together[group[other], group[one]]
        # (row, column, value) of capacity, of time for the first or only job and for the second, of demand likewise
        column = np.arange(own.size).reshape(own.shape)
        paired = column[n:]
        entries = [
            (np.arange(M), column, sizes[first, None]),
            (M + first[:, None], column, 1.0),
            (M + other[:, None], paired, 1.0),
            (M + n + first[:, None], column, -own),
            (M + n + other[:, None], paired, -beside),
        ]
        parts = [np.broadcast_arrays(*entry) for entry in entries]
        row, at, value = (np.concatenate([part[k].ravel() for part in parts]) for k in range(3))
        self.matrix: Any = csr_array((value.astype(np.float64), (row, at)), shape=(M + 2 * n, own.size))

    def allocation(self, x: Array) -> tuple[Array, Pairs]:
        """Shares of jobs alone, and of pairs, scaled into the polytope where the path left it by a little."""
        X = np.clip(x, 0.0, 1.0).reshape(-1, self.M)
        X = X / max(1.0, float((self.matrix @ X.ravel())[self.M : self.M + self.n].max(initial=0.0)))
        row, j = np.nonzero(X[self.n :])
        pairs = Pairs(self.one[row].astype(np.int64), self.other[row].astype(np.int64), j, X[self.n + row, j])
        return X[: self.n], pairs


def _equilibrated(matrix: Any) -> Array:
    """(columns, bounds, common rows) squared divisors, as in `ecos_system.Scaling`."""
    from scipy.sparse import diags_array

    entries, bounds = abs(matrix), np.ones(matrix.shape[1])
    squares = np.ones(2 * len(bounds) + matrix.shape[0])
    for _ in range(EQUILIBRATIONS):
        by_bound, by_common = divisors(bounds), divisors(entries.max(axis=1).toarray())
        by_column = divisors(np.maximum(bounds, entries.max(axis=0).toarray()))
        bounds = bounds / (by_bound * by_column)
        entries = diags_array(1.0 / by_common) @ entries @ diags_array(1.0 / by_column)
        squares *= np.concatenate([by_column, by_bound, by_common]) ** 2
    return squares


class _System(PathSystem):
    """The matrix and its solutions; stacked vectors are ``[x, bounds, common rows]``."""

    def __init__(self, matrix: Any, layout: PathLayout, squares: Array) -> None:
        self.matrix, self.transposed, self.layout = matrix, matrix.T.tocsr(), layout
        self.regularisation = REGULARISATION * squares
        self.diagonal = self.regularisation

    def apply(self, stacked: Array) -> Array:
        """``[G'z, G x]`` for ``[x, z]``."""
        m = self.layout.rows
        x, of_bounds, common = stacked[:m], stacked[m : 2 * m], stacked[2 * m :]
        return np.concatenate([self.transposed @ common - of_bounds, -x, self.matrix @ x])

    def factor(self, ratio: Array) -> None:
        """Take ``V = ratio + delta F^2``, one entry per row."""
        m = self.layout.rows
        V = self.diagonal = self.regularisation.copy()
        V[m:] += ratio
        self.of_bounds = 1.0 / V[m : 2 * m]
        self.d = 1.0 / (V[:m] + self.of_bounds)
        square = ((self.matrix * self.d) @ self.transposed).toarray()
        square[np.diag_indices_from(square)] += V[2 * m :]
        factor = cholesky(square)
        if factor is None:
            raise np.linalg.LinAlgError("the system is not definite")
        self.factor_of_square = factor

    def solve(self, b: Array) -> Array:
        """Solutions (B, size) for right-hand sides b (B, size)."""
        return np.stack([self._solve(one) for one in b])

    def _solve(self, b: Array) -> Array:
        m = self.layout.rows
        free = self.d * (b[:m] - b[m : 2 * m] * self.of_bounds)
        common = solve_cholesky(self.factor_of_square, self.matrix @ free - b[2 * m :])
        x = free - self.d * (self.transposed @ common)
        return np.concatenate([x, -(x + b[m : 2 * m]) * self.of_bounds, common])


class _Path(EcosPath):
    """One walk on the packed program, in which every column and row stands for itself."""

    def __init__(self, rows: _Rows, capacity: Array, floors: Array) -> None:
        n_common, n_columns = rows.matrix.shape
        at = self.at = PathLayout(n_columns, 2 * n_columns + n_common)
        squares = _equilibrated(rows.matrix)
        self.system = _System(rows.matrix, at, squares)
        self.weights = np.ones(at.size)
        self.b = np.concatenate([np.zeros(2 * n_columns), capacity, np.ones(rows.n), -floors])
        self.refined = 1
        self.weighted_b = self.b
        self.pair_weights = np.ones(at.size - at.rows + 1)
        self.n_pairs = float(len(self.pair_weights))
        self.norm_weights, self.dual_norm_weights = squares, 1.0 / squares
        self._start(squares)

    def point_found(self) -> Array:
        """The shares at which the walk ends, one per column.

        Raises
        ------
        RuntimeError
            The stopping rule is never met.
        """
        with np.errstate(all="ignore"):
            self.run()
        return np.asarray(self.point[: self.at.rows] / self.point[self.at.size])
