"""The program over times beside groups written out as a sparse one, for HiGHS, which knows nothing of its structure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.packed.program import Goal, PackedPoint, PackedProgram
from formulations.reference.mixed_integer import TIGHT, Highs, MixedProgram

Array = NDArray[np.float64]

_MOST_COLUMNS_FOR_SIMPLEX = 10_000
"""Columns up to which HiGHS uses its simplex method here; its interior point method with crossover beyond."""


class Explicit:
    """Columns: K M times alone, times beside groups class by class, the level.

    Rows: time (K), capacity (M), balance of each pair of groups, nobody beside itself (each class of one job and type),
    demands (K).
    """

    def __init__(self, program: PackedProgram) -> None:
        self.program = program
        self.k, self.b, self.j = np.nonzero(program.useful[program.group])

    def __call__(self, goal: Goal) -> PackedPoint:
        """Solve for a goal from scratch; RuntimeError when HiGHS finds no optimum."""
        program = self.program
        K, M = program.rates.shape
        fastest, n = program.fastest, program.counts
        top = 1.0 if goal.slopes is None else float((goal.slopes / fastest).max())
        most = 1.0
        if goal.gains is not None:
            most = max(float((n * goal.gains_by_type(program).max(axis=1) * fastest).max()), 1e-300)
        stated = self.statement(goal, top, most)
        options = {**TIGHT, "solver": "ipm"} if len(stated.cost) > _MOST_COLUMNS_FOR_SIMPLEX else TIGHT
        columns, dual = Highs(stated, options).solve().optimum
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

    def statement(self, goal: Goal, top: float = 1.0, most: float = 1.0) -> MixedProgram:
        """For a goal, the level in units of `top` and the sum in units of `most`."""
        from scipy.sparse import csr_array

        program = self.program
        K, M = program.rates.shape
        g, n, fastest, classes = program.group, program.counts, program.fastest, np.arange(K)
        k, j = np.concatenate([np.repeat(classes, M), self.k]), np.concatenate([np.tile(np.arange(M), K), self.j])
        C = len(k)
        rate = np.concatenate([program.rates.ravel(), program.together[g[self.k], self.b, self.j]])
        gpus = program.gangs[k] * np.repeat([1.0, 0.5], [K * M, C - K * M])
        column = np.arange(C)
        cost = n[k] * (goal.gains_by_type(program)[k, j] * rate - gpus * goal.costs(program)[j]) / most
        # (row, column, value) of each kind of rows
        entries = [(k, column, np.ones(C)), (K + j, column, n[k] * gpus / program.capacity[j])]
        lower, upper = [np.full(K + M, -np.inf)], [np.ones(K + M)]
        for least, (row, at, value) in ((0.0, self._balance()), (-np.inf, self._beside())):
            entries.append((sum(map(len, upper)) + row, K * M + at, value))
            count = int(row.max(initial=-1)) + 1
            lower.append(np.full(count, least))
            upper.append(np.zeros(count))
        if goal.slopes is not None or goal.floors is not None:
            demand = sum(map(len, upper)) + classes
            entries.append((demand[k], column, -rate / fastest[k]))
            lower.append(np.full(K, -np.inf))
            upper.append(np.zeros(K) if goal.floors is None else -goal.floors / fastest)
        if goal.slopes is not None:
            entries.append((demand, np.full(K, C), goal.slopes / fastest / top))
            cost = np.append(cost, 1.0)
        rows, columns, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
        limits = np.concatenate(lower), np.concatenate(upper)
        matrix = csr_array((values, (rows, columns)), shape=(len(limits[0]), len(cost)))
        return MixedProgram.of(matrix, cost, limits, maximise=True)

    def _balance(self) -> tuple[Any, Any, Array]:
        """Both sides of each pair of groups add up to the same; entries by row and time beside a group."""
        program, a = self.program, self.program.group[self.k]
        G, M = program.alone.shape
        apart = np.flatnonzero(a != self.b)
        pair = (np.minimum(a, self.b) * G + np.maximum(a, self.b)) * M + self.j
        value = np.where(a < self.b, 1.0, -1.0) * program.counts[self.k]
        return np.unique(pair[apart], return_inverse=True)[1], apart, value[apart]

    def _beside(self) -> tuple[Any, Any, Array]:
        """The time of a single job inside its group is at most that of the others."""
        counts = self.program.counts[self.k]
        inside = np.flatnonzero(self.program.group[self.k] == self.b)
        single = inside[counts[inside] == 1]
        # every time of the same group and type, for each single job
        same = (self.b[single][:, None] == self.b[inside]) & (self.j[single][:, None] == self.j[inside])
        row, at = np.nonzero(same)
        return row, inside[at], np.where(inside[at] == single[row], 1.0, -counts[inside[at]])
