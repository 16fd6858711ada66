"""Which points are measured, and which are not worth their time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.solvers.registry import DECISIONS, FAMILIES, PATHS, Decision, Family, Path, pick
from benchmarks.solvers.targets import TARGETS

QUICK_SIZES = (32, 128)
USUAL_SIZE = 2048
"""A number of types with no size up to this is for huge problems only."""


@dataclass(frozen=True)
class Options:
    """Settings of a run.

    Attributes
    ----------
    families, decisions, paths : names; all when None. sizes : numbers of jobs instead of the families' own.
    quick : small sizes, few repetitions. targets_only : only the points that a target is set for.
    memory : measure the peak memory of our own paths from `memory_from` jobs, each in a process of its own.
    limit_seconds : a path whose decision takes longer is not run on larger problems of the same kind.
    repetitions : of one point at most; fewer where they would take much longer than `limit_seconds` together.
    """

    families: tuple[str, ...] | None = None
    decisions: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None
    sizes: tuple[int, ...] | None = None
    quick: bool = False
    targets_only: bool = False
    memory: bool = False
    memory_from: int = 100_000
    limit_seconds: float = 5.0
    repetitions: int = 9
    seed: int = 2


@dataclass(frozen=True)
class Point:
    """One problem, taken by each of some paths."""

    decision: Decision
    family: Family
    n_jobs: int
    n_types: int
    paths: tuple[Path, ...]

    @property
    def work(self) -> float:
        """A rough measure of the time it takes, for the estimate of what is left."""
        return math.sqrt(self.n_jobs * self.n_types) * len(self.paths)


def plan(options: Options) -> list[Point]:
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


def _sizes(family: Family, options: Options) -> Mapping[int, Sequence[int]]:
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
