"""`formulations.backends.interior_point.solve_structured`, compiled. Importing it imports numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.backends import interior_point as original
from formulations.backends.interior_point import InteriorPoint, StructuredProgram
from formulations.backends.progress import NEARLY_SOLVED
from formulations.fast.newton import iterate

__all__ = ["solve_structured"]

Array = NDArray[np.float64]

_RULES = np.array(
    [
        original._NEARNESS,
        NEARLY_SOLVED,
        original._STEP_TO_BOUNDARY,
        original._STEP_WITH_BUDGETS,
        original._FASTEST,
        original._SLOWEST,
        original._SHORTEST,
        original._SMALLEST,
        original._WEIGHT_OF_BUDGETS,
    ]
)


def solve_structured(
    program: StructuredProgram, *, tolerance: float = 1e-10, max_iterations: int = 250
) -> InteriorPoint:
    """Solve the program as the original does, to rounding.

    The same iterates, but for the order of sums; see the original for the stopping rule.
    """
    rates = _given(program.rates, 2)
    M, K = rates.shape
    shares, multipliers, prices = np.empty((M, K)), np.empty(K), np.empty(M)
    iterations, level = iterate(
        rates,
        _given(program.scale_factors, 1),
        _given(program.counts, 1),
        _given(program.capacity, 1),
        _given(program.slopes, 1),
        _given(program.floors, 1),
        _given(program.drift, 1),
        _given(program.gains, 2),
        _given(program.curvature, 1),
        _given(program.start, 2),
        _given(program.budgets, 1),
        _RULES,
        tolerance,
        max_iterations,
        shares,
        multipliers,
        prices,
    )
    return InteriorPoint(shares, multipliers, prices, iterations, level)


def _given(values: Array | None, dimensions: int) -> Array:
    """The values as they are wanted, or an array of no elements."""
    if values is None:
        return np.empty((0,) * dimensions)
    return np.ascontiguousarray(values, dtype=np.float64)
