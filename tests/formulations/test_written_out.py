"""Programs written out in units of their own: the same optimum as in the units they came in."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from formulations.interior_point.compiled import clarabel_engine
from formulations.interior_point.method import StructuredProgram
from formulations.interior_point.sparse_form import WrittenOut


def draw(seed: int) -> StructuredProgram:
    """By ``seed % 4``: a level; a level above floors; worth above floors; worth alone."""
    rng = np.random.default_rng([seed, 61])
    M, K = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    rates = rng.uniform(0.05, 1.0, (M, K))
    rates[rng.random((M, K)) < 0.2] = 0.0
    rates[0] = np.where(rates.any(axis=0), rates[0], 1.0)
    scale_factors, counts = rng.choice([1.0, 2.0, 8.0], K), rng.integers(1, 5, K).astype(np.float64)
    capacity = rng.uniform(0.2, 4.0, M)
    even = np.minimum(1.0 / M, capacity / float(counts @ scale_factors)) @ rates
    levels, floored = seed % 4 < 2, seed % 4 in (1, 2)
    return StructuredProgram(
        rates=rates,
        scale_factors=scale_factors,
        counts=counts,
        capacity=capacity,
        slopes=10.0 ** rng.uniform(-3, 0, K) if levels else None,
        floors=0.5 * even if floored else None,
        gains=None if levels else rates * 10.0 ** rng.uniform(-2, 2, K),
    )


def plainly(program: StructuredProgram) -> float:
    """Optimum by simplex, the rows written one by one in the units given."""
    M, K = program.rates.shape
    level = program.slopes is not None
    C = K * M + level
    rows, limits = [], []
    for k in range(K):
        row = np.zeros(C)
        row[k * M : (k + 1) * M] = 1.0
        rows.append(row)
        limits.append(1.0)
    for j in range(M):
        row = np.zeros(C)
        row[j : K * M : M] = program.counts * program.scale_factors
        rows.append(row)
        limits.append(program.capacity[j])
    for k in range(K):
        row = np.zeros(C)
        row[k * M : (k + 1) * M] = -program.rates[:, k]
        if program.slopes is not None:
            row[-1] = program.slopes[k]
        rows.append(row)
        limits.append(0.0 if program.floors is None else -program.floors[k])
    cost = np.zeros(C)
    if program.gains is not None:
        cost[: K * M] = (program.gains * program.counts).T.ravel()
    if level:
        cost[-1] = 1.0
    result = linprog(-cost, A_ub=np.array(rows), b_ub=np.array(limits), bounds=(0, None), method="highs")
    assert result.status == 0
    return -float(result.fun)


def value(program: StructuredProgram, shares: np.ndarray) -> float:
    if program.gains is not None:
        return float(program.counts @ (program.gains * shares).sum(axis=0))
    assert program.slopes is not None
    beyond = (program.rates * shares).sum(axis=0) - (0.0 if program.floors is None else program.floors)
    return float((beyond / program.slopes).min())


def bound(program: StructuredProgram, multipliers: np.ndarray, prices: np.ndarray) -> float:
    """By weak duality, with multipliers scaled to what the level is worth."""
    n, s = program.counts, program.scale_factors
    scale = 1.0 if program.slopes is None else float(n @ (multipliers * program.slopes))
    worth = multipliers * program.rates + (0.0 if program.gains is None else program.gains)
    supply = n @ np.maximum(worth - s * prices[:, None], 0.0).max(axis=0) + program.capacity @ prices
    owed = 0.0 if program.floors is None else float(n @ (multipliers * program.floors))
    return float(supply - owed) / scale


@pytest.mark.parametrize("block", range(4))
def test_is_the_program_in_other_units(block):
    """Shares, multipliers and prices read back attain and prove the optimum of the plain statement."""
    for seed in range(block, 160, 4):
        program = draw(seed)
        written = WrittenOut(program)
        A = written.matrix.toarray()
        assert np.abs(A).max() <= 1.0 + 1e-12, f"seed {seed}"
        result = linprog(-written.cost, A_ub=A, b_ub=written.limit, bounds=(0, None), method="highs")
        assert result.status == 0
        shares, multipliers, prices = written.read(result.x, -result.ineqlin.marginals)
        exact = plainly(program)
        assert value(program, shares) == pytest.approx(exact, rel=1e-7), f"seed {seed}"
        assert bound(program, multipliers, prices) == pytest.approx(exact, rel=1e-7), f"seed {seed}"
        if program.slopes is not None:
            assert result.x[-1] * written.unit_of_level == pytest.approx(exact, rel=1e-7), f"seed {seed}"


@pytest.mark.parametrize("block", range(4))
def test_bounds_as_rows_and_drift(block):
    """Clarabel on the same: shares bounded by rows, a free level, and others' use of capacity growing with it."""
    for seed in range(block, 80, 4):
        program = draw(seed)
        point = clarabel_engine(program, 1e-11)
        assert value(program, point.shares) == pytest.approx(plainly(program), rel=1e-7), f"seed {seed}"
        if program.slopes is None:
            continue
        # others take a tenth of each type at the level that was attained
        drifting = StructuredProgram(
            **{
                **{name: getattr(program, name) for name in ("rates", "scale_factors", "counts", "slopes", "floors")},
                "capacity": 1.1 * program.capacity,
                "drift": 0.1 * program.capacity / point.level,
            }
        )
        assert clarabel_engine(drifting, 1e-11).level == pytest.approx(point.level, rel=1e-7), f"seed {seed}"


def test_columns_that_a_solver_takes_for_nothing_have_a_price():
    """Whoever would have a trillionth of a GPU for nothing pays for it."""
    rates = np.array([[1.0, 1.0], [5.0, 5.0]])
    program = StructuredProgram(rates, np.ones(2), np.ones(2), np.array([1.0, 1e-13]), slopes=np.ones(2))
    written = WrittenOut(program)
    A = np.where(np.abs(written.matrix.toarray()) < 1e-12, 0.0, written.matrix.toarray())
    result = linprog(-written.cost, A_ub=A, b_ub=written.limit, bounds=(0, None), method="highs")
    _, multipliers, prices = written.read(result.x, -result.ineqlin.marginals)
    assert bound(program, multipliers, prices) == pytest.approx(0.5, rel=1e-9)
