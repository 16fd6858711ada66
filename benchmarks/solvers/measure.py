"""The study of solvers at work: which points are measured, every path on them, timed, and judged by the same bound.

``python -m benchmarks.solvers.measure DECISION FAMILY JOBS TYPES PATH SEED`` is what a process for the peak memory of
one decision runs: it draws the problem, warms up, notes how much is resident, takes the decision and prints by how much
the peak was higher, as JSON. Where the system does not tell (anything but Linux), NumPy's and Python's own allocations
are counted instead.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path as FilePath
from typing import Any, Literal

import numpy as np
import pandas as pd

from benchmarks.solvers import paths as _paths  # noqa: F401  imported for what it registers
from benchmarks.solvers.problems import (
    DECISIONS,
    FAMILIES,
    PATHS,
    Decision,
    DeclinedError,
    Family,
    Outcome,
    Path,
    Problem,
    Program,
    pick,
)
from benchmarks.study import Options, Row, Run
from formulations import Polytope, SolverError
from formulations.core.objectives import Threshold

# Targets

PROBLEM = ("decision", "family", "jobs", "types")


@dataclass(frozen=True)
class Target:
    """A limit for the path `auto`.

    Attributes
    ----------
    limit : seconds, or for memory the peak as a multiple of the input.
    cores : on one core the figure is CPU time, on more it is wall time.
    """

    decision: str
    family: str
    jobs: int
    types: int
    limit: float
    cores: int = 1
    quantity: Literal["seconds", "memory"] = "seconds"


TARGETS = (
    Target("max_min", "published", 2048, 3, 1e-3),
    Target("max_min", "distinct", 2048, 3, 4e-3),
    Target("max_min", "distinct", 100_000, 3, 80e-3),
    Target("max_min", "distinct", 1_000_000, 4, 1.0, cores=2),
    Target("max_min", "published", 1_000_000, 4, 150e-3),
    Target("finish_time", "distinct", 2048, 3, 15e-3),
    Target("makespan", "distinct", 2048, 3, 6e-3),
    Target("water_filling", "distinct", 2048, 3, 15e-3),
    Target("proportional_fairness", "distinct", 1_000_000, 4, 1.0, cores=2),
    Target("packed_max_min", "published", 512, 3, 30e-3),
    Target("packed_max_min", "published", 2048, 3, 60e-3),
    Target("max_min", "distinct", 1_000_000, 4, 6.0, quantity="memory"),
)


def against_targets(rows: pd.DataFrame, targets: Sequence[Target] = TARGETS) -> pd.DataFrame:
    """One row per target: the measured figure of `auto`, by what factor it is above the limit, and whether it is met.

    Speed without proof meets nothing.
    """
    compared = []
    known = rows[(rows["path"] == "auto") & (rows["outcome"] == "measured")]
    for target in targets:
        timed = "cpu_seconds" if target.cores == 1 else "wall_seconds"
        column = "memory_factor" if target.quantity == "memory" else timed
        here = known[[all(row[name] == getattr(target, name) for name in PROBLEM) for _, row in known.iterrows()]]
        measured = float(here[column].iloc[0]) if len(here) and column in here else math.nan
        proven = bool(len(here)) and here["status"].iloc[0] == "optimal"
        met = None if math.isnan(measured) else bool(measured <= target.limit and proven)
        figures = {"measured": measured, "factor": measured / target.limit, "proven": proven, "met": met}
        compared.append(asdict(target) | figures)
    return pd.DataFrame(compared)


# Points

QUICK_SIZES = (32, 128)
USUAL_SIZE = 2048
"""A number of types with no size up to this is for huge problems only."""


@dataclass(frozen=True)
class Chosen:
    """What is measured.

    Attributes
    ----------
    families, decisions, paths : names; all when None. sizes : numbers of jobs instead of the families' own.
    quick : small sizes, few repetitions. targets_only : only the points that a target is set for.
    memory : measure the peak memory of our own paths from `memory_from` jobs, each in a process of its own.
    limit : seconds; a path whose decision takes longer is not run on larger problems of the same kind; None: 5, or 2
        of the quick ones.
    repetitions : of one point at most; fewer where they would take much longer than the limit together; None: 9, or 3.
    """

    families: tuple[str, ...] | None = None
    decisions: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None
    sizes: tuple[int, ...] | None = None
    quick: bool = False
    targets_only: bool = False
    memory: bool = False
    memory_from: int = 100_000
    limit: float | None = None
    repetitions: int | None = None
    seed: int = 2

    @property
    def limit_seconds(self) -> float:
        """The limit, or that of its kind."""
        return self.limit or (2.0 if self.quick else 5.0)

    @property
    def most_repetitions(self) -> int:
        """Repetitions, or those of its kind."""
        return self.repetitions or (3 if self.quick else 9)


@dataclass(frozen=True)
class Point:
    """One problem, taken by each of some paths."""

    decision: Decision
    family: Family
    n_jobs: int
    n_types: int
    paths: tuple[Path, ...]


def plan(options: Chosen) -> list[Point]:
    """All points, by decision, family and number of types, small ones first."""
    # ours first, so that a table reads from them to their peers
    paths = tuple(sorted(pick(PATHS, options.paths, "path"), key=lambda path: path.kind != "own"))
    points = []
    for decision in pick(DECISIONS, options.decisions, "decision"):
        for family in pick(FAMILIES, options.families, "family"):
            if decision.families is not None and family.name not in decision.families:
                continue
            for n_types, sizes in _sizes(family, options).items():
                taken = [n_jobs for n_jobs in sorted(sizes) if n_jobs <= decision.most_jobs]
                points += [Point(decision, family, n_jobs, n_types, paths) for n_jobs in taken]
    if not options.targets_only:
        return points
    wanted = {(target.decision, target.family, target.jobs, target.types) for target in TARGETS}
    return [p for p in points if (p.decision.name, p.family.name, p.n_jobs, p.n_types) in wanted]


def _sizes(family: Family, options: Chosen) -> Mapping[int, Sequence[int]]:
    # a number of types that is there for huge sizes alone takes those, and no others
    huge = {M: min(sizes) for M, sizes in family.sizes.items() if min(sizes) > USUAL_SIZE}
    usual = [M for M in family.sizes if M not in huge]
    if options.quick and options.sizes is None:
        return dict.fromkeys(usual, QUICK_SIZES)
    if options.sizes is None:
        return family.sizes
    chosen: dict[int, list[int]] = {M: [] for M in family.sizes}
    for n_jobs in sorted(set(options.sizes)):
        for M in [M for M, least in huge.items() if n_jobs >= least] or usual or list(huge):
            chosen[M].append(n_jobs)
    return chosen


@dataclass
class Budget:
    """What each path took so far on problems of one kind, to foresee what the next size would take."""

    limit_seconds: float
    taken: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def note(self, path: str, n_jobs: int, seconds: float) -> None:
        """A measured decision; infinite where the path gave up."""
        self.taken.setdefault(path, []).append((n_jobs, seconds))

    def refuses(self, path: str, n_jobs: int) -> str:
        """Why the next size is not run, empty where it is.

        Time is taken to grow as between the last two sizes, at least in proportion to the jobs.
        """
        known = self.taken.get(path, [])
        if not known:
            return ""
        last_jobs, last = known[-1]
        if not math.isfinite(last):
            return f"gave up at {last_jobs:,} jobs"
        power = 1.0
        if len(known) > 1 and known[-2][1] > 0 and last_jobs > known[-2][0]:
            power = math.log(last / known[-2][1]) / math.log(last_jobs / known[-2][0])
        foreseen = last * (n_jobs / last_jobs) ** min(max(power, 1.0), 3.0)
        if foreseen <= self.limit_seconds:
            return ""
        return f"{last:.2g} s at {last_jobs:,} jobs foretell {foreseen:.2g} s, above {self.limit_seconds:g} s"


# Measuring

PLAIN = "cvxpy_ecos"
"""The path that ratios are taken to."""

_FEWEST = 3


def runs(chosen: Chosen, options: Options) -> Iterator[Run]:
    """A run for each point: one row per path; see the package for what a row holds."""
    chosen = replace(chosen, quick=chosen.quick or options.quick)
    budgets: dict[tuple[str, str, int], Budget] = {}
    for point in plan(chosen):
        labels = {
            "decision": point.decision.name,
            "family": point.family.name,
            "jobs": point.n_jobs,
            "types": point.n_types,
        }
        kind = (point.decision.name, point.family.name, point.n_types)
        budget = budgets.setdefault(kind, Budget(chosen.limit_seconds))
        yield labels, partial(_measure_point, point, budget, chosen)


def _measure_point(point: Point, budget: Budget, chosen: Chosen) -> list[Row]:
    problem = Problem(point.decision, point.family, point.n_jobs, point.n_types, chosen.seed)
    rows = []
    for path in point.paths:
        reason = path.declines(point.decision.name, point.n_jobs) or budget.refuses(path.name, point.n_jobs)
        figures = _skipped(reason) if reason else _measure_path(problem, path, chosen, budget)
        large = chosen.memory and path.kind == "own" and point.n_jobs >= chosen.memory_from
        memory = peak_memory(problem, path) if large and figures["outcome"] == "measured" else {}
        rows.append({"path": path.name, "kind": path.kind, **figures, **memory})
    _judge(problem, [row for row in rows if row["outcome"] == "measured"])
    return rows


def _skipped(reason: str, outcome: str = "skipped") -> Row:
    return {"outcome": outcome, "reason": reason}


def _measure_path(problem: Problem, path: Path, chosen: Chosen, budget: Budget) -> Row:
    try:
        _warm_up(problem, path)
        started = time.perf_counter()
        solve = path.prepare(problem)
        prepared = time.perf_counter() - started
        times, outcome = _repeat(problem, solve, chosen)
    except (DeclinedError, SolverError) as error:
        return _skipped(str(error))
    except Exception as error:  # a peer may fail in its own way; that is a figure too
        budget.note(path.name, problem.n_jobs, np.inf)
        return _skipped(f"{type(error).__name__}: {error}", "failed")
    medians = {name: statistics.median(row[name] for row in times) for name in times[0]}
    budget.note(path.name, problem.n_jobs, medians["cpu_seconds"])
    return {
        "outcome": "measured",
        "reason": "",
        "status": outcome.status,
        "solver": outcome.solver,
        "iterations": outcome.iterations,
        "repetitions": len(times),
        "prepare_seconds": prepared,
        **medians,
        "answer": outcome,
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


def _repeat(problem: Problem, solve: Callable[[Program], Outcome], chosen: Chosen) -> tuple[list[Row], Outcome]:
    """CPU and wall seconds of each repetition and its phases, and the last outcome."""
    times: list[Row] = []
    wanted = chosen.most_repetitions
    while len(times) < wanted:
        program = problem.pose()
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        outcome = solve(program)
        seconds = {"cpu_seconds": time.process_time() - cpu, "wall_seconds": time.perf_counter() - wall}
        times.append(seconds | {f"{name}_seconds": took for name, took in outcome.phases.items()})
        wanted = min(wanted, _affordable(times[0]["wall_seconds"], chosen.limit_seconds))
    return times, outcome


def _affordable(seconds: float, limit_seconds: float) -> int:
    """Repetitions that together take about the limit; a few where that is not far above it."""
    return max(1 if 2 * seconds > limit_seconds else _FEWEST, int(limit_seconds / max(seconds, 1e-9)))


def _best_bound(problem: Problem, program: Program, answers: Sequence[Outcome]) -> float:
    """The best that our paths proved; where none of them ran, what a solve of its own proves."""
    bounds = [answer.solution.bound for answer in answers if answer.solution]
    if not bounds:
        bounds = [problem.decision.solve(program.polytope, program.objective).bound]
    return float(min(bounds) if program.objective.maximise else max(bounds))


def _judge(problem: Problem, measured: list[Row]) -> None:
    """Fill in what takes all rows: peers' objectives against the best bound proven, ratios, what holds the optimum."""
    if not measured:
        return
    program = problem.pose()
    polytope, objective = program.polytope, program.objective
    answers: list[Outcome] = [row.pop("answer") for row in measured]
    bound = _best_bound(problem, program, answers)
    alone = _held_by_one_job(program, bound)
    seconds = {row["path"]: row["cpu_seconds"] for row in measured}
    for row, answer in zip(measured, answers, strict=True):
        proof = answer.solution
        pairs = getattr(proof, "pairs", None)
        row["violation"] = polytope.violation(answer.shares, *([] if pairs is None else [pairs]))
        if proof:
            row |= {"objective": proof.objective, "bound": proof.bound, "gap": proof.gap}
        else:
            value = objective.value(polytope.throughput(polytope.repaired(answer.shares)))
            row |= {"objective": value, "bound": bound, "gap": _relative(value, bound)}
        own = row["cpu_seconds"] or math.nan
        row["held_by_one_job"] = alone
        row["ratio"] = seconds.get(PLAIN, math.nan) / own


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


# Memory

_STATUS = FilePath("/proc/self/status")
_RESET = FilePath("/proc/self/clear_refs")


def peak_memory(problem: Problem, path: Path) -> dict[str, Any]:
    """``memory_bytes`` above the input, and ``memory_factor``: input and these together, as a multiple of the input."""
    asked = [problem.decision.name, problem.family.name, problem.n_jobs, problem.n_types, path.name, problem.seed]
    command = [sys.executable, "-m", "benchmarks.solvers.measure", *map(str, asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"memory_bytes": None, "memory_factor": None}
    figures = json.loads(done.stdout)
    extra, given = figures["extra_bytes"], figures["input_bytes"]
    return {"memory_bytes": extra, "memory_factor": (given + extra) / given}


def main(decision: str, family: str, n_jobs: str, n_types: str, path: str, seed: str) -> None:
    """Take one decision and print what it took."""
    wanted, registered = DECISIONS[decision], FAMILIES[family]
    small = Problem(wanted, registered, 200, int(n_types), int(seed))
    PATHS[path].prepare(small)(small.pose())
    problem = Problem(wanted, registered, int(n_jobs), int(n_types), int(seed))
    program, solve = problem.pose(), PATHS[path].prepare(problem)
    gc.collect()
    if _RESET.exists():
        _RESET.write_text("5")  # the high-water mark starts anew
        before = _kilobytes("VmRSS")
        solve(program)
        extra = max(0, _kilobytes("VmHWM") - before) * 1024
    else:
        tracemalloc.start()
        solve(program)
        extra = tracemalloc.get_traced_memory()[1]
    print(json.dumps({"extra_bytes": extra, "input_bytes": _input_bytes(program)}))


def _input_bytes(program: Program) -> int:
    """Rates, gang sizes, capacity and the objective's figures."""
    polytope, objective = program.polytope, program.objective
    own = [getattr(objective, field.name) for field in fields(objective)] if is_dataclass(objective) else []
    arrays = [polytope.rates, polytope.scale_factors, polytope.capacity, *own]
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def _kilobytes(name: str) -> int:
    return next(int(line.split()[1]) for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main(*sys.argv[1:])
