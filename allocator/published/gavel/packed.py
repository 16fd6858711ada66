"""The published choice among allocations of a packed makespan: where ECOS stops, pairs written out.

Gavel bisects on the time T and acts on the centre of what is feasible at the last feasible T, up to 5 % above the
optimum. Every two jobs with gangs of one size are a column on every type there, also where they cannot share: such
columns are worth nothing, and still have a part in the centre::

    -x_r <= 0,   sum_r s_r x_rj <= c_j,   sum_(r with i) sum_j x_rj <= 1,   -sum_(r with i) sum_j T_rij x_rj <= -n_i / T

with a row r for each job alone and for each pair.

Source: D. Narayanan et al., OSDI 2020, sections 3.1 and 4.2, public artifact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from allocator.policies.base.packed import served_part
from allocator.policies.gavel.packed import MinTotalDurationPacked
from allocator.protocol import ClusterState
from allocator.protocol.allocation import Allocation
from allocator.published.gavel.points import bisected_makespan, run_ecos, sparse_of
from formulations import PackedPolytope, Pairs, Solution, solve
from formulations.core.certificate import relative_gap
from formulations.core.objectives import Makespan
from formulations.solving.backends import BACKENDS
from throughputs.arrays import Floats


@dataclass(frozen=True)
class PublishedMinTotalDurationPacked(MinTotalDurationPacked):
    """The point on which the published system acts, up to 5 % above the optimum."""

    def allocate(self, state: ClusterState) -> Allocation:
        """Solve the program for `state`, and choose."""
        started = perf_counter()
        part = served_part(state, priced=False)
        objective = self.alone.objective(part.state, part.state.rates)
        solution = solve(part.polytope, objective, solver=self.solver)
        return part.allocation(self, published_makespan(part.polytope, objective, solution), started)


def published_makespan(polytope: PackedPolytope, objective: Makespan, solution: Solution) -> Solution:
    """The optimal `solution` with the allocation that the published system would act on in its place.

    Its objective is that of the allocation; bound and prices are those of the optimum. Where ECOS is not installed it
    is the optimum.
    """
    level = objective.level(polytope.throughput(solution.shares, solution.pairs))
    if not level > 0 or BACKENDS["ecos"].missing:
        return solution
    floors = objective.demand(1.0 / bisected_makespan(1.0 / level))
    rows = _Rows(polytope)
    try:
        x = rows.feasible_point(polytope.capacity, floors)
    except RuntimeError:
        return solution  # at the last feasible time ECOS may find nothing
    shares, pairs = rows.allocation(x)
    value = objective.value(polytope.throughput(shares, pairs))
    gap = relative_gap(value, solution.bound)
    return replace(solution, shares=shares, pairs=pairs, objective=value, gap=gap, status="feasible")


class _Rows:
    """The R rows of the program, jobs alone before pairs; columns are (R, M), one after the other.

    Attributes
    ----------
    n, M : jobs and types.
    one, other : (P,) the two jobs of each pair.
    matrix : (M + 2 n, R M) capacity, time and demand rows, sparse.
    """

    def __init__(self, polytope: PackedPolytope) -> None:
        columns = polytope.columns
        sizes, group, together = columns.scale_factors, columns.group, columns.together
        one, other = np.triu_indices(len(sizes), 1)
        alike = sizes[one] == sizes[other]
        self.one, self.other = one, other = one[alike], other[alike]
        self.n, self.M = n, M = len(sizes), columns.n_accelerators
        first = np.concatenate([np.arange(n), one])
        own = np.concatenate([columns.rates, together[group[one], group[other]]])
        beside = together[group[other], group[one]]
        # (row, column, value) of capacity, of time for the first or only job and for the second, of demand likewise
        column = np.arange(own.size).reshape(own.shape)
        paired = column[n:]
        entries = [
            (np.arange(M), column, sizes[first, None]),
            (M + first[:, None], column, 1.0),
            (M + other[:, None], paired, 1.0),
            (M + n + first[:, None], column, -own),
            (M + n + other[:, None], paired, -beside),
        ]
        self.matrix: Any = sparse_of(entries, (M + 2 * n, own.size)).tocsr()

    def feasible_point(self, capacity: Floats, floors: Floats) -> Floats:
        """Where ECOS ends among the columns that keep the floors (n,); RuntimeError where it finds none."""
        from scipy.sparse import eye_array, vstack

        n_columns = self.matrix.shape[1]
        right = np.concatenate([np.zeros(n_columns), capacity, np.ones(self.n), -floors])
        rows = vstack([-eye_array(n_columns), self.matrix])
        return np.asarray(run_ecos(np.zeros(n_columns), rows, right)["x"])

    def allocation(self, x: Floats) -> tuple[Floats, Pairs]:
        """Shares of jobs alone, and of pairs, scaled into the polytope where the path left it by a little."""
        X = np.clip(x, 0.0, 1.0).reshape(-1, self.M)
        X = X / max(1.0, float((self.matrix @ X.ravel())[self.M : self.M + self.n].max(initial=0.0)))
        row, j = np.nonzero(X[self.n :])
        pairs = Pairs(self.one[row].astype(np.int64), self.other[row].astype(np.int64), j, X[self.n + row, j])
        return X[: self.n], pairs
