"""Small structured programs in Clarabel, which is compiled.

With some tens of job classes an iteration of `interior_point` costs as much as its hundred calls into NumPy. The same
program, written out as a sparse one of K M columns, is then solved sooner by a compiled general interior point method.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations import fast
from formulations.backends.interior_point import InteriorPoint, StructuredProgram
from formulations.backends.structured import solve_with_engine
from formulations.objectives import Objective
from formulations.polytope import Polytope
from formulations.solution import Answer, NotAcceptedError

__all__ = ["compiled_engine", "solve"]

Array = NDArray[np.float64]

_LARGEST = 96
"""Number of classes up to which this path is the faster one."""

_FINEST = 1e-12
"""Relative gap below which Clarabel makes no progress."""


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Solve any objective of this package over up to some tens of job classes.

    Raises `NotAcceptedError` for more classes, and RuntimeError when Clarabel does not reach the precision.
    """
    return solve_with_engine(polytope, objective, compiled_engine)


def compiled_engine(program: StructuredProgram, precision: float) -> InteriorPoint:
    """Clarabel on the program written out.

    Rows: ``-x <= 0`` (K M), time (K), capacity (M), demands (K); columns: x class by class, then t where it is free.
    """
    import clarabel

    if fast.in_use():
        raise NotAcceptedError("the compiled loops of the structured path are faster")
    M, K = program.rates.shape
    if K > _LARGEST:
        raise NotAcceptedError(f"{K} classes of jobs are more than {_LARGEST}")
    matrix, limit, cost = _assemble(program)
    settings: Any = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = max(precision, _FINEST)
    cones = [clarabel.NonnegativeConeT(len(limit))]
    solution: Any = clarabel.DefaultSolver(_quadratic(program), cost, matrix, limit, cones, settings).solve()
    if solution.status != clarabel.SolverStatus.Solved:
        raise RuntimeError(f"Clarabel stopped with status {solution.status}")
    x, dual = np.array(solution.x), np.array(solution.z)
    prices, of_demand = dual[K * M + K : K * M + K + M], dual[K * M + K + M :]
    return InteriorPoint(
        shares=np.maximum(x[: K * M].reshape(K, M).T, 0.0),
        demand_multipliers=of_demand / program.counts if len(of_demand) else np.zeros(K),
        prices=prices,
        iterations=int(solution.iterations),
    )


def _assemble(program: StructuredProgram) -> tuple[Any, Array, Array]:
    """Constraint matrix by columns, limits (rows,), and the cost to minimise (columns,)."""
    from scipy.sparse import csc_matrix

    M, K = program.rates.shape
    has_demand = program.slopes is not None or program.floors is not None
    job = np.repeat(np.arange(K), M)
    type_ = np.tile(np.arange(M), K)
    column = np.arange(K * M)
    rows = [column, K * M + job, K * M + K + type_]
    values = [np.full(K * M, -1.0), np.ones(K * M), np.repeat(program.counts * program.scale_factors, M)]
    limits = [np.zeros(K * M), np.ones(K), program.capacity]
    if has_demand:
        rows.append(K * M + K + M + job)
        values.append(-program.rates.T.ravel())
        limits.append(np.zeros(K) if program.floors is None else -program.floors)
    indices, data = np.stack(rows, axis=1).ravel(), np.stack(values, axis=1).ravel()
    starts = np.arange(K * M + 1) * len(rows)
    cost = np.zeros(K * M)
    if program.gains is not None:
        cost = -(program.gains * program.counts).T.ravel()
    if program.slopes is not None:
        indices = np.concatenate([indices, K * M + K + M + np.arange(K)])
        data = np.concatenate([data, program.slopes])
        starts = np.append(starts, len(data))
        cost = np.append(cost, -1.0)
    limit = np.concatenate(limits)
    return csc_matrix((data, indices, starts), shape=(len(limit), len(cost))), limit, cost


def _quadratic(program: StructuredProgram) -> Any:
    from scipy.sparse import csc_matrix

    M, K = program.rates.shape
    size = K * M + (program.slopes is not None)
    if program.curvature is None:
        return csc_matrix((size, size))
    diagonal = np.repeat(program.curvature * program.counts, M)
    return csc_matrix((diagonal, np.arange(size), np.arange(size + 1)), shape=(size, size))
