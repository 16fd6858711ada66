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

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.core.objectives import MaxMin, MaxSum, Method, NashWelfare, Objective, Threshold
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from formulations.reference.convex import answer_of, solve_ecos

Array = NDArray[np.float64]
Entries = tuple[Any, Any, Any]
"""Rows, columns and values, which are broadcast against each other."""

_WITH_A_POINT = (0, 10, -1)
"""Exit codes of ECOS with a point: optimal, optimal but not to full accuracy, out of iterations."""


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Where ECOS ends; RuntimeError where it has no answer."""
    return objective.accept(_Published(polytope))


def feasible_point(polytope: Polytope, floors: Array) -> Array:
    """Shares (N, M) that give every job its floor (N,): where ECOS ends; RuntimeError where it finds none."""
    return _Written(polytope).run(np.zeros(polytope.rates.size), floors=floors).shares


@dataclass(frozen=True, eq=False)
class _Published(Method[Answer]):
    polytope: Polytope

    def weighted_sum(self, objective: MaxSum) -> Answer:
        return _Written(self.polytope).run(-(objective.totals[:, None] * self.polytope.rates).ravel("F"))

    def linear_level(self, objective: MaxMin) -> Answer:
        relative = (1.0 / objective.weights)[:, None] * self.polytope.rates
        return _Written(self.polytope, first=1).run_to_level(np.zeros(len(relative)), relative)

    def level(self, objective: Threshold) -> Answer:
        inverses = objective.in_inverses()
        if inverses is None:
            raise self.refusal(objective)
        return _Written(self.polytope, first=1).run_to_level(-inverses[0], None, inverses[1])

    def log_sum(self, objective: NashWelfare) -> Answer:
        return solve_ecos(self.polytope, objective)


class _Written:
    """The rows of the polytope; its columns, type by type, come after `first` others."""

    def __init__(self, polytope: Polytope, first: int = 0) -> None:
        self.polytope = polytope
        self.n, self.m = polytope.rates.shape
        self.jobs, self.types = np.arange(self.n), np.arange(self.m)
        self.first = first
        self.share = first + self.types * self.n + self.jobs[:, None]

    def run_to_level(self, right: Array, relative: Array | None, inverse: Array | None = None) -> Answer:
        """The best level t, the first column: rows ``-t - relative . x <= right`` or ``-t + inverse w <= right``."""
        entries: list[Entries] = [(self.jobs, 0, -1.0)]
        if relative is not None:
            entries.append((self.jobs[:, None], self.share, -relative))
        cost = np.zeros(1 + self.n * self.m + (0 if inverse is None else self.n))
        cost[0] = 1.0
        return self.run(cost, (right, entries), inverse)

    def run(
        self,
        cost: Array,
        above: tuple[Array, Sequence[Entries]] | None = None,
        inverse: Array | None = None,
        floors: Array | None = None,
    ) -> Answer:
        """Solve with rows `above` those of the polytope, and below them `floors` or the cones of the inverses."""
        from scipy.sparse import coo_matrix

        n, m, polytope, jobs = self.n, self.m, self.polytope, self.jobs
        right, entries = (np.zeros(0), []) if above is None else (above[0], [*above[1]])
        signs = len(right)
        capacity = signs + n * m
        time, below = capacity + m, capacity + m + n
        entries += [
            (signs - self.first + self.share, self.share, -1.0),
            (capacity + self.types, self.share, polytope.loads[:, None]),
            (time + jobs[:, None], self.share, 1.0),
        ]
        limits = [right, np.zeros(n * m), polytope.capacity, np.ones(n)]
        if floors is not None:
            entries.append((below + jobs[:, None], self.share, -polytope.rates))
            limits.append(-floors)
        if inverse is not None:
            w, cone = self.first + n * m + jobs, below + 3 * jobs
            entries += [(cone[:, None] + k, self.share, -polytope.rates) for k in (0, 1)]
            entries += [(jobs, w, inverse), (cone, w, -1.0), (cone + 1, w, 1.0)]
            limits.append(np.tile([0.0, 0.0, 2.0], n))
        parts = [np.broadcast_arrays(*entry) for entry in entries]
        rows, columns, values = (np.concatenate([part[k].ravel() for part in parts]) for k in range(3))
        limit = np.concatenate(limits)
        matrix = coo_matrix((values.astype(np.float64), (rows, columns)), shape=(len(limit), len(cost)))
        found = run_ecos(cost, matrix, limit, 0 if inverse is None else n)
        shares = found["x"][self.first : self.first + n * m].reshape((n, m), order="F")
        prices, of_time = np.split(found["z"][capacity : time + n], [m])
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
