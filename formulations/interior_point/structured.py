"""The structured path: an interior point method that knows the structure of the polytope.

The method is an *engine*: our own on M prices (`method`), or a solver of linear programs (`reference.linear`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formulations.core.objectives import MaxMin, MaxSum, Method, NashWelfare, Objective, Threshold
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from formulations.interior_point.method import Engine, InteriorPoint, StructuredProgram, solve_structured
from throughputs.arrays import Floats

_PRECISION = 1e-11
"""Relative gap to which programs are solved; the certificate then decides."""

_FIRST_PRECISION = 1e-4
"""Relative gap of the first programs of a sequence."""

_ACCEPTED_GAP, _STALLED = 1e-9, 0.3
"""A gap that is good enough when a program as fine as can be leaves more than this part of the gap before."""

_MOST_PROGRAMS = 40
"""Max-min programs, one for each level that is tried, after which the search for a level ends."""


def solve(polytope: Polytope, objective: Objective, *, precision: float = _PRECISION) -> Answer:
    """Solve any objective of this package to a relative gap of about `precision`.

    Polytope rows without a positive rate are not allowed here.
    """
    return objective.accept(_Structured(polytope, solve_structured, precision))


def solve_with_engine(polytope: Polytope, objective: Objective, engine: Engine) -> Answer:
    """The same with a given engine, but no logarithms."""
    return objective.accept(_WithEngine(polytope, engine))


@dataclass(frozen=True, eq=False)
class _WithEngine(Method[Answer]):
    polytope: Polytope
    engine: Engine
    precision: float = _PRECISION

    def weighted_sum(self, objective: MaxSum) -> Answer:
        if not objective.gains.any():
            # nothing is worth anything
            return Answer(np.zeros(self.polytope.rates.shape), np.zeros(0), np.zeros(len(self.polytope.capacity)))
        worth = objective.gains[:, None] * self.polytope.rates
        return solve_with_floors(self.polytope, worth, None, 0.0, engine=self.engine)

    def linear_level(self, objective: MaxMin) -> Answer:
        return _solve_max_min(self.polytope, objective.weights, self.precision, self.engine)

    def level(self, objective: Threshold) -> Answer:
        return _solve_by_levels(self.polytope, objective, self.engine, self.precision)


class _Structured(_WithEngine):
    def log_sum(self, objective: NashWelfare) -> Answer:
        fastest = self.polytope.fastest
        program = _program(self.polytope, fastest, budgets=objective.budgets)
        return _answer(fastest, self.engine(program, self.precision))


def _solve_by_levels(polytope: Polytope, objective: Threshold, engine: Engine, finest: float) -> Answer:
    """Close in on the level by max-min programs, each a Newton step on its dual.

    The level only ever moves to a proven bound, so early programs are solved roughly: an inexact program costs
    progress, never correctness.
    """
    fastest = polytope.fastest
    level, bound = objective.first_guess(fastest), objective.easiest_level(fastest)
    precision, iterations, last = _FIRST_PRECISION, 0, np.inf
    best, proof, most = None, None, np.nan
    for _ in range(_MOST_PROGRAMS):
        answer = _solve_max_min(polytope, objective.demand(level), precision, engine)
        iterations += answer.iterations
        supply = polytope.supply_at(answer.multipliers, answer.prices)
        proven = objective.bound(polytope.counts * answer.multipliers, supply)
        attained = objective.level(polytope.throughput(polytope.repaired(answer.shares)))
        # a finer program may end less well, and one that holds at its level may say nothing of better ones
        if best is None or objective.worse(most, attained) != attained:
            best, most = answer, attained
        if proof is None or objective.worse(proven, bound) != bound:
            proof = answer
        bound = objective.worse(proven, bound)
        gap = abs(most - bound) / abs(bound)
        if gap <= 4 * finest or (precision == finest and _STALLED * last <= gap <= _ACCEPTED_GAP):
            break
        last = gap
        moved = abs(bound - level) / abs(bound)
        if precision == finest and not moved > 1e-13:
            break
        level = bound
        # a Newton step squares the error, up to what the next program can resolve
        precision = max(finest, min(_FIRST_PRECISION, min(gap, moved) ** 2 * 1e-2))
    assert best is not None
    assert proof is not None
    return Answer(best.shares, proof.multipliers, proof.prices, iterations)


def _solve_max_min(polytope: Polytope, weights: Floats, precision: float, engine: Engine) -> Answer:
    """``max t, u_k >= w_k t``; rates and the level are scaled to be near 1."""
    fastest = polytope.fastest
    slopes = weights / fastest
    return _answer(fastest, engine(_program(polytope, fastest, slopes=slopes / slopes.max()), precision))


def solve_with_floors(
    polytope: Polytope,
    gains: Floats | None,
    floors: Floats | None,
    curvature: float | Floats,
    *,
    start: Floats | None = None,
    precision: float = _PRECISION,
    engine: Engine = solve_structured,
) -> Answer:
    """Maximise the worth of the shares while every job keeps its floor::

        max_x  sum_ij q_ij x_ij - e/2 sum_i (max_j q_ij) |x_i|^2      u_i >= f_i

    Parameters
    ----------
    gains : (N, M) q, worth of each column; None for none: any feasible point, and then a central one.
    floors : (N,) f, throughput to keep; None for none.
    curvature : e; any e > 0 makes the optimum unique. Where there is no worth, (N,) weights of the squares instead.
    start : (N, M) feasible shares to begin near.
    precision : relative gap to solve to.
    """
    fastest = polytope.fastest
    worth = None if gains is None else np.ascontiguousarray(gains.T)
    bend = None
    if isinstance(curvature, np.ndarray):
        bend = curvature
    elif worth is not None and curvature > 0:
        bend = curvature * worth.max(axis=0)
    program = _program(
        polytope,
        fastest,
        floors=None if floors is None else floors / fastest,
        gains=worth,
        curvature=bend,
        start=None if start is None else np.ascontiguousarray(start.T),
    )
    return _answer(fastest, engine(program, precision))


def _program(polytope: Polytope, fastest: Floats, **parts: Floats | None) -> StructuredProgram:
    """The program by types, throughput in units of each job's fastest."""
    return StructuredProgram(
        rates=np.ascontiguousarray((polytope.rates / fastest[:, None]).T),
        scale_factors=polytope.scale_factors.astype(np.float64),
        counts=polytope.counts,
        capacity=polytope.capacity,
        **parts,
    )


def _answer(fastest: Floats, point: InteriorPoint) -> Answer:
    """Back in the units of the jobs."""
    shares = np.ascontiguousarray(point.shares.T)
    return Answer(shares, point.demand_multipliers / fastest, point.prices, point.iterations)
