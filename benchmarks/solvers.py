"""Studies of solvers: how long a decision takes, families of problems x sizes x ways to solve them.

    python -m benchmarks solvers --quick
    python -m benchmarks solvers --only decision=max_min --only family=distinct --only jobs=128,2048
    python -m benchmarks solver_targets      # the path `auto` at the sizes that matter, against what we aim at

A decision is timed from arrays to shares, with the proof and, of our own paths, the choice among optima. Peers are the
same program in HiGHS without a modelling layer, and stated in cvxpy for Clarabel and for ECOS. Each repetition gets
fresh objects, so nothing is kept from the last one. A path that took longer than the limit is not run on larger
problems of the same kind. A new family or decision is an entry of `FAMILIES` or `DECISIONS`.
"""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from allocator.studies import figures
from allocator.studies.study import Options, Row, Run, Study
from allocator.studies.tables import Shown, duration
from formulations import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    MaxSum,
    NashWelfare,
    Objective,
    PackedPolytope,
    Polytope,
    Solution,
    SolverError,
    WaterFilling,
    proportional_throughput,
    solve,
)
from throughputs import (
    InputError,
    PackedColumns,
    PlainColumns,
    ThroughputMatrix,
    default_colocation,
    default_table,
    retained_fractions,
)
from throughputs.arrays import Floats, Ints
from throughputs.traces.generator import PUBLISHED_PRIORITIES, PUBLISHED_SCALE_FACTORS

PLAIN = "ecos"
"""The path that ratios are taken to: the program as published systems state and solve it."""

PATHS: Mapping[str, Mapping[str, str]] = {
    **{own: {"solver": own} for own in ("auto", "structured", "prices")},
    **{peer: {"solver": peer, "choice": "published"} for peer in ("highs", "clarabel", PLAIN)},
}
"""Ways to solve, by name; what peers answer is taken as it is: their makespan is the published bisection, up to 5 %
above the optimum."""

LIMIT_SECONDS, QUICK_LIMIT_SECONDS = 5.0, 2.0
REPETITIONS, QUICK_REPETITIONS = 9, 3
"""At most; fewer where they would take longer than the limit together."""

SEED = 2

# Families: the published table has three accelerator types; further ones are blends of them, the same for every job of
# a type, so that identical jobs stay identical.

SIZES = (128, 512, 2048, 8192)
LARGE, MILLION = (*SIZES, 32_768, 100_000), (1_000_000,)
QUICK_SIZES, QUICK_MOST_TYPES = (32, 128), 3


@dataclass(frozen=True, eq=False)
class Instance:
    """A cluster and its jobs, before anybody says what is wanted.

    Attributes
    ----------
    rates : (N, M) steps/s; every job runs on some type that has GPUs.
    scale_factors : (N,) GPUs per gang.
    capacity : (M,) GPUs of each type.
    weights : (N,) how much more than another job this one counts.
    """

    rates: Floats
    scale_factors: Ints
    capacity: Floats
    weights: Floats

    @property
    def fastest(self) -> Floats:
        """(N,) rate of each job on its fastest type with GPUs."""
        return np.asarray(self.rates[:, self.capacity > 0].max(axis=1))

    def polytope(self) -> Polytope:
        """The allocations; a new object each time, so that nothing a solver keeps on it is found by the next."""
        N, M = self.rates.shape
        names = [f"type{j}" for j in range(M)]
        matrix = ThroughputMatrix.trusted(
            self.rates, jobs=range(N), accelerators=names, scale_factors=self.scale_factors
        )
        return Polytope(PlainColumns(matrix), self.capacity)


class Family(NamedTuple):
    """A way to draw instances: single-GPU jobs of the published types.

    Attributes
    ----------
    sizes : numbers of jobs of a full run, for each number of types.
    fraction : GPUs per GPU asked for; on three types 0.75 is a quarter as many of each as there are single-GPU jobs.
    distinct : each rate is moved by up to a quarter, so that no two jobs are alike.
    gangs : gangs and priorities are as published.
    """

    sizes: Mapping[int, tuple[int, ...]]
    fraction: float = 0.75
    distinct: bool = False
    gangs: bool = False

    def draw(self, n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
        """An instance; every type has as many GPUs."""
        mix = dict(PUBLISHED_SCALE_FACTORS) if self.gangs else {1: 1.0}
        table = default_table()
        sizes = rng.choice(list(mix), n_jobs, p=list(mix.values()))
        rates = np.empty((n_jobs, n_types))
        for size in mix:
            known = [name for name in table.job_types if size in table.scale_factors_of(name)]
            profiled = table.rates(known, [size] * len(known), table.accelerators)
            # a job type is drawn only where the reference type, the first, was profiled
            rows = _with_blends(profiled[profiled[:, 0] > 0], n_types)
            here = np.flatnonzero(sizes == size)
            rates[here] = rows[rng.integers(0, len(rows), len(here))]
        if self.distinct:
            rates *= rng.uniform(0.8, 1.25, rates.shape)
        weights = np.ones(n_jobs)
        if self.gangs:
            weights = rng.choice(list(PUBLISHED_PRIORITIES), n_jobs, p=list(PUBLISHED_PRIORITIES.values()))
        return Instance(rates, sizes.astype(np.int64), _capacity(sizes, n_types, self.fraction), weights)


def _with_blends(rates: Floats, n_types: int) -> Floats:
    """The first `n_types` of: the three published types, then geometric blends of them, moved a little per row."""
    rng = np.random.default_rng(26)
    columns = list(rates.T)
    while len(columns) < n_types:
        part = rng.dirichlet(np.ones(rates.shape[1]))
        columns.append(np.prod(rates**part, axis=1) * rng.uniform(0.8, 1.25, len(rates)))
    return np.column_stack(columns[:n_types])


def _capacity(sizes: Ints, n_types: int, fraction: float) -> Floats:
    return np.full(n_types, max(1.0, float(sizes.sum() * fraction // n_types)))


class Degenerate(Family):
    """All that spoils a solver at once: rounded and repeated rows, rates of zero, a type that nobody can use and one
    with next to no GPUs, gangs larger than a type, weights over six decades.
    """

    def draw(self, n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
        """An instance."""
        rates = np.round(rng.uniform(0.1, 1.0, (n_jobs, n_types)), 1) * 10.0 ** rng.integers(-1, 3, (n_jobs, 1))
        rates[rng.random((n_jobs, n_types)) < 0.3] = 0.0
        repeated = rng.random(n_jobs) < 0.5
        rates[repeated] = rates[rng.integers(0, min(n_jobs, 8), int(repeated.sum()))]
        sizes = rng.choice([1, 2, 4, 64], n_jobs, p=[0.7, 0.15, 0.1, 0.05])
        capacity = _capacity(sizes, n_types, self.fraction)
        if n_types > 1:
            capacity[-1] = 1e-3
        if n_types > 2:
            rates[:, -2] = 0.0
        stranded = ~rates[:, : max(1, n_types - 2)].any(axis=1)
        rates[stranded, 0] = 1.0
        return Instance(rates, sizes, capacity, 10.0 ** rng.uniform(-3, 3, n_jobs))


FAMILIES: Mapping[str, Family] = {
    "published": Family({3: LARGE, 4: MILLION}),
    "gangs": Family({3: SIZES}, gangs=True),
    "distinct": Family({3: LARGE, 4: MILLION}, distinct=True),
    "tight": Family({3: SIZES}, 0.125, distinct=True),
    "slack": Family({3: SIZES}, 1.5, distinct=True),
    "degenerate": Degenerate({3: SIZES}),
    "many_types": Family(dict.fromkeys((2, 4, 8, 16), (2048,)), distinct=True),
}

# Decisions: objectives with the figures of jobs in the middle of their work. Times are drawn so that the jobs contend:
# with fewer GPUs than are asked for, no job alone holds the optimum. (With the published spread of durations one long
# job does, and the program is an easy one.)

HOUR = 3600.0
Drawn = np.random.Generator


def _max_min(instance: Instance, _: Drawn) -> MaxMin:
    """Least throughput relative to the proportional share, per weight and GPU."""
    proportional = proportional_throughput(instance.rates, instance.capacity)
    return MaxMin(instance.weights * proportional / instance.scale_factors)


def _makespan(instance: Instance, rng: Drawn) -> Makespan:
    """One to two hours left on the fastest type, times the weight."""
    return Makespan(instance.weights * instance.fastest * rng.uniform(HOUR, 2 * HOUR, len(instance.rates)))


def _finish_time(instance: Instance, rng: Drawn) -> FinishTimeFairness:
    """Up to an hour spent, one to two left on the fastest type; isolated, each would take up to half as long again.

    At the level that the worst job could attain alone every job needs nearly its fastest rate.
    """
    N = len(instance.rates)
    spent, left = rng.uniform(0, HOUR, N), instance.weights * rng.uniform(HOUR, 2 * HOUR, N)
    return FinishTimeFairness(spent, left * instance.fastest, (spent + left) * rng.uniform(1.0, 1.5, N))


def _water_filling(instance: Instance, _: Drawn) -> WaterFilling:
    """Max-min fairness of all levels: who can have more without taking from those below gets it."""
    proportional = proportional_throughput(instance.rates, instance.capacity)
    return WaterFilling(proportional / instance.scale_factors, instance.weights)


def _packed(instance: Instance) -> PackedPolytope:
    """The jobs of an instance of published types, which may also share GPUs two by two."""
    table = default_table().with_colocation(default_colocation())
    rows, group = np.unique(instance.rates, axis=0, return_inverse=True)
    known = table.rates(table.job_types, [1] * len(table.job_types), table.accelerators)
    types = [table.job_types[int(np.abs(known[:, : rows.shape[1]] - row).sum(axis=1).argmin())] for row in rows]
    kept = retained_fractions(table, types, table.accelerators, 1)
    return PackedPolytope(PackedColumns(group.ravel(), rows, kept * rows[:, None, :]), instance.capacity)


class Decision(NamedTuple):
    """What is wanted of an instance: its objective, its allocations, and who is asked.

    Attributes
    ----------
    families, most_jobs : the problems that a run takes it on.
    """

    pose: Callable[[Instance, Drawn], Objective]
    polytope: Callable[[Instance], Polytope] = Instance.polytope
    solve: Callable[..., Solution] = solve
    families: tuple[str, ...] = tuple(FAMILIES)
    most_jobs: int = MILLION[0]


DECISIONS: Mapping[str, Decision] = {
    "max_min": Decision(_max_min),
    "makespan": Decision(_makespan),
    "finish_time": Decision(_finish_time),
    "max_sum": Decision(lambda instance, _: MaxSum(instance.weights)),
    "water_filling": Decision(_water_filling),
    "proportional_fairness": Decision(lambda instance, _: NashWelfare(instance.weights)),
    "packed_max_min": Decision(_max_min, _packed, solve, ("published",), 2048),
}


class Problem(NamedTuple):
    """One decision on one instance, drawn from a seed."""

    decision: str
    family: str
    jobs: int
    types: int

    def instance(self) -> Instance:
        """The same for all decisions."""
        return FAMILIES[self.family].draw(self.jobs, self.types, self._rng(self.family))

    def program(self, instance: Instance) -> tuple[Polytope, Objective]:
        """The same every time, in objects that nobody has touched."""
        decision = DECISIONS[self.decision]
        return decision.polytope(instance), decision.pose(instance, self._rng(self.decision))

    def _rng(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng([SEED, self.jobs, self.types, zlib.crc32(purpose.encode())])


def problems(options: Options) -> Iterator[Problem]:
    """By decision, family and number of types, small ones first."""
    for name, decision in DECISIONS.items():
        for family in decision.families:
            for types, sizes in FAMILIES[family].sizes.items():
                if not options.quick or types <= QUICK_MOST_TYPES:
                    taken = [n for n in (QUICK_SIZES if options.quick else sizes) if n <= decision.most_jobs]
                    yield from (Problem(name, family, n, types) for n in taken)


# Measuring


def _runs(options: Options) -> Iterator[Run]:
    repetitions, limit = (QUICK_REPETITIONS, QUICK_LIMIT_SECONDS) if options.quick else (REPETITIONS, LIMIT_SECONDS)
    too_long: set[tuple[str, ...]] = set()

    def unless_too_long(problem: Problem, path: str) -> Row:
        kind = (problem.decision, problem.family, str(problem.types), path)
        if kind in too_long:
            return {"outcome": "left out", "reason": "took too long, or failed, with fewer jobs"}
        row = measured(problem, path, repetitions, limit)
        if row["outcome"] == "failed" or row.get("wall_seconds", 0.0) > limit:
            too_long.add(kind)
        return row

    for problem in problems(options):
        for path in PATHS:
            yield problem._asdict() | {"path": path}, partial(unless_too_long, problem, path)


def measured(problem: Problem, path: str, repetitions: int, limit: float) -> Row:
    """Medians of CPU, wall and phases in seconds, and the proven gap; else why there are none."""
    run = partial(DECISIONS[problem.decision].solve, **PATHS[path])
    small = problem._replace(family="published", jobs=12)
    with suppress(Exception):  # imports are no part of a decision; the small problem is another one, and may fail
        run(*small.program(small.instance()))
    instance = problem.instance()
    times: list[Row] = []
    try:
        while len(times) < repetitions and sum(row["wall_seconds"] for row in times) < limit:
            program = problem.program(instance)
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            solution = run(*program)
            seconds = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall} | solution.phases
            times.append({f"{name}_seconds": took for name, took in seconds.items()})
    except (InputError, SolverError, TypeError) as error:
        return {"outcome": "declined", "reason": str(error)}
    except Exception as error:  # a peer may fail in its own way; that is a figure too
        return {"outcome": "failed", "reason": f"{type(error).__name__}: {error}"}
    medians = {name: statistics.median(row[name] for row in times) for name in times[0]}
    answer = {name: getattr(solution, name) for name in ("status", "objective", "bound", "gap", "iterations")}
    return {"outcome": "measured", "repetitions": len(times), **medians, **answer}


def _beside_plain(results: pd.DataFrame) -> pd.DataFrame:
    """With a name of the problem, and the CPU time of the plain path on it over each one's own."""
    known = results.reindex(columns=[*results, *({"cpu_seconds", "gap"} - set(results))])
    plain = known[known["path"] == PLAIN].set_index(list(Problem._fields))["cpu_seconds"]
    own = pd.MultiIndex.from_frame(known[list(Problem._fields)])
    named = list(map("{}, {}, {:,} x {}".format, *(known[name] for name in Problem._fields)))
    return known.assign(problem=named, ratio=plain.reindex(own).to_numpy() / known["cpu_seconds"])


def _draw(study: Study, results: pd.DataFrame) -> Any:  # noqa: ARG001
    """Time against jobs, or types: a panel for each decision and family, a line for each path."""
    figures.use_style()
    shown = results[results["outcome"] == "measured"].assign(status="completed")
    groups = list(shown.groupby(["decision", "family"], sort=False))
    figure, panels = figures.panels(len(groups), columns=4, width=3.6, height=2.8)
    for axes, ((decision, family), rows) in zip(panels, groups, strict=True):
        load = "jobs" if rows["types"].nunique() == 1 or rows["jobs"].nunique() > 1 else "types"
        axes.set_xscale("log")
        figures.curves(axes, rows, load=load, value="cpu_seconds", unit=1e-3, series="path", logarithmic=True)
        axes.set(title=f"{decision}, {family}", xlabel=load, ylabel="CPU time, ms")
    return figure


STUDY = Study(
    "Solvers: median CPU time, wall time of its phases; proven gap; CPU time of cvxpy + ECOS over this",
    _runs,
    by=("problem", "path", "outcome"),
    shown={
        "CPU": Shown("cpu_seconds", duration, over="median"),
        **{name: Shown(f"{name}_seconds", duration, over="median") for name in ("build", "solve", "choose")},
        "gap": Shown("gap", ".0e", over="max"),
        "to plain": Shown("ratio", ".3g", over="median"),
    },
    derived=_beside_plain,
    draw=_draw,
)


# Targets of the path `auto`: seconds of CPU, or of the wall where two cores may help, or peak memory over the input

TARGETS: Mapping[Problem, tuple[str, float]] = {
    Problem("max_min", "published", 2048, 3): ("cpu_seconds", 1e-3),
    Problem("max_min", "distinct", 2048, 3): ("cpu_seconds", 4e-3),
    Problem("max_min", "distinct", 100_000, 3): ("cpu_seconds", 80e-3),
    Problem("max_min", "distinct", 1_000_000, 4): ("wall_seconds", 1.0),
    Problem("max_min", "published", 1_000_000, 4): ("cpu_seconds", 150e-3),
    Problem("finish_time", "distinct", 2048, 3): ("cpu_seconds", 15e-3),
    Problem("makespan", "distinct", 2048, 3): ("cpu_seconds", 6e-3),
    Problem("water_filling", "distinct", 2048, 3): ("cpu_seconds", 15e-3),
    Problem("proportional_fairness", "distinct", 1_000_000, 4): ("wall_seconds", 1.0),
    Problem("packed_max_min", "published", 512, 3): ("cpu_seconds", 30e-3),
    Problem("packed_max_min", "published", 2048, 3): ("cpu_seconds", 60e-3),
}
MOST_MEMORY = 6.0
"""Of max-min at a million distinct jobs, over its input."""


def _targets(options: Options) -> Iterator[Run]:
    for problem, (quantity, aim) in TARGETS.items():
        if not options.quick or problem.jobs <= SIZES[-1]:
            labels = problem._asdict() | {"quantity": quantity.replace("_", " ")}
            yield labels, partial(_aimed_at, problem, quantity, aim)
    if not options.quick:
        largest = Problem("max_min", "distinct", 1_000_000, 4)
        yield largest._asdict() | {"quantity": "memory over input"}, partial(_memory, largest)


def _aimed_at(problem: Problem, quantity: str, aim: float) -> Row:
    row = measured(problem, "auto", REPETITIONS, LIMIT_SECONDS)
    return row | {"aim": aim, "figure": row[quantity], "over": row[quantity] / aim}


def _memory(problem: Problem) -> Row:
    """Peak of what NumPy and Python allocate in a decision, with its input, over the input."""
    polytope, objective = problem.program(problem.instance())
    own = (getattr(objective, field.name) for field in fields(objective))  # type: ignore[arg-type]
    arrays = [polytope.rates, polytope.scale_factors, polytope.capacity, *own]
    given = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
    tracemalloc.start()
    solution = solve(polytope, objective)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    figure = (given + peak) / given
    return {"aim": MOST_MEMORY, "figure": figure, "over": figure / MOST_MEMORY, "gap": solution.gap}


TARGET_STUDY = Study(
    "What we aim at, and how far over it the path `auto` is",
    _targets,
    by=(*Problem._fields, "quantity"),
    shown={name: Shown(name, ".3g", over="max") for name in ("aim", "figure", "over")} | {"gap": STUDY.shown["gap"]},
)
