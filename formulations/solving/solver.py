"""Solve a program: reduce, solve, certify, choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from formulations.arguments import tolerance_of
from formulations.core.certificate import Certificate
from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.core.objective import Objective, objective_over
from formulations.core.polytope import Polytope
from formulations.core.solution import TOLERANCE, Attempt, Solution
from formulations.levels.water_filling import WaterFilling, fill
from formulations.packed.class_pairs import known_engine
from formulations.packed.levels import PairsEngine
from formulations.packed.polytope import PackedPolytope, check_polytope
from formulations.packed.reduction import PackedReduction
from formulations.solving.backends import Backend
from formulations.solving.choice import Choice, Chooser, chooser
from formulations.solving.reduction import Reduction
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

    attempts: list[Attempt] = []

    def prove(program: Polytope, objective: Objective) -> Certificate:
        return _ask_in_turn(engines, program, objective, rule.enough(tolerance), attempts)

    proof = fill(goal, part, prove) if isinstance(goal, WaterFilling) else prove(part, goal)
    solved = perf_counter()

    chosen = rule.choose(goal, reduction.among(proof), solver)
    objective_value, gap = goal.attained(part.throughput(chosen.shares), proof)
    if not rule.as_stated and proof.gap <= tolerance < gap:
        # the choice cost the last digits of a proven optimum
        chosen = Choice(proof.shares)
        objective_value, gap = goal.attained(part.throughput(chosen.shares), proof)
    shares, pairs = reduction.allocation(chosen.shares)
    prices, multipliers = _marginals(reduction, objective, goal.proving(part, proof))
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
        solver=proof.solver,
        seconds=done - started,
        iterations=proof.iterations,
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
    key = list(objective.key().T)
    plain = Reduction.of_figures(polytope, key, as_stated=rule.as_stated, merge_types=not rule.as_stated)
    return plain, rule.backends(solver, polytope.n_jobs)


def _marginals(reduction: Reduction, objective: Objective, proof: Certificate) -> tuple[Floats, Floats]:
    """Prices (M,) and multipliers (N,) that prove the bound, over all types and jobs."""
    multipliers = reduction.of_jobs(proof.multipliers)
    prices = reduction.all_prices(objective.worth(multipliers), proof.prices, proof.time)
    prices = objective.report_price(prices, objective.level_of(proof.bound))
    if len(reduction.types) < len(prices) and objective.has_demands:
        prices = prices + reduction.prices_of_others()
    return prices, multipliers


def _ask_in_turn(
    engines: Sequence[Backend | PairsEngine],
    polytope: Polytope,
    objective: Objective,
    enough: float,
    attempts: list[Attempt],
) -> Certificate:
    """The proof of the first engine that is within `enough` (of small programs: far within), else the best.

    All attempts are added to `attempts`.
    """

    def turn(engine: Backend | PairsEngine) -> Turn[Certificate]:
        def run() -> Judged[Certificate]:
            answer = engine(polytope, objective)
            proof = objective.certify(polytope, answer)
            return Judged(replace(proof, iterations=answer.iterations), proof.gap, answer.solver)

        return Turn(engine.name, run)

    if polytope.n_jobs <= _MOST_CLASSES_TO_AIM and enough < _ROUGH:
        enough = min(enough, _AIMED_GAP)
    proof, solver = solve_in_turn(map(turn, engines), enough, attempts)
    return replace(proof, solver=solver)
