"""Solve a packed program: reduce, solve, certify, choose, expand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np

from formulations.arguments import instance, tolerance_of
from formulations.core.certificate import relative_gap
from formulations.core.objective import objective_over
from formulations.core.objectives import MaxSum, Method, Objective, Threshold
from formulations.core.solution import Attempt, Solution
from formulations.levels.water_filling import PROVEN_ALONE, Level, WaterFilling, WaterLevel, fill
from formulations.packed.certificate import prices_of_nobody, with_absent_types
from formulations.packed.choice import PackedChoice, choose
from formulations.packed.class_pairs import NAME, ClassPairs
from formulations.packed.expansion import of_jobs
from formulations.packed.levels import Proof, solve_for
from formulations.packed.polytope import PackedPolytope, Pairs
from formulations.packed.reduction import Reduction, reduce
from throughputs.arrays import Floats


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
    solver : "auto" or "class_pairs", which is the one there is (`formulations.packed.class_pairs`).
    tolerance : relative gap up to which the answer is called optimal.

    Raises
    ------
    InputError
        Unknown solver.
    SolverError
        HiGHS found no optimum.

    Source: Narayanan et al., OSDI 2020, sections 3.1 and 4 (policies with space sharing; water filling: 4.3).
    """
    started = perf_counter()
    instance("solve_packed", "program", program, PackedPolytope, "PackedPolytope(columns, capacity)")
    objective_over("solve_packed", objective, program.n_jobs)
    tolerance_of("solve_packed", tolerance)
    reduction = reduce(program, objective.key())
    if reduction.program is None:
        return no_jobs(program, reduction, unit=objective.unit, efficiency_gap=0.0, seconds=perf_counter() - started)
    model = ClassPairs(reduction.program, solver)
    goal = objective.of_classes(reduction.first, reduction.program.counts)
    built = perf_counter()
    proof, chosen, solved = goal.accept(_Programs(model))
    decided = perf_counter()

    shares, pairs = of_jobs(reduction, chosen.point, len(program.capacity))
    value, gap = _attained(program, objective, reduction, proof, shares, pairs)
    if proof.gap <= tolerance < gap:
        # the choice cost the last digits of a proven optimum
        chosen = PackedChoice(proof.point, np.nan)
        shares, pairs = of_jobs(reduction, chosen.point, len(program.capacity))
        value, gap = _attained(program, objective, reduction, proof, shares, pairs)
    weights, time, dual_prices = proof.proving
    prices = goal.reported_prices(with_absent_types(program, reduction, weights, time, dual_prices), proof.bound)
    done = perf_counter()
    return packed_solution(
        program,
        reduction,
        shares,
        pairs,
        status="optimal" if gap <= tolerance else "feasible",
        objective=value,
        bound=proof.bound,
        gap=gap,
        efficiency_gap=chosen.efficiency_gap if np.isfinite(chosen.efficiency_gap) else np.nan,
        prices=prices,
        multipliers=weights if goal.has_demands else np.zeros_like(weights),
        unit=objective.unit,
        seconds=done - started,
        iterations=proof.point.iterations,
        phases={
            "build": built - started,
            "solve": solved - built,
            "choose": decided - solved,
            "expand": done - decided,
        },
    )


def packed_solution(
    polytope: PackedPolytope,
    reduction: Reduction,
    shares: Floats,
    pairs: Pairs,
    *,
    prices: Floats,
    multipliers: Floats,
    gap: float,
    seconds: float,
    **figures: Any,
) -> PackedSolution:
    """The solution for all jobs from `prices` (M,) and from `multipliers` (K,) by class; the others as they are."""
    of_jobs = np.zeros(polytope.n_jobs)
    of_jobs[reduction.jobs] = multipliers[reduction.of]
    return PackedSolution(
        shares=shares,
        pairs=pairs,
        prices=prices + prices_of_nobody(polytope, reduction.served),
        multipliers=of_jobs,
        served=reduction.served,
        gap=gap,
        solver=NAME,
        seconds=seconds,
        attempts=(Attempt(NAME, gap, seconds),),
        **figures,
    )


def no_jobs(polytope: PackedPolytope, reduction: Reduction, **figures: Any) -> PackedSolution:
    """The solution of a program in which no job can run."""
    prices = prices_of_nobody(polytope, reduction.served)
    return PackedSolution.empty(polytope.n_jobs, prices, pairs=Pairs.none(), **figures)


def _attained(
    program: PackedPolytope, objective: Objective, reduction: Reduction, proof: Proof, shares: Floats, pairs: Pairs
) -> tuple[float, float]:
    """Value at the chosen shares, and its gap to the bound."""
    u = program.throughput(shares, pairs)[reduction.jobs]
    value, gap = objective.take(reduction.jobs).attained(u, proof)
    return value, max(relative_gap(value, proof.bound), gap)


_Answered = tuple[Proof, PackedChoice, float]
"""The proof, what was chosen, and when the last program was solved."""


@dataclass(frozen=True, eq=False)
class _Programs(Method[_Answered]):
    """One program for an objective, or as many as it has levels."""

    pairs: ClassPairs

    def weighted_sum(self, objective: MaxSum) -> _Answered:
        return self._one(objective)

    def level(self, objective: Threshold) -> _Answered:
        return self._one(objective)

    def sequence(self, objective: WaterFilling) -> _Answered:
        """Water filling, each level proven.

        Complementary slackness holds for packed programs too: a class whose demand has a positive multiplier is held
        at its demand in every allocation that attains the level. What ends a level may be company instead of capacity,
        when the time of somebody's partners is used up, so there may be more levels than types. Point and throughput
        are those of the last level, bound, prices and multipliers those of the first; the gap is the largest of any.
        """
        fastest = self.pairs.program.fastest

        def solve_level(level: WaterLevel) -> Level:
            proof = solve_for(self.pairs, level)
            return Level(proof.objective, proof.gap, proof.throughput, proof.point.demand_multipliers, proof)

        levels = fill(objective, fastest, solve_level)
        first, last = levels[0].source, levels[-1].source
        iterations = sum(level.source.point.iterations for level in levels)
        most = objective.value(fastest)
        proof: Proof = replace(
            first,
            point=replace(last.point, demand_multipliers=first.point.demand_multipliers, iterations=iterations),
            throughput=last.throughput,
            objective=min(first.objective, most),
            bound=min(first.bound, most),
            gap=max(level.gap for level in levels),
        )
        if first.bound >= most * (1.0 - PROVEN_ALONE):
            # a member of the top can have no more, whatever the first level costs
            held = objective.held_by(fastest)
            proof = replace(proof, proving=(held, held * fastest, np.zeros_like(first.prices)))
        # where nobody can rise without another's loss, no other choice is more efficient
        return proof, PackedChoice(proof.point, proof.gap), perf_counter()

    def refusal(self, objective: Objective) -> Exception:
        return TypeError(f"no packed program for {type(objective).__name__}")

    def _one(self, objective: Objective) -> _Answered:
        proof = solve_for(self.pairs, objective)
        solved = perf_counter()
        return proof, choose(self.pairs, objective, proof), solved
