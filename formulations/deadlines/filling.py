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
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import ceil, inf

from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import FreeProfile, JobPlan
from throughputs.numerics import slot_end

_TIE = 1e-9
"""Relative distance within which a product may fall on another side of a limit than the sum over intervals."""

_NEARLY = 1.0 + _TIE
"""Factor by which work may fall short and count as done."""

_ROUNDING = 1e-12
"""Relative to the clock: what the rounding of sums of times comes to."""


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

    def minimum_share(self, profile: FreeProfile, job: DeadlineJob, first: int | None = None) -> JobPlan:
        """The thinnest plan for `job` on what is free, within its deadline or else as soon as it can.

        With `first` the job has that many GPUs in the first interval, whether or not they are free.
        """
        times, deadline = profile.times, job.deadline
        # intervals that begin before the deadline
        count = bisect_left(times, deadline)
        begin, rest = 0, job
        starts: list[float] = []
        gpus: list[int] = []
        if first is not None and count:
            now, until = times[0], times[1] if count > 1 else deadline
            rate, idle = job.curve.rate_of[first], job.starting if first == job.held else self.restart_seconds
            needed, length = job.work / rate + idle, until - now
            real_end = now + (ceil(needed) if self.whole_seconds else needed)
            starts, gpus = [now], [first]
            if real_end <= until:
                return self._ended(JobPlan(starts, gpus, real_end, real_end, True, real_end), times, 0, deadline)
            work = job.work - max(length - idle, 0.0) * rate
            begin, rest = 1, DeadlineJob(job.curve, work, deadline, first, max(idle - length, 0.0))
        if begin < count:
            least, span = min(profile.free[begin:count]), deadline - times[begin]
            for k, quota in enumerate(job.curve.levels):
                if span * job.curve.best_rates[k] * _NEARLY < rest.work:
                    continue
                found = self._on_free_gpus(times, (begin, count), rest, k, starts, gpus) if least >= quota else None
                found = found or self._on_what_is_free(profile, (begin, count), rest, k, starts, gpus)
                if found is not None:
                    return self._ended(found, times, count, deadline)
        return self._as_soon_as_possible(profile, begin, count, rest, starts, gpus)

    def carried_on(self, plan: JobPlan, job: DeadlineJob, now: float, wait: float = 0.0) -> JobPlan:
        """A plan of before from `now` on, with what is left of the job; met where it still does by then what it did.

        Nothing changes for a `wait` (seconds), since there is no decision before.
        """
        starts, gpus = plan.rest(now, now + wait)
        end, real_end = max(plan.end, now + wait), inf
        if all(held in job.curve.rate_of for held in gpus if held):
            followed = self.walk(job, starts, [*starts[1:], inf], gpus)
            real_end = followed.real_end if followed.met else inf
        met = now < end and real_end <= min(job.deadline, end) + _TIE * abs(now)
        return JobPlan(starts, gpus, end, real_end, met, plan.charged_until)

    def walk(
        self,
        job: DeadlineJob,
        times: Iterable[float],
        ends: Iterable[float],
        levels: Iterable[int],
        starts: list[float] | None = None,
        gpus: list[int] | None = None,
        *,
        whole: bool = False,
    ) -> JobPlan:
        """Follow a job that has so many GPUs in intervals with these times and ends (seconds).

        The plan goes on from `starts` and `gpus`, which are changed in place. It is met where the job is through within
        an interval; otherwise its real end is when the job would be, on the GPUs that it had last.
        """
        starts, gpus = [] if starts is None else starts, [] if gpus is None else gpus
        work, held, idle, rate_of = job.work, job.held, job.starting, job.curve.rate_of
        real_end, met = inf, False
        for time, end, now in zip(times, ends, levels, strict=False):
            if now != held or not starts:
                starts.append(time)
                gpus.append(now)
            if now:
                if now != held:
                    idle = self.restart_seconds
                rate = rate_of[now]
                needed = work / rate + idle
                real_end = time + (ceil(needed) if whole else needed)
                met = real_end <= end
                if met:
                    break
                length = end - time
                work -= max(length - idle, 0.0) * rate
                idle = max(idle - length, 0.0)
            held = now
        return JobPlan(starts, gpus, real_end, real_end, met, real_end)

    def lost_by_restarts(self, plan: JobPlan, job: DeadlineJob) -> float:
        """Steps that the restarts of a plan take, at most."""
        steps = zip(plan.gpus, [job.held, *plan.gpus[:-1]], strict=True)
        return self.restart_seconds * sum(job.curve.rate_of[now] for now, held in steps if now and now != held)

    def _on_free_gpus(
        self,
        times: list[float],
        among: tuple[int, int],
        job: DeadlineJob,
        k: int,
        starts: list[float],
        gpus: list[int],
    ) -> JobPlan | None:
        """The plan of a quota, level `k`, that is free in all intervals; None where sums must tell, for rounding."""
        (begin, count), levels, deadline = among, job.curve.levels, job.deadline
        latest = deadline - job.work / job.curve.rates[k] - self.restart_seconds
        start = bisect_right(times, latest, begin, count) - 1
        if start < begin:
            return None
        margin, until = _TIE * abs(times[-1]), times[start]
        if latest - until <= margin or abs(times[min(start + 1, count - 1)] - latest) <= margin:
            return None
        borders, steps = [until, deadline], [levels[k]]
        if start > begin:
            borders, steps = [times[begin], until, deadline], [levels[k - 1] if k else 0, levels[k]]
        plan = self.walk(job, borders, borders[1:], steps, starts[:], gpus[:])
        if self.whole_seconds:
            since = times[bisect_left(times, plan.real_end, 1, count) - 1]
            needed = plan.real_end - since
            if abs(needed - round(needed)) < _TIE * plan.real_end:
                return None
            plan.real_end = since + ceil(needed)
        return plan

    def _on_what_is_free(
        self,
        profile: FreeProfile,
        among: tuple[int, int],
        job: DeadlineJob,
        k: int,
        starts: list[float],
        gpus: list[int],
    ) -> JobPlan | None:
        """The plan of a quota, level `k`, interval by interval; None where it does not do the work."""
        (begin, count), times, free, deadline = among, profile.times, profile.free, job.deadline
        level, rate_of, quota, work = job.curve.level_within, job.curve.rate_of, job.curve.levels[k], job.work
        total, later, rate, lost, end = 0.0, 0, 0.0, 0.0, deadline
        for start in range(count - 1, begin - 1, -1):
            there, time = free[start], times[start]
            now = quota if there >= quota else level[there]
            if now != later:
                # what begins to run on another number of GPUs, going forward, has a restart
                total -= lost
                later, rate = now, rate_of.get(now, 0.0)
                lost = self.restart_seconds * rate
            total += (end - time) * rate
            if total - lost >= work:
                break
            end = time
        else:
            # from the first interval on it may go on as it runs
            if now != job.held or total - job.starting * rate < work:
                return None
        below = job.curve.levels[k - 1] if k else 0
        capped = [level[there if there < below else below] for there in free[begin:start]]
        capped += [level[there if there < quota else quota] for there in free[start:count]]
        while not capped[-1]:
            # what rounding leaves of the work after the last interval with GPUs
            capped.pop()
        last = begin + len(capped)
        ends = [*times[begin + 1 : count], deadline]
        plan = self.walk(job, times[begin:count], ends, capped, starts, gpus, whole=self.whole_seconds)
        if last < count:
            plan.real_end = min(plan.real_end, times[last])
        return plan

    def _as_soon_as_possible(
        self, profile: FreeProfile, begin: int, count: int, job: DeadlineJob, starts: list[float], gpus: list[int]
    ) -> JobPlan:
        """The plan of a job that cannot meet its deadline: the most GPUs that it can use, until it is through."""
        times, free, most = profile.times[:], profile.free[:], job.curve.levels[-1]
        # what is done between the deadline and the end of its slot does not count
        border = slot_end(times[0], self.slot_seconds, job.deadline)
        if count and (count == len(times) or times[count] != border):
            times.insert(count, border)
            free.insert(count, free[count - 1])
        ends = [*times[1:], inf]
        if count:
            ends[count - 1] = job.deadline
        levels = chain((job.curve.level_within[min(there, most)] for there in free[begin:-1]), [most])
        plan = self.walk(job, times[begin:], ends[begin:], levels, starts, gpus, whole=self.whole_seconds)
        return self._ended(plan, times, 0, job.deadline)

    def _ended(self, plan: JobPlan, times: list[float], count: int, deadline: float) -> JobPlan:
        """A walk with its end: rows of the profile, of which so many begin before the deadline if it is met."""
        last = bisect_left(times, plan.real_end, 1, count or len(times)) - 1
        plan.end = slot_end(times[last], self.slot_seconds, plan.real_end)
        following = times[last + 1] if last + 1 < len(times) else inf
        if plan.real_end <= following < plan.end:
            # slots that were counted from elsewhere
            plan.end = following
        if deadline < plan.real_end <= deadline + _ROUNDING * abs(plan.real_end):
            plan.real_end = deadline
        plan.met = plan.real_end <= deadline
        plan.charged_until = following if last + 1 < count else plan.end
        return plan


def earliest_share(filling: Filling, profile: FreeProfile, job: DeadlineJob) -> JobPlan:
    """The plan of a job that has its largest level, or the largest within what is free, until it is through."""
    most, level = job.curve.levels[-1], job.curve.level_within
    levels = (level[there if there < most else most] for there in profile.free)
    plan = filling.walk(job, profile.times, [*profile.times[1:], inf], levels)
    if filling.whole_seconds:
        # on the clock, as its end: what rounding adds to the seconds left is no more work in the next interval
        plan.real_end = ceil(plan.real_end)
    return filling._ended(plan, profile.times, 0, job.deadline)
