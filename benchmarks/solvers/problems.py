"""What the study of solvers is made of: families of instances, decisions to take on them, paths that take them.

Each is one function under a decorator; the study runs whatever is registered::

    @family("distinct", "no two jobs alike", sizes={3: (128, 512, 2048)})
    def distinct(n_jobs, n_types, rng): ...            # -> Instance

    @decision("max_min", "Max-min fairness")
    def max_min(instance, rng): ...                    # -> Objective

    @path("auto", "ours", kind="own")
    def auto(problem): ...                             # -> a function from Program to Outcome

A decision over other columns than a job on a type (pairs, say) gives `polytope`; one that is not answered by
`formulations.solve` gives `solve`. Families and decisions are below, paths in `benchmarks.solvers.paths`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

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
    WaterFilling,
    proportional_throughput,
    solve_packed,
)
from formulations import solve as formulations_solve
from throughputs import (
    InputError,
    PackedColumns,
    PlainColumns,
    ThroughputMatrix,
    default_colocation,
    default_table,
    retained_fractions,
)
from throughputs.traces.generator import PUBLISHED_PRIORITIES, PUBLISHED_SCALE_FACTORS

Array = NDArray[np.float64]


class DeclinedError(RuntimeError):
    """A path does not take this problem; says why."""


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

    rates: Array
    scale_factors: NDArray[np.int64]
    capacity: Array
    weights: Array

    @property
    def fastest(self) -> Array:
        """(N,) rate of each job on its fastest type with GPUs."""
        return np.asarray(self.rates[:, self.capacity > 0].max(axis=1))

    def polytope(self) -> Polytope:
        """The allocations; a new object each time, so that nothing a solver keeps on it is found by the next."""
        N, M = self.rates.shape
        matrix = ThroughputMatrix.trusted(
            self.rates,
            jobs=range(N),
            accelerators=tuple(f"type{j}" for j in range(M)),
            scale_factors=self.scale_factors,
        )
        return Polytope(PlainColumns(matrix), self.capacity)


@dataclass(frozen=True, eq=False)
class Program:
    """What a path is asked to solve."""

    polytope: Polytope
    objective: Objective


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a path answers.

    Attributes
    ----------
    shares : (N, M) shares of time, as they are.
    status : the path's own word.
    phases : wall seconds of build, solve and recover.
    solution : with its proof, where the path is ours.
    solver : whose answer it is. iterations : as that solver counts them.
    """

    shares: Array
    status: str
    phases: dict[str, float]
    solution: Solution | None = None
    solver: str = ""
    iterations: int = 0


Draw = Callable[[int, int, np.random.Generator], Instance]
Pose = Callable[[Instance, np.random.Generator], Objective]
Solve = Callable[[Program], Outcome]
Prepare = Callable[["Problem"], Solve]


@dataclass(frozen=True)
class Family:
    """A way to draw instances. sizes : for each number of types, the numbers of jobs of a full run."""

    name: str
    title: str
    draw: Draw
    sizes: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class Decision:
    """What is wanted of an instance, and how our own paths are asked for it.

    Attributes
    ----------
    pose : the objective of an instance. polytope : its allocations.
    solve : called with polytope, objective and ``solver=``; answers with a proven `Solution`.
    most_jobs, families : the problems that a run takes it on; all sizes and families by default.
    """

    name: str
    title: str
    pose: Pose
    polytope: Callable[[Instance], Polytope] = Instance.polytope
    solve: Callable[..., Solution] = formulations_solve
    most_jobs: int = 10**9
    families: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Path:
    """A way to take decisions.

    Attributes
    ----------
    kind : "own" for ours, "peer" for what it is compared with.
    prepare : told of the problem, returns the function that is timed; what it does first is not (a compilation that
        serves many decisions, the dictionaries that a caller would have).
    most_jobs : number of jobs beyond which it is not run.
    decisions : names of those it takes; all when None.
    """

    name: str
    title: str
    prepare: Prepare
    kind: Literal["own", "peer"]
    most_jobs: int = 10**9
    decisions: tuple[str, ...] | None = None

    def declines(self, decision_name: str, n_jobs: int) -> str:
        """Why it is not run, empty where it is."""
        if self.decisions is not None and decision_name not in self.decisions:
            return "this path has no such decision"
        return f"run up to {self.most_jobs:,} jobs" if n_jobs > self.most_jobs else ""


@dataclass(frozen=True, eq=False)
class Problem:
    """One decision on one instance, drawn from a seed."""

    decision: Decision
    family: Family
    n_jobs: int
    n_types: int
    seed: int = 2
    instance: Instance = field(init=False)

    def __post_init__(self) -> None:
        rng = self._rng(self.family.name)
        object.__setattr__(self, "instance", self.family.draw(self.n_jobs, self.n_types, rng))

    def pose(self) -> Program:
        """The program, the same every time, in objects that nobody has touched."""
        objective = self.decision.pose(self.instance, self._rng(self.decision.name))
        return Program(self.decision.polytope(self.instance), objective)

    def _rng(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.n_jobs, self.n_types, zlib.crc32(purpose.encode())])


FAMILIES: dict[str, Family] = {}
DECISIONS: dict[str, Decision] = {}
PATHS: dict[str, Path] = {}

Function = TypeVar("Function", bound=Callable[..., Any])


def _registering(registered: dict[str, Any], entry: type) -> Callable[..., Callable[[Function], Function]]:
    """A decorator that registers a function under a name and a title; `settings` are the other fields of the entry."""

    def register(name: str, title: str, **settings: Any) -> Callable[[Function], Function]:
        def add(function: Function) -> Function:
            if name in registered:
                raise ValueError(f"{name!r} is registered twice")
            registered[name] = entry(name, title, function, **settings)
            return function

        return add

    return register


family = _registering(FAMILIES, Family)
decision = _registering(DECISIONS, Decision)
path = _registering(PATHS, Path)


def pick(registered: Mapping[str, Any], names: Iterable[str] | None, what: str) -> list[Any]:
    """Entries by name, all of them when `names` is None; InputError at an unknown name."""
    if names is None:
        return list(registered.values())
    chosen = []
    for name in names:
        if name not in registered:
            raise InputError("benchmark of solvers", field=what, found=name, expected=f"one of {', '.join(registered)}")
        chosen.append(registered[name])
    return chosen


# Families: the published table has three accelerator types; further ones are blends of them, the same for every job of
# a type, so that identical jobs stay identical.

QUARTER = 0.75
"""GPUs per GPU asked for; on three types a quarter as many of each as there are single-GPU jobs."""
TIGHT, SLACK = 0.125, 1.5

SIZES = (128, 512, 2048, 8192)
LARGE = (*SIZES, 32_768, 100_000)


@family("published", "published types, single GPUs", sizes={3: LARGE, 4: (1_000_000,)})
def published(n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
    """Single-GPU jobs of the 26 published types: 26 classes of identical jobs at any size."""
    return _instance(*_published_jobs(n_jobs, n_types, {1: 1.0}, rng), QUARTER)


@family("gangs", "published types, gangs, priorities", sizes={3: SIZES})
def gangs(n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
    """Published types with the published mix of gang sizes and priorities."""
    rates, sizes = _published_jobs(n_jobs, n_types, PUBLISHED_SCALE_FACTORS, rng)
    weights = rng.choice(list(PUBLISHED_PRIORITIES), n_jobs, p=list(PUBLISHED_PRIORITIES.values()))
    return _instance(rates, sizes, QUARTER, weights)


@family("distinct", "all jobs distinct", sizes={3: LARGE, 4: (1_000_000,)})
def distinct(n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
    """Published types, each rate moved by up to a quarter: no two jobs alike."""
    return _instance(*_distinct_jobs(n_jobs, n_types, rng), QUARTER)


@family("tight", "distinct, 8 jobs per GPU", sizes={3: SIZES})
def tight(n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
    """Distinct jobs on one GPU for eight that are asked for."""
    return _instance(*_distinct_jobs(n_jobs, n_types, rng), TIGHT)


@family("slack", "distinct, 1.5 GPUs per job", sizes={3: SIZES})
def slack(n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
    """Distinct jobs on more GPUs than are asked for; the fast types stay contended."""
    return _instance(*_distinct_jobs(n_jobs, n_types, rng), SLACK)


@family("degenerate", "ties, zeros, weights over six decades", sizes={3: SIZES})
def degenerate(n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
    """All that spoils a solver at once: rounded and repeated rows, rates of zero, a type that nobody can use and one
    with next to no GPUs, gangs larger than a type, weights over six decades.
    """
    rates = np.round(rng.uniform(0.1, 1.0, (n_jobs, n_types)), 1) * 10.0 ** rng.integers(-1, 3, (n_jobs, 1))
    rates[rng.random((n_jobs, n_types)) < 0.3] = 0.0
    rates[:, 0] = np.where(rates.any(axis=1), rates[:, 0], 1.0)
    repeated = rng.random(n_jobs) < 0.5
    rates[repeated] = rates[rng.integers(0, min(n_jobs, 8), int(repeated.sum()))]
    sizes = rng.choice([1, 2, 4, 64], n_jobs, p=[0.7, 0.15, 0.1, 0.05])
    capacity = _capacity(sizes, n_types, QUARTER)
    if n_types > 1:
        capacity[-1] = 1e-3
    if n_types > 2:
        rates[:, -2] = 0.0
    stranded = ~rates[:, : max(1, n_types - 2)].any(axis=1)
    rates[stranded, 0] = 1.0
    return Instance(rates, sizes, capacity, 10.0 ** rng.uniform(-3, 3, n_jobs))


@family("many_types", "distinct, 2 to 16 types", sizes=dict.fromkeys((2, 4, 8, 16), (2048,)))
def many_types(n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
    """Distinct jobs on more and more accelerator types."""
    return _instance(*_distinct_jobs(n_jobs, n_types, rng), QUARTER)


def _published_jobs(
    n_jobs: int, n_types: int, mix: Mapping[int, float], rng: np.random.Generator
) -> tuple[Array, NDArray[np.int64]]:
    """(N, M) rates and (N,) gang sizes of jobs drawn from the published table."""
    shares = dict(mix)
    table = default_table()
    sizes = rng.choice(list(shares), n_jobs, p=list(shares.values()))
    rates = np.empty((n_jobs, n_types))
    for size in shares:
        known = [name for name in table.job_types if size in table.scale_factors_of(name)]
        profiled = table.rates(known, [size] * len(known), table.accelerators)
        # a job type is drawn only where the reference type, the first, was profiled
        rows = _with_blends(profiled[profiled[:, 0] > 0], n_types)
        here = np.flatnonzero(sizes == size)
        rates[here] = rows[rng.integers(0, len(rows), len(here))]
    return rates, sizes.astype(np.int64)


def _with_blends(rates: Array, n_types: int) -> Array:
    """The first `n_types` of: the three published types, then geometric blends of them, moved a little per row."""
    rng = np.random.default_rng(26)
    columns = list(rates.T)
    while len(columns) < n_types:
        part = rng.dirichlet(np.ones(rates.shape[1]))
        columns.append(np.prod(rates**part, axis=1) * rng.uniform(0.8, 1.25, len(rates)))
    return np.column_stack(columns[:n_types])


def _distinct_jobs(n_jobs: int, n_types: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
    rates, sizes = _published_jobs(n_jobs, n_types, {1: 1.0}, rng)
    rates *= rng.uniform(0.8, 1.25, rates.shape)
    return rates, sizes


def _instance(rates: Array, sizes: NDArray[np.int64], fraction: float, weights: Array | None = None) -> Instance:
    capacity = _capacity(sizes, rates.shape[1], fraction)
    return Instance(rates, sizes, capacity, np.ones(len(rates)) if weights is None else weights)


def _capacity(sizes: NDArray[np.int64], n_types: int, fraction: float) -> Array:
    """As many GPUs of each type; together `fraction` of what is asked for."""
    return np.full(n_types, max(1.0, float(sizes.sum() * fraction // n_types)))


# Decisions: objectives with the figures of jobs in the middle of their work. Times are drawn so that the jobs contend:
# with fewer GPUs than are asked for, no job alone holds the optimum. (With the published spread of durations one long
# job does, and the program is an easy one.)

HOUR = 3600.0


@decision("max_min", "Max-min fairness")
def max_min(instance: Instance, rng: np.random.Generator) -> MaxMin:  # noqa: ARG001
    """Least throughput relative to the proportional share, per weight and GPU."""
    proportional = proportional_throughput(instance.rates, instance.capacity)
    return MaxMin(instance.weights * proportional / instance.scale_factors)


@decision("makespan", "Makespan")
def makespan(instance: Instance, rng: np.random.Generator) -> Makespan:
    """One to two hours left on the fastest type, times the weight."""
    return Makespan(instance.weights * instance.fastest * rng.uniform(HOUR, 2 * HOUR, len(instance.rates)))


@decision("finish_time", "Finish-time fairness")
def finish_time(instance: Instance, rng: np.random.Generator) -> FinishTimeFairness:
    """Up to an hour spent, one to two left on the fastest type; isolated, each would take up to half as long again.

    At the level that the worst job could attain alone every job needs nearly its fastest rate.
    """
    N = len(instance.rates)
    spent, left = rng.uniform(0, HOUR, N), instance.weights * rng.uniform(HOUR, 2 * HOUR, N)
    isolated = (spent + left) * rng.uniform(1.0, 1.5, N)
    return FinishTimeFairness(spent, left * instance.fastest, isolated)


@decision("max_sum", "Sum of throughputs")
def max_sum(instance: Instance, rng: np.random.Generator) -> MaxSum:  # noqa: ARG001
    """Steps per second of all jobs, by weight."""
    return MaxSum(instance.weights)


@decision("water_filling", "Water filling")
def water_filling(instance: Instance, rng: np.random.Generator) -> WaterFilling:  # noqa: ARG001
    """Max-min fairness of all levels: who can have more without taking from those below gets it."""
    proportional = proportional_throughput(instance.rates, instance.capacity)
    return WaterFilling(proportional / instance.scale_factors, instance.weights)


@decision("proportional_fairness", "Proportional fairness")
def proportional_fairness(instance: Instance, rng: np.random.Generator) -> NashWelfare:  # noqa: ARG001
    """The largest product of throughputs, by weight."""
    return NashWelfare(instance.weights)


def _packed(instance: Instance) -> PackedPolytope:
    """The jobs of an instance of published types, which may also share GPUs two by two."""
    table = default_table().with_colocation(default_colocation())
    rows, group = np.unique(instance.rates, axis=0, return_inverse=True)
    known = table.rates(table.job_types, [1] * len(table.job_types), table.accelerators)
    types = [table.job_types[int(np.abs(known[:, : rows.shape[1]] - row).sum(axis=1).argmin())] for row in rows]
    kept = retained_fractions(table, types, table.accelerators, 1)
    columns = PackedColumns(group.ravel(), rows, kept * rows[:, None, :])
    return PackedPolytope(columns, instance.capacity)


@decision(
    "packed_max_min",
    "Max-min fairness with space sharing",
    polytope=_packed,
    solve=solve_packed,
    most_jobs=2048,
    families=("published",),
)
def packed_max_min(instance: Instance, rng: np.random.Generator) -> MaxMin:
    """As without sharing, over single jobs and all pairs of them, expanded to the pairs of jobs."""
    return max_min(instance, rng)
