"""Logarithmic utilities: closed forms, the certificate, and prices first where there are many distinct jobs."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import NashWelfare, solve
from tests.formulations.programs import given, polytope_of


def test_closed_forms():
    """One type is split by budget; opposite tastes each take their own; two pools of one type are one pool."""
    goal = NashWelfare([1.0, 2.0, 5.0])
    one = solve(polytope_of([[3.0], [7.0], [1.0]], [1, 4, 2], [1.5]), goal)
    np.testing.assert_allclose(
        one.shares[:, 0], np.array([1.0, 2.0, 5.0]) * 1.5 / ([1, 4, 2] * np.array(8.0)), rtol=1e-7
    )
    np.testing.assert_allclose(one.prices, [8.0 / 1.5], rtol=1e-7)
    opposite, goal = polytope_of([[4.0, 1.0], [1.0, 9.0]], None, [1, 1]), NashWelfare([1.0, 1.0])
    found = solve(opposite, goal)
    np.testing.assert_allclose(found.shares, np.eye(2), atol=1e-7)
    assert found.objective == pytest.approx(np.log(36.0))
    alike = solve(
        polytope_of(np.random.default_rng(5).uniform(1, 5, (6, 1)) * np.ones(2), None, [1, 3]), NashWelfare(np.ones(6))
    )
    np.testing.assert_allclose(alike.shares[:, 1], 3.0 * alike.shares[:, 0])
    np.testing.assert_allclose(alike.prices, alike.prices[0])


@pytest.mark.parametrize("N", [20, 4000])
def test_fewer_jobs_than_gpus_each_get_their_fastest_type(N):
    rng = np.random.default_rng(3)
    polytope = polytope_of(rng.uniform(0.1, 1, (N, 3)), None, np.full(3, N + 1.0))
    found = solve(polytope, NashWelfare(rng.uniform(1, 5, N)))
    np.testing.assert_allclose(given(polytope, found)[0], polytope.rates.max(axis=1), rtol=1e-6)
    np.testing.assert_allclose(found.prices, 0.0, atol=1e-6)
