"""What is left over goes where it saves most: one level at a time, to the job with the best marginal score (sec. 4.2).

    score_j = -/+ (GPU seconds of j's plan with the next level now  -  those of its plan)  /  GPUs of the step

A job without GPUs comes first. Only the plan of the job that is scaled changes. The published score is reckoned anew
for every job whose plan may have become another one by that, which is those with a changed stretch of the profile
before their deadlines. Savings shrink as GPUs get fewer, so there a job's score is looked at again when its turn comes:
lazy evaluation, which with concave curves finds the same jobs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from operator import attrgetter
from typing import Literal, NamedTuple

from formulations.deadlines.filling import Filling
from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import Change, FreeProfile, JobPlan

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
    used : GPU seconds of the plan.
    first_until : the end of the first interval, without the job's own GPUs; inf where it is the only one.
    jump : by how many GPUs there are more free after that than before, without the job's own.
    bound_until : up to this time the profile decides on the plan; where from, the plan says.
    """

    __slots__ = ("bound_until", "first_until", "held", "increase", "job", "jump", "level", "plan", "used")

    def __init__(self, job: int, held: int, level: int) -> None:
        self.job, self.held, self.level = job, held, level
        self.increase, self.used = -inf, 0.0
        self.plan: JobPlan | None = None
        self.first_until, self.jump, self.bound_until = inf, 0, inf

    def stale(self, change: _Scaling, own: JobPlan) -> bool:
        """Whether the plan may be another after this change; to be asked about every change."""
        first, until = change.first_until, self.first_until
        if first <= until:
            if first < until:
                return True
            # the first interval ends there as long as what is free changes there
            self.jump += change.first_jump
            if not self.jump:
                return True
        plan = self.plan
        assert plan is not None
        bounds = plan.bounds
        if bounds is None:
            return first > until or change.differs_from <= self.bound_until
        start, latest, last, end = bounds
        if start == inf:
            return False
        if (change.least if first > until else change.least_after_first) < plan.gpus[-1]:
            return True
        for time in change.moved:
            if until < time and (start <= time <= latest or last <= time <= end):
                return True
        for time in change.kept:
            if (
                until < time
                and (start <= time <= latest or last <= time <= end)
                and (time == own.end or time in own.starts)
            ):
                return True
        return False


class _Scaling:
    """How the profile has changed with one job that was scaled.

    Attributes
    ----------
    first_until, first_jump : the first change after the start of the profile: seconds, and by how many GPUs the number
        of free ones jumps up more there than before.
    times : seconds of all changes after the start.
    differs_from : from then on other numbers of GPUs are free, but for what is free before the first change.
    least, least_after_first : free GPUs at least where there are fewer, and without what is before the first change.
    """

    __slots__ = ("differs_from", "first_jump", "first_until", "kept", "least", "least_after_first", "moved")

    def __init__(self, change: Change, profile: FreeProfile) -> None:
        borders = change.borders
        self.moved, self.kept = [], []
        times, free = profile.times, profile.free
        for time, jump in borders[1:]:
            at = bisect_left(times, time)
            here = at < len(times) and times[at] == time
            if here and free[at] - free[at - 1] != jump:
                self.kept.append(time)
            else:
                self.moved.append(time)
        self.first_until, self.first_jump = borders[1]
        # each job holds more in the first interval, so that the first border is its start
        if borders[0][1] + self.first_jump:
            self.differs_from = self.first_until
        else:
            self.differs_from = borders[2][0] if len(borders) > 2 else inf
        self.least_after_first = min(change.least[1:], default=inf)
        self.least = min(change.least[0], self.least_after_first)


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
        candidate.used = self.gpu_seconds(scaled)
        if candidate.held:
            candidate.increase = (candidate.used - self.used[j]) / (candidate.level - candidate.held)
        times, free = without.times, without.free
        if len(times) > 1:
            candidate.first_until, candidate.jump = times[1], free[1] - free[0]
        else:
            candidate.first_until = inf
        candidate.bound_until = job.deadline + self.filling.slot_seconds if scaled.met else inf
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

    def adopt(self, candidate: _Candidate) -> Change:
        """Scale the job."""
        j, scaled = candidate.job, candidate.plan
        assert scaled is not None
        change = self.profile.replace(self.plans[j], scaled)
        self.plans[j], self.used[j] = scaled, candidate.used
        return change


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
        self.listed = [_Listed(j, self.following(j)) for j in range(len(self.jobs))]
        self.done: list[_Listed] = []
        for entry in self.listed:
            if entry.next is not None:
                self._score(entry, free)
        self._sort()
        while True:
            at = next((k for k, entry in enumerate(self.listed) if entry.next is not None), None)
            if at is None:
                return Scaled([entry.job for entry in self.listed + self.done], passed)
            entry = self.listed[at]
            best = entry.next
            assert best is not None
            if best.plan is None and not self.reckon(best):
                entry.next = None
                continue
            passed.add(self.plans[best.job].end)
            change = _Scaling(self.adopt(best), self.profile)
            entry.next = self.following(best.job)
            self._update(at, change)

    def _score(self, entry: _Listed, free: int) -> None:
        """Reckon the score of a job whose plan may be another, or who has moved up."""
        candidate = entry.next
        assert candidate is not None
        if candidate.level - candidate.held > free or (candidate.held and not self.reckon(candidate)):
            entry.next, entry.score = None, -inf
        else:
            entry.score = candidate.increase if candidate.held else inf

    def _update(self, at: int, change: _Scaling) -> None:
        """Bring the list up to date after a job was scaled; one that is as large as can be keeps its last score."""
        free, scaled = self.profile.free[0], self.listed[at]
        others = False
        for entry in self.listed:
            candidate = entry.next
            if candidate is None:
                continue
            if entry is scaled:
                self._score(entry, free)
            elif candidate.level - candidate.held > free or (
                candidate.plan is not None and candidate.stale(change, self.plans[candidate.job])
            ):
                before = entry.score
                self._score(entry, free)
                others = others or entry.score != before
        if others or scaled.score == -inf:
            self._sort()
        else:
            self._move(at)

    def _sort(self) -> None:
        """Sort the list, and set those aside who are not to be scaled any more."""
        listed = self.listed
        listed.sort(key=_score, reverse=True)
        kept = len(listed)
        while kept and listed[kept - 1].score == -inf:
            kept -= 1
        self.done = listed[kept:] + self.done
        del listed[kept:]

    def _move(self, at: int) -> None:
        """Move the only entry with another score to its place."""
        listed = self.listed
        entry, to = listed[at], at
        while to and listed[to - 1].score < entry.score:
            to -= 1
        while to == at and to + 1 < len(listed) and listed[to + 1].score > entry.score:
            listed[to] = listed[to + 1]
            to = at = to + 1
        listed[at] = entry
        if to < at:
            listed.insert(to, listed.pop(at))


_score = attrgetter("score")
