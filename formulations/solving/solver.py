"""Solve a program: reduce, solve, certify, choose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from formulations.arguments import instance, tolerance_of
from formulations.core.certificate import Certificate, certify
from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.core.objective import objective_over
from formulations.core.objectives import MaxSum, Method, NashWelfare, Objective, Threshold
from formulations.core.polytope import Polytope, parts
from formulations.core.reductions import Classes, classes_of, types_in_order
from formulations.core.solution import TOLERANCE, Attempt, Solution
from formulations.levels.residual_program import ResidualProgram
from formulations.levels.water_filling import PROVEN_ALONE, Level, WaterFilling, WaterLevel, fill
from formulations.solving.absent_types import prices_of_none, with_absent_types
from formulations.solving.backends import Backend
from formulations.solving.choice import Among, Choice, chooser
from throughputs.arrays import Flags, Floats, Positions

_AIMED_GAP, _MOST_CLASSES_TO_AIM = 1e-9, 512
"""Relative gap that all paths are tried for where there are no more classes than this: they cost next to nothing."""

_ROUGH = 1e-2
"""Relative gap; who is content with that aims for no better one."""


def solve(
    polytope: Polytope,
    objective: Objective,
    *,
    solver: str = "auto",
    choice: str = "balanced",
    tolerance: float = TOLERANCE,
) -> Solution:
    """Best allocation in `polytope` for `objective`, with its certificate.

    Parameters
    ----------
    polytope, objective : the program, over the same N jobs. Jobs that gain nothing from any type with GPUs take no
        part: they get no share and are reported as not served.
    solver : "auto" (fastest exact path first, the next one when the proven gap is above tolerance) or a backend name.
    choice : which of the optima, see `formulations.solving.choice`.
    tolerance : relative gap up to which the answer is called optimal.

    Raises
    ------
    InputError
        Unknown solver or choice, or a solver whose package is not installed.
    SolverError
        No backend returned an answer.
    """
    started = perf_counter()
    instance("solve", "polytope", polytope, Polytope, "Polytope(PlainColumns(matrix), capacity)")
    objective_over("solve", objective, polytope.n_jobs)
    tolerance_of("solve", tolerance)
    rule = chooser(choice)
    backends = rule.backends(solver, polytope.n_jobs)
    served: Flags = np.asarray((polytope.rates[:, polytope.capacity > 0] > 0).any(axis=1))
    jobs, types = np.flatnonzero(served), np.flatnonzero(polytope.capacity > 0)
    if not rule.as_stated:
        types = types_in_order(polytope.rates, polytope.fastest, polytope.capacity)
    if not len(jobs):
        none, seconds = prices_of_none(polytope.rates), perf_counter() - started
        return Solution.empty(polytope.n_jobs, none, unit=objective.unit, efficiency_gap=0.0, seconds=seconds)
    classes = _reduce(polytope, objective, jobs, types, aggregates=not rule.as_stated or backends[0].aggregates)
    counts = classes.counts * polytope.counts[jobs[classes.first]]
    part = polytope.restricted(jobs[classes.first], types, counts)
    goal = objective.of_classes(jobs[classes.first], counts)
    built = perf_counter()

    best, attempts = goal.accept(_Programs(backends, part, rule.enough(tolerance)))
    solved = perf_counter()

    proof = best.certificate
    chosen = rule.choose(goal, Among(part, proof), solver)
    objective_value, gap = goal.attained(part.throughput(chosen.shares), proof)
    if not rule.as_stated and proof.gap <= tolerance < gap:
        # the choice cost the last digits of a proven optimum
        chosen = Choice(proof.shares)
        objective_value, gap = goal.attained(part.throughput(chosen.shares), proof)
    shares = _expand(chosen.shares, part.rates, classes, jobs, types, polytope.rates.shape)
    prices, multipliers = _marginals(polytope, objective, proof, classes, jobs, types)
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
        served=served,
        unit=objective.unit,
        solver=best.solver,
        seconds=done - started,
        iterations=best.iterations,
        attempts=tuple(attempts),
        phases={"build": built - started, "solve": solved - built, "choose": done - solved},
    )


def _marginals(
    polytope: Polytope,
    objective: Objective,
    proof: Certificate,
    classes: Classes,
    jobs: Positions,
    types: Positions,
) -> tuple[Floats, Floats]:
    """Prices (M,) and multipliers (N,) that prove the bound, over all types and jobs."""
    of_classes, dual = proof.proving or (proof.multipliers, proof.dual_prices)
    prices, multipliers = np.zeros(len(polytope.capacity)), np.zeros(polytope.n_jobs)
    if len(of_classes):
        multipliers[jobs] = of_classes[classes.of]
    prices[types] = dual
    if len(types) < len(prices):
        worth = objective.worth(multipliers)[:, None] * polytope.rates
        prices = with_absent_types(worth, polytope.scale_factors, prices, polytope.capacity)
    prices = objective.reported_prices(prices, proof.bound)
    if len(types) < len(prices) and objective.has_demands:
        outside = np.setdiff1d(np.arange(polytope.n_jobs), jobs, assume_unique=True)
        prices = prices + prices_of_none(polytope.rates[outside])
    return prices, multipliers


def _reduce(
    polytope: Polytope, objective: Objective, jobs: Positions, types: Positions, *, aggregates: bool
) -> Classes:
    """Classes of identical jobs, in one order for all ways to list them: sums then have the same last bits.

    Where another solver's own point is asked for, every job is its own class: that point depends on how it is asked.
    """
    if not aggregates:
        return Classes.single(len(jobs))
    columns = [*polytope.rates.T[types], polytope.scale_factors, *objective.key().T]
    if (polytope.counts != 1).any():
        columns.append(polytope.counts)
    return classes_of(columns if len(jobs) == polytope.n_jobs else [column[jobs] for column in columns])


def _expand(
    shares: Floats,
    rates: Floats,
    classes: Classes,
    jobs: Positions,
    types: Positions,
    shape: tuple[int, ...],
) -> Floats:
    """From classes (K, served types) to all jobs (N, M); no time on a type that yields nothing."""
    if any(((shares[part] > 0) & ~(rates[part] > 0)).any() for part in parts(len(shares))):
        shares = np.where(rates > 0, shares, 0.0)
    of_jobs: Floats = shares.take(classes.of, axis=0, mode="clip")
    if of_jobs.shape == shape and (types[:-1] < types[1:]).all():
        return of_jobs
    whole = np.zeros(shape)
    whole[np.ix_(jobs, types)] = of_jobs
    return whole


_Answered = tuple["_Best", list[Attempt]]
"""The best answer, and all attempts."""


@dataclass(frozen=True, eq=False)
class _Programs(Method[_Answered]):
    """One program for an objective, or as many as it has levels."""

    backends: list[Backend]
    polytope: Polytope
    enough: float

    def weighted_sum(self, objective: MaxSum) -> _Answered:
        return self._one(objective)

    def level(self, objective: Threshold) -> _Answered:
        return self._one(objective)

    def log_sum(self, objective: NashWelfare) -> _Answered:
        return self._one(objective)

    def sequence(self, objective: WaterFilling) -> _Answered:
        return _fill(self.backends, self.polytope, objective, self.enough)

    def _one(self, objective: Objective) -> _Answered:
        return _ask_in_turn(self.backends, self.polytope, objective, self.enough)


@dataclass(frozen=True, eq=False)
class _Best:
    """The answer with the smallest proven gap, and whose it is."""

    certificate: Certificate
    solver: str
    iterations: int


def _ask_in_turn(
    backends: list[Backend], polytope: Polytope, objective: Objective, enough: float
) -> tuple[_Best, list[Attempt]]:
    """Ask the backends in turn until one is proven within `enough` (of small programs: far within); the best answer,
    and all attempts."""
    aim = min(enough, _AIMED_GAP) if enough < _ROUGH else enough
    attempts: list[Attempt] = []

    def turn(backend: Backend) -> Turn[tuple[Certificate, int]]:
        def run() -> Judged[tuple[Certificate, int]]:
            answer = backend.load()(polytope, objective)
            certificate = certify(polytope, objective, answer)
            return Judged((certificate, answer.iterations), certificate.gap, answer.solver)

        return Turn(backend.name, run)

    goal = aim if polytope.n_jobs <= _MOST_CLASSES_TO_AIM else enough
    (certificate, iterations), solver = solve_in_turn(map(turn, backends), goal, attempts)
    return _Best(certificate, solver, iterations), attempts


def _fill(
    backends: list[Backend], polytope: Polytope, objective: WaterFilling, enough: float
) -> tuple[_Best, list[Attempt]]:
    """Water filling, each level proven; the allocation is the last level's, bound and prices are the first's."""
    attempts: list[Attempt] = []
    rest = ResidualProgram(polytope)

    def solve_level(level: WaterLevel) -> Level:
        best, tried = _ask_in_turn(backends, rest.polytope, level.take(rest.jobs), enough)
        attempts.extend(tried)
        proof = rest.among_all(best.certificate)
        return Level(proof.objective, proof.gap, polytope.throughput(proof.shares), proof.multipliers, (best, proof))

    def settle(level: Level, fixed: Flags, due: Floats) -> Floats:
        return rest.settle(level.source[0].certificate, fixed, due)

    levels = fill(objective, polytope.fastest, solve_level, settle)
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
