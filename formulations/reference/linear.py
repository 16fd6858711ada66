"""The structured programs written out as linear ones: straight into HiGHS, and through PuLP into CBC.

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
from formulations.reference.mixed_integer import MODELS, TIGHT, MixedProgram
from formulations.reference.stopping import StopRule
from throughputs.arrays import Flags, Floats

_OPTIONS: dict[str, dict[str, Any]] = {
    "highs": {"small_matrix_value": 1e-12, **TIGHT},
    "cbc": {"primalT": "1e-10", "dualT": "1e-10"},
}

_NEGLECTED = 1e-11
"""Unit of a column below which its coefficients may be as good as nothing to a solver."""


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
    from scipy.sparse import csr_array

    rates, slopes, load = program.rates, program.slopes, program.counts * program.scale_factors
    M, K = rates.shape
    room = np.where(program.capacity == 0, 1.0, np.abs(program.capacity))
    unit = np.minimum(1.0, room[:, None] / load)
    class_, type_, share = np.repeat(np.arange(K), M), np.tile(np.arange(M), K), np.arange(K * M)
    if slopes is None:
        assert program.gains is not None
        cost = (program.gains * program.counts * unit).T.ravel()
        top = unit_of_cost = float(cost.max()) or 1.0
        cost = cost / unit_of_cost
        entries = []
    else:
        size = _sizes_of_demands(rates, slopes)
        with np.errstate(divide="ignore"):
            unit = np.minimum(unit, size / rates)
        top = unit_of_cost = 1.0 / float((slopes / size).max())
        cost = np.append(np.zeros(K * M), 1.0)
        demand = K + M + np.arange(K)
        entries = [
            (demand[class_], share, (-rates * unit / size).T.ravel()),
            (demand, np.full(K, K * M), slopes / size * top),
        ]
    entries += [(class_, share, unit.T.ravel()), (K + type_, share, (unit * load / room[:, None]).T.ravel())]
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    limit = np.concatenate([np.ones(K), program.capacity / room, np.zeros(0 if slopes is None else K)])
    matrix = csr_array((values, (rows, columns)), shape=(len(limit), len(cost)))
    stated = MixedProgram.of(matrix, cost, (-np.inf, limit), maximise=True)
    y, dual = MODELS[solver](stated, _OPTIONS[solver]).solve(StopRule()).optimum
    shares, dual = np.maximum(y[: K * M].reshape(K, M).T, 0.0) * unit, dual * unit_of_cost
    multipliers = np.zeros(K) if slopes is None else dual[K + M :] / (size * program.counts)
    prices = _with_neglected(program, unit < _NEGLECTED, multipliers, dual[K : K + M] / room)
    return InteriorPoint(shares, multipliers, prices, 1, 0.0 if slopes is None else float(y[-1]) * top)


def _sizes_of_demands(rates: Floats, slopes: Floats) -> Floats:
    """(K,) about what each demand is at the level of the job that can do no better alone: not underestimated."""
    fastest, rising = rates.max(axis=0), slopes > 0
    demand = slopes * max(float((fastest[rising] / slopes[rising]).min(initial=np.inf)), 0.0)
    return np.where((demand > 0) & (demand < fastest), demand, fastest)


def _with_neglected(program: StructuredProgram, neglected: Flags, multipliers: Floats, prices: Floats) -> Floats:
    """Prices at which no job would rather have the columns that a solver may have taken for nothing."""
    if not neglected.any():
        return prices
    worth = multipliers * program.rates + (0.0 if program.gains is None else program.gains)
    profit = np.where(neglected, 0.0, worth - program.scale_factors * prices[:, None]).max(axis=0)
    wanted = np.where(neglected, (worth - np.maximum(profit, 0.0)) / program.scale_factors, 0.0)
    return np.asarray(np.maximum(prices, wanted.max(axis=1)))
