"""The structured programs written out as linear ones: for HiGHS and CBC.

Levels whose demands bend are found by a short sequence of linear programs, as for any other engine
(`formulations.interior_point.structured`). A program is stated in units that bring its figures near 1: types with
next to no GPUs, rates of millions of steps/s and demands of next to nothing would otherwise be lost in a solver's
tolerances.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from formulations.core.objectives import Objective
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from formulations.interior_point.method import InteriorPoint, StructuredProgram
from formulations.interior_point.structured import solve_with_engine
from formulations.reference.mixed_integer import MODELS, TIGHT, RowBuilder
from formulations.reference.stopping import StopRule
from throughputs.arrays import Floats

_OPTIONS: dict[str, dict[str, Any]] = {
    "highs": {"small_matrix_value": 1e-12, **TIGHT},
    "cbc": {"primalT": "1e-10", "dualT": "1e-10"},
}


def solve_highs(polytope: Polytope, objective: Objective) -> Answer:
    """Solve any objective of this package but sums of logarithms by linear programs in HiGHS."""
    return solve_with_engine(polytope, objective, lambda program, _: _solve_linear(program, "highs"))


def solve_cbc(polytope: Polytope, objective: Objective) -> Answer:
    """The same in CBC."""
    return solve_with_engine(polytope, objective, lambda program, _: _solve_linear(program, "cbc"))


def _solve_linear(program: StructuredProgram, solver: str) -> InteriorPoint:
    """One program to a vertex: of gains, or of a level without floors.

    Columns are the K M shares class by class, then the level; rows are time (K), capacity (M), demands (K).
    """
    rates, slopes, load = program.rates, program.slopes, program.counts * program.scale_factors
    (M, K), room = rates.shape, np.where(program.capacity == 0, 1.0, np.abs(program.capacity))
    type_, class_ = np.indices((M, K))
    share, unit = class_ * M + type_, np.minimum(1.0, room[:, None] / load)
    demands = []
    if slopes is None:
        assert program.gains is not None
        cost = (program.gains * program.counts * unit).T.ravel()
        top = float(cost.max()) or 1.0
        cost /= top
    else:
        size = _sizes_of_demands(rates, slopes)
        with np.errstate(divide="ignore"):
            unit = np.minimum(unit, size / rates)
        top = 1.0 / float((slopes / size).max())
        cost = np.append(np.zeros(K * M), 1.0)
        demands = [(class_, share, -rates * unit / size), (np.arange(K), K * M, slopes / size * top)]
    rows = RowBuilder(len(cost))
    rows.add(K, [(class_, share, unit)], -np.inf, 1.0)
    rows.add(M, [(type_, share, unit * load / room[:, None])], -np.inf, program.capacity / room)
    if demands:
        rows.add(K, demands, -np.inf, 0.0)
    y, dual = MODELS[solver](rows.program(-cost, 0.0, np.inf, False), _OPTIONS[solver]).solve(StopRule()).optimum
    shares, prices = np.maximum(y[share], 0.0) * unit, top * dual[K : K + M] / room
    if slopes is None:
        return InteriorPoint(shares, np.zeros(K), prices, 1, 0.0)
    return InteriorPoint(shares, top * dual[K + M :] / (size * program.counts), prices, 1, float(y[-1]) * top)


def _sizes_of_demands(rates: Floats, slopes: Floats) -> Floats:
    """(K,) about what each demand is at the level of the job that can do no better alone: not underestimated."""
    fastest, rising = rates.max(axis=0), slopes > 0
    demand = slopes * max(float((fastest[rising] / slopes[rising]).min(initial=np.inf)), 0.0)
    return np.where((demand > 0) & (demand < fastest), demand, fastest)
