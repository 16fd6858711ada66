"""Small structured programs in Clarabel, which is compiled.

With some tens of job classes an iteration of `method` costs as much as its hundred calls into NumPy. The same
program, written out as a sparse one of K M columns, is then solved sooner by a compiled general interior point method.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.core.objectives import Objective
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer, NotAcceptedError
from formulations.interior_point.method import InteriorPoint, StructuredProgram
from formulations.interior_point.sparse_form import WrittenOut
from formulations.interior_point.structured import solve_with_engine

Array = NDArray[np.float64]

_MOST_CLASSES = 96
"""Number of classes up to which this path is the faster one."""

_FINEST = 1e-12
"""Relative gap below which Clarabel makes no progress."""


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Solve any objective of this package over up to some tens of job classes.

    Raises `NotAcceptedError` for more classes, and RuntimeError when Clarabel does not reach the precision.
    """
    return solve_with_engine(polytope, objective, compiled_engine)


def solve_as_stated(polytope: Polytope, objective: Objective) -> Answer:
    """The same in the units of the program: ends near the published points."""
    return solve_with_engine(polytope, objective, _engine_as_stated)


def compiled_engine(program: StructuredProgram, precision: float) -> InteriorPoint:
    """Clarabel for programs that are small enough."""
    _check_size(program)
    return clarabel_engine(program, precision)


def _engine_as_stated(program: StructuredProgram, precision: float) -> InteriorPoint:
    _check_size(program)
    return clarabel_engine(program, precision, scaled=False)


def _check_size(program: StructuredProgram) -> None:
    K = program.rates.shape[1]
    if K > _MOST_CLASSES:
        raise NotAcceptedError(f"{K} classes of jobs are more than {_MOST_CLASSES}")


def clarabel_engine(program: StructuredProgram, precision: float, *, scaled: bool = True) -> InteriorPoint:
    """Clarabel on the program written out; `scaled` as in `WrittenOut`."""
    import clarabel
    from scipy.sparse import csc_matrix

    written = WrittenOut(program, bounds=True, scaled=scaled)
    size = len(written.cost)
    bend = csc_matrix((size, size))
    if program.curvature is not None:
        bend = csc_matrix((written.curvature, np.arange(size), np.arange(size + 1)), shape=(size, size))
    settings: Any = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = max(precision, _FINEST)
    cones = [clarabel.NonnegativeConeT(len(written.limit))]
    solver: Any = clarabel.DefaultSolver(bend, -written.cost, written.matrix, written.limit, cones, settings)
    solution = solver.solve()
    if solution.status != clarabel.SolverStatus.Solved:
        raise RuntimeError(f"Clarabel stopped with status {solution.status}")
    y, dual = np.array(solution.x), np.array(solution.z)
    shares, multipliers, prices = written.read(y, dual)
    return InteriorPoint(
        shares=shares,
        demand_multipliers=multipliers,
        prices=prices,
        iterations=int(solution.iterations),
        level=0.0 if program.slopes is None else float(y[-1]) * written.unit_of_level,
    )
