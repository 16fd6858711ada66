"""The program over pairs of classes, by column generation in HiGHS.

One column for each class alone on a type, and for each pair of classes on a type the total time that jobs of the one
share GPUs with jobs of the other, spread evenly over them. An optimum needs at most one column per row (2 K + M), so
the program starts with the columns alone and few pairs; the multipliers of its optimum price all other pairs, and those
that would pay are added until none is left. The pairs are never listed: what a job has to offer in a pair depends on
its partner's group only, so the best partner of each class is looked up group by group, in O(K G M). Each round goes on
from the basis of the one before, as does a second program with another goal; a wrong answer after such a continuation
is for the certificate to find. The answer is a vertex: few of its columns are above 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from formulations.core.solution import Answer, SolverError
from formulations.packed.program import Goal, PackedProgram
from formulations.reference.mixed_integer import TIGHT, Highs, MixedProgram
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints, Positions
from throughputs.errors import one_of

NAME = "class_pairs"
"""What users may write for ``solver=``, beside "auto" and "highs", which solves the programs."""

_LEAST_PROFIT = 1e-10
"""Profit of a column, relative to what it pays for, above which it is added."""

_MOST_ROUNDS = 100
"""Rounds of generated columns after which this engine gives up."""


ENGINES = ("auto", NAME, "highs")
"""Names of the engine."""


def known_engine(solver: str) -> None:
    """InputError for a solver that is not of this name."""
    if solver not in ENGINES:
        raise InputError("solver", found=solver, expected=one_of(solver, ENGINES))


@dataclass(frozen=True, eq=False)
class Columns:
    """C pairs of classes on a type: classes one <= other, and what the program says of them."""

    one: Positions
    other: Positions
    type: Positions
    rate_one: Floats
    rate_other: Floats
    gang: Ints
    unit: Floats

    @classmethod
    def of(cls, program: PackedProgram, one: Positions, other: Positions, type_: Positions) -> Columns:
        """With their rates; a column is in units that keep every job's time in it at or below 1."""
        g, n = program.group, program.counts
        unit = np.minimum(n[one], n[other]) / np.where(one == other, 2.0, 1.0)
        rate_one, rate_other = program.together[g[one], g[other], type_], program.together[g[other], g[one], type_]
        return cls(one, other, type_, rate_one, rate_other, program.scale_factors[one], unit)

    def with_more(self, more: Columns) -> Columns:
        """These and then the others."""
        return Columns(*(np.concatenate([getattr(self, f.name), getattr(more, f.name)]) for f in fields(self)))

    def take(self, chosen: Positions) -> Columns:
        """Some of them."""
        return Columns(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def profit(self, weights: Floats, m: Floats, prices: Floats) -> Floats:
        """(C,) what a unit of time earns beyond what it pays for, relative to the larger of the two.

        `weights` (K, M): of a step; m (K,): of a job's time; prices (M,): of a GPU.
        """
        paid = m[self.one] + m[self.other] + self.gang * prices[self.type]
        earned = weights[self.one, self.type] * self.rate_one + weights[self.other, self.type] * self.rate_other
        return np.asarray((earned - paid) / np.maximum(np.maximum(paid, earned), 1e-300))


class Partnering:
    """Finds pairs of classes without listing all of them: partners are chosen group by group."""

    def __init__(self, program: PackedProgram) -> None:
        self.program = program
        self.ends = np.append(program.starts, program.n_jobs)
        self.useful = program.useful[program.group]
        self.k, self.b, self.j = np.nonzero(self.useful)
        self.a = program.group[self.k]

    def best(self, profit: Floats) -> tuple[Positions, Positions, Positions]:
        """For every class, group and type the partner with the most to offer, and partners of equal rank.

        `profit` (K, G, M): what a job of the class has to offer beside a job of the group. If no pair returned pays
        for itself, no pair does.
        """
        program, k, b, j, a = self.program, self.k, self.b, self.j, self.a
        order = self._ranked(profit)
        place = np.empty_like(order)
        np.put_along_axis(place, order, np.broadcast_to(np.arange(len(order))[:, None, None], order.shape), axis=0)
        first, size = program.starts[b], (self.ends[1:] - self.ends[:-1])[b]
        top = order[first, a, j]
        itself = (top == k) & (program.counts[k] == 1)
        top = np.where(itself, order[np.minimum(first + 1, self.ends[b + 1] - 1), a, j], top)
        rank = place[k, b, j] - program.starts[a]
        # inside a group the first goes with the second, the third with the fourth
        rank = np.where(a == b, rank ^ 1, rank)
        equal = order[first + np.minimum(rank, size - 1), a, j]
        return np.concatenate([k, k]), np.concatenate([top, equal]), np.concatenate([j, j])

    def _ranked(self, profit: Floats) -> Positions:
        """(K, G, M) classes of each group by falling profit."""
        program = self.program
        K = program.n_jobs
        if len(program.together) == K:
            return np.broadcast_to(np.arange(K)[:, None, None], profit.shape)
        order = np.empty(profit.shape, dtype=np.intp)
        for low, high in zip(self.ends[:-1], self.ends[1:], strict=True):
            order[low:high] = np.argsort(-profit[low:high], axis=0, kind="stable") + low
        return order

    def columns(self, k: Positions, partner: Positions, j: Positions) -> Columns:
        """Each pair once, sorted; a single job is no pair with itself."""
        program = self.program
        one, other = np.minimum(k, partner), np.maximum(k, partner)
        real = (one != other) | (program.counts[one] > 1)
        K, M = program.rates.shape
        code = np.unique((one[real] * K + other[real]) * M + j[real])
        return Columns.of(program, code // M // K, code // M % K, code % M)


class ClassPairs:
    """A model in HiGHS that grows by the pairs that pay, and goes on from one goal to the next.

    Rows: time (K, at most 1 per job), capacity (M, as a fraction), demands (K, in units of the fastest rate). Columns:
    the level, then alone class by class, then pairs as they are added.

    Parameters
    ----------
    most : bound on shares alone. Time implies one of 1; to state it is a better start where no pairs are to come.
    """

    def __init__(self, program: PackedProgram, most: float = np.inf) -> None:
        self.program = program
        self.partnering = Partnering(program)
        K, M = program.rates.shape
        self.K, self.M = K, M
        self.gains, self.gpu_cost, self.gain_scale = np.zeros((K, M)), np.zeros(M), 1.0
        self.level_scale = 1.0
        self.model = self._without_pairs(most)
        nothing = np.zeros(0, dtype=np.intp)
        self.pairs = Columns.of(program, nothing, nothing, nothing)
        self._add(self._promising())

    def __call__(self, goal: Goal) -> Answer:
        """Solve for a goal; SolverError when HiGHS stops short of an optimum."""
        self._aim(goal)
        iterations = 0
        for _ in range(_MOST_ROUNDS):
            try:
                columns, dual = self.model.solve().optimum
            except RuntimeError as error:
                raise SolverError(f"{NAME}: {error}") from error
            iterations += int(self.model.solver.getInfo().simplex_iteration_count)
            answer = self._answer(columns, dual, iterations)
            if not self._extend(answer):
                break
        return answer

    def _without_pairs(self, most: float) -> Highs:
        """The model with the level and the columns alone."""
        from scipy.sparse import csr_array

        program, K, M = self.program, self.K, self.M
        k, j, column = np.repeat(np.arange(K), M), np.tile(np.arange(M), K), 1 + np.arange(K * M)
        use = (program.counts * program.scale_factors)[:, None] / program.capacity
        rates = program.rates / program.fastest[:, None]
        values = np.concatenate([np.ones(K * M), use.ravel(), -rates.ravel(), np.ones(K)])
        rows = np.concatenate([k, K + j, K + M + k, K + M + np.arange(K)])
        columns = np.concatenate([column, column, column, np.zeros(K, dtype=np.intp)])
        matrix = csr_array((values, (rows, columns)), shape=(2 * K + M, 1 + K * M))
        limits = -np.inf, np.concatenate([np.ones(K + M), np.full(K, np.inf)])
        upper = np.append(np.inf, np.full(K * M, most))
        stated = MixedProgram.of(matrix, np.zeros(1 + K * M), limits, upper=upper, maximise=True)
        return Highs(stated, {"presolve": "off", "small_matrix_value": 1e-12, **TIGHT})

    def _promising(self) -> Columns:
        """For each class and type the two groups beside which both sides keep most of their speed."""
        program, partnering = self.program, self.partnering
        kept = (
            np.where(program.useful, program.together, 0.0)
            / np.maximum(program.rates[program.starts].max(axis=1), 1e-300)[:, None, None]
        )
        kept = (kept + kept.transpose(1, 0, 2))[program.group]
        _, other, _ = partnering.best(np.zeros_like(kept))
        k, b, j = partnering.k, partnering.b, partnering.j
        order = np.lexsort((b, -kept[k, b, j], k * self.M + j))
        owner = (k * self.M + j)[order]
        few = order[np.arange(len(order)) - np.searchsorted(owner, owner) < 2]
        return partnering.columns(k[few], other[len(k) :][few], j[few])

    def _add(self, more: Columns) -> None:
        from scipy.sparse import csc_array

        if not len(more.type):
            return
        program, K, M = self.program, self.K, self.M
        one, other, j, unit = more.one, more.other, more.type, more.unit
        n, fastest, same = program.counts, program.fastest, one == other
        of_one = np.where(same, 2.0, 1.0) * unit / n[one]
        of_other = unit / n[other]
        demand_one, demand_other = -of_one * more.rate_one / fastest[one], -of_other * more.rate_other / fastest[other]
        rows = np.stack([one, other, K + j, K + M + one, K + M + other], axis=1)
        values = np.stack([of_one, of_other, more.gang * unit / program.capacity[j], demand_one, demand_other], axis=1)
        keep = np.ones(rows.shape, dtype=bool)
        keep[same, 1] = keep[same, 4] = False
        starts = np.concatenate([[0], np.cumsum(keep.sum(1))])
        matrix = csc_array((values[keep], rows[keep], starts), shape=(2 * K + M, len(one)))
        self.model.add_columns(matrix, self._cost(more))
        self.pairs = self.pairs.with_more(more)

    def _cost(self, pairs: Columns) -> Floats:
        j = pairs.type
        worth = self.gains[pairs.one, j] * pairs.rate_one + self.gains[pairs.other, j] * pairs.rate_other
        return np.asarray((worth - pairs.gang * self.gpu_cost[j]) * pairs.unit)

    def _aim(self, goal: Goal) -> None:
        """Set costs, floors and the level's column."""
        program, solver, K, M = self.program, self.model.solver, self.K, self.M
        fastest = program.fastest
        gains = goal.gains_by_type(program)
        if gains.any():
            self.gain_scale = max(float((program.counts * np.abs(gains).max(axis=1) * fastest).max()), 1e-300)
        else:
            self.gain_scale = 1.0
        self.gains, self.gpu_cost = gains / self.gain_scale, goal.costs(program) / self.gain_scale
        has_demand = goal.slopes is not None or goal.floors is not None
        upper = np.full(K, np.inf)
        if has_demand:
            upper = np.zeros(K) if goal.floors is None else -goal.floors / fastest
        rows = (K + M + np.arange(K)).astype(np.int32)
        solver.changeRowsBounds(K, rows, np.full(K, -np.inf), upper)
        alone = program.counts[:, None] * self.gains * program.rates
        alone -= (program.counts * program.scale_factors)[:, None] * self.gpu_cost
        cost = np.concatenate([[0.0 if goal.slopes is None else 1.0], alone.ravel(), self._cost(self.pairs)])
        self.model.set_cost(cost)
        solver.changeColBounds(0, 0.0, 0.0 if goal.slopes is None else np.inf)
        if goal.slopes is not None:
            slopes = goal.slopes / fastest
            self.level_scale = float(slopes.max())
            for k, slope in enumerate((slopes / self.level_scale).tolist()):
                solver.changeCoeff(K + M + k, 0, slope)

    def _answer(self, columns: Floats, dual: Floats, iterations: int) -> Answer:
        program, pairs, K, M = self.program, self.pairs, self.K, self.M
        x, dual = columns[1:], dual * self.gain_scale
        total = x[K * M :] * pairs.unit
        used = np.flatnonzero(total > 0)
        one, other, j, total = pairs.one[used], pairs.other[used], pairs.type[used], total[used]
        shares = np.zeros((K, 1 + len(program.together), M))
        shares[:, 0] = x[: K * M].reshape(K, M)
        n, g = program.counts, program.group
        np.add.at(shares, (one, 1 + g[other], j), total / n[one])
        np.add.at(shares, (other, 1 + g[one], j), total / n[other])
        return Answer(
            shares,
            multipliers=dual[K + M :] / (program.fastest * n),
            prices=dual[K : K + M] / program.capacity,
            iterations=iterations,
            time=dual[:K] / n,
        )

    def _extend(self, answer: Answer) -> bool:
        """Add the pairs that pay most; whether there were any."""
        program = self.program
        weights = answer.multipliers[:, None] + self.gains * self.gain_scale
        m, prices = answer.time, answer.prices + self.gpu_cost * self.gain_scale
        offers = weights[:, None, :] * program.partner_rates - m[:, None, None]
        found = self.partnering.columns(*self.partnering.best(offers))
        profit = found.profit(weights, m, prices)
        # columns that are in the model do not pay, up to tolerance
        paying = np.flatnonzero((profit > _LEAST_PROFIT) & ~self._has(found))
        if len(paying) > self.K:
            paying = np.sort(paying[np.argsort(-profit[paying], kind="stable")[: self.K]])
        self._add(found.take(paying))
        return bool(len(paying))

    def _has(self, found: Columns) -> Flags:
        codes = [(c.one * self.K + c.other) * self.M + c.type for c in (found, self.pairs)]
        return np.isin(*codes)
