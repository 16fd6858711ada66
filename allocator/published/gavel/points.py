"""The published choice among optima: the point at which the solver of the original ends.

An interior point method ends near the analytic centre of the optimal face, and so does Gavel's ECOS. Where exactly
depends on how it is asked: on the order of rows and columns and on last digits of coefficients (docs/fidelity.md). With
types listed by name, as policies do, it is the very point of the published systems; where ECOS is not installed (an
extra: it is under the GPL), that of another interior point. For the makespan Gavel bisects on the time T and stops
within 5 %; its allocation is the centre of what is feasible at the last feasible T.

The programs are written out as ECOS gets them from cvxpy, without cvxpy on the way::

    max_{t, x}  t                         rows  t <= u_i / w_i                                     (max-min, makespan)
    min_{t, x, w}  t                      rows  a_i + b_i w_i <= t,   || (u_i - w_i, 2) || <= u_i + w_i     (fairness)
    max_x  sum_i g_i u_i                                                                                     (a sum)
    any x                                 rows  u_i >= f_i                                     (a makespan's bisection)

each with ``x >= 0``, ``sum_ij s_i x_ij <= c_j``, ``sum_j x_ij <= 1`` and ``u_i = sum_j T_ij x_ij``; the cones say that
``w_i >= 1 / u_i``. Entry by entry and row by row the programs are those that cvxpy makes of `formulations.statements`,
so that ECOS ends at the same point, to the last digit; to make them of the statement takes several times as long as to
solve them.

Source: D. Narayanan et al., OSDI 2020, public artifact.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from formulations.core.objectives import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    MaxSum,
    Method,
    Objective,
    Threshold,
)
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from formulations.interior_point.structured import solve_with_floors
from formulations.reference import convex
from formulations.solving.backends import AUTO, BACKENDS, Backend, in_order
from formulations.solving.choice import Among, Choice, Chooser
from formulations.statements import cp
from formulations.statements.shares import Times
from throughputs.arrays import Floats

_WITH_A_POINT = (0, 10, -1)
"""Exit codes of ECOS with a point: optimal, optimal but not to full accuracy, out of iterations."""


_MOST_FOR_ECOS = 16_000
"""Number of jobs up to which a published point is that of ECOS; of an interior point where it is not installed."""

_GAP = 1e-2
"""Relative gap up to which a published point is taken for what its solver returns, not for a failure."""

# Where Gavel's bisection on the makespan (seconds) starts, by how much it steps up, and when it stops.
_BISECTION_START = (100.0, 1e6)
_BISECTION_STOP = 1.05


@dataclass(frozen=True)
class PublishedPoints(Chooser):
    """The point that the solver returns, as the published systems use it; its gap is reported."""

    as_stated: bool = True

    def backends(self, solver: str, n_jobs: int) -> list[Backend]:
        """ECOS first, which is asked without cvxpy; there is a warning where it is missing."""
        ecos = replace(BACKENDS["ecos"], module=__name__, function="solve")
        if solver != "auto" or n_jobs >= _MOST_FOR_ECOS:
            return [ecos] if solver == "ecos" else in_order(solver)
        others = [BACKENDS[name] for name in AUTO if name != "prices"]
        if ecos.missing:
            warnings.warn(f"the published point is that of ECOS, which is missing: {ecos.install}", stacklevel=3)
            return others
        return [ecos, *others]

    def enough(self, tolerance: float) -> float:
        """The precision of the solver."""
        return max(tolerance, _GAP)

    def choose(self, objective: Objective, among: Among, solver: str) -> Choice:
        """The solver's own point; of a makespan, one at the last time of the bisection at which all jobs can end."""
        if not isinstance(objective, Makespan):
            return among.as_found()
        return _makespan(among.polytope, objective, among.best.shares, solver)


POINTS = PublishedPoints()


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


def _makespan(polytope: Polytope, objective: Makespan, optimum: Floats, solver: str) -> Choice:
    """A point at which every job would end within the bisected time, as the named backend's interior point finds it."""
    level = objective.level(polytope.throughput(optimum))
    if not level > 0:
        return Choice(optimum)
    floors = objective.demand(1.0 / bisected_makespan(1.0 / level))
    if solver == "auto" and not BACKENDS["ecos"].missing:
        solver = "ecos"
    try:
        if solver == "ecos":
            return Choice(polytope.repaired(feasible_point(polytope, floors)))
        if solver in ("clarabel", "scs"):
            return Choice(polytope.repaired(_stated_point(polytope, floors, solver.upper())))
    except RuntimeError:
        pass  # at the last feasible time a solver may find nothing; our own method then does
    return Choice(polytope.repaired(solve_with_floors(polytope, None, floors, 0.0).shares))


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Where ECOS ends; RuntimeError where it has no answer."""
    return objective.accept(_Published(polytope))


def feasible_point(polytope: Polytope, floors: Floats) -> Floats:
    """Shares (N, M) that give every job its floor (N,): where ECOS ends; RuntimeError where it finds none."""
    return _solve(polytope, floors=floors).shares


@dataclass(frozen=True, eq=False)
class _Published(Method[Answer]):
    polytope: Polytope

    def weighted_sum(self, objective: MaxSum) -> Answer:
        return _solve(self.polytope, gains=objective.totals)

    def linear_level(self, objective: MaxMin) -> Answer:
        return _solve(self.polytope, level=np.zeros(self.polytope.n_jobs), weights=objective.weights)

    def level(self, objective: Threshold) -> Answer:
        if not isinstance(objective, FinishTimeFairness):
            raise self.refusal(objective)
        each = 1.0 / objective.isolated
        return _solve(self.polytope, level=-(each * objective.elapsed), inverse=each * objective.remaining)


def _stated_point(polytope: Polytope, floors: Floats, solver: str) -> Floats:
    times = Times(polytope)
    problem = cp.Problem(cp.Maximize(1), [*times.rows(polytope.capacity), times.u >= floors])
    return convex.point_of(problem, solver)


def _solve(
    polytope: Polytope,
    *,
    gains: Floats | None = None,
    level: Floats | None = None,
    weights: Floats | None = None,
    inverse: Floats | None = None,
    floors: Floats | None = None,
) -> Answer:
    """Columns: t, where there are rows of a `level` with these right-hand sides (N,); x type by type; w.

    Rows: the level, signs of x, capacity, time, floors or cones.
    """
    rates, (n, m) = polytope.rates, polytope.rates.shape
    jobs, types = np.arange(n)[:, None], np.arange(m)
    first, signs = (0, 0) if level is None else (1, n)
    capacity, time, below = signs + n * m, signs + n * m + m, signs + n * m + m + n
    share, w = first + types * n + jobs, first + n * m + jobs
    cost = np.zeros(first + n * m + (0 if inverse is None else n))
    entries: list[tuple[Any, Any, Any]] = [
        (signs + types * n + jobs, share, -1.0),
        (capacity + types, share, polytope.loads[:, None]),
        (time + jobs, share, 1.0),
    ]
    limits = [np.zeros(n * m), polytope.capacity, np.ones(n)]
    if gains is not None:
        cost[:] = -(gains[:, None] * rates).ravel("F")
    if level is not None:
        cost[0] = 1.0
        entries.append((jobs, 0, -1.0))
        limits.insert(0, level)
    if weights is not None:
        entries.append((jobs, share, -((1.0 / weights)[:, None] * rates)))
    if inverse is not None:
        cone = below + 3 * jobs
        entries += [(jobs, w, inverse[:, None]), (cone, w, -1.0), (cone + 1, w, 1.0)]
        entries += [(cone, share, -rates), (cone + 1, share, -rates)]
        limits.append(np.tile([0.0, 0.0, 2.0], n))
    if floors is not None:
        entries.append((below + jobs, share, -rates))
        limits.append(-floors)
    right = np.concatenate(limits)
    matrix = sparse_of(entries, (len(right), len(cost)))
    found = run_ecos(cost, matrix, right, 0 if inverse is None else n)
    shares = found["x"][first : first + n * m].reshape((n, m), order="F")
    prices, of_time = np.split(found["z"][capacity:below], [m])
    return convex.answer_of(polytope, shares, prices, of_time, int(found["info"]["iter"]))


def sparse_of(entries: Iterable[tuple[Any, Any, Any]], shape: tuple[int, int]) -> Any:
    """A sparse matrix of arrays of (row, column, value), each broadcast, in this order."""
    from scipy.sparse import coo_matrix

    parts = [np.broadcast_arrays(*entry) for entry in entries]
    rows, columns, values = (np.concatenate([part[k].ravel() for part in parts]) for k in range(3))
    return coo_matrix((values.astype(np.float64), (rows, columns)), shape=shape)


def run_ecos(cost: Floats, matrix: Any, right: Floats, n_cones: int = 0) -> Any:
    """``min c'z, G z + s = h``, s at least 0 but for the last rows: `n_cones` second-order cones of three.

    RuntimeError where ECOS has no point.
    """
    from scipy.sparse import csc_matrix

    rows = csc_matrix(matrix)
    # of types on which jobs cannot run
    rows.eliminate_zeros()
    dims = {"l": len(right) - 3 * n_cones, "q": [3] * n_cones, "e": 0}
    found = import_module("ecos").solve(cost, rows, np.asarray(right, dtype=np.float64), dims, verbose=False)
    if found["info"]["exitFlag"] not in _WITH_A_POINT:
        raise RuntimeError(f"ECOS failed: {found['info']['infostring']}")
    return found
