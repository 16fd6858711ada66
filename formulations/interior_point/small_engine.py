"""The interior point method that is the quickest at some tens of jobs."""

from __future__ import annotations

from formulations.interior_point.compiled import clarabel_engine
from formulations.interior_point.method import InteriorPoint, StructuredProgram, solve_structured

__all__ = ["small_engine"]

_MOST_COLUMNS_FOR_CLARABEL = 240
"""Number of columns up to which Clarabel is the quicker one."""


def small_engine(program: StructuredProgram, precision: float) -> InteriorPoint:
    """Clarabel up to some hundred columns, our own method beyond and where Clarabel does not get there."""
    M, K = program.rates.shape
    # Clarabel's tolerances are absolute as well, and the unit of gains is anybody's
    if K * M > _MOST_COLUMNS_FOR_CLARABEL or program.gains is not None:
        return solve_structured(program, precision)
    try:
        return clarabel_engine(program, precision)
    except RuntimeError:
        return solve_structured(program, precision)
