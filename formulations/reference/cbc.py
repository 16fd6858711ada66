"""CBC through PuLP on a sparse matrix: one place that knows its interface."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CbcAnswer", "run_cbc"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CbcAnswer:
    """What CBC returned.

    Attributes
    ----------
    columns : (C,) the best point; None where it found none.
    row_duals : (R,) multipliers of the rows, of a linear program.
    proven : whether it stopped by itself, within the gap asked for.
    infeasible : whether it says that there is no point, or none that is best.
    status : in PuLP's words.
    """

    columns: Array | None
    row_duals: Array
    proven: bool
    infeasible: bool
    status: str


def run_cbc(
    matrix: Any,
    cost: Array,
    rows: tuple[Array, Array],
    *,
    lower: Array,
    upper: Array,
    maximise: bool = False,
    whole: NDArray[np.bool_] | None = None,
    relative_gap: float = 0.0,
    seconds: float | None = None,
    options: tuple[str, ...] = (),
) -> CbcAnswer:
    """``min c.x, rows[0] <= A x <= rows[1], lower <= x <= upper``, on one thread; see `highs_model.with_model`.

    Parameters
    ----------
    matrix : A (R, C), sparse by rows.
    relative_gap, seconds : when branch and bound may stop.
    options : of CBC, names and values in turn.
    """
    with warnings.catch_warnings():
        # PuLP 3 announces PuLP 4, which the pinned range excludes
        warnings.simplefilter("ignore", DeprecationWarning)
        import pulp

        model = pulp.LpProblem("program", pulp.LpMaximize if maximise else pulp.LpMinimize)
        kinds = np.where(whole, "Integer", "Continuous") if whole is not None else ["Continuous"] * len(cost)
        columns = zip(lower.tolist(), upper.tolist(), kinds, strict=True)
        x = [
            pulp.LpVariable(f"x{at}", least, None if math.isinf(most) else most, str(kind))
            for at, (least, most, kind) in enumerate(columns)
        ]
        model += pulp.lpSum(float(value) * x[at] for at, value in enumerate(cost) if value)
        of_row = []
        for row, (least, most) in enumerate(zip(rows[0].tolist(), rows[1].tolist(), strict=True)):
            entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
            terms = zip(matrix.indices[entries].tolist(), matrix.data[entries].tolist(), strict=True)
            total = pulp.LpAffineExpression([(x[at], value) for at, value in terms])
            if not len(total):
                if least > 0 or most < 0:
                    return CbcAnswer(None, np.zeros(0), True, True, "a row without entries cannot be kept")
                continue
            limits = [total == most] if least == most else []
            if least < most < math.inf:
                limits.append(total <= most)
            if -math.inf < least < most:
                limits.append(total >= least)
            for limit in limits:
                model += limit
                of_row.append(row)
        stops = {"gapRel": relative_gap, "timeLimit": seconds}
        model.solve(pulp.PULP_CBC_CMD(msg=False, threads=1, options=list(options), **stops))
        found = [constraint.pi or 0.0 for constraint in model.constraints.values()]
    status = f"{pulp.LpStatus[model.status]}, {pulp.LpSolution[model.sol_status]}"
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        none = model.status in (pulp.LpStatusInfeasible, pulp.LpStatusUnbounded)
        return CbcAnswer(None, np.zeros(0), False, none, status)
    duals = np.bincount(of_row, found, minlength=len(rows[0])).astype(np.float64)
    point = np.array([variable.value() or 0.0 for variable in x])
    return CbcAnswer(point, duals, model.sol_status == pulp.LpSolutionOptimal, False, status)
