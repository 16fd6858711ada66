"""Exponentials, logarithms and powers of ten against decimal arithmetic, and products and systems against NumPy's."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughputs.numerics import dot, exp, log, matmul, power_of_ten, slot_begin, slot_end
from throughputs.numerics.systems import (
    Factors,
    eigh,
    leading_directions,
    least_squares,
    null_space,
    solve_definite,
)

RNG = np.random.default_rng(0)
U = RNG.uniform
WIDE = U(1, 2, 500) * 2.0 ** RNG.integers(-1000, 1000, 500)


@pytest.mark.parametrize(
    ("function", "exact", "units", "arguments"),
    [
        (exp, Decimal.exp, 1.0, [U(-1, 1, 500), U(-700, 700, 500), U(-1e-3, 1e-3, 100)]),
        (log, Decimal.ln, 1.0, [U(0, 3, 500), WIDE, 1 + U(-1e-3, 1e-3, 200)]),
        (power_of_ten, lambda y: Decimal(10) ** y, 2.0, [U(-5, 5, 500), U(-300, 300, 500)]),
    ],
)
def test_functions_are_within_units_in_the_last_place(function, exact, units, arguments):
    x = np.concatenate(arguments)
    with localcontext() as context:
        context.prec = 40
        for value, argument in zip(function(x).tolist(), x.tolist(), strict=True):
            truth = exact(Decimal(argument))
            assert abs(Decimal(value) - truth) / Decimal(math.ulp(float(truth))) < units


@pytest.mark.filterwarnings("error")
def test_limits_and_shapes_are_those_of_numpy():
    beyond = np.array([0.0, np.inf, -np.inf, np.nan, 5e-324, 1e308, 1e-310, 709.7, 710.0, -745.0, -746.0])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(exp(beyond), np.exp(beyond), rtol=1e-15, atol=5e-324)
        np.testing.assert_allclose(log(beyond), np.log(beyond), rtol=1e-15)
    y = [0.0, 1.0, 2.0, 3.0, 400.0, -400.0, np.inf, -np.inf]
    np.testing.assert_array_equal(power_of_ten(y), [1.0, 10.0, 100.0, 1000.0, np.inf, 0.0, np.inf, 0.0])
    assert np.isnan(power_of_ten(np.nan))


def test_products_are_those_of_numpy():
    A, B, v, w, stack = (RNG.normal(size=shape) for shape in ((5, 7), (7, 4), 7, 5, (3, 7, 4)))
    assert dot(v, v) == pytest.approx(v @ v, rel=1e-14)
    for a, b in ((A, B), (A, v), (w, A), (A, stack)):
        np.testing.assert_allclose(matmul(a, b), a @ b, rtol=1e-12, atol=1e-13)


def test_systems_are_solved():
    for n in (1, 2, 12):
        A, b = RNG.normal(size=(n, n)), RNG.normal(size=n)
        np.testing.assert_allclose(A @ Factors(A).solve(b), b, atol=1e-10)
    assert Factors(np.array([[0.0, 1.0], [1.0, 0.0]])).trusted
    assert not Factors(np.ones((2, 2))).trusted


def test_definite_systems_are_solved():
    for n in (1, 20, 49):
        A, b = RNG.normal(size=(n, n + 3)), RNG.normal(size=n)
        square = A @ A.T
        for found in solve_definite(np.stack([square, square]), np.stack([b, b])):
            np.testing.assert_allclose(square @ found, b, atol=1e-8)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_shortest_solutions_of_all_ranks_in_any_unit():
    for seed in range(30):
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
    A, b = np.array([[2.0, -1.0], [0.0, 0.0], [-1.0, 3.0]]), np.array([1.0, 4.0, 2.0])
    for unit in (1e-200, 1e-157, 1.0, 1e160, 1e250):  # whose squares are no numbers
        found = least_squares(A * unit, b * min(unit, 1.0)) * max(unit, 1.0)
        np.testing.assert_allclose(found, np.linalg.lstsq(A, b)[0], rtol=1e-12, atol=1e-14)


def test_eigenvalues_and_leading_directions():
    for n in (1, 2, 9):
        A = RNG.normal(size=(n, n))
        values, vectors = eigh(A + A.T)
        assert (np.diff(values) >= 0).all()
        np.testing.assert_allclose((vectors * values) @ vectors.T, A + A.T, atol=1e-13 * np.abs(values).max())
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(n), atol=1e-13)
    A = RNG.normal(size=(6, 40))
    sizes, right = leading_directions(A, 4)
    _, exact, directions = np.linalg.svd(A)
    np.testing.assert_allclose(sizes, exact[:4], rtol=1e-12)
    np.testing.assert_allclose(np.abs(right @ directions[:4].T), np.eye(4), atol=1e-10)


SLOTS, ORIGINS = st.sampled_from([60.0, 240.0, 0.1, 7.3]), st.floats(0, 1e6)


@given(ORIGINS, SLOTS, st.integers(0, 10**5), st.floats(0, 1e6))
def test_slots_are_found_as_they_are_on_the_clock(origin, slot, k, since):
    """``ceil((border - origin) / slot)`` is one slot too many for every fifth of the borders."""
    border, time = origin + k * slot, origin + since
    assert slot_end(origin, slot, border) == slot_begin(origin, slot, border) == border
    begin, end = slot_begin(origin, slot, time), slot_end(origin, slot, time)
    assert begin <= time <= end == slot_end(origin, slot, end)
    assert end - begin <= slot * (1 + 1e-6)
    assert slot_end(10.0, 0.0, 95.0) == slot_begin(10.0, 0.0, 95.0) == 95.0
    assert slot_end(10.0, 60.0, math.inf) == math.inf
