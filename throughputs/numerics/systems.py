"""Small dense systems, factors and eigenvalues without LAPACK: the same bits whatever the processor.

What decisions need is small: a system over M prices and a level, a handful of tied jobs, a few latent features. Up to
some ten unknowns lists of numbers are the quickest; beyond, columns are eliminated by NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from math import copysign, inf, nan, sqrt

import numpy as np

from throughputs.arrays import Floats, Positions
from throughputs.numerics.arithmetic import dot, matmul

_SINGULAR = 1e-10
"""Smallest pivot relative to the largest at which elimination is trusted."""

_SWEEPS = 40
"""Most sweeps of Jacobi's method, which needs less than ten."""

_SQUARABLE = 1e140
"""Number up to which squares, and sums of some of them, are numbers; and so are those of its inverse."""


class Factors:
    """Triangular factors of a square matrix, by Gaussian elimination with partial pivoting.

    A singular matrix has solutions that are not numbers.
    """

    def __init__(self, matrix: Floats) -> None:
        self._rows: list[list[float]] = matrix.tolist()
        self._order = list(range(len(self._rows)))
        self._eliminate()

    def _eliminate(self) -> None:
        rows, order = self._rows, self._order
        n = len(rows)
        self.pivots: list[float] = []
        for k in range(n):
            best, size = k, abs(rows[k][k])
            for i in range(k + 1, n):
                if abs(rows[i][k]) > size:
                    best, size = i, abs(rows[i][k])
            if best != k:
                rows[k], rows[best] = rows[best], rows[k]
                order[k], order[best] = order[best], order[k]
            row = rows[k]
            pivot = row[k]
            self.pivots.append(pivot)
            over = 1.0 / pivot if pivot else nan
            for i in range(k + 1, n):
                lower = rows[i]
                factor = lower[k] * over
                lower[k] = factor
                for j in range(k + 1, n):
                    lower[j] -= factor * row[j]

    @property
    def trusted(self) -> bool:
        """Whether no pivot is next to nothing beside the others."""
        sizes = [abs(pivot) for pivot in self.pivots]
        return bool(sizes) and min(sizes) > _SINGULAR * max(sizes) and max(sizes) < inf

    def solve(self, rhs: Floats) -> Floats:
        """The solution for one right-hand side (n,)."""
        rows, given = self._rows, rhs.tolist()
        n = len(rows)
        x = [given[i] for i in self._order]
        for i in range(1, n):
            row, value = rows[i], x[i]
            for j in range(i):
                value -= row[j] * x[j]
            x[i] = value
        for i in range(n - 1, -1, -1):
            row, value = rows[i], x[i]
            for j in range(i + 1, n):
                value -= row[j] * x[j]
            x[i] = value / row[i] if row[i] else nan
        return np.array(x)


def least_squares(matrix: Floats, rhs: Floats) -> Floats:
    """The shortest x (n,) of those for which ``|matrix @ x - rhs|`` is least; `matrix` is (m, n).

    Square systems are eliminated where their pivots allow. Otherwise Householder's reflections with column pivoting
    show the rank, and a second set of them the shortest solution (G. Golub and C. Van Loan, Matrix Computations,
    section 5.5). `LinAlgError` for numbers that are not finite.
    """
    m, n = matrix.shape
    if not (np.isfinite(matrix).all() and np.isfinite(rhs).all()):
        raise np.linalg.LinAlgError("the system has numbers that are not finite")
    largest = float(np.abs(matrix).max(initial=0.0))
    if largest > 0.0 and not 1.0 / _SQUARABLE < largest < _SQUARABLE:
        # squares are neither beyond all numbers nor next to none
        matrix, rhs = matrix / largest, rhs / largest
    if m == n:
        factors = Factors(matrix)
        if factors.trusted:
            return factors.solve(rhs)
    R, y = matrix.astype(float), rhs.astype(float)
    order, rank = _triangular(R, y, np.finfo(np.float64).eps * max(m, n))
    # what the other columns have in common with the first is folded into these, the last row first
    folds = []
    for k in range(rank - 1, -1, -1) if rank < n else ():
        part = np.concatenate([R[k, k : k + 1], R[k, rank:]])
        v, scale = _reflector(part, sqrt(dot(part, part)))
        columns = np.concatenate([[k], np.arange(rank, n)])
        block = R[: k + 1, columns]
        R[: k + 1, columns] = block - (scale * matmul(block, v))[:, None] * v
        folds.append((columns, v, scale))
    x = np.zeros(n)
    for k in range(rank - 1, -1, -1):
        x[k] = (y[k] - dot(R[k, k + 1 : rank], x[k + 1 : rank])) / R[k, k]
    for columns, v, scale in reversed(folds):
        x[columns] -= v * (scale * dot(v, x[columns]))
    solution = np.empty(n)
    solution[order] = x
    return solution


def _triangular(R: Floats, beside: Floats, least: float) -> tuple[Positions, int]:
    """Make R (m, n) upper triangular by Householder's reflections with column pivoting; reflect `beside` (m, ...), too.

    Returns
    -------
    The order of the columns, and the rank: columns are left whose rest is no longer than `least` times the longest.
    """
    order, first = np.arange(R.shape[1]), 0.0
    for k in range(min(R.shape)):
        sizes = np.add.reduce(R[k:, k:] * R[k:, k:])
        best = k + int(np.argmax(sizes))
        size = sqrt(float(sizes[best - k]))
        first = size if k == 0 else first
        if not size > least * first:
            return order, k
        R[:, [k, best]], order[[k, best]] = R[:, [best, k]], order[[best, k]]
        v, scale = _reflector(R[k:, k], size)
        R[k:, k:] -= v[:, None] * (scale * matmul(v, R[k:, k:]))
        along = dot(v, beside[k:]) if beside.ndim == 1 else matmul(v, beside[k:])
        beside[k:] -= np.multiply.outer(v, scale * along)
    return order, min(R.shape)


def _reflector(x: Floats, size: float) -> tuple[Floats, float]:
    """v and b of the reflection ``1 - b v v'`` that takes x, of length `size`, to a multiple of the first axis."""
    v = x.copy()
    v[0] += copysign(size, v[0])
    square = dot(v, v)
    return v, 2.0 / square if square > 0.0 else 0.0


def null_space(rows: Floats, least: float) -> Floats:
    """(n - rank, n) orthogonal directions of length 1 that all `rows` (r, n) leave where they are.

    Rows that are no further than `least` times the longest from being combinations of others count as such.
    """
    basis = np.eye(rows.shape[1])
    _, rank = _triangular(rows.T.astype(float), basis, least)
    return basis[rank:]


def eigh(matrix: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues (n,), ascending, and eigenvectors, the columns of (n, n), of a symmetric matrix.

    Jacobi's method, pair by pair in a fixed order.
    """
    a: list[list[float]] = matrix.tolist()
    vectors: list[list[float]] = np.eye(len(a)).tolist()

    def turn(p: int, q: int) -> bool:
        off = a[p][q]
        # below rounding of both diagonal entries
        if not abs(off) > 1e-17 * sqrt(abs(a[p][p] * a[q][q])) or not abs(off) > 1e-300:
            return False
        cosine, sine = _turn(a[p][p], a[q][q], off)
        for row in a:
            row[p], row[q] = cosine * row[p] - sine * row[q], sine * row[p] + cosine * row[q]
        for rows in (a, vectors):
            pairs = list(zip(rows[p], rows[q], strict=True))
            rows[p], rows[q] = [cosine * x - sine * y for x, y in pairs], [sine * x + cosine * y for x, y in pairs]
        a[p][q] = a[q][p] = 0.0
        return True

    _sweep(len(a), turn)
    values = np.array([row[i] for i, row in enumerate(a)])
    order = np.argsort(values, kind="stable")
    return values[order], np.array(vectors)[order].T


def _sweep(n: int, turn: Callable[[int, int], bool]) -> None:
    """Turn pairs of n rows in a fixed order until none needs it."""
    for _ in range(_SWEEPS):
        if not sum(turn(p, q) for p, q in combinations(range(n), 2)):
            return


def _turn(alpha: float, beta: float, off: float) -> tuple[float, float]:
    """Cosine and sine of the turn that makes the symmetric matrix [[alpha, off], [off, beta]] diagonal."""
    theta = (beta - alpha) / (2.0 * off)
    tangent = copysign(1.0, theta) / (abs(theta) + sqrt(1.0 + theta * theta))
    cosine = 1.0 / sqrt(1.0 + tangent * tangent)
    return cosine, tangent * cosine


def solve_definite(matrices: Floats, rhs: Floats) -> Floats:
    """Solutions (R, k) of R positive definite systems (R, k, k), one right-hand side each (R, k), all at once."""
    L, x = matrices.astype(float), rhs.astype(float)
    k = x.shape[1]
    for j in range(k):
        L[:, j:, j] /= np.sqrt(L[:, j, j])[:, None]
        x[:, j] /= L[:, j, j]
        below = L[:, j + 1 :, j]
        L[:, j + 1 :, j + 1 :] -= below[:, :, None] * below[:, None, :]
        x[:, j + 1 :] -= below * x[:, j, None]
    for j in range(k - 1, -1, -1):
        x[:, j] /= L[:, j, j]
        x[:, :j] -= L[:, j, :j] * x[:, j, None]
    return x


def leading_directions(matrix: Floats, k: int) -> tuple[Floats, Floats]:
    """The k largest singular values, descending, and their right singular vectors (k, C), of a matrix (R, C).

    From the eigenvectors of the products of its rows: a singular value below a millionth of the largest counts as 0,
    and directions that are not determined are the first axes, made orthogonal to the others.
    """
    R, C = matrix.shape
    _, vectors = eigh(matmul(matrix, matrix.T))
    sizes, found = np.zeros(k), np.zeros((k, C))
    axes = iter(np.eye(C))
    for at in range(k):
        row = matmul(vectors[:, R - 1 - at], matrix) if at < R else np.zeros(C)
        size = sqrt(dot(row, row))
        if size > 1e-6 * max(float(sizes[0]), size) and size > 0.0:
            sizes[at] = size
        else:
            row, size = _orthogonal(found[:at], axes)
        found[at] = row / size
    return sizes, found


def _orthogonal(found: Floats, axes: Iterator[Floats]) -> tuple[Floats, float]:
    """The part of the first of `axes` that is orthogonal to the rows `found` and not next to nothing; its length."""
    for axis in axes:
        row = axis.copy()
        for _ in range(2):
            for other in found:
                row -= dot(row, other) * other
        size = sqrt(dot(row, row))
        if size > 0.1 / sqrt(len(row)):
            return row, size
    raise ValueError("more directions than columns")
