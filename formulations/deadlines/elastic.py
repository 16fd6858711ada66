"""What is left over goes where it saves most: one level at a time, to the job with the best marginal score (sec. 4.2).

    score_j = -/+ (GPU seconds of j's plan with the next level now  -  those of its plan)  /  GPUs of the step

A job without GPUs comes first. Only the plan of the job that is scaled changes. The published score is reckoned anew
for every job whose plan may have become another one by that, which is those with a changed stretch of the profile
before their deadlines. Savings shrink as GPUs get fewer, so there a job's score is looked at again when its turn comes:
lazy evaluation, which with concave curves finds the same jobs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import Literal, NamedTuple

from formulations.deadlines.filling import Filling
from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import FreeProfile, JobPlan

__all__ = ["Scaled", "Score", "use_left_over"]

Score = Literal["saving", "published"]


class Scaled(NamedTuple):
    """How the jobs came out.

    Attributes
    ----------
    listed : positions of the jobs in the order in which they stand in the end: the published code sorts its list by
        score again and again. Otherwise that is their order of before.
    passed_ends : when the GPUs of jobs that were scaled would have come back before, as published.
    """

    listed: list[int]
    passed_ends: set[float]


def use_left_over(
    filling: Filling,
    profile: FreeProfile,
    jobs: Sequence[DeadlineJob],
    plans: list[JobPlan],
    *,
    score: Score = "saving",
    keep_met: bool = True,
) -> Scaled:
    """Give free GPUs of now to jobs that have plans; `profile` (what they leave free) and `plans` are changed in place.

    Parameters
    ----------
    jobs : in the order in which ties are resolved.
    score : "saving": the smallest increase of GPU seconds until the job's end first. "published": the largest, as the
        published code has it, GPU seconds counted to the end of the interval of the profile in which the job ends.
    keep_met : jobs are not scaled where they would miss a deadline that they meet, nor where that is no gain: what a
        restart takes is more than what the next level saves. False: whatever it does, as published.
    """
    if score == "published":
        return _Published(filling, profile, jobs, plans, keep_met).run()
    _Saving(filling, profile, jobs, plans, keep_met).run()
    return Scaled(list(range(len(jobs))), set())


class _Candidate:
    """A job that may be scaled: its next level, the plan with it, and what of the profile that depends on.

    Attributes
    ----------
    increase : of GPU seconds per GPU of the step; -inf where the job has none so far.
    settled_until : up to this time changes of the profile change the plan; inf: any change may.
    beside : free GPUs after the first interval, without the job's own; -1: the first interval is the only one.
    """

    __slots__ = ("beside", "held", "increase", "job", "level", "plan", "settled_until")

    def __init__(self, job: int, held: int, level: int) -> None:
        self.job, self.held, self.level = job, held, level
        self.increase = -inf
        self.plan: JobPlan | None = None
        self.settled_until, self.beside = inf, -1


class _Listed:
    """A job in the published list: its next level, None where there is none that fits, and its score."""

    __slots__ = ("job", "next", "score")

    def __init__(self, job: int, following: _Candidate | None) -> None:
        self.job, self.next, self.score = job, following, -inf


class _Marginal(ABC):
    """Jobs, their plans, and what these leave free."""

    def __init__(
        self,
        filling: Filling,
        profile: FreeProfile,
        jobs: Sequence[DeadlineJob],
        plans: list[JobPlan],
        keep_met: bool,
    ) -> None:
        self.filling, self.profile, self.jobs, self.plans = filling, profile, jobs, plans
        self.keep_met = keep_met
        self.used = [self.gpu_seconds(plan) for plan in plans]

    @abstractmethod
    def gpu_seconds(self, plan: JobPlan) -> float:
        """What a plan costs."""

    def candidates(self) -> list[_Candidate]:
        """The jobs that have a next level."""
        found = (self.following(j) for j in range(len(self.jobs)))
        return [candidate for candidate in found if candidate is not None]

    def following(self, j: int) -> _Candidate | None:
        """The next level of a job, None where it has none."""
        held = self.plans[j].gpus[0]
        level = self.jobs[j].curve.next_level.get(held)
        return None if level is None else _Candidate(j, held, level)

    def reckon(self, candidate: _Candidate) -> bool:
        """Plan the job with its next level; False where it is not to be scaled."""
        j = candidate.job
        job, plan = self.jobs[j], self.plans[j]
        without = self.profile.copy()
        without.give(plan)
        scaled = candidate.plan = self.filling.minimum_share(without, job, candidate.level)
        if self.keep_met and ((plan.met and not scaled.met) or not self._gains(job, candidate)):
            return False
        if candidate.held:
            candidate.increase = (self.gpu_seconds(scaled) - self.used[j]) / (candidate.level - candidate.held)
        candidate.settled_until, candidate.beside = inf, -1
        # A step changes what is free in the first interval of the profile. Where that is the first interval without the
        # job, too, its length is all that counts.
        times = self.profile.times[1:2]
        if scaled.met and without.times[1:2] == times:
            candidate.settled_until = job.deadline + self.filling.slot_seconds
            candidate.beside = without.free[1] if times else -1
        return True

    def _gains(self, job: DeadlineJob, candidate: _Candidate) -> bool:
        """Whether the job would be through sooner if it kept the next level."""
        if not candidate.held:
            return True
        rate_of, restart = job.curve.rate_of, self.filling.restart_seconds
        seconds = [
            job.work / rate_of[gpus] + (job.starting if gpus == job.held else restart)
            for gpus in (candidate.held, candidate.level)
        ]
        return seconds[1] < seconds[0]

    def adopt(self, candidate: _Candidate) -> None:
        """Scale the job."""
        j, scaled = candidate.job, candidate.plan
        assert scaled is not None
        self.profile.give(self.plans[j])
        self.profile.take(scaled)
        self.plans[j], self.used[j] = scaled, self.gpu_seconds(scaled)


class _Saving(_Marginal):
    """The smallest increase first, scores looked at again when their turn comes."""

    def gpu_seconds(self, plan: JobPlan) -> float:
        """Until the end of the job."""
        return plan.gpu_seconds(plan.real_end)

    def run(self) -> None:
        """Scale until nobody's next level fits."""
        free, steps = self.profile.free[0], 0
        # (increase, place of the job, the number of steps when that was reckoned, candidate); no two of one place
        queue = [
            (candidate.increase, candidate.job, 0 if candidate.held else -1, candidate)
            for candidate in self.candidates()
            if candidate.level - candidate.held <= free and (not candidate.held or self.reckon(candidate))
        ]
        heapify(queue)
        while queue:
            _, j, reckoned, best = queue[0]
            if best.level - best.held > free or (reckoned != steps and not self.reckon(best)):
                heappop(queue)
                continue
            if reckoned != steps and len(queue) > 1:
                heapreplace(queue, (best.increase, j, steps, best))
                if queue[0][3] is not best:
                    continue
            heappop(queue)
            self.adopt(best)
            free, steps = self.profile.free[0], steps + 1
            following = self.following(j)
            if following is not None and following.level - following.held <= free and self.reckon(following):
                heappush(queue, (following.increase, j, steps, following))


class _Published(_Marginal):
    """The largest increase first, among scores that are all up to date; equal ones as in the round before."""

    def gpu_seconds(self, plan: JobPlan) -> float:
        """Until the end of the interval of the profile in which the job ends."""
        return plan.gpu_seconds(plan.charged_until)

    def run(self) -> Scaled:
        """Scale until nobody's next level fits."""
        free, passed = self.profile.free[0], set[float]()
        if not free:
            return Scaled(list(range(len(self.jobs))), passed)
        listed = [_Listed(j, self.following(j)) for j in range(len(self.jobs))]
        changed_from = -inf
        while True:
            for entry in listed:
                self._score(entry, changed_from, free)
            listed.sort(key=_score, reverse=True)
            best = next((entry.next for entry in listed if entry.next is not None), None)
            if best is None:
                return Scaled([entry.job for entry in listed], passed)
            if best.plan is None and not self.reckon(best):
                self._replace(listed, best, None)
                continue
            passed.add(self.plans[best.job].end)
            changed_from = self._adopt_and_compare(best)
            free = self.profile.free[0]
            self._replace(listed, best, self.following(best.job))

    def _score(self, entry: _Listed, changed_from: float, free: int) -> None:
        """Bring the score of a job up to date; one that is as large as can be keeps its last."""
        candidate = entry.next
        if candidate is None:
            return
        if candidate.level - candidate.held > free:
            entry.next, entry.score = None, -inf
        elif not candidate.held:
            entry.score = inf
        elif self._stale(candidate, changed_from, free):
            if self.reckon(candidate):
                entry.score = candidate.increase
            else:
                entry.next, entry.score = None, -inf

    @staticmethod
    def _replace(listed: list[_Listed], done: _Candidate, following: _Candidate | None) -> None:
        entry = next(entry for entry in listed if entry.next is done)
        entry.next = following

    def _stale(self, candidate: _Candidate, changed_from: float, free: int) -> bool:
        """Whether the plan may be another after a change of the profile from a time on."""
        if candidate.plan is None or candidate.settled_until >= changed_from:
            return True
        # whether what is free now differs from what is free next decides where the first interval ends
        return candidate.beside == free + candidate.held

    def _adopt_and_compare(self, candidate: _Candidate) -> float:
        """Scale the job; returns from when on the profile differs, but for what is free now."""
        profile = self.profile
        times, free = profile.times[1:], profile.free[1:]
        self.adopt(candidate)
        new_times, new_free = profile.times, profile.free
        for i, (time, count) in enumerate(zip(times, free, strict=True), 1):
            if i == len(new_times):
                return time
            if new_times[i] != time or new_free[i] != count:
                return min(new_times[i], time)
        return new_times[len(times) + 1] if len(new_times) > len(times) + 1 else inf


def _score(entry: _Listed) -> float:
    return entry.score
