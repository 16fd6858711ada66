"""Linear programs through PuLP into CBC: the alternative path for those who have nothing else."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.core.objectives import Objective
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from formulations.reference.linear import LinearProgram, solve_by_linear_programs

__all__ = ["solve"]


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Solve any objective of this package by linear programs in CBC."""
    return solve_by_linear_programs(polytope, objective, _solve_linear)


def _solve_linear(program: LinearProgram) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    with warnings.catch_warnings():
        # PuLP 3 announces PuLP 4, which the pinned range excludes
        warnings.simplefilter("ignore", DeprecationWarning)
        return _model_and_solve(program)


def _model_and_solve(program: LinearProgram) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    import pulp

    matrix: Any = program.matrix
    model = pulp.LpProblem("allocation", pulp.LpMaximize)
    x = [pulp.LpVariable(f"x{column}", lowBound=0) for column in range(matrix.shape[1])]
    model += pulp.lpSum(float(cost) * x[column] for column, cost in enumerate(program.cost) if cost)
    for row, limit in enumerate(program.limit):
        entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
        terms = zip(matrix.indices[entries], matrix.data[entries], strict=True)
        model += pulp.lpSum(float(value) * x[column] for column, value in terms) <= float(limit), f"row{row}"
    model.solve(pulp.PULP_CBC_CMD(msg=False, threads=1, options=["primalT", "1e-10", "dualT", "1e-10"]))
    if pulp.LpStatus[model.status] != "Optimal":
        raise RuntimeError(f"CBC stopped with status {pulp.LpStatus[model.status]}")
    duals = [abs(model.constraints[f"row{row}"].pi or 0.0) for row in range(len(program.limit))]
    return np.array([variable.value() or 0.0 for variable in x]), np.array(duals)
