"""The structured programs written out as linear ones: straight into HiGHS, and through PuLP into CBC.

Levels whose demands bend are found by a short sequence of linear programs, as for any other engine
(`formulations.interior_point.structured`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from formulations.core.highs_model import TIGHT, run_to_optimum, with_model
from formulations.core.objectives import Objective
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from formulations.interior_point.method import InteriorPoint, StructuredProgram
from formulations.interior_point.sparse_form import WrittenOut
from formulations.interior_point.structured import solve_with_engine
from formulations.reference.cbc import run_cbc
from formulations.reference.stopping import StopRule

Array = NDArray[np.float64]

_SMALLEST_COEFFICIENT = 1e-12


def solve_highs(polytope: Polytope, objective: Objective) -> Answer:
    """Solve any objective of this package but sums of logarithms by linear programs in HiGHS."""
    return solve_with_engine(polytope, objective, lambda program, _: _solve_linear(program, _in_highs))


def solve_cbc(polytope: Polytope, objective: Objective) -> Answer:
    """The same in CBC."""
    return solve_with_engine(polytope, objective, lambda program, _: _solve_linear(program, _in_cbc))


def _solve_linear(program: StructuredProgram, run: Callable[[WrittenOut], tuple[Array, Array]]) -> InteriorPoint:
    """One program to a vertex; `run` returns columns and row multipliers, in absolute value."""
    written = WrittenOut(
        program, level=None if program.slopes is None else _easiest_level(program.rates, program.slopes)
    )
    columns, dual = run(written)
    shares, multipliers, prices = written.read(columns, dual)
    level = 0.0 if program.slopes is None else float(columns[-1]) * written.unit_of_level
    return InteriorPoint(shares, multipliers, prices, 1, level)


def _easiest_level(rates: Array, slopes: Array) -> float:
    """The level of the job that can do no better alone: demands at it are not underestimated."""
    rising = slopes > 0
    return float((rates.max(axis=0)[rising] / slopes[rising]).min(initial=np.inf))


def _in_highs(written: WrittenOut) -> tuple[Array, Array]:
    options = {"small_matrix_value": _SMALLEST_COEFFICIENT, **TIGHT, "time_limit": StopRule().limit}
    rows = -np.inf, written.limit
    return run_to_optimum(with_model(written.matrix.tocsr(), written.cost, rows, maximise=True, options=options))


def _in_cbc(written: WrittenOut) -> tuple[Array, Array]:
    answer = run_cbc(
        written.matrix.tocsr(),
        written.cost,
        (np.full(len(written.limit), -np.inf), written.limit),
        lower=np.zeros(len(written.cost)),
        upper=np.full(len(written.cost), np.inf),
        maximise=True,
        stop=StopRule(),
        options={"primalT": "1e-10", "dualT": "1e-10"},
    )
    if answer.columns is None or not answer.proven:
        raise RuntimeError(f"CBC stopped with status {answer.status}")
    return answer.columns, np.abs(answer.row_duals)
