"""Exponentials, logarithms and powers of ten against decimal arithmetic, and products and systems against NumPy's."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest

from throughputs.numerics import dot, exp, log, matmul, power_of_ten
from throughputs.numerics.systems import (
    Factors,
    cholesky,
    eigh,
    leading_directions,
    least_squares,
    null_space,
    singular_values,
    solve,
    solve_cholesky,
    solve_definite,
)

RNG = np.random.default_rng(0)


def worst_error(found: np.ndarray, arguments: np.ndarray, exact: Callable[[Decimal], Decimal]) -> float:
    """In units in the last place."""
    with localcontext() as context:
        context.prec = 40
        errors = []
        for value, argument in zip(found.tolist(), arguments.tolist(), strict=True):
            truth = exact(Decimal(argument))
            errors.append(abs(Decimal(value) - truth) / Decimal(math.ulp(float(truth))))
        return float(max(errors))


def test_exponentials_are_within_a_unit_in_the_last_place() -> None:
    x = np.concatenate([RNG.uniform(-1, 1, 1000), RNG.uniform(-700, 700, 1000), RNG.uniform(-1e-3, 1e-3, 200)])
    assert worst_error(exp(x), x, Decimal.exp) < 1.0


def test_logarithms_are_within_a_unit_in_the_last_place() -> None:
    wide = RNG.uniform(1, 2, 1000) * 2.0 ** RNG.integers(-1000, 1000, 1000)
    x = np.concatenate([RNG.uniform(0, 3, 1000), wide, 1 + RNG.uniform(-1e-3, 1e-3, 500)])
    assert worst_error(log(x), x, Decimal.ln) < 1.0


def test_powers_of_ten_are_within_two_units_in_the_last_place() -> None:
    y = np.concatenate([RNG.uniform(-5, 5, 1000), RNG.uniform(-300, 300, 1000)])
    assert worst_error(power_of_ten(y), y, lambda exponent: Decimal(10) ** exponent) < 2.0
    np.testing.assert_array_equal(power_of_ten([0.0, 1.0, 2.0, 3.0]), [1.0, 10.0, 100.0, 1000.0])


@pytest.mark.filterwarnings("error")
def test_limits_are_those_of_numpy() -> None:
    beyond = np.array([0.0, np.inf, -np.inf, np.nan, -1.0, 5e-324, 1e308, 1e-310, 709.7, 710.0, -745.0, -746.0, -1e300])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(exp(beyond), np.exp(beyond), rtol=1e-15, atol=5e-324)
        np.testing.assert_allclose(log(beyond), np.log(beyond), rtol=1e-15)
    np.testing.assert_array_equal(power_of_ten([400.0, -400.0, np.inf, -np.inf]), [np.inf, 0.0, np.inf, 0.0])
    assert np.isnan(power_of_ten(np.nan))


def test_shapes_are_kept() -> None:
    assert exp(1.0).shape == ()
    grid = RNG.uniform(0.1, 2, (300, 70))
    np.testing.assert_array_equal(log(grid), np.stack([log(row) for row in grid]))
    np.testing.assert_array_equal(exp(grid.T), exp(grid).T)


def test_products_are_those_of_numpy() -> None:
    A, B, v, w = RNG.normal(size=(5, 7)), RNG.normal(size=(7, 4)), RNG.normal(size=7), RNG.normal(size=5)
    stack = RNG.normal(size=(3, 7, 4))
    assert dot(v, v) == pytest.approx(v @ v, rel=1e-14)
    for a, b in ((A, B), (A, v), (w, A), (v, v), (A, stack), (stack, B[0])):
        np.testing.assert_allclose(matmul(a, b), a @ b, rtol=1e-12, atol=1e-13)


def test_systems_are_solved() -> None:
    for n in (1, 2, 5, 12):
        A, b = RNG.normal(size=(n, n)), RNG.normal(size=n)
        np.testing.assert_allclose(A @ solve(A, b), b, atol=1e-10)
        np.testing.assert_allclose(solve(A, np.eye(n)) @ A, np.eye(n), atol=1e-10)
    assert Factors(np.array([[0.0, 1.0], [1.0, 0.0]])).trusted
    assert not Factors(np.ones((2, 2))).trusted
    assert not np.isfinite(Factors(np.ones((2, 2))).solve(np.ones(2))).all()
    with pytest.raises(np.linalg.LinAlgError):
        solve(np.ones((2, 2)), np.ones(2))


def test_definite_systems_are_solved() -> None:
    for n in (1, 20, 48, 49, 130):
        A, b = RNG.normal(size=(n, n + 3)), RNG.normal(size=n)
        square = A @ A.T
        L = cholesky(square)
        assert L is not None
        np.testing.assert_allclose(L @ L.T, square, atol=1e-12 * np.abs(square).max())
        np.testing.assert_allclose(square @ solve_cholesky(L, b), b, atol=1e-8)
        stacked = solve_definite(np.stack([square, 2 * square]), np.stack([b, b]))
        np.testing.assert_allclose(stacked[0], 2 * stacked[1], rtol=1e-10)
        np.testing.assert_allclose(square @ stacked[0], b, atol=1e-8)
    assert cholesky(np.array([[1.0, 2.0], [2.0, 1.0]])) is None
    assert cholesky(np.full((2, 2), np.nan)) is None


def test_shortest_solutions_of_all_ranks() -> None:
    for seed in range(150):
        rng = np.random.default_rng(seed)
        m, n = int(rng.integers(1, 12)), int(rng.integers(1, 9))
        rank = int(rng.integers(1, min(m, n) + 1))
        A, b = rng.normal(size=(m, rank)) @ rng.normal(size=(rank, n)), rng.normal(size=m)
        expected = np.linalg.lstsq(A, b, rcond=1e-12)[0]
        np.testing.assert_allclose(least_squares(A, b), expected, atol=1e-8 * (1 + np.abs(expected).max()))
        kept = null_space(A, 1e-9)
        assert kept.shape == (n - rank, n)
        np.testing.assert_allclose(kept @ A.T, 0.0, atol=1e-12 * np.abs(A).max() * n)
        np.testing.assert_allclose(kept @ kept.T, np.eye(n - rank), atol=1e-13)
    np.testing.assert_array_equal(least_squares(np.zeros((2, 3)), np.ones(2)), np.zeros(3))
    with pytest.raises(np.linalg.LinAlgError):
        least_squares(np.array([[np.nan, 1.0], [0.0, 1.0]]), np.ones(2))


def test_eigenvalues_and_singular_values() -> None:
    for n in (1, 2, 5, 9):
        A = RNG.normal(size=(n, n))
        values, vectors = eigh(A + A.T)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(A + A.T), atol=1e-13 * np.abs(values).max())
        np.testing.assert_allclose((vectors * values) @ vectors.T, A + A.T, atol=1e-13 * np.abs(values).max())
        wide = RNG.normal(size=(n, 4)) * 10.0 ** RNG.uniform(-8, 0, (n, 1))
        np.testing.assert_allclose(singular_values(wide), np.sort(np.linalg.svd(wide)[1]), atol=1e-15)
    # what the eigenvalues of the products would lose
    assert singular_values(np.array([[1.0, 0.0, 1e-9], [1.0, 0.0, 0.0]]))[0] == pytest.approx(1e-9 / math.sqrt(2))


def test_leading_directions() -> None:
    A = RNG.normal(size=(6, 40))
    sizes, right = leading_directions(A, 4)
    np.testing.assert_allclose(sizes, np.linalg.svd(A)[1][:4], rtol=1e-12)
    np.testing.assert_allclose(np.abs(right @ np.linalg.svd(A)[2][:4].T), np.eye(4), atol=1e-10)
    # of rank 1: the others are any that are orthogonal
    sizes, right = leading_directions(np.outer(RNG.normal(size=5), RNG.normal(size=7)), 5)
    np.testing.assert_allclose(sizes[1:], 0.0, atol=1e-12)
    np.testing.assert_allclose(right @ right.T, np.eye(5), atol=1e-12)
