"""What training does between rounds: epochs pass, and batch sizes change."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from allocator.protocol.jobs import JobTable
from allocator.simulator.truth import Truth

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


class TrainingRounds:
    """Keeps the ledger of training, and lets batch sizes follow the true course of the jobs.

    Parameters
    ----------
    jobs : the job table, with `training`; it learns of new rates and steps as they are measured.
    truth : where it has a `course`, steps and rates follow it.
    """

    def __init__(self, jobs: JobTable, truth: Truth) -> None:
        assert jobs.training is not None
        self._jobs = jobs
        self._ledger = jobs.training
        self._truth = truth

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
        ledger, jobs, course = self._ledger, self._jobs, self._truth.course
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
            rates = np.where(jobs.rates[changed] > 0, change.rates, 0.0)
            jobs.rates[changed] = self._truth.rates[changed] = rates
            ledger.batch_size[changed] = course.batch_size[changed]
        ledger.epochs_done[ran] = course.epochs_done(jobs.steps_done)[ran]
        course.observe(active, jobs.steps_done)
        return changed, step_factor
