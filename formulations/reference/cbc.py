"""CBC through PuLP on a sparse matrix: one place that knows its interface."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.reference.stopping import StopRule
from throughputs.numerics import dot

Array = NDArray[np.float64]

_BY_DEFAULT = StopRule()

_KEPT = 1e-6
"""By so much a point that CBC has written with eight digits may violate rows that it keeps."""


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
    stop: StopRule = _BY_DEFAULT,
    options: Mapping[str, str] | None = None,
) -> CbcAnswer:
    """``min c.x, rows[0] <= A x <= rows[1], lower <= x <= upper``, on one thread; see `highs_model.with_model`.

    CBC's preprocessing of whole columns may, in version 2.10, fix them wrongly and end "optimal" beside the optimum
    (tests/formulations/test_leases.py has such a program), or at a point that does not keep the rows
    (tests/formulations/test_columns.py); without it CBC crashes where there is no point at all. So a program with
    whole columns for which it found a point is solved again without, and the better point that keeps the rows counts;
    it is proven where that second search has proven it.

    Parameters
    ----------
    matrix : A (R, C), sparse by rows.
    stop : when all searches together may stop.
    options : of CBC, values by name.
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
        # a name and its value are one option for PuLP: each gets one hyphen
        given = [f"{name} {value}" for name, value in (options or {}).items()]
        until = perf_counter() + stop.seconds

        def search(*more: str) -> CbcAnswer:
            rest = replace(stop, seconds=until - perf_counter()).for_cbc()
            model.solve(pulp.PULP_CBC_CMD(msg=False, threads=1, options=[*given, *more], **rest))
            return _read(model, x, np.array(of_row, dtype=np.int64), len(rows[0]))

        found = search()
        if found.columns is None or whole is None or not whole.any():
            return found
        again = search("preprocess off")
    if again.columns is None:
        return replace(found, proven=False)
    sign = -1.0 if maximise else 1.0
    kept = _violation(matrix, rows, found.columns) <= max(_KEPT, _violation(matrix, rows, again.columns))
    better = found if kept and sign * dot(cost, found.columns) < sign * dot(cost, again.columns) else again
    return replace(better, proven=again.proven)


def _violation(matrix: Any, rows: tuple[Array, Array], point: Array) -> float:
    """By how much the row that is violated most is."""
    values = matrix @ point
    return float(np.maximum(values - rows[1], rows[0] - values).max(initial=0.0))


def _read(model: Any, x: list[Any], of_row: NDArray[np.int64], n_rows: int) -> CbcAnswer:
    """What PuLP has read of CBC's answer; `of_row` says which row each of its constraints belongs to."""
    import pulp

    multipliers = [constraint.pi or 0.0 for constraint in model.constraints.values()]
    status = f"{pulp.LpStatus[model.status]}, {pulp.LpSolution[model.sol_status]}"
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        none = model.status in (pulp.LpStatusInfeasible, pulp.LpStatusUnbounded)
        return CbcAnswer(None, np.zeros(0), False, none, status)
    duals = np.bincount(of_row, multipliers, minlength=n_rows).astype(np.float64)
    point = np.array([variable.value() or 0.0 for variable in x])
    return CbcAnswer(point, duals, model.sol_status == pulp.LpSolutionOptimal, False, status)
