"""Small random column programs, and their optima by other means."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import strategies as st

from formulations.columns import ColumnProgram, Rows
from throughputs import Configurations


@st.composite
def programs(draw, *, whole: bool, pairs: bool = True, rows: bool = True, floors: bool = True) -> ColumnProgram:
    """Up to 4 jobs on up to 2 pools with small whole figures; floors and rows that shares of 0.1 each may keep."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    N, M = int(rng.integers(1, 5)), int(rng.integers(1, 3))
    keys = [(i, j, g, -1) for i, j, g in product(range(N), range(M), (1, 2, 4))]
    if pairs:
        keys += [(i, j, 1, k) for i, k, j in product(range(N), range(N), range(M)) if i < k]
    size = int(rng.integers(1, min(len(keys), 9) + 1))
    job, pool, gpus, partner = np.array([keys[c] for c in rng.choice(len(keys), size, replace=False)]).T
    columns = Configurations(
        job,
        pool,
        gpus,
        rng.integers(0, 8, size) / 2,
        partner=partner,
        partner_rate=np.where(partner >= 0, rng.integers(1, 4, size), 0),
        jobs=range(N),
        pools=[f"pool{j}" for j in range(M)],
    )
    C = columns.n_columns
    needed = None
    if floors and rng.random() < 0.5:
        most = columns.rates.toarray().max(axis=1)
        needed = np.where(rng.random(N) < 0.5, most * (1.0 if whole else rng.choice([0.1, 0.5, 1.0])), 0.0)
    coupling = None
    if rows and rng.random() < 0.5:
        matrix = rng.integers(-1, 2, (2, C))
        coupling = Rows(matrix, [-np.inf, -1.0], [1.0, rng.integers(0, 2)])
    return ColumnProgram(columns, rng.integers(0, 6, M), floors=needed, rows=coupling, whole=whole)


def allowed(program: ColumnProgram, x: np.ndarray) -> bool:
    """Whether shares keep every row, by dense arithmetic."""
    columns = program.columns
    fits = (columns.time.toarray() @ x <= 1 + 1e-9).all() and (
        columns.usage.toarray() @ x <= program.capacity + 1e-9
    ).all()
    fits = fits and (columns.rates.toarray() @ x >= program.floors - 1e-9).all()
    if program.rows is not None:
        coupled = program.rows.matrix.toarray() @ x
        fits = fits and (coupled <= program.rows.upper + 1e-9).all() and (coupled >= program.rows.lower - 1e-9).all()
    return bool(fits)


def best_choices(program: ColumnProgram, values: list[np.ndarray]) -> list[float] | None:
    """Lexicographic optimum over all choices of columns; None where none is allowed."""
    choices = [np.array(x, dtype=float) for x in product((0, 1), repeat=program.columns.n_columns)]
    found = [tuple(float(np.sum(v * x)) for v in values) for x in choices if allowed(program, x)]
    return list(max(found)) if found else None


def stated(program: ColumnProgram):
    """The program over shares in cvxpy: variable and constraints."""
    import cvxpy as cp

    columns = program.columns
    x = cp.Variable(columns.n_columns, nonneg=True)
    constraints = [
        columns.time.toarray() @ x <= 1,
        columns.usage.toarray() @ x <= program.capacity,
        columns.rates.toarray() @ x >= program.floors,
    ]
    if program.rows is not None:
        coupled = program.rows.matrix.toarray() @ x
        low, high = np.isfinite(program.rows.lower), np.isfinite(program.rows.upper)
        constraints += [coupled[low] >= program.rows.lower[low], coupled[high] <= program.rows.upper[high]]
    return x, constraints
