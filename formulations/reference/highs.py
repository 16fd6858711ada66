"""Linear programs straight into HiGHS."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.core.highs_model import TIGHT, run_to_optimum, with_model
from formulations.core.objectives import Objective
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from formulations.reference.linear import LinearProgram, solve_by_linear_programs

__all__ = ["solve", "solve_linear"]


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Solve any objective of this package by linear programs in HiGHS."""
    return solve_by_linear_programs(polytope, objective, solve_linear)


def solve_linear(program: LinearProgram) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Columns and row multipliers of one linear program; RuntimeError when HiGHS does not call it optimal."""
    options = {"small_matrix_value": 1e-12, **TIGHT}
    solver = with_model(program.matrix, program.cost, (-np.inf, program.limit), maximise=True, options=options)
    return run_to_optimum(solver)
