"""The least of a cluster that meets one deadline: progressive filling of what is free (ElasticFlow, sec. 4).

A *quota* is a number of GPUs that the job gets in every interval of the profile, or the largest level within what is
free there. Levels are tried in turn, from the deadline backwards::

    first level q, then the last p with    sum_{intervals from p on} length_k T(min(q, free_k)) >= work

The job has the quota q from p on and the level before q until then: a plan as late and thin as these two allow. All
plans, whoever makes them, come to their ends by one walk over intervals. Where the quota is free throughout, the sum is
a product and the walk has an interval for each level only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import FreeProfile, JobPlan
from throughputs.numerics import slot_begin, slot_end

_TIE = 1e-9
"""Relative distance within which a product may fall on another side of a limit than the sum over intervals."""

_NEARLY = 1.0 + _TIE
"""Factor by which work may fall short and count as done."""

_ROUNDING = 1e-12
"""Relative to the clock: what the rounding of sums of times comes to."""


class Walk(NamedTuple):
    """A job that was followed through intervals.

    Attributes
    ----------
    starts, gpus : from each of these instants (seconds) on so many GPUs.
    last : the interval in which the job is through, or else the last one.
    real_end : when it is through, seconds, if it keeps its GPUs that long.
    through : whether that is within the interval.
    work, starting : steps left where it is not, and seconds to get going.
    """

    starts: list[float]
    gpus: list[int]
    last: int
    real_end: float
    through: bool
    work: float
    starting: float


@dataclass(frozen=True)
class Filling:
    """How jobs are planned.

    Attributes
    ----------
    slot_seconds : GPUs are given back at the end of the slot in which a job ends, slots counted from the start of the
        interval of the profile. 0: no slots.
    whole_seconds : whether the end of a job is rounded up to whole seconds after the start of its interval.
    restart_seconds : what it takes a job to get going on another number of GPUs; it makes no steps meanwhile.
    """

    slot_seconds: float = 0.0
    whole_seconds: bool = False
    restart_seconds: float = 0.0

    def aligned(self, now: float, time: float) -> float:
        """The end of the slot, counted from `now`, in which `time` is."""
        return slot_end(now, self.slot_seconds, time)

    def begun(self, now: float, time: float) -> float:
        """The beginning of the slot, counted from `now`, in which `time` is."""
        return slot_begin(now, self.slot_seconds, time)

    def minimum_share(self, profile: FreeProfile, job: DeadlineJob, first: int | None = None) -> JobPlan:
        """The thinnest plan for `job` on what is free, within its deadline or else as soon as it can.

        With `first` the job has that many GPUs in the first interval, whether or not they are free.
        """
        times, deadline = profile.times, job.deadline
        # intervals that begin before the deadline
        count = bisect_left(times, deadline)
        forced, rest = [], job
        if first is not None and count:
            forced = [first]
            ends = [times[1] if count > 1 else deadline]
            walk = self.walk(job, times, ends, forced, self.whole_seconds)
            if walk.through:
                return self._ending(times, 0, job, walk, walk.last, walk.real_end)
            rest = DeadlineJob(job.curve, walk.work, deadline, first, walk.starting)
        begin = len(forced)
        least = min(profile.free[begin:count], default=0)
        for k, quota in enumerate(job.curve.levels):
            if begin == count or (deadline - times[begin]) * job.curve.best_rates[k] * _NEARLY < rest.work:
                continue
            start = self._latest_start(profile, begin, count, rest, quota, least)
            if start >= begin:
                below = job.curve.levels[k - 1] if k else 0
                return self._of_quota(profile, count, job, forced, (below, start, quota), least >= quota)
        return self._as_soon_as_possible(profile, count, job, forced)

    def carried_on(self, plan: JobPlan, job: DeadlineJob, now: float, wait: float = 0.0) -> JobPlan:
        """A plan of before from `now` on, with what is left of the job; met where it still does by then what it did.

        Nothing changes for a `wait` (seconds), since there is no decision before.
        """
        starts, gpus = plan.rest(now, now + wait)
        end, real_end = max(plan.end, now + wait), inf
        if all(held in job.curve.rate_of for held in gpus if held):
            walk = self.walk(job, starts, [*starts[1:], inf], gpus)
            real_end = walk.real_end if walk.through else inf
        met = now < end and real_end <= min(job.deadline, end) + _TIE * abs(now)
        return JobPlan(starts, gpus, end, real_end, met, plan.charged_until)

    def walk(
        self,
        job: DeadlineJob,
        times: Sequence[float],
        ends: Sequence[float],
        levels: Sequence[int],
        whole: bool = False,
    ) -> Walk:
        """Follow a job that has so many GPUs in intervals with these times and ends (seconds)."""
        work, held, idle, rate_of = job.work, job.held, job.starting, job.curve.rate_of
        starts: list[float] = []
        gpus: list[int] = []
        i, real_end = 0, inf
        for i, now in enumerate(levels):
            time = times[i]
            if now != held or not i:
                starts.append(time)
                gpus.append(now)
            if now:
                if now != held:
                    idle = self.restart_seconds
                rate, end = rate_of[now], ends[i]
                needed = work / rate + idle
                real_end = time + (ceil(needed) if whole else needed)
                if real_end <= end:
                    return Walk(starts, gpus, i, real_end, True, 0.0, 0.0)
                length = end - time
                if length > idle:
                    work -= (length - idle) * rate
                    idle = 0.0
                else:
                    idle -= length
            held = now
        return Walk(starts, gpus, i, real_end, False, work, idle)

    def lost_by_restarts(self, plan: JobPlan, job: DeadlineJob) -> float:
        """Steps that the restarts of a plan take, at most."""
        steps = zip(plan.gpus, [job.held, *plan.gpus[:-1]], strict=True)
        return self.restart_seconds * sum(job.curve.rate_of[now] for now, held in steps if now and now != held)

    def _latest_start(
        self, profile: FreeProfile, begin: int, count: int, job: DeadlineJob, quota: int, least: int
    ) -> int:
        """The last interval from which on the quota does the work, -1 if there is none; `least` GPUs are free in all."""
        times, free, restart = profile.times, profile.free, self.restart_seconds
        level, rate_of, end = job.curve.level_within, job.curve.rate_of, job.deadline
        if least >= quota:
            rate = rate_of[quota]
            latest = end - job.work / rate - restart
            start = bisect_right(times, latest, begin, count) - 1
            if start < begin and job.held == quota and (end - times[begin] - job.starting) * rate >= job.work:
                start = begin
            near = min(abs(latest - times[max(start, begin)]), abs(times[min(start + 1, count - 1)] - latest))
            if near > _TIE * abs(latest):
                return start if start >= begin else -1
        total, later = 0.0, 0
        for i in range(count - 1, begin - 1, -1):
            there = free[i]
            gpus = level[there if there < quota else quota]
            # what begins to run on another number of GPUs, going forward, has a restart
            if later and gpus != later:
                total -= restart * rate_of[later]
            if gpus:
                rate = rate_of[gpus]
                total += (end - times[i]) * rate
                lost = job.starting if i == begin and gpus == job.held else restart
                if total - lost * rate >= job.work:
                    return i
            end, later = times[i], gpus
        return -1

    def _of_quota(
        self,
        profile: FreeProfile,
        count: int,
        job: DeadlineJob,
        forced: list[int],
        found: tuple[int, int, int],
        free: bool,
    ) -> JobPlan:
        """The plan of a level until an interval and a quota from there on; `free`: in all intervals."""
        (below, start, quota), begin, times = found, len(forced), profile.times
        if free:
            borders, levels = times[:begin], [*forced, quota]
            if start > begin:
                borders.append(times[begin])
                levels.insert(begin, below)
            borders += [times[start], job.deadline]
            walk = self.walk(job, borders, borders[1:], levels)
            last = bisect_left(times, walk.real_end, 1, count) - 1
            real_end, needed = walk.real_end, walk.real_end - times[last]
            if self.whole_seconds:
                real_end = times[last] + ceil(needed)
            if not self.whole_seconds or abs(needed - round(needed)) >= _TIE * walk.real_end:
                return self._ending(times, count, job, walk, last, real_end)
        level = job.curve.level_within
        levels = [*forced]
        if below:
            levels += [level[there if there < below else below] for there in profile.free[begin:start]]
        else:
            levels += [0] * (start - begin)
        levels += [level[there if there < quota else quota] for there in profile.free[start:count]]
        while not levels[-1]:
            # what rounding leaves of the work after the last interval with GPUs
            levels.pop()
        walk = self.walk(job, times, [*times[1:count], job.deadline], levels, self.whole_seconds)
        real_end = walk.real_end
        if walk.last + 1 < count:
            real_end = min(real_end, times[walk.last + 1])
        return self._ending(times, count, job, walk, walk.last, real_end)

    def _as_soon_as_possible(self, profile: FreeProfile, count: int, job: DeadlineJob, forced: list[int]) -> JobPlan:
        """The plan of a job that cannot meet its deadline: the most GPUs that it can use, until it is through."""
        times, free, most = profile.times[:], profile.free[:], job.curve.levels[-1]
        # what is done between the deadline and the end of its slot does not count
        border = self.aligned(times[0], job.deadline)
        if count and (count == len(times) or times[count] != border):
            times.insert(count, border)
            free.insert(count, free[count - 1])
        ends = [*times[1:], inf]
        if count:
            ends[count - 1] = job.deadline
        levels = [*forced, *(job.curve.level_within[min(there, most)] for there in free[len(forced) : -1]), most]
        walk = self.walk(job, times, ends, levels, self.whole_seconds)
        return self._ending(times, 0, job, walk, walk.last, walk.real_end)

    def _ending(
        self, times: list[float], count: int, job: DeadlineJob, walk: Walk, last: int, real_end: float
    ) -> JobPlan:
        """The plan of a job that ends in an interval, of which so many begin before its deadline."""
        since, deadline = times[last], job.deadline
        end = self.aligned(since, real_end)
        following = times[last + 1] if last + 1 < len(times) else inf
        if real_end <= following < end:
            # slots that were counted from elsewhere
            end = following
        if deadline < real_end <= deadline + _ROUNDING * abs(real_end):
            real_end = deadline
        charged = following if last + 1 < count else end
        return JobPlan(walk.starts, walk.gpus, end, real_end, real_end <= deadline, charged)


def earliest_share(filling: Filling, profile: FreeProfile, job: DeadlineJob) -> JobPlan:
    """The plan of a job that has its largest level, or the largest within what is free, until it is through."""
    most, level = job.curve.levels[-1], job.curve.level_within
    levels = [level[min(there, most)] for there in profile.free]
    walk = filling.walk(job, profile.times, [*profile.times[1:], inf], levels)
    # on the clock, as its end: what rounding adds to the seconds left is no more work in the next interval
    real_end = ceil(walk.real_end) if filling.whole_seconds else walk.real_end
    return filling._ending(profile.times, 0, job, walk, walk.last, real_end)
