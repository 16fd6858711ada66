"""The published points: programs written out as ECOS gets them from cvxpy, without cvxpy on the way.

    max_{t, x}  t                         rows  t <= u_i / w_i                                     (max-min, makespan)
    min_{t, x, w}  t                      rows  a_i + b_i w_i <= t,   || (u_i - w_i, 2) || <= u_i + w_i     (fairness)
    max_x  sum_i g_i u_i                                                                                     (a sum)
    any x                                 rows  u_i >= f_i                                     (a makespan's bisection)

each with ``x >= 0``, ``sum_ij s_i x_ij <= c_j``, ``sum_j x_ij <= 1`` and ``u_i = sum_j T_ij x_ij``; the cones say that
``w_i >= 1 / u_i``. Entry by entry and row by row the programs are those that cvxpy makes of `Objective.statement`, so
that ECOS ends at the same point, to the last digit; to make them of the statement takes several times as long as to
solve them. Gavel acts on the point at which ECOS ends, and its programs have many optima.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.core.objectives import MaxMin, MaxSum, Method, Objective, Threshold
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from formulations.reference.convex import answer_of

Array = NDArray[np.float64]
_WITH_A_POINT = (0, 10, -1)
"""Exit codes of ECOS with a point: optimal, optimal but not to full accuracy, out of iterations."""


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Where ECOS ends; RuntimeError where it has no answer."""
    return objective.accept(_Published(polytope))


def feasible_point(polytope: Polytope, floors: Array) -> Array:
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
        inverses = objective.in_inverses()
        if inverses is None:
            raise self.refusal(objective)
        return _solve(self.polytope, level=-inverses[0], inverse=inverses[1])


def _solve(
    polytope: Polytope,
    *,
    gains: Array | None = None,
    level: Array | None = None,
    weights: Array | None = None,
    inverse: Array | None = None,
    floors: Array | None = None,
) -> Answer:
    """Columns: t, where there are rows of a `level` with these right-hand sides (N,); x type by type; w.

    Rows: the level, signs of x, capacity, time, floors or cones.
    """
    from scipy.sparse import coo_matrix

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
    parts = [np.broadcast_arrays(*entry) for entry in entries]
    rows, columns, values = (np.concatenate([part[k].ravel() for part in parts]) for k in range(3))
    right = np.concatenate(limits)
    matrix = coo_matrix((values.astype(np.float64), (rows, columns)), shape=(len(right), len(cost)))
    found = run_ecos(cost, matrix, right, 0 if inverse is None else n)
    shares = found["x"][first : first + n * m].reshape((n, m), order="F")
    prices, of_time = np.split(found["z"][capacity:below], [m])
    return answer_of(polytope, shares, prices, of_time, int(found["info"]["iter"]))


def run_ecos(cost: Array, matrix: Any, right: Array, n_cones: int = 0) -> Any:
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
