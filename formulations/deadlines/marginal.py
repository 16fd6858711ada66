"""Jobs that may be given their next level: what that costs, and what is free once one of them has it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf
from typing import ClassVar

from formulations.deadlines.filling import Filling
from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import FreeProfile, JobPlan


class Candidate:
    """A job that may be scaled: its next level, and the plan with it.

    Attributes
    ----------
    job : its position.
    held, level : GPUs now, and with the next level.
    increase : of GPU seconds per GPU of the step; -inf where the job has none so far.
    used : GPU seconds of the plan.
    without : the profile without the job's own GPUs, as it was after so many `steps`. No step of its own changes it.
    """

    __slots__ = ("held", "increase", "job", "level", "plan", "steps", "used", "without")

    def __init__(self, job: int, held: int, level: int) -> None:
        self.job, self.held, self.level = job, held, level
        self.increase, self.used = -inf, 0.0
        self.plan: JobPlan | None = None
        self.without: FreeProfile | None = None
        self.steps = -1


class Marginal(ABC):
    """Jobs, their plans, and what these leave free; `steps` counts how often a job was scaled."""

    keep_met: ClassVar[bool] = True
    """Jobs are not scaled where they would miss a deadline that they meet, nor where that is no gain: what a restart
    takes is more than what the next level saves."""

    def __init__(
        self,
        filling: Filling,
        profile: FreeProfile,
        jobs: Sequence[DeadlineJob],
        plans: list[JobPlan],
    ) -> None:
        self.filling, self.profile, self.jobs, self.plans = filling, profile, jobs, plans
        self.steps = 0
        self.used = [self.gpu_seconds(plan) for plan in plans]

    @abstractmethod
    def gpu_seconds(self, plan: JobPlan) -> float:
        """What a plan costs."""

    def following(self, j: int) -> Candidate | None:
        """The next level of a job, None where it has none."""
        held = self.plans[j].gpus[0]
        level = self.jobs[j].curve.next_level.get(held)
        return None if level is None else Candidate(j, held, level)

    def rescore(self, candidate: Candidate) -> bool:
        """Plan the job with its next level; False where it is not to be scaled."""
        j = candidate.job
        job, plan, without = self.jobs[j], self.plans[j], candidate.without
        if without is None or candidate.steps != self.steps:
            without = candidate.without = self.profile.copy()
            without.give(plan)
            candidate.steps = self.steps
        scaled = candidate.plan = self.filling.minimum_share(without, job, candidate.level)
        if self.keep_met and ((plan.met and not scaled.met) or not self._gains(job, candidate)):
            return False
        candidate.used = self.gpu_seconds(scaled)
        if candidate.held:
            candidate.increase = (candidate.used - self.used[j]) / (candidate.level - candidate.held)
        return True

    def _gains(self, job: DeadlineJob, candidate: Candidate) -> bool:
        """Whether the job would be through sooner if it kept the next level."""
        if not candidate.held:
            return True
        rate_of, restart = job.curve.rate_of, self.filling.restart_seconds
        seconds = [
            job.work / rate_of[gpus] + (job.starting if gpus == job.held else restart)
            for gpus in (candidate.held, candidate.level)
        ]
        return seconds[1] < seconds[0]

    def adopt(self, candidate: Candidate) -> Candidate | None:
        """Scale the job; returns its next level, None where it has none."""
        j, scaled = candidate.job, candidate.plan
        assert scaled is not None
        self.replace(candidate, scaled)
        self.plans[j], self.used[j] = scaled, candidate.used
        following = self.following(j)
        if following is not None and candidate.steps == self.steps:
            following.without, following.steps = candidate.without, self.steps + 1
        self.steps += 1
        return following

    def replace(self, candidate: Candidate, new: JobPlan) -> None:
        """Take the GPUs of a plan in place of those that the job had."""
        without = candidate.without
        assert without is not None
        assert candidate.steps == self.steps
        self.profile.times, self.profile.free = without.times[:], without.free[:]
        self.profile.take(new)
