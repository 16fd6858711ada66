"""The program over times beside groups written out as a sparse one, for HiGHS, which knows nothing of its structure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.core.highs_model import TIGHT, run_to_optimum, with_model
from formulations.packed.program import Goal, PackedPoint, PackedProgram

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Statement:
    """``max c.x`` subject to ``A x <= b`` (equal in the rows that `equal` marks), ``x >= 0``."""

    cost: Array
    matrix: Any
    limit: Array
    equal: NDArray[np.bool_]


class Explicit:
    """Columns: K M times alone, times beside groups class by class, the level.

    Rows: time (K), capacity (M), balance of each pair of groups, nobody beside itself (each class of one job and type),
    demands (K).
    """

    def __init__(self, program: PackedProgram) -> None:
        self.program = program
        self.k, self.b, self.j = np.nonzero(program.useful[program.group])

    def __call__(self, goal: Goal) -> PackedPoint:
        """Solve for a goal."""
        program = self.program
        K, M = program.rates.shape
        fastest, n = program.fastest, program.counts
        top = 1.0 if goal.slopes is None else float((goal.slopes / fastest).max())
        most = (
            max(float((n * goal.gains_by_type(program).max(axis=1) * fastest).max()), 1e-300)
            if goal.gains is not None
            else 1.0
        )
        columns, dual = _optimum(self.statement(goal, top, most))
        shared = np.zeros((K, len(program.alone), M))
        shared[self.k, self.b, self.j] = columns[K * M : K * M + len(self.k)]
        of_demand = dual[-K:] if goal.slopes is not None or goal.floors is not None else np.zeros(K)
        return PackedPoint(
            alone=columns[: K * M].reshape(K, M),
            shared=shared,
            demand_multipliers=most * of_demand / (fastest * n),
            time_multipliers=most * dual[:K] / n,
            prices=most * dual[K : K + M] / program.capacity,
            iterations=0,
        )

    def statement(self, goal: Goal, top: float = 1.0, most: float = 1.0) -> Statement:
        """For a goal, the level in units of `top` and the sum in units of `most`."""
        from scipy.sparse import csr_array, hstack, vstack

        program = self.program
        K, M = program.rates.shape
        g, n, fastest = program.group, program.counts, program.fastest
        k = np.concatenate([np.repeat(np.arange(K), M), self.k])
        j = np.concatenate([np.tile(np.arange(M), K), self.j])
        C = len(k)
        rate = np.concatenate([program.rates.ravel(), program.together[g[self.k], self.b, self.j]])
        gpus = program.gangs[k] * np.repeat([1.0, 0.5], [K * M, C - K * M])
        column = np.arange(C)
        time = csr_array((np.ones(C), (k, column)), shape=(K, C))
        use = csr_array((n[k] * gpus / program.capacity[j], (j, column)), shape=(M, C))
        balance, beside = self._balance(C), self._beside(C)
        rows = vstack([time, use, balance, beside], format="csr")
        limit = np.concatenate([np.ones(K + M), np.zeros(balance.shape[0] + beside.shape[0])])
        equal = np.zeros(len(limit), dtype=bool)
        equal[K + M : K + M + balance.shape[0]] = True
        cost = n[k] * (goal.gains_by_type(program)[k, j] * rate - gpus * goal.costs(program)[j]) / most
        if goal.slopes is None and goal.floors is None:
            return Statement(cost, rows, limit, equal)
        demand = csr_array((-rate / fastest[k], (k, column)), shape=(K, C))
        floors = np.zeros(K) if goal.floors is None else -goal.floors / fastest
        if goal.slopes is not None:
            rows = hstack([rows, csr_array((rows.shape[0], 1))])
            demand = hstack([demand, csr_array((goal.slopes / fastest / top)[:, None])])
            cost = np.append(cost, 1.0)
        return Statement(
            cost,
            vstack([rows, demand], format="csr"),
            np.concatenate([limit, floors]),
            np.concatenate([equal, np.zeros(K, dtype=bool)]),
        )

    def _balance(self, C: int) -> Any:
        """Both sides of each pair of groups add up to the same."""
        from scipy.sparse import csr_array

        program = self.program
        a, b, j = program.group[self.k], self.b, self.j
        place = np.full(program.useful.shape, -1)
        upper = program.useful & (np.arange(len(place))[:, None] < np.arange(len(place)))[:, :, None]
        count = int(upper.sum())
        place[upper] = np.arange(count)
        row = place[np.minimum(a, b), np.maximum(a, b), j]
        used = row >= 0
        column = C - len(self.k) + np.flatnonzero(used)
        value = np.where(a < b, 1.0, -1.0) * program.counts[self.k]
        return csr_array((value[used], (row[used], column)), shape=(count, C))

    def _beside(self, C: int) -> Any:
        """The time of a single job inside its group is at most that of the others."""
        from scipy.sparse import csr_array

        program = self.program
        inside = np.flatnonzero(program.group[self.k] == self.b)
        single = inside[program.counts[self.k[inside]] == 1]
        # every column of the same group and type, for each single job
        same = (self.b[single][:, None] == self.b[inside]) & (self.j[single][:, None] == self.j[inside])
        row, at = np.nonzero(same)
        value = np.where(inside[at] == single[row], 1.0, -program.counts[self.k[inside[at]]])
        return csr_array((value, (row, C - len(self.k) + inside[at])), shape=(len(single), C))


def _optimum(statement: Statement) -> tuple[Array, Array]:
    """Columns and row multipliers, by HiGHS from scratch; RuntimeError when it finds no optimum."""
    matrix = statement.matrix.tocsr()
    options = {**TIGHT, "solver": "ipm"} if matrix.shape[1] > _MOST_COLUMNS_FOR_SIMPLEX else TIGHT
    rows = np.where(statement.equal, statement.limit, -np.inf), statement.limit
    return run_to_optimum(with_model(matrix, statement.cost, rows, maximise=True, options=options))


_MOST_COLUMNS_FOR_SIMPLEX = 10_000
"""Columns up to which HiGHS uses its simplex method here; its interior point method with crossover beyond."""
