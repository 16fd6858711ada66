"""Small systems whose numbers have no squares are solved as any other."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from throughputs.numerics.systems import least_squares


@pytest.mark.parametrize("unit", [1e-200, 1e-157, 1.0, 1e160, 1e250])
def test_least_squares_of_any_unit(unit):
    matrix = np.array([[2.0, 0.0, -1.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 3.0]])
    rhs = np.array([1.0, 4.0, 2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = least_squares(matrix * unit, rhs * min(unit, 1.0))
    np.testing.assert_allclose(found * max(unit, 1.0), np.linalg.lstsq(matrix, rhs)[0], rtol=1e-12, atol=1e-14)
