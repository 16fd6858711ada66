"""HiGHS on a sparse matrix: one place that knows its interface."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TIGHT: dict[str, Any] = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""Options for linear programs that are to be solved as exactly as HiGHS can."""


def new_solver(options: dict[str, Any]) -> Any:
    """A silent HiGHS of one thread; RuntimeError for an option that it does not take."""
    import highspy

    solver = _silent_highs()()
    for option, value in {"output_flag": False, "log_to_console": False, "threads": 1, **options}.items():
        # HiGHS reports an unknown option or a refused value by its return code alone
        if solver.setOptionValue(option, value) != highspy.HighsStatus.kOk:
            raise RuntimeError(f"HiGHS refused the option {option}={value}")
    return solver


@cache
def _silent_highs() -> Any:
    """HiGHS whose constructor prints nothing: that of release 1.16 writes a banner when it turns callbacks on."""
    import highspy

    class SilentHighs(highspy.Highs):
        def enableCallbacks(self) -> Any:
            self.setOptionValue("output_flag", False)
            untyped: Any = super()
            return untyped.enableCallbacks()

    return SilentHighs


def with_model(
    matrix: Any,
    cost: Array,
    rows: tuple[Array | float, Array],
    *,
    lower: Array | float = 0.0,
    upper: Array | float = np.inf,
    maximise: bool = False,
    whole: NDArray[np.bool_] | None = None,
    options: dict[str, Any],
) -> Any:
    """HiGHS with ``min c.x, lower <= A x <= upper`` passed to it, not yet run.

    Parameters
    ----------
    matrix : A (R, C), sparse by rows.
    cost : (C,) c.
    rows : (R,) least and most of each row, -inf and inf for none; one number stands for all.
    lower, upper : least and most of each column; one number stands for all.
    maximise : whether c.x is maximised instead.
    whole : (C,) columns that must be whole numbers; none when omitted.
    options : of HiGHS.

    Raises
    ------
    RuntimeError
        HiGHS does not take an option or the model.
    """
    import highspy

    R, C = matrix.shape
    model: Any = highspy.HighsLp()
    model.num_row_, model.num_col_ = R, C
    model.sense_ = highspy.ObjSense.kMaximize if maximise else highspy.ObjSense.kMinimize
    model.col_cost_ = cost
    model.col_lower_, model.col_upper_ = (np.broadcast_to(bound, C).astype(np.float64) for bound in (lower, upper))
    model.row_lower_, model.row_upper_ = np.broadcast_to(rows[0], R).astype(np.float64), rows[1]
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.num_row_, model.a_matrix_.num_col_ = R, C
    model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr, matrix.indices
    model.a_matrix_.value_ = matrix.data
    if whole is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[int(each)] for each in whole]
    solver = new_solver(options)
    if solver.passModel(model) == highspy.HighsStatus.kError:
        raise RuntimeError("HiGHS refused the model")
    return solver


def run_to_optimum(solver: Any) -> tuple[Array, Array]:
    """Columns and row multipliers, in absolute value; RuntimeError when HiGHS does not call it optimal."""
    import highspy

    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"HiGHS stopped with status {solver.modelStatusToString(status)}")
    solution = solver.getSolution()
    return np.asarray(solution.col_value), np.abs(np.asarray(solution.row_dual))
