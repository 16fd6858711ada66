"""What training does to a round: gangs that start anew lose time, and batch sizes change between rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allocator.protocol.jobs import JobTable
from allocator.simulator.settings import SimulatorSettings

if TYPE_CHECKING:
    from throughputs.training import Course

__all__ = ["Restarts", "TrainingRounds"]

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


class Restarts:
    """Takes the time to start off the rounds of gangs that did not run the round before (Shockwave, NSDI'23, artifact).

    Nothing is taken in the very first round, nor from a gang that is done well before the round would be over.

    Parameters
    ----------
    settings : of the simulator.
    round_seconds : length of a round.
    n_jobs : N.
    """

    def __init__(self, settings: SimulatorSettings, round_seconds: float, n_jobs: int) -> None:
        self._seconds = settings.restart_penalty_seconds
        slack = settings.restart_penalty_slack_seconds
        self._spared_below = self._seconds if slack is None else max(round_seconds - slack, self._seconds)
        self._whole_steps = settings.whole_steps
        self._last_round = np.full(n_jobs, -1, dtype=np.int64)

    def jobs_appended(self, n_jobs: int) -> None:
        """The job table has grown to `n_jobs`."""
        new = np.full(n_jobs - len(self._last_round), -1, dtype=np.int64)
        self._last_round = np.concatenate([self._last_round, new])

    def charge(self, jobs: _Ints, steps: _Floats, seconds: _Floats, round_number: int) -> tuple[_Floats, _Floats]:
        """(K,) steps and (K,) seconds of training of the `jobs` of a round, less what starting took."""
        anew = self._last_round[jobs] != round_number - 1
        self._last_round[jobs] = round_number
        if round_number == 0 or not anew.any():
            return steps, seconds
        charged = anew & (seconds > self._spared_below)
        training = seconds - self._seconds
        less = steps * np.divide(training, seconds, out=np.ones_like(seconds), where=charged)
        if self._whole_steps:
            less = np.floor(less)
        return np.where(charged, less, steps), np.where(charged, training, seconds)


class TrainingRounds:
    """Keeps the ledger of training, and lets batch sizes follow the true course of the jobs.

    Parameters
    ----------
    jobs : the job table, with `training`; where it has a `course`, steps and rates follow it.
    n_types : M.
    """

    def __init__(self, jobs: JobTable, n_types: int) -> None:
        assert jobs.training is not None
        self._jobs = jobs
        self._ledger = jobs.training
        self._course: Course | None = jobs.course
        self._n_types = n_types

    def round_ended(
        self, ran: _Ints, steps_per_second: _Floats, active: _Ints, elapsed_seconds: float
    ) -> tuple[_Ints, _Floats]:
        """Book a round; returns the jobs that have other rates and steps from now on, and new steps over old.

        Parameters
        ----------
        ran : (K,) jobs that ran and have not completed.
        steps_per_second : (K,) what they did.
        active : (n,) all jobs that are still there.
        elapsed_seconds : so many seconds of rounds are over.
        """
        ledger, jobs, course = self._ledger, self._jobs, self._course
        ledger.measure(ran, steps_per_second, elapsed_seconds)
        if course is None:
            epochs = ledger.profiles.epochs[ran]
            done = jobs.steps_done[ran] / jobs.total_steps[ran]
            ledger.epochs_done[ran] = np.minimum(np.floor(done * epochs + 1e-9), epochs)
            return np.empty(0, dtype=np.int64), np.empty(0)
        change = course.book(ran, jobs.steps_done)
        changed = change.jobs
        step_factor = change.total_steps / jobs.total_steps[changed]
        if len(changed):
            jobs.total_steps[changed] = change.total_steps
            jobs.steps_done[changed] = change.steps_done
            jobs.rates[changed] = np.where(jobs.rates[changed] > 0, change.rates, 0.0)
            ledger.batch_size[changed] = course.batch_size[changed]
        ledger.epochs_done[ran] = course.epochs_done(jobs.steps_done)[ran]
        course.observe(active, jobs.steps_done)
        return changed, step_factor
