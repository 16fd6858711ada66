"""What Shockwave remembers from plan to plan: epochs of the active jobs and estimates of their fair finish times."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from allocator.protocol.plan import JobMemory, of_each_job
from throughputs.arrays import Floats, Ints, Positions
from throughputs.training import Regimes


@dataclass(eq=False)
class ShockwaveMemory(JobMemory):
    """What the policy remembers of the jobs of the last plan, in its order.

    When each of them would have finished on its fair share is estimated at each change of the set of jobs.

    Attributes
    ----------
    regimes : their epochs.
    factor : (N,) by which their epochs last longer than profiled.
    past : (N,) sum of the estimates before the latest, each times the rounds for which it was the latest one.
    rounds : (N,) those rounds.
    latest : (N,) the latest estimate, seconds.
    since : (N,) the round in which it was made; of a new job that in which it came.
    """

    holds: ClassVar[tuple[type, ...]] = (Regimes,)

    regimes: Regimes | None = None
    factor: Floats = of_each_job(1.0)
    past: Floats = of_each_job(0.0)
    rounds: Floats = of_each_job(0.0)
    latest: Floats = of_each_job(0.0)
    since: Ints = of_each_job(0)

    def recall(
        self, jobs: tuple[Hashable, ...], number: int, regimes_of: Callable[[Positions], Regimes]
    ) -> tuple[Regimes, bool]:
        """The epochs of the `jobs`, and whether they are others than last time; the memory is then of these jobs.

        `regimes_of` is asked for the epochs of the jobs that are new (positions) in round `number`.
        """
        if self.regimes is not None and jobs == self.jobs:
            return self.regimes, False
        known, before = len(self.jobs), self.align(jobs)
        new = before < 0
        self.since[new] = number
        regimes = regimes_of(np.flatnonzero(new))
        if self.regimes is not None:
            regimes = self.regimes.joined(regimes).take(np.where(new, known + new.cumsum() - 1, before))
        self.regimes = regimes
        return regimes, bool(new.any()) or len(jobs) != known

    def estimate(self, seconds: Floats, number: int) -> None:
        """New estimates (N,), made in round `number`."""
        stayed = number - self.since
        self.past += self.latest * stayed
        self.rounds += stayed
        self.latest, self.since = seconds, np.full(len(seconds), number)

    def target(self, number: int, momentum: float) -> Floats:
        """(N,) the finish time that is fair, seconds: ``momentum A + (1 - momentum) F``.

        F: the latest estimate; A: the mean of all, each weighted by the rounds for which it was the latest one.
        """
        stayed = number - self.since
        rounds = self.rounds + stayed
        mean = (self.past + self.latest * stayed) / np.maximum(rounds, 1)
        return momentum * np.where(rounds > 0, mean, self.latest) + (1.0 - momentum) * self.latest
