"""Solve a program: reduce, solve, certify, choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from formulations.arguments import tolerance_of
from formulations.core.certificate import Certificate, certify
from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.core.objective import objective_over
from formulations.core.objectives import MaxSum, Method, NashWelfare, Objective, Threshold
from formulations.core.polytope import Polytope
from formulations.core.solution import TOLERANCE, Attempt, Solution
from formulations.levels.residual_program import ResidualProgram, WholeProgram
from formulations.levels.water_filling import PROVEN_ALONE, Level, WaterFilling, WaterLevel, fill
from formulations.packed.class_pairs import known_engine
from formulations.packed.levels import PairsEngine
from formulations.packed.polytope import PackedPolytope, check_polytope
from formulations.packed.reduction import PackedReduction
from formulations.solving.backends import Backend
from formulations.solving.choice import Choice, Chooser, chooser
from formulations.solving.reduction import PlainReduction, Reduction
from throughputs import InputError
from throughputs.arrays import Floats

_AIMED_GAP, _MOST_CLASSES_TO_AIM = 1e-9, 512
"""Relative gap that all paths are tried for where there are no more classes than this: they cost next to nothing."""

_ROUGH = 1e-2
"""Relative gap; who is content with that aims for no better one."""


def solve(
    polytope: Polytope | PackedPolytope,
    objective: Objective,
    *,
    solver: str = "auto",
    choice: str = "balanced",
    tolerance: float = TOLERANCE,
) -> Solution:
    """Best allocation in `polytope` for `objective`, with its certificate.

    Parameters
    ----------
    polytope, objective : the program, over the same N jobs. Jobs that gain nothing from any column on types with GPUs
        take no part: they get no share and are reported as not served.
    solver : "auto" (fastest exact path first, the next one when the proven gap is above tolerance) or a backend name;
        of polytopes with pairs "class_pairs" is the one there is (`formulations.packed.class_pairs`).
    choice : which of the optima, see `formulations.solving.choice`; "balanced" alone of polytopes with pairs.
    tolerance : relative gap up to which the answer is called optimal.

    Raises
    ------
    InputError
        Unknown solver or choice, or a solver whose package is not installed.
    SolverError
        No backend returned an answer.
    """
    started = perf_counter()
    check_polytope("solve", polytope)
    objective_over("solve", objective, polytope.n_jobs)
    tolerance_of("solve", tolerance)
    rule = chooser(choice)
    reduction, engines = _reduced(polytope, objective, rule, solver)
    if not len(reduction.jobs):
        none, seconds = reduction.prices_of_others(), perf_counter() - started
        return Solution.empty(polytope.n_jobs, none, unit=objective.unit, efficiency_gap=0.0, seconds=seconds)
    part = reduction.program
    goal = objective.of_classes(reduction.first, part.counts)
    built = perf_counter()

    best, attempts = goal.accept(_Programs(engines, reduction, rule.enough(tolerance)))
    solved = perf_counter()

    proof = best.certificate
    chosen = rule.choose(goal, reduction.among(proof), solver)
    objective_value, gap = goal.attained(part.throughput(chosen.shares), proof)
    if not rule.as_stated and proof.gap <= tolerance < gap:
        # the choice cost the last digits of a proven optimum
        chosen = Choice(proof.shares)
        objective_value, gap = goal.attained(part.throughput(chosen.shares), proof)
    shares, pairs = reduction.allocation(chosen.shares)
    prices, multipliers = _marginals(reduction, objective, proof)
    done = perf_counter()
    return Solution(
        shares=shares,
        status="optimal" if gap <= tolerance else "feasible",
        objective=objective_value,
        bound=proof.bound,
        gap=gap,
        efficiency_gap=chosen.efficiency_gap,
        prices=prices,
        multipliers=multipliers,
        served=reduction.served,
        unit=objective.unit,
        solver=best.solver,
        seconds=done - started,
        iterations=best.iterations,
        attempts=tuple(attempts),
        phases={"build": built - started, "solve": solved - built, "choose": done - solved},
        pairs=pairs,
    )


def _reduced(
    polytope: Polytope | PackedPolytope, objective: Objective, rule: Chooser, solver: str
) -> tuple[Reduction, Sequence[Backend | PairsEngine]]:
    """The program over classes, and who is asked in turn."""
    if isinstance(polytope, PackedPolytope):
        if type(rule) is not Chooser:
            raise InputError("choice among optima", found="another", expected='"balanced", where jobs share GPUs')
        known_engine(solver)
        packed = PackedReduction.of_polytope(polytope, objective.key())
        return packed, [PairsEngine(packed.program)] if len(packed.jobs) else []
    backends = rule.backends(solver, polytope.n_jobs)
    free = not rule.as_stated
    aggregates = free or backends[0].aggregates
    key = list(objective.key().T)
    plain = PlainReduction.of_figures(polytope, key, sort_types=free, merge_types=free, aggregates=aggregates)
    return plain, backends


def _marginals(reduction: Reduction, objective: Objective, proof: Certificate) -> tuple[Floats, Floats]:
    """Prices (M,) and multipliers (N,) that prove the bound, over all types and jobs."""
    of_classes, dual, time = proof.multipliers, proof.dual_prices, proof.time
    if proof.proving is not None:
        of_classes, dual = proof.proving
        time = of_classes * reduction.program.fastest
    multipliers = reduction.of_jobs(of_classes if len(of_classes) else np.zeros(len(reduction.first)))
    prices = reduction.all_prices(objective.worth(multipliers), dual, time)
    prices = objective.reported_prices(prices, proof.bound)
    if len(reduction.types) < len(prices) and objective.has_demands:
        prices = prices + reduction.prices_of_others()
    return prices, multipliers


_Answered = tuple["_Best", list[Attempt]]
"""The best answer, and all attempts."""


@dataclass(frozen=True, eq=False)
class _Programs(Method[_Answered]):
    """One program for an objective, or as many as it has levels."""

    engines: Sequence[Backend | PairsEngine]
    reduction: Reduction
    enough: float

    def weighted_sum(self, objective: MaxSum) -> _Answered:
        return self._one(objective)

    def level(self, objective: Threshold) -> _Answered:
        return self._one(objective)

    def log_sum(self, objective: NashWelfare) -> _Answered:
        return self._one(objective)

    def sequence(self, objective: WaterFilling) -> _Answered:
        return _fill(self.engines, self.reduction.residual(), objective, self.enough)

    def _one(self, objective: Objective) -> _Answered:
        return _ask_in_turn(self.engines, self.reduction.program, objective, self.enough)


@dataclass(frozen=True, eq=False)
class _Best:
    """The answer with the smallest proven gap, and whose it is."""

    certificate: Certificate
    solver: str
    iterations: int


def _ask_in_turn(
    engines: Sequence[Backend | PairsEngine], polytope: Polytope, objective: Objective, enough: float
) -> tuple[_Best, list[Attempt]]:
    """Ask the engines in turn until one is proven within `enough` (of small programs: far within); the best answer,
    and all attempts."""
    aim = min(enough, _AIMED_GAP) if enough < _ROUGH else enough
    attempts: list[Attempt] = []

    def turn(engine: Backend | PairsEngine) -> Turn[tuple[Certificate, int]]:
        def run() -> Judged[tuple[Certificate, int]]:
            answer = engine(polytope, objective)
            certificate = certify(polytope, objective, answer)
            return Judged((certificate, answer.iterations), certificate.gap, answer.solver)

        return Turn(engine.name, run)

    goal = aim if polytope.n_jobs <= _MOST_CLASSES_TO_AIM else enough
    (certificate, iterations), solver = solve_in_turn(map(turn, engines), goal, attempts)
    return _Best(certificate, solver, iterations), attempts


def _fill(
    engines: Sequence[Backend | PairsEngine],
    rest: ResidualProgram | WholeProgram,
    objective: WaterFilling,
    enough: float,
) -> tuple[_Best, list[Attempt]]:
    """Water filling, each level proven; the allocation is the last level's, bound and prices are the first's."""
    attempts: list[Attempt] = []
    polytope = rest.polytope

    def solve_level(level: WaterLevel) -> Level:
        best, tried = _ask_in_turn(engines, rest.polytope, level.take(rest.jobs), enough)
        attempts.extend(tried)
        proof = rest.among_all(best.certificate)
        return Level(proof.objective, proof.gap, polytope.throughput(proof.shares), proof.multipliers, (best, proof))

    levels = fill(objective, polytope.fastest, solve_level, rest.settle)
    first, last = levels[0].source[1], levels[-1].source[1]
    most = objective.value(polytope.fastest)
    whole = replace(
        first,
        shares=last.shares,
        objective=min(first.objective, most),
        bound=min(first.bound, most),
        gap=max(level.gap for level in levels),
    )
    if first.bound >= most * (1.0 - PROVEN_ALONE):
        # a member of the top can have no more, whatever the first level costs
        whole = replace(whole, proving=(objective.held_by(polytope.fastest), np.zeros(len(polytope.capacity))))
    iterations = sum(level.source[0].iterations for level in levels)
    return _Best(whole, levels[0].source[0].solver, iterations), attempts
