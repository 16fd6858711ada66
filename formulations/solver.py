"""Solve a program: reduce, solve, certify, choose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from formulations.backends import AUTO, Backend, get_backend
from formulations.certificate import Certificate, certify
from formulations.objectives import Makespan, MaxSum, Objective
from formulations.polytope import Polytope, parts
from formulations.reductions import Classes, classes_of
from formulations.selection import Choice, balance, check_choice, published_makespan
from formulations.solution import Attempt, NotAcceptedError, Solution, SolverError
from formulations.water_filling import Level, WaterFilling, WaterLevel, fill

__all__ = ["TOLERANCE", "solve"]

Array = NDArray[np.float64]

TOLERANCE = 1e-7
"""Relative gap up to which an answer is called optimal."""

_AIM, _SMALL = 1e-9, 512
"""Relative gap that all paths are tried for where there are no more classes than this: they cost next to nothing."""

_PUBLISHED_GAP = 1e-4
"""Relative gap up to which a published point is taken for what its solver returns, not for a failure."""


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
    choice : which of the optima, see `formulations.selection`.
    tolerance : relative gap up to which the answer is called optimal.

    Raises
    ------
    InputError
        Unknown solver or choice, or a solver whose package is not installed.
    SolverError
        No backend returned an answer.
    """
    started = perf_counter()
    check_choice(choice)
    # where jobs compete for a sum, whole jobs hang on the point the published solver happens to end at
    order = ("homogeneous", *AUTO) if choice == "published" and isinstance(objective, MaxSum) else AUTO
    backends = [get_backend(name) for name in (order if solver == "auto" else (solver,))]
    served: NDArray[np.bool_] = np.asarray((polytope.rates[:, polytope.capacity > 0] > 0).any(axis=1))
    jobs, types = np.flatnonzero(served), np.flatnonzero(polytope.capacity > 0)
    if not len(jobs):
        return _empty(polytope, objective, served, perf_counter() - started)
    classes = _reduce(polytope, objective, jobs, types, aggregates=choice == "balanced" or backends[0].aggregates)
    part = polytope.restricted(jobs[classes.first], types, classes.counts)
    goal = objective.of_classes(jobs[classes.first], classes.counts)
    built = perf_counter()

    # the published point is taken as it is, at the precision of its solver; its gap is reported
    enough = max(tolerance, _PUBLISHED_GAP) if choice == "published" else tolerance
    if isinstance(goal, WaterFilling):
        best, attempts = _fill(backends, part, goal, enough)
    else:
        best, attempts = _solve_in_turn(backends, part, goal, enough)
    solved = perf_counter()

    proof = best.certificate
    chosen = _choose(part, goal, proof, choice, solver)
    objective_value = goal.value(part.throughput(chosen.shares))
    if isinstance(goal, WaterFilling):
        # with entities all at the top may have more in the end than at the first level
        objective_value = min(objective_value, proof.objective)
    shares = _expand(chosen.shares, part.rates, classes, jobs, types, polytope.rates.shape)
    prices, multipliers = np.zeros(len(polytope.capacity)), np.zeros(len(served))
    prices[types] = proof.prices
    if len(proof.multipliers):
        multipliers[jobs] = proof.multipliers[classes.of]
    gap = proof.gap
    if objective_value != proof.objective and not isinstance(goal, WaterFilling):
        gap = goal.gap(objective_value, proof.bound)
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


def _reduce(
    polytope: Polytope, objective: Objective, jobs: NDArray[np.intp], types: NDArray[np.intp], *, aggregates: bool
) -> Classes:
    """Classes of identical jobs, in one order for all ways to list them: sums then have the same last bits.

    Where another solver's own point is asked for, every job is its own class: that point depends on how it is asked.
    """
    if not aggregates:
        return Classes.single(len(jobs))
    columns = [*polytope.rates.T[types], polytope.scale_factors, *objective.key().T]
    return classes_of(columns if len(jobs) == polytope.n_jobs else [column[jobs] for column in columns])


def _expand(
    shares: Array,
    rates: Array,
    classes: Classes,
    jobs: NDArray[np.intp],
    types: NDArray[np.intp],
    shape: tuple[int, ...],
) -> Array:
    """From classes (K, served types) to all jobs (N, M); no time on a type that yields nothing."""
    if any(((shares[part] > 0) & ~(rates[part] > 0)).any() for part in parts(len(shares))):
        shares = np.where(rates > 0, shares, 0.0)
    of_jobs: Array = shares.take(classes.of, axis=0, mode="clip")
    if of_jobs.shape == shape:
        return of_jobs
    whole = np.zeros(shape)
    whole[np.ix_(jobs, types)] = of_jobs
    return whole


@dataclass(frozen=True, eq=False)
class _Best:
    """The answer with the smallest proven gap, and whose it is."""

    certificate: Certificate
    solver: str
    iterations: int


def _solve_in_turn(
    backends: list[Backend], polytope: Polytope, objective: Objective, enough: float
) -> tuple[_Best, list[Attempt]]:
    """Ask the backends in turn until one is proven within `enough` (of small programs: far within); the best answer,
    and all attempts."""
    aim = min(enough, _AIM) if enough < _PUBLISHED_GAP else enough
    best: _Best | None = None
    attempts: list[Attempt] = []
    declined: list[str] = []
    for backend in backends:
        began = perf_counter()
        try:
            answer = backend.load()(polytope, objective)
        except NotAcceptedError as error:
            declined.append(f"{backend.name}: {error}")
            continue
        except (RuntimeError, np.linalg.LinAlgError) as error:
            attempts.append(Attempt(backend.name, np.inf, perf_counter() - began, str(error)))
            continue
        certificate = certify(polytope, objective, answer)
        attempts.append(Attempt(backend.name, certificate.gap, perf_counter() - began))
        if best is None or certificate.gap < best.certificate.gap:
            best = _Best(certificate, backend.name, answer.iterations)
        if best.certificate.gap <= (aim if polytope.n_jobs <= _SMALL else enough):
            break
    if best is None:
        raise SolverError("; ".join([*declined, *(f"{attempt.solver}: {attempt.note}" for attempt in attempts)]))
    return best, attempts


def _fill(
    backends: list[Backend], polytope: Polytope, objective: WaterFilling, enough: float
) -> tuple[_Best, list[Attempt]]:
    """Water filling, each level proven; the allocation is the last level's, bound and prices are the first's."""
    attempts: list[Attempt] = []

    def solve_level(level: WaterLevel) -> Level:
        best, tried = _solve_in_turn(backends, polytope, level, enough)
        attempts.extend(tried)
        proof = best.certificate
        return Level(proof.objective, proof.gap, polytope.throughput(proof.shares), proof.multipliers, best)

    levels = fill(objective, polytope.rates.max(axis=1), solve_level)
    first, last = levels[0].source.certificate, levels[-1].source.certificate
    most = objective.value(polytope.rates.max(axis=1))
    whole = replace(
        first,
        shares=last.shares,
        objective=min(first.objective, most),
        bound=min(first.bound, most),
        gap=max(level.gap for level in levels),
    )
    iterations = sum(level.source.iterations for level in levels)
    return _Best(whole, levels[0].source.solver, iterations), attempts


def _choose(polytope: Polytope, objective: Objective, best: Certificate, choice: str, solver: str) -> Choice:
    kept = Choice(best.shares)
    if choice == "published":
        return published_makespan(polytope, objective, best.shares, solver) if isinstance(objective, Makespan) else kept
    return balance(polytope, objective, best)


def _empty(polytope: Polytope, objective: Objective, served: NDArray[np.bool_], seconds: float) -> Solution:
    N, M = polytope.rates.shape
    return Solution(
        shares=np.zeros((N, M)),
        status="empty",
        objective=np.nan,
        bound=np.nan,
        gap=0.0,
        efficiency_gap=0.0,
        prices=np.zeros(M),
        multipliers=np.zeros(N),
        served=served,
        unit=objective.unit,
        solver="",
        seconds=seconds,
    )
