"""The choice among optima.

An optimum of a share policy is rarely unique: one job at its limit fixes the value and leaves the rest of the cluster
undecided. The choice is part of the policy:

``balanced`` (default)
    Of all allocations that attain the optimum, take the one with the largest total normalised throughput; this leaves
    no GPU idle that some job could use, and no job can gain without another losing (Pareto efficiency). Among those,
    take shares that are as even as possible::

        max_x  sum_ij q_ij x_ij  -  e/2 sum_i (max_j q_ij) sum_j x_ij^2         u_i >= demand_i(optimum)

    with q_ij = s_i T_ij / p_i (p_i: throughput under the proportional share) and e = 1e-6. The objective is strictly
    concave, so the answer is unique: it does not depend on the solver that found the optimum, on the platform or on
    the order of the jobs, and equal jobs get equal shares. The square costs at most e/2 of the throughput. (Solvers
    agree on the optimum to about 1e-9; where the cluster's total throughput hangs on the last digits of the optimum,
    the choices after them differ by as much.)
``published``
    The point that the solver returns, as the published systems use it. An interior point method ends near the
    analytic centre of the optimal face; this is what Gavel's ECOS does. For the makespan Gavel bisects on the time T
    and stops within 5 %; its allocation is the centre of what is feasible at the last feasible T.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from formulations.backends import homogeneous
from formulations.backends.compiled import compiled_engine
from formulations.backends.structured import Engine, own_engine, solve_with_floors
from formulations.objectives import Makespan, MaxSum, Objective, Threshold
from formulations.polytope import Polytope
from throughputs import InputError

__all__ = ["CHOICES", "Choice", "balance", "bisected_makespan", "check_choice", "published_makespan"]

Array = NDArray[np.float64]

CHOICES = ("balanced", "published")

EVENNESS = 1e-6
"""Weight e of the squared shares; a tenth of it where the worth is the objective itself (a sum of throughputs)."""

_ENGINES: tuple[Engine, ...] = (compiled_engine, own_engine)
"""Engines that are tried in turn; the first takes small programs only."""

_RELAXATIONS = (1e-9, 1e-8)
"""Fractions by which the optimum is relaxed so that the choice has an interior to search, tried in turn."""

_PRECISION = 1e-13
"""Relative gap of the choice: the square is small, and is resolved only far below it."""

_DUST = 1e-9
"""Part of a job's largest share below which a share is taken for none."""

_ACCEPTED_LOSS = 2e-8
"""Relative loss of the objective up to which a choice is accepted."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Chosen shares (N, M), and how far their total worth is from the most possible, relative; nan: not asked."""

    shares: Array
    efficiency_gap: float = np.nan


def check_choice(choice: str) -> None:
    """InputError unless `choice` is known."""
    if choice not in CHOICES:
        raise InputError("choice among optima", found=choice, expected=f"one of {', '.join(CHOICES)}")


def balance(polytope: Polytope, objective: Objective, optimum: Array, worth: Array) -> Choice:
    """The balanced choice.

    Parameters
    ----------
    optimum : (N, M) feasible shares that attain the optimum; returned as they are, with no proof of efficiency,
        should rounding keep every choice from attaining it too.
    worth : (N, M) q, normalised throughput of each column.
    """
    if isinstance(objective, MaxSum):
        # every throughput counts in the objective: its optima are efficient, only evenness is left to choose
        worth = objective.gains[:, None] * polytope.rates
        tried = (_choose(polytope, worth, None, None, EVENNESS / 10, engine) for engine in _ENGINES)
        return next((choice for choice in tried if choice is not None), Choice(optimum))
    assert isinstance(objective, Threshold)
    level = objective.level(polytope.throughput(optimum))
    for engine, relaxation in product(_ENGINES, _RELAXATIONS):
        floors = objective.demand(objective.relaxed(level, relaxation))
        chosen = _choose(polytope, worth, floors, optimum, EVENNESS, engine)
        if chosen is None:
            continue
        attained = objective.level(polytope.throughput(chosen.shares))
        loss = (level - attained if objective.higher_level_is_better else attained - level) / abs(level)
        if loss <= _ACCEPTED_LOSS:
            return chosen
    return Choice(optimum)


def _choose(
    polytope: Polytope, worth: Array, floors: Array | None, start: Array | None, evenness: float, engine: Engine
) -> Choice | None:
    """One attempt; None when the engine does not solve it, or not well enough."""
    try:
        answer = solve_with_floors(polytope, worth, floors, evenness, start=start, precision=_PRECISION, engine=engine)
    except RuntimeError:
        return None
    shares = polytope.repaired(answer.shares)
    # interior points stop short of zero; a share below any use is none
    shares[shares < _DUST * shares.max(axis=1, keepdims=True)] = 0.0
    total = float(polytope.counts @ (worth * shares).sum(axis=1))
    owed, earned = 0.0, worth
    if floors is not None:
        multipliers = np.clip(answer.multipliers, 0.0, None)
        owed = float((polytope.counts * multipliers) @ floors)
        earned = worth + multipliers[:, None] * polytope.rates
    most = polytope.supply(earned, np.clip(answer.prices, 0.0, None)) - owed
    gap = max(most - total, 0.0) / most if most > 0 else np.inf
    # the square costs e/2; what is missing beyond it was not found
    return Choice(shares, gap) if gap <= 2 * evenness else None


# Where Gavel's bisection on the makespan (seconds) starts, by how much it steps up, and when it stops.
_BISECTION_START = (100.0, 1e6)
_BISECTION_STOP = 1.05


def bisected_makespan(makespan: float) -> float:
    """Last feasible time of the published bisection when `makespan` is the optimum, seconds.

    Whether a time is feasible is known once the optimum is: the bisection needs no further programs.
    """
    low, high = _BISECTION_START
    while makespan > high:
        low, high = high, high * 10.0
    last = high
    while _BISECTION_STOP * low < high:
        middle = (low + high) / 2.0
        if middle >= makespan:
            last = high = middle
        else:
            low = middle
    return last


def published_makespan(polytope: Polytope, objective: Makespan, optimum: Array, solver: str) -> Choice:
    """A point at which every job would end within the bisected time, as the named backend's interior point finds it."""
    level = objective.level(polytope.throughput(optimum))
    if not level > 0:
        return Choice(optimum)
    floors = objective.demand(1.0 / bisected_makespan(1.0 / level))
    try:
        shares = _feasible_point(polytope, floors, solver)
    except RuntimeError:
        # at the last feasible time a solver may find nothing; our own method then does
        shares = _feasible_point(polytope, floors, "structured")
    return Choice(polytope.repaired(shares))


def _feasible_point(polytope: Polytope, floors: Array, solver: str) -> Array:
    if solver in ("auto", "homogeneous"):
        return homogeneous.feasible_point(polytope, floors)
    if solver in ("compiled", "structured", "highs", "cbc"):
        return solve_with_floors(polytope, None, floors, 0.0).shares
    from formulations.backends import convex

    return convex.feasible_point(polytope, floors, {"cvxpy_highs": "HIGHS"}.get(solver, solver.upper()))
