"""What the study is made of: families of instances, decisions to take on them, paths that take them.

Each is one function under a decorator; the study runs whatever is registered::

    @family("distinct", "no two jobs alike", sizes={3: (128, 512, 2048)})
    def distinct(n_jobs, n_types, rng): ...            # -> Instance

    @decision("max_min", "Max-min fairness")
    def max_min(instance, rng): ...                    # -> Objective

    @path("auto", "ours", kind="own")
    def auto(problem): ...                             # -> a function from Program to Outcome

A decision over other columns than a job on a type (pairs, say) gives `polytope`; one that is not answered by
`formulations.solve` gives `solve`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from formulations import Objective, Polytope, Solution
from formulations import solve as formulations_solve
from throughputs import InputError, PlainColumns, ThroughputMatrix

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
    kind: Literal["own", "peer"]
    prepare: Prepare
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

Entry = TypeVar("Entry", Family, Decision, Path)


def family(name: str, title: str, *, sizes: Mapping[int, tuple[int, ...]]) -> Callable[[Draw], Draw]:
    """Register a way to draw instances."""

    def add(draw: Draw) -> Draw:
        _add(FAMILIES, Family(name, title, draw, sizes))
        return draw

    return add


def decision(name: str, title: str, **settings: Any) -> Callable[[Pose], Pose]:
    """Register a decision; `settings` are the other fields of `Decision`."""

    def add(pose: Pose) -> Pose:
        _add(DECISIONS, Decision(name, title, pose, **settings))
        return pose

    return add


def path(name: str, title: str, *, kind: Literal["own", "peer"], **settings: Any) -> Callable[[Prepare], Prepare]:
    """Register a path; `settings` are the other fields of `Path`."""

    def add(prepare: Prepare) -> Prepare:
        _add(PATHS, Path(name, title, kind, prepare, **settings))
        return prepare

    return add


def pick(registered: Mapping[str, Entry], names: Iterable[str] | None, what: str) -> list[Entry]:
    """Entries by name, all of them when `names` is None; InputError at an unknown name."""
    if names is None:
        return list(registered.values())
    chosen = []
    for name in names:
        if name not in registered:
            raise InputError("benchmark of solvers", field=what, found=name, expected=f"one of {', '.join(registered)}")
        chosen.append(registered[name])
    return chosen


def _add(registered: dict[str, Entry], entry: Entry) -> None:
    if entry.name in registered:
        raise ValueError(f"{entry.name!r} is registered twice")
    registered[entry.name] = entry
