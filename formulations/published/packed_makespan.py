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

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from formulations.core.objectives import Makespan, relative_gap
from formulations.packed.polytope import PackedPolytope, Pairs
from formulations.packed.solver import PackedSolution
from formulations.published.ecos_path import EcosPath
from formulations.published.ecos_system import EQUILIBRATIONS, NO_ENTRY, REGULARISATION
from formulations.solving.choice import bisected_makespan
from throughputs.numerics import matmul
from throughputs.numerics.systems import cholesky, solve_cholesky

__all__ = ["published_makespan"]

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


@dataclass(frozen=True, eq=False)
class _Rows:
    """The R rows of the program, jobs alone before pairs; columns are (R, M), one after the other.

    Attributes
    ----------
    n, M : jobs and types.
    one, other : (P,) the two jobs of each pair.
    size : (R,) GPUs.
    own : (R, M) throughput of the first or only job of a row. beside : (P, M) of the second one of a pair.
    """

    n: int
    M: int
    one: NDArray[np.intp]
    other: NDArray[np.intp]
    size: Array
    own: Array
    beside: Array

    def __init__(self, polytope: PackedPolytope) -> None:
        columns = polytope.columns
        sizes, group = columns.scale_factors, columns.group
        one, other = np.triu_indices(len(sizes), 1)
        alike = sizes[one] == sizes[other]
        one, other = one[alike], other[alike]
        together = columns.together
        values = {
            "n": len(sizes),
            "M": columns.n_accelerators,
            "one": one,
            "other": other,
            "size": np.concatenate([sizes, sizes[one]]).astype(np.float64),
            "own": np.concatenate([columns.rates, together[group[one], group[other]]]),
            "beside": together[group[other], group[one]],
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.own.size

    @property
    def n_common(self) -> int:
        """Number of rows that are not bounds: capacity, time, demand."""
        return self.M + 2 * self.n

    def by_job(self, of_first: Array, of_second: Array) -> Array:
        """(n,) sums over the rows of each job, (R,) as the first or only one and (P,) as the second."""
        n = self.n
        sums = of_first[:n] + np.bincount(self.one, of_first[n:], minlength=n)
        return np.asarray(sums + np.bincount(self.other, of_second, minlength=n))

    def apply(self, x: Array) -> Array:
        """Capacity, time and demand rows times columns."""
        X = x.reshape(-1, self.M)
        time = X.sum(axis=1)
        demand = self.by_job((self.own * X).sum(axis=1), (self.beside * X[self.n :]).sum(axis=1))
        return np.concatenate([matmul(self.size, X), self.by_job(time, time[self.n :]), -demand])

    def transposed(self, w: Array) -> Array:
        """Columns times capacity, time and demand rows."""
        n, M = self.n, self.M
        prices, time, demand = w[:M], w[M : M + n], w[M + n :]
        out = self.size[:, None] * prices
        out[:n] += time[:, None] - demand[:, None] * self.own[:n]
        out[n:] += (time[self.one] + time[self.other])[:, None]
        out[n:] -= demand[self.one, None] * self.own[n:] + demand[self.other, None] * self.beside
        return out.ravel()

    def weighted_square(self, d: Array) -> Array:
        """The common rows, times diag(d), times their transpose."""
        n, M, one, other = self.n, self.M, self.one, self.other
        D = d.reshape(-1, M)
        S = np.zeros((self.n_common, self.n_common))
        time, demand = slice(M, M + n), slice(M + n, None)
        own, beside = self.own * D, self.beside * D[n:]
        S[range(M), range(M)] = matmul(self.size**2, D)
        for j in range(M):
            S[j, time] = self.by_job(self.size * D[:, j], self.size[n:] * D[n:, j])
            S[j, demand] = -self.by_job(self.size * own[:, j], self.size[n:] * beside[:, j])
        total, of_own, of_beside = D.sum(axis=1), own.sum(axis=1), beside.sum(axis=1)
        block = S[time, time]
        block[range(n), range(n)] = self.by_job(total, total[n:])
        block[one, other] = block[other, one] = total[n:]
        block = S[time, demand]
        block[range(n), range(n)] = -self.by_job(of_own, of_beside)
        block[one, other], block[other, one] = -of_beside, -of_own[n:]
        block = S[demand, demand]
        block[range(n), range(n)] = self.by_job((self.own * own).sum(axis=1), (self.beside * beside).sum(axis=1))
        block[one, other] = block[other, one] = (self.own[n:] * beside).sum(axis=1)
        return np.triu(S) + np.triu(S, 1).T

    def allocation(self, x: Array) -> tuple[Array, Pairs]:
        """Shares of jobs alone, and of pairs, scaled into the polytope where the path left it by a little."""
        X = np.clip(x, 0.0, 1.0).reshape(-1, self.M)
        X = X / max(1.0, float(self.apply(X.ravel())[self.M : self.M + self.n].max(initial=0.0)))
        row, j = np.nonzero(X[self.n :])
        pairs = Pairs(self.one[row].astype(np.int64), self.other[row].astype(np.int64), j, X[self.n + row, j])
        return X[: self.n], pairs


@dataclass(frozen=True, eq=False)
class _Layout:
    """Where the parts of a stacked vector ``[x, bounds, common rows]`` lie."""

    rows: int
    size: int


class _Scaling:
    """Equilibration, as in `ecos_system`: (columns, bounds, common rows) squared divisors."""

    def __init__(self, rows: _Rows) -> None:
        n, M = rows.n, rows.M
        # entries of the bounds, capacity, time and demand rows; pairs have two of the last two each
        entries = [np.ones_like(rows.own), np.repeat(rows.size[:, None], M, axis=1)]
        entries += [np.ones_like(rows.own), np.ones_like(rows.beside), rows.own.copy(), rows.beside.copy()]
        bound, column, common = np.ones_like(rows.own), np.ones_like(rows.own), np.ones(rows.n_common)
        for _ in range(EQUILIBRATIONS):
            largest = np.concatenate(
                [entries[1].max(axis=0), *(self._by_job(rows, *entries[at : at + 2]) for at in (2, 4))]
            )
            by_bound, by_common = _divisors(entries[0]), _divisors(largest)
            by_column = np.maximum(np.maximum(entries[0], entries[1]), np.maximum(entries[2], entries[4]))
            by_column[n:] = np.maximum(by_column[n:], np.maximum(entries[3], entries[5]))
            by_column = _divisors(by_column)
            entries[0] /= by_bound * by_column
            entries[1] /= by_common[:M] * by_column
            for at, start in ((2, M), (4, M + n)):
                of_job = by_common[start : start + n]
                first = np.concatenate([of_job, of_job[rows.one]])
                entries[at] /= first[:, None] * by_column
                entries[at + 1] /= of_job[rows.other, None] * by_column[n:]
            bound, column, common = bound * by_bound, column * by_column, common * by_common
        self.squares = np.concatenate([column.ravel(), bound.ravel(), common]) ** 2

    @staticmethod
    def _by_job(rows: _Rows, first: Array, second: Array) -> Array:
        """(n,) largest entry of each job."""
        n = rows.n
        largest = first[:n].max(axis=1)
        np.maximum.at(largest, rows.one, first[n:].max(axis=1))
        np.maximum.at(largest, rows.other, second.max(axis=1))
        return np.asarray(largest)


def _divisors(largest: Array) -> Array:
    """Roots; 1 for a row or column without entries."""
    return np.asarray(np.sqrt(np.where(largest < NO_ENTRY, 1.0, largest)))


class _System:
    """The matrix ``[[D, G'], [G, -V]]`` of `EcosPath` and its solutions."""

    def __init__(self, rows: _Rows, layout: _Layout, squares: Array) -> None:
        self.rows, self.layout = rows, layout
        self.regularisation = REGULARISATION * squares
        self.diagonal = self.regularisation

    def apply(self, stacked: Array) -> Array:
        """``[G'z, G x]`` for ``[x, z]``."""
        m = self.layout.rows
        x, of_bounds, common = stacked[:m], stacked[m : 2 * m], stacked[2 * m :]
        return np.concatenate([self.rows.transposed(common) - of_bounds, -x, self.rows.apply(x)])

    def factor(self, ratio: Array) -> None:
        """Take ``V = ratio + delta F^2``, one entry per row."""
        m = self.layout.rows
        V = self.diagonal = self.regularisation.copy()
        V[m:] += ratio
        self.of_bounds = 1.0 / V[m : 2 * m]
        self.d = 1.0 / (V[:m] + self.of_bounds)
        square = self.rows.weighted_square(self.d)
        square[np.diag_indices_from(square)] += V[2 * m :]
        factor = cholesky(square)
        if factor is None:
            raise np.linalg.LinAlgError("the system is not definite")
        self.factor_of_square = factor

    def solve(self, b: Array) -> Array:
        """Solutions (B, size) for right-hand sides b (B, size)."""
        return np.stack([self._solve(one) for one in b])

    def _solve(self, b: Array) -> Array:
        m, rows = self.layout.rows, self.rows
        free = self.d * (b[:m] - b[m : 2 * m] * self.of_bounds)
        common = solve_cholesky(self.factor_of_square, rows.apply(free) - b[2 * m :])
        x = free - self.d * rows.transposed(common)
        return np.concatenate([x, -(x + b[m : 2 * m]) * self.of_bounds, common])

    def refine(self, solutions: Array, b: Array) -> None:
        """One step of iterative refinement in place."""
        if not len(b):
            return
        m = self.layout.rows
        residual = b - np.stack([self.apply(solution) for solution in solutions])
        residual[:, :m] -= self.diagonal[:m] * solutions[:, :m]
        residual[:, m:] += self.diagonal[m:] * solutions[:, m:]
        solutions += self.solve(residual)


class _Path(EcosPath):
    """One walk on the packed program, in which every column and row stands for itself."""

    def __init__(self, rows: _Rows, capacity: Array, floors: Array) -> None:
        at = self.at = _Layout(rows.n_columns, 2 * rows.n_columns + rows.n_common)
        scaling = _Scaling(rows)
        self.system = _System(rows, at, scaling.squares)
        self.weights = np.ones(at.size)
        self.b = np.concatenate([np.zeros(2 * rows.n_columns), capacity, np.ones(rows.n), -floors])
        self.refined = 1
        self.weighted_b = self.b
        self.pair_weights = np.ones(at.size - at.rows + 1)
        self.n_pairs = float(len(self.pair_weights))
        self.norm_weights, self.dual_norm_weights = scaling.squares, 1.0 / scaling.squares
        self._start(scaling.squares)

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
