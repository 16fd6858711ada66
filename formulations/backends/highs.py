"""Linear programs straight into HiGHS."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.backends.linear import LinearProgram, solve_by_linear_programs
from formulations.objectives import Objective
from formulations.polytope import Polytope
from formulations.solution import Answer

__all__ = ["solve", "solve_linear"]


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Solve any objective of this package by linear programs in HiGHS."""
    return solve_by_linear_programs(polytope, objective, solve_linear)


def solve_linear(program: LinearProgram) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Columns and row multipliers of one linear program; RuntimeError when HiGHS does not call it optimal."""
    import highspy

    matrix: Any = program.matrix
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = matrix.shape
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = program.cost
    model.col_lower_ = np.zeros(matrix.shape[1])
    model.col_upper_ = np.full(matrix.shape[1], highspy.kHighsInf)
    model.row_lower_ = np.full(matrix.shape[0], -highspy.kHighsInf)
    model.row_upper_ = program.limit
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.num_row_, model.a_matrix_.num_col_ = matrix.shape
    model.a_matrix_.start_ = matrix.indptr
    model.a_matrix_.index_ = matrix.indices
    model.a_matrix_.value_ = matrix.data
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("small_matrix_value", 1e-12),
        ("primal_feasibility_tolerance", 1e-10),
        ("dual_feasibility_tolerance", 1e-10),
    ):
        # HiGHS reports an unknown option or a refused value by its return code alone
        if solver.setOptionValue(option, value) != highspy.HighsStatus.kOk:
            raise RuntimeError(f"HiGHS refused the option {option}={value}")
    if solver.passModel(model) == highspy.HighsStatus.kError:
        raise RuntimeError("HiGHS refused the model")
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"HiGHS stopped with status {solver.modelStatusToString(status)}")
    solution = solver.getSolution()
    return np.asarray(solution.col_value), np.abs(np.asarray(solution.row_dual))
