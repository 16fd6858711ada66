"""What all simulated worlds share: arrivals, completions, when to stop, what is told to whom, how to be put away."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.protocol.jobs import JobTable
from allocator.mechanism.core import DecisionCore
from allocator.protocol import Policy
from allocator.simulator.arrivals import Arrivals, MoreJobs
from allocator.simulator.observers import Observer
from allocator.simulator.presets import Preset

if TYPE_CHECKING:
    from throughputs.prices import PriceTable

__all__ = ["Progress", "SimulationStalledError", "World"]

Progress = Callable[[float, int, int], None]


class SimulationStalledError(RuntimeError):
    """The policy left all active jobs without progress for too many rounds."""


class World(ABC):
    """Clock, arrivals and progress of the jobs.

    Pickled, a world leaves out the policy and whoever watches it; `attach` brings them back.

    Parameters
    ----------
    jobs : the job table.
    cluster, policy, settings, seed, prices : as in `simulate`.
    window : (first, end) ids of the jobs that are measured: the run ends when all of them are through. None: all jobs.

    Attributes
    ----------
    round : rounds (between events: intervals) so far.
    dropped : ids of the jobs that were given up.
    stop_reason : why the run was cut short, "" if it was not.
    """

    def __init__(
        self,
        jobs: JobTable,
        cluster: Cluster,
        policy: Policy,
        settings: Preset,
        seed: int,
        window: tuple[int, int] | None = None,
        prices: PriceTable | None = None,
    ) -> None:
        self.jobs = jobs
        self.core = DecisionCore(policy, cluster, jobs, settings.mechanism, seed, prices)
        self.settings = settings.simulator
        self.round = 0
        self.completed = 0
        self.dropped: set[int] = set()
        self.stop_reason = ""
        self._clock = 0.0
        self._stalled_rounds = 0
        self._window = window
        self._window_left = -1
        self._arrivals = Arrivals(jobs)
        if window is not None:
            first, end = window
            self._window_left = end - first
            self._count_unserved(0)
        limit, clock = self.settings.max_waiting_jobs, self.settings.max_clock_seconds
        self._max_waiting = np.inf if limit is None else limit
        self._max_clock = np.inf if clock is None else clock
        self.attach(policy, None, (), None)

    def attach(
        self, policy: Policy, progress: Progress | None, observers: Sequence[Observer], more_jobs: MoreJobs | None
    ) -> None:
        """Set what is not part of the state of the world."""
        self.core.policy = policy
        self.progress = progress
        self.observers = observers
        self.more_jobs = more_jobs

    def __getstate__(self) -> dict[str, Any]:
        """All but what `attach` sets."""
        return {k: v for k, v in self.__dict__.items() if k not in ("progress", "observers", "more_jobs")}

    def run(self, until_round: float = np.inf) -> bool:
        """Run to the end, or until so many rounds are over; returns whether the end was reached."""
        arrivals = self._arrivals
        self._lengthen()
        while self.round < until_round:
            if self._window_left == 0 or self.stop_reason:
                return True
            if arrivals.next_time <= self._clock:
                self._admit()
            if not self._step():
                return True
            if self._clock > self._max_clock:
                self.stop_reason = f"clock beyond {self._max_clock:g} s"
        return False

    @abstractmethod
    def _step(self) -> bool:
        """Go on to the next round or event; False when nobody is left to run."""

    def _admit(self) -> None:
        self._arrive(self._arrivals.due(self._clock))
        if self.more_jobs is not None:
            self._lengthen()

    def _arrive(self, jobs: NDArray[np.int64]) -> None:
        if self.jobs.training is not None:
            self.jobs.training.admit(jobs, self._clock)
        self.core.arrive(jobs)

    def _lengthen(self) -> None:
        """Lengthen the trace before the last of its jobs has had an effect: the cluster never runs dry."""
        arrivals = self._arrivals
        while self.more_jobs is not None and arrivals.all_admitted:
            known = len(self.jobs)
            self.more_jobs.append_to(self.jobs)
            self.core.jobs_appended()
            arrivals.refresh()
            self._count_unserved(known)
            self._jobs_appended()
            if arrivals.next_time <= self._clock:
                self._arrive(arrivals.due(self._clock))

    def _jobs_appended(self) -> None:  # noqa: B027 - a world that keeps nothing per job has nothing to do
        """The job table has grown at its end."""

    def _count_unserved(self, known: int) -> None:
        """Jobs of the window that can never run are not waited for."""
        if self._window is not None:
            ids = known + np.flatnonzero(~np.any(self.jobs.rates[known:] > 0, axis=1))
            self._leave_window(ids)

    def _leave_window(self, jobs: NDArray[np.int64]) -> None:
        if self._window is not None:
            first, end = self._window
            self._window_left -= int(((jobs >= first) & (jobs < end)).sum())

    def _tell_decision(self) -> None:
        allocation = self.core.allocation
        if allocation is not None:
            for observer in self.observers:
                observer.decided(self.round, self._clock, allocation)

    def _complete(self, jobs: NDArray[np.int64], finish: NDArray[np.float64]) -> None:
        table = self.jobs
        table.steps_done[jobs] = table.total_steps[jobs]
        table.completion_time[jobs] = finish
        self.core.complete(jobs)
        self.completed += len(jobs)
        self._leave_window(jobs)
        if self.progress is not None:
            self.progress(float(finish.max()), self.completed, len(table))

    def _give_up(self, jobs: NDArray[np.int64]) -> None:
        self.core.complete(jobs)
        self.dropped.update(jobs.tolist())
        self._leave_window(jobs)

    def _saturate(self, waiting: int) -> None:
        self.stop_reason = f"{waiting} jobs waiting, more than {self._max_waiting:g}"

    def _note_stall(self) -> None:
        self._stalled_rounds += 1
        if self._stalled_rounds >= self.settings.max_rounds_without_progress:
            waiting = self.core.active.tolist()
            shown = ", ".join(map(str, waiting[:5])) + (", ..." if len(waiting) > 5 else "")
            raise SimulationStalledError(
                f"policy {self.core.policy.name}: no job made progress in {self._stalled_rounds} rounds up to "
                f"{self._clock:.0f} s; {len(waiting)} active jobs: {shown}"
            )
