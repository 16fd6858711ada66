"""The plain path: dictionaries in, a cvxpy program written job by job, ECOS, dictionaries out.

How the policies of the published systems take a decision, in our own words: the throughputs arrive as a dictionary of
dictionaries and are flattened by Python loops; max-min and the sum are then one array expression, finish-time fairness
one expression per job, and the makespan a bisection of feasibility problems that stops within 5 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.solvers.peers.cvxpy_peers import Stopwatch, run_cvxpy
from benchmarks.solvers.registry import Array, DeclinedError, Outcome, Problem, Program, Solve, path
from formulations import FinishTimeFairness, Makespan, MaxMin, MaxSum

_SOLVER = "ECOS"
_SHORTEST, _LONGEST, _PRECISION = 100.0, 1e6, 1.05
"""Bracket of the bisection in seconds, and the ratio at which it stops."""


@dataclass
class _Jobs:
    """What a caller of the plain path holds."""

    throughputs: Mapping[int, Mapping[str, float]]
    scale_factors: Mapping[int, int]
    cluster: Mapping[str, float]
    figures: Mapping[str, Mapping[int, float]]


@path(
    "cvxpy_ecos",
    "cvxpy + ECOS, as published",
    kind="peer",
    most_jobs=100_000,
    decisions=("max_min", "makespan", "finish_time", "max_sum"),
)
def cvxpy_ecos(problem: Problem) -> Solve:
    """Everything is built anew at each decision, by the decision's own builder."""
    program = problem.pose()
    build = _BUILDERS.get(type(program.objective))
    if build is None:
        raise DeclinedError("no published way to take this decision")
    jobs = _dictionaries(program)

    def solve(program: Program) -> Outcome:  # noqa: ARG001
        watch = Stopwatch()
        cp: Any = import_module("cvxpy")
        found, x, iterations = build(cp, jobs, watch)
        with watch.phase("recover"):
            shares = {
                job: {name: float(x[i, j]) for j, name in enumerate(jobs.cluster)}
                for i, job in enumerate(jobs.throughputs)
            }
        matrix = np.array([list(row.values()) for row in shares.values()])
        return Outcome(matrix, found, watch.phases, None, _SOLVER, iterations)

    return solve


def _dictionaries(program: Program) -> _Jobs:
    polytope, objective = program.polytope, program.objective
    names = [f"type{j}" for j in range(len(polytope.capacity))]
    figures = {
        name: dict(enumerate(getattr(objective, name).tolist()))
        for name in ("weights", "gains", "elapsed", "remaining", "isolated")
        if hasattr(objective, name)
    }
    return _Jobs(
        {i: dict(zip(names, row, strict=True)) for i, row in enumerate(polytope.rates.tolist())},
        dict(enumerate(polytope.scale_factors.tolist())),
        dict(zip(names, polytope.capacity.tolist(), strict=True)),
        figures,
    )


def _flattened(jobs: _Jobs) -> tuple[Array, Array, Array]:
    """Rates (N, M), gangs as (N, M), capacity (M,)."""
    rates = np.zeros((len(jobs.throughputs), len(jobs.cluster)))
    gangs = np.zeros_like(rates)
    for i, job in enumerate(jobs.throughputs):
        for j, name in enumerate(jobs.cluster):
            rates[i, j] = jobs.throughputs[job][name]
            gangs[i, j] = jobs.scale_factors[job]
    return rates, gangs, np.array(list(jobs.cluster.values()))


def _limits(cp: Any, x: Any, gangs: Array, capacity: Array) -> list[Any]:
    return [x >= 0, cp.sum(cp.multiply(gangs, x), axis=0) <= capacity, cp.sum(x, axis=1) <= 1]


def _solved(problem: Any, x: Any, watch: Stopwatch) -> tuple[str, Array, int]:
    run_cvxpy(problem, _SOLVER, watch)
    if x.value is None:
        raise RuntimeError(f"{_SOLVER} ended with status {problem.status}")
    return problem.status, np.asarray(x.value), int(problem.solver_stats.num_iters or 0)


def _max_min(cp: Any, jobs: _Jobs, watch: Stopwatch) -> tuple[str, Array, int]:
    with watch.phase("build"):
        rates, gangs, capacity = _flattened(jobs)
        reciprocal = np.array([1.0 / jobs.figures["weights"][job] for job in jobs.throughputs])
        x = cp.Variable(rates.shape)
        least = cp.min(cp.sum(cp.multiply(rates * reciprocal[:, None], x), axis=1))
        problem = cp.Problem(cp.Maximize(least), _limits(cp, x, gangs, capacity))
    return _solved(problem, x, watch)


def _max_sum(cp: Any, jobs: _Jobs, watch: Stopwatch) -> tuple[str, Array, int]:
    with watch.phase("build"):
        rates, gangs, capacity = _flattened(jobs)
        gains = np.array([jobs.figures["gains"][job] for job in jobs.throughputs])
        x = cp.Variable(rates.shape)
        total = cp.sum(cp.multiply(rates * gains[:, None], x))
        problem = cp.Problem(cp.Maximize(total), _limits(cp, x, gangs, capacity))
    return _solved(problem, x, watch)


def _finish_time(cp: Any, jobs: _Jobs, watch: Stopwatch) -> tuple[str, Array, int]:
    with watch.phase("build"):
        rates, gangs, capacity = _flattened(jobs)
        x = cp.Variable(rates.shape)
        ratios = []
        for i, job in enumerate(jobs.throughputs):
            rate = cp.sum(cp.multiply(rates[i], x[i]))
            finish = jobs.figures["elapsed"][job] + jobs.figures["remaining"][job] * cp.inv_pos(rate)
            ratios.append(finish / jobs.figures["isolated"][job])
        worst = cp.maximum(*ratios) if len(ratios) > 1 else ratios[0]
        problem = cp.Problem(cp.Minimize(worst), _limits(cp, x, gangs, capacity))
    return _solved(problem, x, watch)


def _makespan(cp: Any, jobs: _Jobs, watch: Stopwatch) -> tuple[str, Array, int]:
    low, high = _SHORTEST, _LONGEST
    best: Array | None = None
    programs = 0
    while best is None or _PRECISION * low < high:
        if best is None and _PRECISION * low >= high:
            # nothing was feasible: the next decade
            low, high = high, 10 * high
            if high > 1e15:
                raise RuntimeError("no feasible makespan found")
        middle = (low + high) / 2
        status, x = _within(cp, jobs, middle, watch)
        programs += 1
        if status == "optimal":
            best, high = x, middle
        else:
            low = middle
    assert best is not None
    return "optimal", best, programs


def _within(cp: Any, jobs: _Jobs, seconds: float, watch: Stopwatch) -> tuple[str, Any]:
    """Whether all jobs can end within `seconds`."""
    with watch.phase("build"):
        rates, gangs, capacity = _flattened(jobs)
        needed = np.array([jobs.figures["weights"][job] / seconds for job in jobs.throughputs])
        x = cp.Variable(rates.shape)
        fast_enough = cp.sum(cp.multiply(rates, x), axis=1) >= needed
        problem = cp.Problem(cp.Maximize(1), [*_limits(cp, x, gangs, capacity), fast_enough])
    run_cvxpy(problem, _SOLVER, watch)
    return problem.status, x.value


_BUILDERS: dict[type, Any] = {
    MaxMin: _max_min,
    Makespan: _makespan,
    FinishTimeFairness: _finish_time,
    MaxSum: _max_sum,
}
