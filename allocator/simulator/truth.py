"""The truth of a simulated world: what jobs really do, which policies learn only as it is measured."""

from __future__ import annotations

from typing import Any

import numpy as np

from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from throughputs import InputError, PackedColumns
from throughputs.arrays import Floats, Ints
from throughputs.configurations import Configurations
from throughputs.goodput.trainings import Training
from throughputs.training import Course


class Truth:
    """Real throughputs of N jobs, alone, in pairs, on spread servers, and as their batch sizes change.

    Parameters
    ----------
    rates : (N, M) steps/s of each job's own gang.
    scale_factor : (N,) its GPUs.
    spread_rates : (N, M) steps/s when the GPUs of the gang are on several servers; None: no difference.
    pairs : what the jobs do in pairs; None: nobody shares.
    configurations : throughput by number of GPUs; None: every job runs with its own number.
    trainings : of each job, where goodput changes as they train; None: no such jobs.

    Attributes
    ----------
    course : how batch sizes change; None: they do not.
    samples : (N,) after which each job with goodput is through, whatever its training; None: when it is trained.
    work : (N,) the part of its steps that these are, as it was submitted; None: all steps.
    """

    def __init__(
        self,
        rates: Floats,
        scale_factor: Ints,
        spread_rates: Floats | None = None,
        pairs: PackedColumns | None = None,
        configurations: Configurations | None = None,
        trainings: tuple[Training, ...] | None = None,
    ) -> None:
        self.rates = rates.copy()
        self.scale_factor = scale_factor
        self.spread_rates = spread_rates
        self.pairs = pairs
        self.course: Course | None = None
        self.configurations = configurations
        self.trainings = trainings
        self.samples: Floats | None = None
        self.work: Floats | None = None

    def append(self, later: Truth) -> None:
        """Add the jobs of another truth of the same table at the end.

        Raises
        ------
        InputError
            Only one of the two has rates for gangs on several servers.
        """
        if (self.spread_rates is None) != (later.spread_rates is None):
            expected = "both or neither"
            raise InputError("jobs to append", field="unconsolidated_rates", found="of one part", expected=expected)
        self.rates = np.concatenate([self.rates, later.rates])
        self.scale_factor = np.concatenate([self.scale_factor, later.scale_factor])
        if self.spread_rates is not None and later.spread_rates is not None:
            self.spread_rates = np.concatenate([self.spread_rates, later.spread_rates])
        if self.course is not None and later.course is not None:
            self.course.append(later.course)
        if self.configurations is not None and later.configurations is not None:
            self.configurations = self.configurations.joined(later.configurations)
        if self.trainings is not None and later.trainings is not None:
            self.trainings += later.trainings
        if self.samples is not None and later.samples is not None:
            self.samples = np.concatenate([self.samples, later.samples])
        if self.work is not None and later.work is not None:
            self.work = np.concatenate([self.work, later.work])

    def steps_alone(self, jobs: JobTable) -> Floats | None:
        """(N,) steps of each job by itself; where batch sizes change, as many as its profile would take at the present
        rate. None: all steps.
        """
        if self.work is not None or self.course is None or jobs.training is None:
            return self.work
        steps: Floats = jobs.training.profiles.total_seconds * jobs.training.profiled_rate(jobs.rates)
        return steps

    def rates_of(self, assignment: Assignment, group: Ints | None) -> Floats:
        """(K,) steps/s of the rows on GPUs of one server each.

        `group` : (N,) groups of the jobs in `pairs`.
        """
        jobs, pool = assignment.jobs, assignment.pool
        rates: Floats = self.rates.ravel().take(jobs * self.rates.shape[1] + pool)
        if self.configurations is not None:
            other = (assignment.gpus != self.scale_factor.take(jobs)).nonzero()[0]
            if len(other):
                rates[other] = self.configurations.rates_at(jobs[other], pool[other], assignment.gpus[other])
        if self.pairs is None or group is None or not assignment.shares_gpus:
            return rates
        shared = np.flatnonzero(assignment.partner >= 0)
        one, other = group[jobs[shared]], group[assignment.partner[shared]]
        rates[shared] = self.pairs.together[one, other, pool[shared]]
        return rates

    def spread_rates_of(self, assignment: Assignment, beside: Floats | None) -> Floats | None:
        """(K,) steps/s of the rows with their GPUs on several servers; None: no difference.

        `beside` : (K,) their rates with jobs that share GPUs, under policies that pack: then a gang loses what it loses
        alone.
        """
        if self.spread_rates is None:
            return None
        rows = assignment.jobs * self.rates.shape[1] + assignment.pool
        spread: Floats = self.spread_rates.ravel().take(rows)
        other = np.flatnonzero(assignment.gpus != self.scale_factor[assignment.jobs])
        if len(other) and self.configurations is not None:
            # With another number of GPUs a gang loses the part that it loses with its own.
            at = (assignment.jobs[other], assignment.pool[other], assignment.gpus[other])
            spread[other] *= self.configurations.rates_at(*at) / self.rates.ravel().take(rows[other])
        return spread if beside is None else np.asarray(spread / self.rates.ravel().take(rows) * beside)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"rates": self.rates, "course": None if self.course is None else self.course.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.rates = state["rates"]
        if self.course is not None:
            self.course.restore(state["course"])
