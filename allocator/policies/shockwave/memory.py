"""What Shockwave remembers from plan to plan: epochs of the active jobs and estimates of their fair finish times."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator.policies.base.programs import Array
from throughputs.training import Regimes


@dataclass(eq=False)
class FairFinishes:
    """When each of N jobs would have finished on its fair share, as estimated at each change of the set of jobs.

    Attributes
    ----------
    past : (N,) sum of the estimates before the latest, each times the rounds for which it was the latest one.
    rounds : (N,) those rounds.
    latest : (N,) the latest estimate, seconds.
    since : (N,) the round in which it was made.
    """

    past: Array = field(default_factory=lambda: np.empty(0))
    rounds: Array = field(default_factory=lambda: np.empty(0))
    latest: Array = field(default_factory=lambda: np.empty(0))
    since: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def take(self, jobs: NDArray[np.int64], number: int) -> FairFinishes:
        """The same for some of the jobs (positions); -1 for one without estimates, which starts in round `number`."""
        known = jobs >= 0
        columns = (
            np.where(known, np.append(values, 0)[jobs], start)
            for values, start in ((self.past, 0.0), (self.rounds, 0.0), (self.latest, 0.0), (self.since, number))
        )
        return FairFinishes(*columns)

    def append(self, seconds: Array, number: int) -> None:
        """New estimates (N,), made in round `number`."""
        stayed = number - self.since
        self.past = self.past + self.latest * stayed
        self.rounds = self.rounds + stayed
        self.latest, self.since = seconds, np.full(len(seconds), number, dtype=np.int64)

    def target(self, number: int, momentum: float) -> Array:
        """(N,) the finish time that is fair, seconds: ``momentum A + (1 - momentum) F``.

        F: the latest estimate; A: the mean of all, each weighted by the rounds for which it was the latest one.
        """
        stayed = number - self.since
        rounds = self.rounds + stayed
        mean = (self.past + self.latest * stayed) / np.maximum(rounds, 1)
        return momentum * np.where(rounds > 0, mean, self.latest) + (1.0 - momentum) * self.latest


@dataclass(eq=False)
class ShockwaveMemory:
    """What the policy remembers of the active jobs from plan to plan.

    Attributes
    ----------
    jobs : labels of the jobs of the last plan, in its order.
    regimes : their epochs.
    factor : (N,) by which their epochs last longer than profiled.
    finishes : the estimates of their fair finish times.
    """

    jobs: list[Hashable] = field(default_factory=list)
    regimes: Regimes | None = None
    factor: Array = field(default_factory=lambda: np.empty(0))
    finishes: FairFinishes = field(default_factory=FairFinishes)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; labels are ids of jobs."""
        return {
            "jobs": self.jobs,
            "regimes": None if self.regimes is None else _columns(self.regimes),
            "factor": self.factor,
            "finishes": _columns(self.finishes),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.jobs, self.factor = state["jobs"], state["factor"]
        self.regimes = None if state["regimes"] is None else Regimes(**state["regimes"])
        self.finishes = FairFinishes(**state["finishes"])

    def forget(self) -> None:
        """No job is left."""
        self.jobs, self.regimes, self.factor, self.finishes = [], None, np.empty(0), FairFinishes()

    def recall(
        self, jobs: list[Hashable], number: int, regimes_of: Callable[[NDArray[np.intp]], Regimes]
    ) -> tuple[Regimes, bool]:
        """The epochs of the `jobs`, and whether they are others than last time; the memory is then of these jobs.

        `regimes_of` is asked for the epochs of the jobs that are new (positions).
        """
        if self.regimes is not None and jobs == self.jobs:
            return self.regimes, False
        place = {label: position for position, label in enumerate(self.jobs)}
        before = np.array([place.get(label, -1) for label in jobs], dtype=np.int64)
        new = np.flatnonzero(before < 0)
        known = regimes_of(new)
        if self.regimes is not None:
            known = self.regimes.joined(known)
            rank = np.cumsum(before < 0) - 1
            known = known.take(np.where(before < 0, len(self.jobs) + rank, before))
        self.factor = np.where(before < 0, 1.0, np.append(self.factor, 1.0)[before])
        self.finishes = self.finishes.take(before, number)
        changed = len(new) > 0 or len(jobs) != len(self.jobs)
        self.jobs, self.regimes = jobs, known
        return known, changed


def _columns(arrays: Regimes | FairFinishes) -> dict[str, Any]:
    """The arrays of a dataclass by name."""
    return {f.name: getattr(arrays, f.name) for f in fields(arrays)}
