"""Run the plan: every path on every problem, timed, judged by the same bound, in one run."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.solvers.memory import peak_memory
from benchmarks.solvers.plan import Budget, Options, Point, plan
from benchmarks.solvers.registry import FAMILIES, DeclinedError, Outcome, Path, Problem, Program
from formulations import Polytope, SolverError
from formulations.core.objectives import Threshold

PLAIN = "cvxpy_ecos"
"""The path that ratios are taken to."""

_FEWEST = 3


def measure_rows(options: Options, console: Console) -> list[dict[str, Any]]:
    """One row per problem and path; see the package for what a row holds."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    points = plan(options)
    rows: list[dict[str, Any]] = []
    columns = (TextColumn("{task.description:<52}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=sum(point.work for point in points))
        try:
            for point, budget in _with_budgets(points, options.limit_seconds):
                label = f"{point.decision.name}, {point.family.name}, {point.n_jobs:,} x {point.n_types}"
                rows += _measure_point(point, budget, options, partial(_describe, progress, task, label))
                progress.advance(task, point.work)
        except KeyboardInterrupt:
            if not rows:
                raise
            console.print("Interrupted: what was measured so far is kept.")
    return rows


def _describe(progress: Any, task: Any, label: str, doing: str) -> None:
    progress.update(task, description=f"{label}: {doing}")


def _with_budgets(points: Sequence[Point], limit_seconds: float) -> Iterator[tuple[Point, Budget]]:
    """Each point with the budget of its decision, family and number of types."""
    budgets: dict[tuple[str, str, int], Budget] = {}
    for point in points:
        kind = (point.decision.name, point.family.name, point.n_types)
        yield point, budgets.setdefault(kind, Budget(limit_seconds))


def _measure_point(point: Point, budget: Budget, options: Options, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    tell("drawing")
    problem = Problem(point.decision, point.family, point.n_jobs, point.n_types, options.seed)
    rows = []
    for path in point.paths:
        tell(path.name)
        reason = path.declines(point.decision.name, point.n_jobs) or budget.refuses(path.name, point.n_jobs)
        figures = _skipped(reason) if reason else _measure_path(problem, path, options, budget)
        rows.append(_heading(problem, path) | figures)
        large = options.memory and path.kind == "own" and point.n_jobs >= options.memory_from
        if large and figures["outcome"] == "measured":
            tell(f"{path.name}, memory")
            rows[-1] |= peak_memory(problem, path)
    _judge(problem, rows)
    for row in rows:
        row.pop("shares")
        row.pop("pairs", None)
    return rows


def _heading(problem: Problem, path: Path) -> dict[str, Any]:
    return {
        "decision": problem.decision.name,
        "family": problem.family.name,
        "jobs": problem.n_jobs,
        "types": problem.n_types,
        "path": path.name,
        "kind": path.kind,
    }


_NOTHING: dict[str, Any] = {
    "outcome": "skipped",
    "reason": "",
    "status": None,
    "solver": None,
    "iterations": None,
    "repetitions": 0,
    "cpu_seconds": None,
    "wall_seconds": None,
    "prepare_seconds": None,
    "phases": None,
    "objective": None,
    "bound": None,
    "gap": None,
    "violation": None,
    "held_by_one_job": None,
    "ratio": None,
    "memory_bytes": None,
    "memory_factor": None,
    "shares": None,
}


def _skipped(reason: str) -> dict[str, Any]:
    return _NOTHING | {"reason": reason}


def _measure_path(problem: Problem, path: Path, options: Options, budget: Budget) -> dict[str, Any]:
    try:
        _warm_up(problem, path)
        started = time.perf_counter()
        solve = path.prepare(problem)
        prepared = time.perf_counter() - started
        times, outcome, phases = _repeat(problem, solve, options)
    except (DeclinedError, SolverError) as error:
        return _skipped(str(error))
    except Exception as error:  # a peer may fail in its own way; that is a figure too
        budget.note(path.name, problem.n_jobs, np.inf)
        return _NOTHING | {"outcome": "failed", "reason": f"{type(error).__name__}: {error}"}
    cpu, wall = (statistics.median(column) for column in zip(*times, strict=True))
    budget.note(path.name, problem.n_jobs, cpu)
    proof = outcome.solution
    return _NOTHING | {
        "outcome": "measured",
        "status": outcome.status,
        "solver": outcome.solver,
        "iterations": outcome.iterations,
        "repetitions": len(times),
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "prepare_seconds": prepared,
        "phases": phases,
        "objective": proof.objective if proof else None,
        "bound": proof.bound if proof else None,
        "gap": proof.gap if proof else None,
        "shares": outcome.shares,
        "pairs": [pairs] if (pairs := getattr(proof, "pairs", None)) is not None else [],
    }


def _warm_up(problem: Problem, path: Path) -> None:
    """A small problem first: imports, and what is compiled or looked up once, are no part of a decision.

    It may fail, as the small problem is another one.
    """
    small = Problem(problem.decision, FAMILIES["published"], min(problem.n_jobs, 12), problem.n_types, problem.seed)
    try:
        path.prepare(small)(small.pose())
    except Exception:
        return


def _repeat(
    problem: Problem, solve: Callable[[Program], Outcome], options: Options
) -> tuple[list[tuple[float, float]], Outcome, dict[str, float]]:
    """(CPU, wall) seconds of each repetition, the last outcome, and the median phases."""
    times: list[tuple[float, float]] = []
    phases: list[dict[str, float]] = []
    wanted = options.repetitions
    while len(times) < wanted:
        program = problem.pose()
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        outcome = solve(program)
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
        phases.append(outcome.phases)
        wanted = min(options.repetitions, _affordable(times[0][1], options.limit_seconds))
    medians = {name: statistics.median(phase[name] for phase in phases) for name in phases[0]}
    return times, outcome, medians


def _affordable(seconds: float, limit_seconds: float) -> int:
    """Repetitions that together take about the limit; a few where that is not far above it."""
    return max(1 if 2 * seconds > limit_seconds else _FEWEST, int(limit_seconds / max(seconds, 1e-9)))


def _best_bound(problem: Problem, program: Program, measured: list[dict[str, Any]]) -> float:
    """The best that our paths proved; where none of them ran, what a solve of its own proves."""
    bounds = [row["bound"] for row in measured if row["bound"] is not None]
    if not bounds:
        bounds = [problem.decision.solve(program.polytope, program.objective).bound]
    return float(min(bounds) if program.objective.maximise else max(bounds))


def _judge(problem: Problem, rows: list[dict[str, Any]]) -> None:
    """Fill in what takes all rows: peers' objectives against the best bound proven, ratios, what holds the optimum."""
    measured = [row for row in rows if row["outcome"] == "measured"]
    if not measured:
        return
    program = problem.pose()
    bound = _best_bound(problem, program, measured)
    alone = _held_by_one_job(program, bound)
    plain = next((row["cpu_seconds"] for row in measured if row["path"] == PLAIN), None)
    for row in measured:
        shares = row["shares"]
        row["violation"] = program.polytope.violation(shares, *row.pop("pairs"))
        if row["objective"] is None:
            value = program.objective.value(program.polytope.throughput(program.polytope.repaired(shares)))
            row |= {"objective": value, "bound": bound, "gap": _relative(value, bound)}
        row["held_by_one_job"] = alone
        row["ratio"] = plain / row["cpu_seconds"] if plain and row["cpu_seconds"] else None


def _held_by_one_job(program: Program, bound: float) -> bool | None:
    """Whether a job that cannot do better even alone fixes the optimum: then the instance is an easy one."""
    objective, polytope = program.objective, program.polytope
    if not isinstance(objective, Threshold) or not isinstance(polytope, Polytope):
        return None
    fastest = polytope.rates[:, polytope.capacity > 0].max(axis=1)
    distance = _relative(objective.report(objective.easiest_level(fastest)), bound)
    return distance is not None and distance < 1e-6


def _relative(value: float, bound: float) -> float | None:
    """Distance relative to the larger; None where either is not finite."""
    if not (np.isfinite(value) and np.isfinite(bound)):
        return None
    return abs(value - bound) / max(abs(value), abs(bound), 1e-300)
