"""Reduce, solve, certify: one objective after the other, one engine after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from formulations.columns.engines import ENGINES, Engine, Found
from formulations.columns.objectives import NEGLIGIBLE_SPENDING, Objective, largest_ratio
from formulations.columns.order import canonical_rows, canonical_variables, undominated
from formulations.columns.program import ColumnProgram, Rows
from formulations.columns.solution import ColumnSolution, Stage
from formulations.columns.written import write_out
from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.core.solution import Attempt, InfeasibleError
from formulations.reference.stopping import TIME_LIMIT_SECONDS
from throughputs import InputError
from throughputs.arrays import Floats

Generator = Callable[[Floats], Rows | None]

_FEASIBLE = 1e-7
"""Largest violation of a row, relative to its limit, up to which a point is accepted."""

_ROUNDING_OF_A_COUNT = 1e-6
"""What a bound on a whole number may be above it."""

_SMALLEST = 0.01
"""Part of the largest coefficient of an objective below which its value counts as 0 when a gap is taken."""

_MOST_ROUNDS = 1000
"""Rounds of generated rows after which an engine is given up."""


def solve_columns(
    program: ColumnProgram,
    objectives: Objective | Sequence[Objective],
    *,
    solver: str = "auto",
    hold: float = 1e-9,
    tolerance: float = 1e-7,
    seconds: float = TIME_LIMIT_SECONDS,
    generate: Generator | None = None,
) -> ColumnSolution:
    """The best shares, or choice, of columns: the first objective decides, the next among its optima, and so on::

        max  f_1(x),   then  max f_2(x)  with  f_1(x) >= f_1* - hold |f_1*|,   ...      x as `ColumnProgram` allows

    Which of several optima of the last objective is returned does not depend on how things are listed: the engine sees
    jobs in the order of their labels, and rows in that of their content. State a further objective where the choice
    matters.

    Parameters
    ----------
    objectives : one, or several in order.
    solver : "auto" (HiGHS, then CBC where its answer is not proven), "highs" or "cbc".
    hold : relative loss of an earlier objective that later ones may cause; with CBC, what its
        eight digits leave out may be lost beside it.
    tolerance : relative gap up to which an answer is called optimal.
    seconds : limit of all searches together (`StopRule`); the best point found by then is "feasible".
    generate : asked with shares x, in the shape of the solution, for coupling rows that they violate; None: there are
        none. For programs with more rows than can be listed. No column is set aside then.

    Raises
    ------
    InputError
        Something does not fit the program, or the solver is not known.
    InfeasibleError
        No shares keep all rows.
    SolverError
        No engine found shares that keep all rows.
    """
    started = perf_counter()
    until = started + seconds
    goals = [objectives] if isinstance(objectives, Objective) else list(objectives)
    if not goals:
        raise InputError("column program", field="objectives", found="none", expected="at least one")
    if solver not in ("auto", *ENGINES):
        raise InputError("column program", field="solver", found=solver, expected=f"auto, {', '.join(ENGINES)}")
    names = list(ENGINES) if solver == "auto" else [solver]
    ordered = _Ordered(program, goals, reduce=generate is None)
    attempts: list[Attempt] = []

    def judged(name: str) -> Judged[ColumnSolution]:
        engine = ENGINES[name](ordered.written, until - perf_counter())
        answer = _Search(ordered, engine, generate).answer(hold, tolerance)
        return Judged(answer, max(stage.gap for stage in answer.stages))

    try:
        # the next engine only in the time that the first has left
        turns = (Turn(name, partial(judged, name)) for name in names if name == names[0] or perf_counter() < until)
        best, _ = solve_in_turn(turns, tolerance, attempts)
    except InfeasibleError as error:
        raise InfeasibleError(f"no shares keep all rows of the program ({_rows_of(program)}); {error}") from error
    return replace(best, seconds=perf_counter() - started, attempts=tuple(attempts))


class _Ordered:
    """A program written out without dominated columns, variables and rows in their canonical order."""

    def __init__(self, program: ColumnProgram, goals: list[Objective], *, reduce: bool) -> None:
        self.program, self.goals = program, goals
        whole = write_out(program, goals)
        order = canonical_variables(program, whole)
        C, V = program.columns.n_columns, program.n_variables
        kept = np.ones(C, dtype=bool)
        if reduce:
            kept = undominated(program, goals)
            order = order[(order >= V) | kept[order % max(C, 1)]]
        self.order = order
        self.n_shares = int((order < V).sum())
        written = whole.of_columns(order)
        self.written = written.of_rows(canonical_rows(written))

    def shares(self, z: Floats) -> Floats:
        """(C S,) shares of all columns from the variables in their order."""
        x = np.zeros(self.program.n_variables)
        x[self.order[: self.n_shares]] = z[: self.n_shares]
        return x

    def rows(self, rows: Rows) -> tuple[Any, Floats, Floats]:
        """Coupling rows over the variables in their order."""
        from scipy.sparse import csr_array, hstack

        extras = csr_array((len(rows.lower), len(self.order) - self.n_shares))
        matrix = csr_array(hstack([rows.matrix, extras], format="csr"))[:, self.order]
        matrix.sort_indices()
        return matrix, rows.lower, rows.upper


@dataclass(frozen=True, eq=False)
class _Proof:
    """A point with what is proven of one objective.

    Attributes
    ----------
    cost : (V,) the sum that was made large; of a ratio that at the ratio which is proven.
    z : (V,) the point. value : of the sum there. bound : on the objective.
    size, smallest : what a loss of the sum is measured by, and the least that a gap is.
    multipliers : (rows,) of the sum, and what of it makes one `unit` of the objective.
    """

    cost: Floats
    z: Floats
    value: float
    bound: float
    size: float
    smallest: float
    multipliers: Floats
    unit: float = 1.0


class _Search:
    """One engine on one program, through all objectives."""

    def __init__(self, ordered: _Ordered, engine: Engine, generate: Generator | None) -> None:
        self.ordered, self.engine, self.generate = ordered, engine, generate
        self.generated = 0
        self.known: set[tuple[bytes, bytes]] = set()

    def answer(self, hold: float, tolerance: float) -> ColumnSolution:
        """Shares after the last objective, and what is proven of each."""
        program, goals, written = self.ordered.program, self.ordered.goals, self.ordered.written
        proofs: list[_Proof] = []
        for k, (cost, denominator) in enumerate(zip(written.costs, written.denominators, strict=True)):
            proof = self._proven(cost) if denominator is None else self._ratio(cost, denominator)
            proofs.append(proof)
            if k + 1 < len(goals):
                self.engine.add(*_row(proof.cost, proof.value - hold * proof.size - self._rounded_away(proof)))
        x = self.ordered.shares(proof.z)
        stages = tuple(
            self._stage(goal, goal.value(program, x), proof, tolerance)
            for goal, proof in zip(goals, proofs, strict=True)
        )
        shares = x.reshape(program.n_slots, -1)
        return ColumnSolution(
            x=program.by_slot(x),
            stages=stages,
            columns=program.columns,
            throughput=program.columns.throughput(shares.sum(axis=0)),
            generated=self.generated,
            seconds=0.0,
            attempts=(),
        )

    def _proven(self, cost: Floats) -> _Proof:
        """The optimum of a sum, with its bound."""
        found = self._optimum(cost)
        z = np.clip(found.z, self.engine.written.lower, self.engine.written.upper) + 0.0
        violation = self.engine.written.violation(z)
        if violation > _FEASIBLE:
            raise RuntimeError(f"rows violated by {violation:.1e}")
        bound = found.bound
        if len(found.multipliers):
            bound = min(bound, self.engine.written.dual(cost, found.multipliers)[0])
        if np.isfinite(bound) and self.engine.written.counts(cost):
            bound = float(np.floor(bound + _ROUNDING_OF_A_COUNT))
        value = float(np.add.reduce(cost * z))
        smallest = _SMALLEST * float(np.abs(cost).max(initial=0.0))
        return _Proof(cost, z, value, bound, max(abs(value), smallest), smallest, found.multipliers)

    def _rounded_away(self, proof: _Proof) -> float:
        """By so much the engine's point may seem to be worth more than the one that it found before it was written."""
        size = np.abs(proof.z)
        # a unit of the last digit is ten times as large beyond 1
        rounded = np.where(self.engine.written.whole, 0.0, np.where(size <= 1, np.ceil(size), 10 * size))
        return self.engine.rounding * float(np.add.reduce(np.abs(proof.cost) * rounded))

    def _ratio(self, numerator: Floats, denominator: Floats) -> _Proof:
        """The largest ratio, from that at the least costs on."""
        cheapest = self._proven(-denominator)
        least = -cheapest.bound
        if least <= 0:
            expected = "floors or rows that no shares without costs keep"
            raise InputError("objective", field="costs", found="shares that cost nothing", expected=expected)

        def at(ratio: float) -> tuple[_Proof, float, float]:
            found = self._proven(numerator - ratio * denominator)
            return found, _quotient(numerator, denominator, found.z), found.bound

        largest = largest_ratio(at, _quotient(numerator, denominator, cheapest.z), least)
        proof, z = largest.proof, largest.best.z
        value, size = float(np.add.reduce(proof.cost * z)), float(np.abs(numerator * z).sum())
        # where no GPUs, floors or coupling rows are worth anything, the same ratio is attained at the least costs
        unit = least if self._worthless(proof, size) else float(np.add.reduce(denominator * z))
        return replace(proof, z=z, value=value, bound=largest.bound, size=size, smallest=0.0, unit=unit)

    def _worthless(self, proof: _Proof, size: float) -> bool:
        """Whether all rows but those of time, at the multipliers of a sum, are worth next to nothing of `size`."""
        written, y = self.engine.written, proof.multipliers
        rows = np.concatenate([written.capacity_rows, written.floor_rows, written.coupling_rows])
        if not len(y):
            return False
        limits = np.where(np.isfinite(written.row_upper[rows]), written.row_upper[rows], written.row_lower[rows])
        return bool(np.add.reduce(np.abs(y[rows] * limits)) <= NEGLIGIBLE_SPENDING * size)

    def _optimum(self, cost: Floats) -> Found:
        """The optimum, once no more rows are generated."""
        for _ in range(_MOST_ROUNDS):
            found = self.engine.optimise(cost)
            if self.generate is None:
                return found
            rows = self.generate(self.ordered.program.by_slot(self.ordered.shares(found.z)))
            if rows is None:
                return found
            matrix, lower, upper = self.ordered.rows(rows)
            if self._all_known(matrix, found.z, lower, upper):
                return found
            self.generated += len(lower)
            self.engine.add(matrix, lower, upper)
        raise RuntimeError(f"rows were still violated after {_MOST_ROUNDS} rounds of generating them")

    def _all_known(self, matrix: Any, z: Floats, lower: Floats, upper: Floats) -> bool:
        """Whether rows are violated by no more than what the engine makes of rows that it has."""
        values = matrix @ z
        if np.maximum(values - upper, lower - values).max(initial=0.0) > _FEASIBLE:
            return False
        ends = zip(matrix.indptr[:-1].tolist(), matrix.indptr[1:].tolist(), strict=True)
        keys = {(matrix.indices[a:b].tobytes(), matrix.data[a:b].tobytes()) for a, b in ends}
        known = keys <= self.known
        self.known |= keys
        return known

    def _stage(self, goal: Objective, value: float, proof: _Proof, tolerance: float) -> Stage:
        """What is proven of one objective."""
        program, signed, bound = self.ordered.program, value if goal.maximise else -value, proof.bound
        size = max(abs(signed), abs(bound), proof.smallest, 1e-300)
        gap = float(max(bound - signed, 0.0) / size) if np.isfinite(bound) else np.inf
        written, y = self.engine.written, proof.multipliers / proof.unit
        multipliers = np.full(program.columns.n_jobs, np.nan if not len(y) else 0.0)
        prices, row_prices = np.full(len(written.capacity_rows), np.nan), np.full(len(written.coupling_rows), np.nan)
        if len(y):
            prices, row_prices = np.maximum(y[written.capacity_rows], 0.0), y[written.coupling_rows]
            # rows of floors are in units of the floor
            multipliers[written.floor_jobs] = -y[written.floor_rows] / program.floors[written.floor_jobs]
        reached = max(bound, signed)
        return Stage(
            status="optimal" if gap <= tolerance else "feasible",
            objective=value,
            bound=reached if goal.maximise else -reached,
            gap=gap,
            prices=program.by_slot(prices),
            multipliers=np.maximum(multipliers, 0.0),
            row_prices=row_prices,
            solver=self.engine.name,
        )


def _quotient(numerator: Floats, denominator: Floats, z: Floats) -> float:
    return float(np.add.reduce(numerator * z)) / float(np.add.reduce(denominator * z))


def _row(cost: Floats, least: float) -> tuple[Any, Floats, Floats]:
    """``cost z >= least``."""
    from scipy.sparse import csr_array

    return csr_array(cost[None]), np.array([least]), np.array([np.inf])


def _rows_of(program: ColumnProgram) -> str:
    parts = [
        (np.count_nonzero(program.floors), "floors"),
        (0 if program.rows is None else len(program.rows.lower), "coupling rows"),
        (np.count_nonzero(program.exactly), "jobs that must run"),
    ]
    return ", ".join(f"{count} {what}" for count, what in parts if count) or "generated rows"
