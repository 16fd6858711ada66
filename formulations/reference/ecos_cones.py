"""Finish-time fairness written out as the cone program that ECOS gets, without cvxpy on the way.

    min_{t, x, w}  t      a_i + b_i w_i <= t,      x >= 0,      sum_ij s_i x_ij <= G_j,      sum_j x_ij <= 1,
                          || (u_i - w_i, 2) || <= u_i + w_i,       u_i = sum_j T_ij x_ij

The last rows say w_i >= 1 / u_i. Entry by entry and row by row the program is the one that cvxpy makes of
`Objective.statement`, so that ECOS ends at the same point, to the last digit; to make it of the statement takes five
times as long as to solve it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.core.objectives import Objective
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer, NotAcceptedError
from formulations.reference.convex import answer_of

if TYPE_CHECKING:
    from scipy import sparse

Array = NDArray[np.float64]

_WITH_A_POINT = (0, 10, -1)
"""Exit codes of ECOS with a point: optimal, optimal but not to full accuracy, out of iterations."""


class ConeProgram(NamedTuple):
    """``min c'z  s.t.  G z + s = h``, s in the cone of `dims`; as `ecos.solve` takes them."""

    cost: Array
    matrix: sparse.csc_matrix
    right: Array
    dims: dict[str, Any]


def inverse_cones(polytope: Polytope, a: Array, b: Array) -> ConeProgram:
    """``min_x max_i a_i + b_i / u_i`` over the polytope; variables t, x type by type, w."""
    from scipy import sparse

    rates, loads = polytope.rates, polytope.loads
    n, m = rates.shape
    jobs, types = np.arange(n), np.arange(m)
    # rows: n levels, n m signs, m types, n jobs, and three for each cone
    signs, capacity, time = n, n + n * m, n + n * m + m
    cones, variables = time + n, 1 + n * m + n
    # entries of each share, by type and job: its sign, the GPUs and the time that it takes, its throughput twice
    of_share = np.empty((m, n, 5), dtype=np.int64)
    entries = np.empty((m, n, 5))
    of_share[:, :, 0], entries[:, :, 0] = signs + types[:, None] * n + jobs, -1.0
    of_share[:, :, 1], entries[:, :, 1] = capacity + types[:, None], loads
    of_share[:, :, 2], entries[:, :, 2] = time + jobs, 1.0
    for k in (3, 4):
        of_share[:, :, k], entries[:, :, k] = cones + 3 * jobs + k - 3, -rates.T
    of_inverse = np.column_stack([jobs, cones + 3 * jobs, cones + 3 * jobs + 1])
    inverses = np.column_stack([b, np.full(n, -1.0), np.ones(n)])
    rows = np.concatenate([jobs, of_share.ravel(), of_inverse.ravel()])
    values = np.concatenate([np.full(n, -1.0), entries.ravel(), inverses.ravel()])
    ends = np.concatenate([[0, n], n + 5 * np.arange(1, n * m + 1), n + 5 * n * m + 3 * np.arange(1, n + 1)])
    right = np.zeros(cones + 3 * n)
    right[:n] = -a
    right[capacity:time], right[time:cones], right[cones + 2 :: 3] = polytope.capacity, 1.0, 2.0
    cost = np.zeros(variables)
    cost[0] = 1.0
    matrix = sparse.csc_matrix((values, rows, ends), shape=(len(right), variables))
    # of types on which jobs cannot run
    matrix.eliminate_zeros()
    return ConeProgram(cost, matrix, right, {"l": cones, "q": [3] * n, "e": 0})


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Where ECOS ends.

    Raises
    ------
    NotAcceptedError
        The objective has another statement.
    RuntimeError
        ECOS has no answer.
    """
    inverses = objective.in_inverses()
    if inverses is None:
        raise NotAcceptedError(f"{type(objective).__name__} is not the largest of numbers over throughputs")
    program = inverse_cones(polytope, *inverses)
    found = import_module("ecos").solve(program.cost, program.matrix, program.right, program.dims, verbose=False)
    info = found["info"]
    if info["exitFlag"] not in _WITH_A_POINT:
        raise RuntimeError(f"ECOS failed: {info['infostring']}")
    n, m = polytope.rates.shape
    shares = found["x"][1 : 1 + n * m].reshape((n, m), order="F")
    prices, of_time = np.split(found["z"][n + n * m : n + n * m + m + n], [m])
    return answer_of(polytope, shares, prices, of_time, int(info["iter"]))
