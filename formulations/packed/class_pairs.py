"""The program over pairs of classes, by column generation in HiGHS.

An optimum needs at most one column per row (2 K + M), so the program starts with the columns alone; the multipliers of
its optimum price all pairs, and those that would pay are added until none is left. The pairs are never listed: what a
job has to offer in a pair depends on its partner's group only, so the best partner of each class is looked up group by
group, in O(K G M). Each round goes on from the basis of the one before, as does a second program with another goal; a
wrong answer after such a continuation is for the certificate to find. The answer is a vertex: few of its columns are
above 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from formulations.core.solution import Answer, SolverError
from formulations.packed.program import Goal, PackedProgram
from formulations.reference.mixed_integer import TIGHT, Highs, MixedProgram, RowBuilder
from throughputs import InputError
from throughputs.errors import one_of

NAME = "class_pairs"
"""What users may write for ``solver=``, beside "auto" and "highs", which solves the programs."""

ENGINES = ("auto", NAME, "highs")
"""Names of the engine."""

_LEAST_PROFIT = 1e-10
"""Profit of a column, relative to what it pays for, above which it is added."""

_MOST_BESIDE = 1000
"""Columns that a round may add beside two for each class: more of them cost more time than they save rounds."""

_MOST_ROUNDS = 100
"""Rounds of generated columns after which this engine gives up."""


def known_engine(solver: str) -> None:
    """InputError for a solver that is not of this name."""
    if solver not in ENGINES:
        raise InputError("solver", found=solver, expected=one_of(solver, ENGINES))


class ClassPairs(PackedProgram):
    """A packed program that lists the pairs that pay, and goes on from one goal to the next."""

    basis: Any = None
    model: Highs | None = None
    stated: tuple[Any, ...] = (None, None)
    """Slopes and floors for which the model is."""

    def best(self, goal: Goal) -> Answer:
        """Solve for a goal; SolverError when HiGHS stops short of an optimum."""
        n, (K, M), scale = self.counts, self.rates.shape, 1.0
        if goal.gains.any():
            # the most that the jobs of a class could gain
            scale = float((n * np.abs(goal.gains).max(axis=1) * self.fastest).max())
        iterations = 0
        for _ in range(_MOST_ROUNDS):
            model = self._model(goal, scale)
            try:
                columns, dual = model.solve().optimum
            except RuntimeError as error:
                raise SolverError(f"{NAME}: {error}") from error
            iterations += int(model.solver.getInfo().simplex_iteration_count)
            vars(self)["basis"], dual = model.solver.getBasis(), dual * scale
            answer = Answer(
                columns[1:],
                multipliers=dual[K + M :] / (self.reach * n),
                prices=dual[K : K + M] / self.capacity,
                iterations=iterations,
                time=dual[:K] / n,
            )
            if not (self.useful.any() and self._extend(goal, answer)):
                break
            vars(self)["model"] = None
        return answer

    def rows(self, entering: tuple[Any, Any, Any], n_entering: int, demand: Any) -> RowBuilder:
        """Time (K, of one job), capacity (M, as a fraction), and demands (K, in units of `reach`).

        Columns: `n_entering` that are only in the demands, with entries (class, column, value), and then shares.
        """
        K, M = self.rates.shape
        column = n_entering + np.arange(len(self.type))
        rows = RowBuilder(n_entering + len(column))
        rows.add(K, [(self.members, column[:, None], self.time)], -np.inf, 1.0)
        rows.add(M, [(self.type, column, self.gpus / self.capacity[self.type])], -np.inf, 1.0)
        demanded = (self.members, column[:, None], -self.speed / self.reach[self.members])
        rows.add(K, [entering, demanded], -np.inf, demand)
        return rows

    def _model(self, goal: Goal, scale: float) -> Highs:
        """The program with the pairs listed so far, to be solved from the last basis."""
        K = len(self.counts)
        slopes, floors = (np.zeros(K) if each is None else each / self.reach for each in (goal.slopes, goal.floors))
        level = goal.slopes is not None
        demand = -floors if level or goal.floors is not None else np.inf
        entering = (np.arange(K), 0, slopes / max(slopes.max(), 1e-300))
        cost = np.append(float(level), self.worth(goal) / scale)
        if self.model is not None and self.stated[0] is goal.slopes and self.stated[1] is goal.floors:
            self.model.set_cost(cost)
            return self.model
        most = np.where(np.arange(len(cost)) < 1 - level, 0.0, np.inf)
        matrix, lower, upper = self.rows(entering, 1, demand).collected
        stated = MixedProgram.of(matrix, cost, (lower, upper), upper=most, maximise=True)
        model = Highs(stated, {"presolve": "off", "small_matrix_value": 1e-12, **TIGHT})
        if self.basis is not None:
            statuses = list(self.basis.col_status)
            self.basis.col_status = statuses + [statuses[0].kLower] * (len(cost) - len(statuses))
            model.solver.setBasis(self.basis)
        vars(self).update(model=model, stated=(goal.slopes, goal.floors))
        return model

    def _extend(self, goal: Goal, answer: Answer) -> int:
        """Add the pairs that pay most; how many."""
        weights = answer.multipliers[:, None] + goal.gains
        m, due = answer.time, answer.prices + goal.gpu_cost
        offers = weights[:, None] * self.partner_rates - m[:, None, None]
        order, group, useful = self.ranked(offers), self.group[:, None, None], self.useful[self.group]
        # the best partner of each class, and the one that ranks in its group as the class does in its own
        rank = np.argsort(order, axis=0) - self.starts[group]
        # inside a group the first goes with the second, the third with the fourth
        rank = np.where(group == np.arange(len(self.starts))[:, None], rank ^ 1, rank)
        k, b, j = np.tile(np.nonzero(useful), 2)
        other = np.concatenate([self.partners(order, each)[useful] for each in (0, rank)])
        due = self.scale_factors[k] * due[j]
        profit = offers[k, b, j] + offers[other, self.group[k], j] - due
        paid = m[k] + m[other] + due
        profit /= np.maximum(paid + np.maximum(profit, 0.0), 1e-300)
        # columns that are listed do not pay, up to tolerance
        most = np.argsort(-profit, kind="stable")
        most = most[profit[most] > _LEAST_PROFIT][: 2 * len(m) + _MOST_BESIDE]
        return self.add_pairs(self.code(k[most], other[most], j[most]))
