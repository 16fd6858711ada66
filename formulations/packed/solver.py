"""Solve a packed program: reduce, solve, certify, choose, expand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from formulations.core.certificate import relative_gap
from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.core.objectives import MaxSum, Method, Objective, Threshold
from formulations.core.solution import Attempt, Solution
from formulations.levels.water_filling import WaterFilling, WaterLevel
from formulations.packed.absent_types import prices_of_nobody, with_absent_types
from formulations.packed.choice import PackedChoice, choose
from formulations.packed.engines import Engine, Solve, engines_of
from formulations.packed.expansion import of_jobs
from formulations.packed.levels import Proof, optimise, prove
from formulations.packed.polytope import PackedPolytope, Pairs
from formulations.packed.program import PackedProgram
from formulations.packed.reduction import Reduction, reduce
from formulations.packed.water_filling import fill_packed

__all__ = ["PackedSolution", "no_jobs", "solve_packed"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PackedSolution(Solution):
    """A certified allocation with space sharing: `shares` (N, M) are those of each job alone.

    Attributes
    ----------
    pairs : the pairs of jobs that share GPUs, with their share of time; only those above 0.
    """

    pairs: Pairs = field(kw_only=True)


def solve_packed(
    program: PackedPolytope, objective: Objective, *, solver: str = "auto", tolerance: float = 1e-7
) -> PackedSolution:
    """Best allocation with space sharing for `objective`, with its certificate.

    Parameters
    ----------
    program, objective : over the same N jobs. Jobs that gain nothing from any column take no part: they get no share
        and are reported as not served.
    solver : "auto" (fastest exact path first, the next one when the proven gap is above tolerance) or the name of an
        engine of `formulations.packed.engines`.
    tolerance : relative gap up to which the answer is called optimal.

    Raises
    ------
    InputError
        Unknown solver.
    SolverError
        No engine returned an answer.

    Source: Narayanan et al., OSDI 2020, sections 3.1 and 4 (policies with space sharing).
    """
    started = perf_counter()
    engines = engines_of(solver)
    reduction = reduce(program, objective.key())
    if reduction.program is None:
        return no_jobs(program, reduction, objective.unit, efficiency_gap=0.0, seconds=perf_counter() - started)
    goal = objective.of_classes(reduction.first, reduction.program.counts)
    built = perf_counter()
    best, chosen, attempts, solved = goal.accept(_Programs(engines, reduction.program, tolerance))
    decided = perf_counter()

    N, M = program.n_jobs, len(program.capacity)
    shares, pairs = of_jobs(reduction, chosen.point, M)
    value, gap = _attained(program, objective, reduction, best.proof, shares, pairs)
    if best.proof.gap <= tolerance < gap:
        # the choice cost the last digits of a proven optimum
        chosen = PackedChoice(best.proof.point, np.nan)
        shares, pairs = of_jobs(reduction, chosen.point, M)
        value, gap = _attained(program, objective, reduction, best.proof, shares, pairs)
    weights, time, dual_prices = best.proof.proving
    prices, multipliers = with_absent_types(program, reduction, weights, time, dual_prices), np.zeros(N)
    prices = goal.reported_prices(prices, best.proof.bound) + prices_of_nobody(program, reduction.served)
    if goal.has_demands:
        multipliers[reduction.jobs] = weights[reduction.of]
    done = perf_counter()
    return PackedSolution(
        shares=shares,
        pairs=pairs,
        status="optimal" if gap <= tolerance else "feasible",
        objective=value,
        bound=best.proof.bound,
        gap=gap,
        efficiency_gap=chosen.efficiency_gap if np.isfinite(chosen.efficiency_gap) else np.nan,
        prices=prices,
        multipliers=multipliers,
        served=reduction.served,
        unit=objective.unit,
        solver=best.solver,
        seconds=done - started,
        iterations=best.proof.point.iterations,
        attempts=tuple(attempts),
        phases={
            "build": built - started,
            "solve": solved - built,
            "choose": decided - solved,
            "expand": done - decided,
        },
    )


def _attained(
    program: PackedPolytope, objective: Objective, reduction: Reduction, proof: Proof, shares: Array, pairs: Pairs
) -> tuple[float, float]:
    """Value at the chosen shares, and its gap to the bound."""
    u = program.throughput(shares, pairs)[reduction.jobs]
    value, gap = objective.take(reduction.jobs).attained(u, proof)
    return value, max(relative_gap(value, proof.bound), gap)


_Answered = tuple["_Best", PackedChoice, list[Attempt], float]
"""The best answer, what was chosen, all attempts, and when the last of them was done."""


@dataclass(frozen=True, eq=False)
class _Programs(Method[_Answered]):
    """One program for an objective, or as many as it has levels."""

    engines: list[Engine]
    program: PackedProgram
    enough: float

    def weighted_sum(self, objective: MaxSum) -> _Answered:
        return self._one(objective)

    def level(self, objective: Threshold) -> _Answered:
        return self._one(objective)

    def sequence(self, objective: WaterFilling) -> _Answered:
        best, chosen, attempts = _fill(self.engines, self.program, objective, self.enough)
        return best, chosen, attempts, perf_counter()

    def refusal(self, objective: Objective) -> Exception:
        return TypeError(f"no packed program for {type(objective).__name__}")

    def _one(self, objective: Objective) -> _Answered:
        best, attempts = _ask_in_turn(self.engines, self.program, objective, self.enough, {})
        solved = perf_counter()
        others = [engine for engine in self.engines if engine.name != best.solver]
        starts: list[Callable[[], Solve]] = [lambda: best.solve]
        starts += [partial(engine.start, self.program) for engine in others]
        return best, choose(self.program, objective, best.proof, starts), attempts, solved


@dataclass(frozen=True, eq=False)
class _Best:
    """The answer with the smallest proven gap, whose it is, and the engine to go on with."""

    proof: Proof
    solver: str
    solve: Solve


def _fill(
    engines: list[Engine], program: PackedProgram, objective: WaterFilling, enough: float
) -> tuple[_Best, PackedChoice, list[Attempt]]:
    """Water filling, each level proven; engines go on from one level to the next."""
    attempts: list[Attempt] = []
    started: dict[str, Solve] = {}
    solvers: list[_Best] = []

    def solve_level(level: WaterLevel) -> Proof:
        best, tried = _ask_in_turn(engines, program, level, enough, started)
        attempts.extend(tried)
        solvers.append(best)
        return best.proof

    proof = fill_packed(program, objective, solve_level)
    # where nobody can rise without another's loss, no other choice is more efficient
    return replace(solvers[0], proof=proof), PackedChoice(proof.point, proof.gap), attempts


def _ask_in_turn(
    engines: list[Engine], program: PackedProgram, objective: Objective, enough: float, started: dict[str, Solve]
) -> tuple[_Best, list[Attempt]]:
    """Ask the engines in turn until one is proven within `enough`; the best answer, and all attempts.

    Engines in `started` go on from where they are; others are started, and added.
    """
    attempts: list[Attempt] = []

    def turn(engine: Engine) -> Turn[tuple[Proof, Solve]]:
        def run() -> Judged[tuple[Proof, Solve]]:
            if engine.name not in started:
                started[engine.name] = engine.start(program)
            solve = started[engine.name]
            proof = prove(program, objective, optimise(program, objective, solve))
            return Judged((proof, solve), proof.gap)

        return Turn(engine.name, run)

    (proof, solve), solver = solve_in_turn([turn(engine) for engine in engines], enough, attempts)
    return _Best(proof, solver, solve), attempts


def no_jobs(
    polytope: PackedPolytope, reduction: Reduction, unit: str, *, efficiency_gap: float, seconds: float
) -> PackedSolution:
    """The solution of a program in which no job can run."""
    N, M = polytope.n_jobs, len(polytope.capacity)
    return PackedSolution(
        shares=np.zeros((N, M)),
        pairs=Pairs.none(),
        status="empty",
        objective=np.nan,
        bound=np.nan,
        gap=0.0,
        efficiency_gap=efficiency_gap,
        prices=prices_of_nobody(polytope, reduction.served),
        multipliers=np.zeros(N),
        served=reduction.served,
        unit=unit,
        solver="",
        seconds=seconds,
    )
