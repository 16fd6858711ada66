"""Rewards by name: each is the growth of a figure of the run, so that those of an episode add up to the figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from allocator.results.fairness import isolated_jct
from allocator.simulator.world import World
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints
from throughputs.errors import one_of
from throughputs.trace import allowed_types


@dataclass(frozen=True)
class Progress:
    """How far the N jobs of a trace have come that the cluster can run.

    Attributes
    ----------
    clock : seconds.
    arrival_time, completion_time : (N,) seconds; inf for jobs that are not through.
    total_steps, steps_done : (N,).
    scale_factor : (N,) GPUs per gang.
    deadline : (N,) seconds on the clock, nan for none.
    rates : (N, M) steps/s.
    capacity : (M,) GPUs.
    allowed : (N, M) which types each job may use; None: all use all.
    """

    clock: float
    arrival_time: Floats
    completion_time: Floats
    total_steps: Floats
    steps_done: Floats
    scale_factor: Ints
    deadline: Floats
    rates: Floats
    capacity: Ints
    allowed: Flags | None = None

    @classmethod
    def of(cls, world: World) -> Progress:
        """The progress of a simulated world."""
        jobs, can_run = world.jobs, world.jobs.runnable
        completion = np.where(np.isnan(jobs.completion_time), np.inf, jobs.completion_time)
        return cls(
            clock=world.clock,
            arrival_time=jobs.arrival_time[can_run],
            completion_time=completion[can_run],
            total_steps=jobs.total_steps[can_run],
            steps_done=jobs.steps_done[can_run],
            scale_factor=jobs.scale_factor[can_run],
            deadline=jobs.deadline[can_run],
            rates=jobs.rates[can_run],
            capacity=world.core.cluster.capacity,
            allowed=allowed_types(jobs.gpu_type[can_run], jobs.partition[can_run], world.core.cluster.accelerators),
        )

    @property
    def rho(self) -> Floats:
        """(C,) finish-time fairness of the jobs that are through: JCT over the JCT on the isolated share."""
        here = self.arrival_time <= self.clock
        through = here & np.isfinite(self.completion_time)
        if not through.any():
            return np.empty(0)
        isolated = isolated_jct(
            self.arrival_time[here],
            self.completion_time[here],
            self.total_steps[here],
            self.scale_factor[here],
            self.rates[here],
            self.capacity,
            None if self.allowed is None else self.allowed[here],
        )
        return (self.completion_time - self.arrival_time)[through] / isolated[through[here]]


Figure = Callable[[Progress], float]
"""A figure of a run so far, 0 at its start; the reward of a step is what the figure gains in it."""


def _average_jct(run: Progress) -> float:
    """Minus the average time of the jobs in the cluster so far, seconds: jobs in the system times time, per job."""
    until = np.minimum(run.clock, run.completion_time)
    return -float(np.maximum(until - run.arrival_time, 0.0).sum()) / max(len(until), 1)


def _makespan(run: Progress) -> float:
    """Minus the time that passed until the last completion, seconds."""
    return -min(run.clock, float(run.completion_time.max(initial=0.0)))


def _throughput(run: Progress) -> float:
    """Work done, in jobs: each job's steps over its total."""
    return float((run.steps_done / run.total_steps).sum())


def _completed_jobs(run: Progress) -> float:
    """Jobs that are through."""
    return float(np.isfinite(run.completion_time).sum())


def _average_rho(run: Progress) -> float:
    """Minus the finish-time fairness of the jobs that are through, per job of the trace."""
    return -float(run.rho.sum()) / max(len(run.arrival_time), 1)


def _worst_rho(run: Progress) -> float:
    """Minus the worst finish-time fairness of a job so far."""
    return -float(run.rho.max(initial=0.0))


def _deadline_ratio(run: Progress) -> float:
    """Jobs that were in time, as a share of those with a deadline."""
    due = ~np.isnan(run.deadline)
    return float((run.completion_time[due] <= run.deadline[due]).sum()) / max(int(due.sum()), 1)


REWARDS: Mapping[str, Figure] = MappingProxyType(
    {
        "average_jct": _average_jct,
        "makespan": _makespan,
        "throughput": _throughput,
        "completed_jobs": _completed_jobs,
        "average_rho": _average_rho,
        "worst_rho": _worst_rho,
        "deadline_ratio": _deadline_ratio,
    }
)
"""Rewards by name. Those of figures that are to be small are negative."""


def figure_of(reward: str | Figure) -> Figure:
    """The figure of that name, or the one given; InputError for a name that there is not."""
    if not isinstance(reward, str):
        return reward
    if reward not in REWARDS:
        expected = f"{one_of(reward, REWARDS)}, or a function"
        raise InputError("environment", field="reward", found=reward, expected=expected)
    return REWARDS[reward]
