"""ElasticFlow's published order of scaling: the largest score first, all of them up to date.

A score is computed anew where the plan behind it may have become another one. What decides on a plan is in most cases
little: when the first interval ends, whether its GPUs are free, and the breakpoints around its start and its end
(`JobPlan.bounds`).
"""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from operator import attrgetter
from typing import NamedTuple

from formulations.deadlines.marginal import Candidate, Marginal
from formulations.deadlines.profile import FreeProfile, JobPlan


class Change(NamedTuple):
    """How a profile has changed.

    Attributes
    ----------
    borders : (seconds, by how many GPUs the number of free ones jumps up more there than before), ascending.
    least : free GPUs at least between two neighbouring borders; inf where there are not fewer than before.
    """

    borders: list[tuple[float, int]]
    least: list[float]


def replaced(profile: FreeProfile, old: JobPlan, new: JobPlan) -> Change:
    """Take the GPUs of one plan in place of those of another that was taken, both from the start of the profile."""
    net: dict[float, int] = {}
    held = 0
    for start, gpus in zip(old.starts, old.gpus, strict=True):
        net[start] = gpus - held
        held = gpus
    net[old.end] = -held
    held = 0
    for start, gpus in zip(new.starts, new.gpus, strict=True):
        net[start] = net.get(start, 0) + held - gpus
        held = gpus
    net[new.end] = net.get(new.end, 0) + held
    borders = sorted([border for border in net.items() if border[1]])
    times, free = profile.times, profile.free
    change, i = 0, 0
    touched: list[int] = []
    least: list[float] = []
    for time, jump in borders:
        j = bisect_left(times, time, i)
        if time < inf and (j == len(times) or times[j] != time):
            times.insert(j, time)
            free.insert(j, free[j - 1])
        if change:
            if j == i + 1:
                free[i] += change
                least.append(free[i] if change < 0 else inf)
            else:
                free[i:j] = [count + change for count in free[i:j]]
                least.append(min(free[i:j]) if change < 0 else inf)
        elif touched:
            least.append(inf)
        change += jump
        i = j
        touched.append(j)
    for i in reversed(touched):
        if 0 < i < len(times) and free[i] == free[i - 1]:
            del times[i], free[i]
    return Change(borders, least)


class _Listed:
    """A job in the published list.

    Attributes
    ----------
    next : its next level; None where there is none that fits.
    score : inf for a job without GPUs, -inf for one that is not to be scaled any more.
    first_until : the end of the first interval without the job's own GPUs; inf where it is the only one.
    jump : by how many GPUs there are more free after that than before.
    quota : GPUs that must be free for the plan.
    bound_from, bound_until : breakpoints between these instants (seconds) may decide on the plan.
    until : those after this one never do.
    floats : whether the breakpoints only say when the job runs, and not what that costs.
    """

    __slots__ = ("bound_from", "bound_until", "first_until", "floats", "job", "jump", "next", "quota", "score", "until")

    def __init__(self, job: int, following: Candidate | None) -> None:
        self.job, self.next, self.score, self.floats = job, following, -inf, False

    def planned(self, candidate: Candidate, until: float, *, whole: bool) -> None:
        """Take the score of a plan, and note what of the profile, up to a time, decides on it.

        With `whole`, all breakpoints are on whole seconds: the cost of a plan that runs from the last breakpoint on,
        since no deadline bounds it, is the same wherever that is.
        """
        self.score, self.until, self.floats = candidate.increase, until, False
        without, plan = candidate.without, candidate.plan
        assert without is not None
        assert plan is not None
        if len(without.times) > 1:
            self.first_until, self.jump = without.times[1], without.free[1] - without.free[0]
        else:
            self.first_until = inf
        if plan.bounds is None:
            self.quota, self.bound_from, self.bound_until = 0, -inf, inf
            return
        self.bound_from, latest, _, end = plan.bounds
        self.bound_until = latest if latest > end else end
        self.quota = plan.gpus[-1] if self.bound_from < inf else 0
        if whole and latest == inf:
            self.bound_from, self.floats = inf, True

    def decided_by(self, step: _Step, plan: JobPlan, own: JobPlan) -> bool:
        """Whether a step has moved breakpoints that decide on the plan; `own` is the plan that the job has so far."""
        if self.bound_from == inf:
            return False
        if plan.bounds is None:
            return step.first > self.first_until or step.differs_from <= self.until
        start, latest, last, end = plan.bounds
        first_until = self.first_until
        for time, moved in step.times:
            if (
                time > first_until
                and (start <= time <= latest or last <= time <= end)
                and (moved or time == own.end or time in own.starts)
            ):
                return True
        return False


class _Step:
    """How the profile has changed with one job that was scaled.

    Attributes
    ----------
    first, first_jump : the first change after the start of the profile: seconds, and by how many GPUs the number of
        free ones jumps up more there than before.
    second, last : the next change and the last one, seconds.
    times : all of them: seconds, and whether a breakpoint comes or goes there.
    differs_from : from then on other numbers of GPUs are free, but for what is free before the first change.
    least, least_after_first : free GPUs at least where there are fewer, and without what is before the first change.
    """

    __slots__ = ("differs_from", "first", "first_jump", "last", "least", "least_after_first", "second", "times")

    def __init__(self, change: Change, profile: FreeProfile) -> None:
        borders, times, free = change.borders, profile.times, profile.free
        self.times: list[tuple[float, bool]] = []
        for time, jump in borders[1:]:
            at = bisect_left(times, time)
            stays = at < len(times) and times[at] == time and free[at] - free[at - 1] != jump
            self.times.append((time, not stays))
        # a job that is scaled holds more in the first interval: the first border is the start of the profile
        self.first, self.first_jump = borders[1]
        self.second = borders[2][0] if len(borders) > 2 else inf
        self.last = borders[-1][0]
        self.differs_from = self.first if borders[0][1] + self.first_jump else self.second
        self.least_after_first = min(change.least[1:], default=inf)
        self.least = min(change.least[0], self.least_after_first)


class Published(Marginal):
    """The largest increase first, whatever it does to deadlines, among scores that are all up to date; equal ones as in
    the round before.

    Attributes
    ----------
    passed_ends : when the GPUs of jobs that were scaled would have come back before.
    """

    keep_met = False

    def gpu_seconds(self, plan: JobPlan) -> float:
        """Until the end of the interval of the profile in which the job ends."""
        return plan.gpu_seconds(plan.charged_until)

    def replace(self, candidate: Candidate, new: JobPlan) -> None:
        """Note how the profile has changed."""
        self.change = replaced(self.profile, self.plans[candidate.job], new)

    def run(self) -> list[int]:
        """Scale until nobody's next level fits; returns the jobs in the order of the list, which is sorted by score."""
        self.passed_ends = set[float]()
        if not self.profile.free[0]:
            return list(range(len(self.jobs)))
        self._listed = [_Listed(j, self.following(j)) for j in range(len(self.jobs))]
        filling = self.filling
        self._whole = (
            filling.whole_seconds
            and not filling.restart_seconds
            and all(time % 1 == 0 for time in (filling.slot_seconds, *self.profile.times))
        )
        # who is not to be scaled any more, in the order of the list
        self._left: list[_Listed] = []
        for entry in self._listed:
            if entry.next is not None:
                self._score(entry, entry.next)
        self._sort()
        while True:
            at = next((k for k, entry in enumerate(self._listed) if entry.next is not None), None)
            if at is None:
                return [entry.job for entry in self._listed + self._left]
            entry = self._listed[at]
            best = entry.next
            assert best is not None
            outdated = best.plan is None or (entry.floats and best.steps != self.steps)
            if outdated and not self.rescore(best):
                entry.next = None
                continue
            self.passed_ends.add(self.plans[best.job].end)
            entry.next = self.adopt(best)
            self._update(at, _Step(self.change, self.profile))

    def _score(self, entry: _Listed, candidate: Candidate) -> None:
        """Reckon the score of a job whose plan may be another, or who has moved up."""
        if candidate.level - candidate.held > self.profile.free[0] or (candidate.held and not self.rescore(candidate)):
            entry.next, entry.score = None, -inf
        elif not candidate.held:
            entry.score = inf
        else:
            assert candidate.plan is not None
            job = self.jobs[candidate.job]
            late = job.deadline + self.filling.slot_seconds
            whole = self._whole and not job.starting
            entry.planned(candidate, late if candidate.plan.met else inf, whole=whole)

    def _update(self, at: int, step: _Step) -> None:
        """Bring the list up to date after a job was scaled; one that is as large as can be keeps its last score."""
        free, scaled, plans, sort = self.profile.free[0], self._listed[at], self.plans, False
        first, first_jump, second, last, least = (
            step.first,
            step.first_jump,
            step.second,
            step.last,
            step.least_after_first,
        )
        for entry in self._listed:
            candidate = entry.next
            if candidate is None:
                continue
            if entry is not scaled and candidate.level - candidate.held <= free:
                plan = candidate.plan
                if plan is None:
                    continue
                if first == entry.first_until:
                    # the first interval ends there as long as what is free changes there
                    entry.jump += first_jump
                    if (
                        entry.jump
                        and least >= entry.quota
                        and (
                            second > entry.bound_until
                            or last < entry.bound_from
                            or not entry.decided_by(step, plan, plans[entry.job])
                        )
                    ):
                        continue
                elif first > entry.first_until and (
                    step.least >= entry.quota and not entry.decided_by(step, plan, plans[entry.job])
                ):
                    continue
            before = entry.score
            self._score(entry, candidate)
            if entry.score != before:
                sort = sort or entry is not scaled or entry.score == -inf
        if sort:
            self._sort()
        else:
            self._move(at)

    def _sort(self) -> None:
        """Sort the list, and set those aside who are not to be scaled any more."""
        listed = self._listed
        listed.sort(key=_score, reverse=True)
        kept = len(listed)
        while kept and listed[kept - 1].score == -inf:
            kept -= 1
        self._left = listed[kept:] + self._left
        del listed[kept:]

    def _move(self, at: int) -> None:
        """Move the only entry with another score to its place."""
        listed = self._listed
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
