"""The least of a cluster that meets one deadline: progressive filling of what is free (ElasticFlow, sec. 4).

A *quota* is a number of GPUs that the job gets in every interval of the profile, or the largest level within what is
free there. Levels are tried in turn, from the deadline backwards::

    first level q, then the last p with    sum_{intervals from p on} length_k T(min(q, free_k)) >= work

The job has the quota q from p on and the level before q until then: a plan as late and thin as these two allow.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from math import ceil, inf

from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import FreeProfile, JobPlan
from throughputs.numerics import slot_begin, slot_end

_TIE = 1e-9
"""Relative distance within which a closed form may fall on another side of a limit than the sum over intervals."""

_NEARLY = 1.0 + _TIE
"""Factor by which work may fall short and count as done."""

_Left = tuple[int | None, int, float, int, float]
"""What is left after a forced first interval: GPUs in that, the interval from which on the plan is free (0 or 1), steps
to do, and GPUs held then with the seconds in which they still get going."""

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
        times, free, deadline, curve = profile.times, profile.free, job.deadline, job.curve
        # intervals that begin before the deadline
        count = bisect_left(times, deadline)
        begin, work, held, idle, restart = 0, job.work, job.held, job.starting, self.restart_seconds
        if first is not None and count:
            now, rate = times[0], curve.rate_of[first]
            if first != held:
                idle = restart
            needed = work / rate + idle
            if self.whole_seconds:
                needed = ceil(needed)
            until = times[1] if count > 1 else deadline
            if now + needed <= until:
                return self._within_first(times, first, needed)
            length = until - now
            if length > idle:
                work -= (length - idle) * rate
                idle = 0.0
            else:
                idle -= length
            begin, held = 1, first
        left: _Left = (first if begin else None, begin, work, held, idle)
        if begin < count:
            span = deadline - times[begin]
            least = min(free[begin:count])
            rates, best_rates = curve.rates, curve.best_rates
            for k, quota in enumerate(curve.levels):
                if span * best_rates[k] * _NEARLY < work:
                    continue
                if least < quota:
                    start = self._start(times, free, count, job, quota, left)
                    if start >= 0:
                        return self._walk(profile, count, job, (start, k), left)
                    continue
                rate = rates[k]
                latest = deadline - work / rate - restart
                start = bisect_right(times, latest, begin, count) - 1
                if start < begin and held == quota and (span - idle) * rate >= work:
                    start = begin
                margin = _TIE * latest
                if (start >= begin and latest - times[start] < margin) or (
                    start + 1 < count and times[start + 1] - latest < margin
                ):
                    start = self._start(times, free, count, job, quota, left)
                if start >= begin:
                    return self._on_free_gpus(profile, count, job, (start, k), left)
        return self._as_soon_as_possible(profile, count, job, left)

    def carried_on(self, plan: JobPlan, job: DeadlineJob, now: float, wait: float = 0.0) -> JobPlan:
        """A plan of before from `now` on, with what is left of the job; met where it still does by then what it did.

        Nothing changes for a `wait` (seconds), since there is no decision before.
        """
        rest = plan.since(now).settled(now + wait)
        work, held, idle = job.work, job.held, job.starting
        real_end = inf
        for k, (start, gpus) in enumerate(zip(rest.starts, rest.gpus, strict=True)):
            if gpus:
                if gpus != held:
                    idle = self.restart_seconds
                rate = job.curve.rate_of.get(gpus)
                if rate is None:
                    break
                length = (rest.starts[k + 1] if k + 1 < len(rest.starts) else inf) - start
                if work / rate + idle <= length:
                    real_end = start + work / rate + idle
                    break
                work -= max(length - idle, 0.0) * rate
                idle = max(idle - length, 0.0)
            held = gpus
        met = now < rest.end and real_end <= min(job.deadline, rest.end) + _TIE * abs(now)
        return JobPlan(rest.starts, rest.gpus, rest.end, real_end, met, plan.charged_until)

    def _within_first(self, times: list[float], first: int, needed: float) -> JobPlan:
        """The plan of a job that ends in the first interval."""
        now = times[0]
        real_end = now + needed
        end = self.aligned(now, real_end)
        if len(times) > 1 and end > times[1]:
            end = times[1]
        return JobPlan([now], [first], end, real_end, True, end)

    def _start(self, times: list[float], free: list[int], count: int, job: DeadlineJob, quota: int, left: _Left) -> int:
        """The last interval from which on the quota does the work, -1 if there is none."""
        _, begin, work, held, idle = left
        level, rates, restart = job.curve.level_within, job.curve.rate_within, self.restart_seconds
        full = rates[quota]
        end, total = job.deadline, 0.0
        if not restart:
            for i in range(count - 1, begin - 1, -1):
                there, time = free[i], times[i]
                total += (end - time) * (full if there >= quota else rates[there])
                if total >= work:
                    return i
                end = time
            return -1
        # what begins to run on another number of GPUs, going forward, has a restart
        later = 0
        for i in range(count - 1, begin - 1, -1):
            there, time = min(free[i], quota), times[i]
            gpus, rate = level[there], rates[there]
            if later and gpus != later:
                total -= restart * rates[later]
            total += (end - time) * rate
            lost = idle if i == begin and gpus == held else restart
            if total - lost * rate >= work:
                return i
            end, later = time, gpus
        return -1

    def _on_free_gpus(
        self, profile: FreeProfile, count: int, job: DeadlineJob, found: tuple[int, int], left: _Left
    ) -> JobPlan:
        """The plan of a quota that is free in every interval, in closed form."""
        first, begin, work, held, idle = left
        start, k = found
        times, curve = profile.times, job.curve
        quota, rate, since = curve.levels[k], curve.rates[k], times[start]
        starts, gpus = ([], []) if first is None else ([times[0]], [first])
        if start > begin:
            before = curve.levels[k - 1] if k else 0
            if before:
                lost = idle if before == held else self.restart_seconds
                work -= max(since - times[begin] - lost, 0.0) * curve.rates[k - 1]
            if before != held or not starts:
                starts.append(times[begin])
                gpus.append(before)
            held = before
            idle = self.restart_seconds
        if quota != held:
            idle = self.restart_seconds
            starts.append(since)
            gpus.append(quota)
        elif not starts:
            starts.append(since)
            gpus.append(quota)
        exact = since + work / rate + idle
        last = bisect_left(times, exact, start + 1, count) - 1
        needed = exact - times[last]
        if self.whole_seconds:
            if abs(needed - round(needed)) < _TIE * exact:
                return self._walk(profile, count, job, found, left)
            needed = ceil(needed)
        return self._ending(times, count, job.deadline, (starts, gpus), last, needed)

    def _walk(self, profile: FreeProfile, count: int, job: DeadlineJob, found: tuple[int, int], left: _Left) -> JobPlan:
        """The plan of a quota, interval by interval."""
        first, begin, work, held, idle = left
        start, k = found
        times, free, curve, restart = profile.times, profile.free, job.curve, self.restart_seconds
        level, rates = curve.level_within, curve.rate_within
        starts, gpus = ([], []) if first is None else ([times[0]], [first])
        quota, cap = curve.levels[k], curve.levels[k - 1] if k else 0
        last, length, runs = begin, 0.0, 0
        if not cap and begin < start:
            # nothing before the quota
            if held or not starts:
                starts.append(times[begin])
                gpus.append(0)
            held, begin = 0, start
        for i in range(begin, count):
            if i == start:
                cap = quota
            there = free[i]
            now = level[there] if there < cap else cap
            time = times[i]
            if now != held or not starts:
                starts.append(time)
                gpus.append(now)
            if now:
                if now != held:
                    idle = restart
                rate = rates[now]
                length = (times[i + 1] if i + 1 < count else job.deadline) - time
                needed = work / rate + idle
                if self.whole_seconds:
                    needed = ceil(needed)
                if needed <= length or i + 1 == count:
                    return self._ending(times, count, job.deadline, (starts, gpus), i, needed)
                last, runs = i, len(starts)
                work -= max(length - idle, 0.0) * rate
                idle = max(idle - length, 0.0)
            held = now
        # what rounding leaves of the work after the last interval with GPUs
        return self._ending(times, count, job.deadline, (starts[:runs], gpus[:runs]), last, length)

    def _as_soon_as_possible(self, profile: FreeProfile, count: int, job: DeadlineJob, left: _Left) -> JobPlan:
        """The plan of a job that cannot meet its deadline: the most GPUs that it can use, until it is through."""
        first, begin, work, held, idle = left
        curve, restart, deadline = job.curve, self.restart_seconds, job.deadline
        times, free = profile.times, profile.free
        most = curve.levels[-1]
        # what is done between the deadline and the end of its slot does not count
        border = self.aligned(times[0], deadline)
        if border > times[0] and (count == len(times) or times[count] != border):
            times, free = [*times[:count], border, *times[count:]], [*free[:count], free[count - 1], *free[count:]]
        starts, gpus = ([], []) if first is None else ([times[0]], [first])
        last = len(times) - 1
        for i in range(begin, last + 1):
            time = times[i]
            now = curve.level_within[min(free[i], most)] if i < last else most
            if now != held or not starts:
                starts.append(time)
                gpus.append(now)
            if now:
                if now != held:
                    idle = restart
                rate = curve.rate_within[now]
                length = inf if i == last else (deadline if times[i + 1] == border else times[i + 1]) - time
                needed = work / rate + idle
                if self.whole_seconds:
                    needed = ceil(needed)
                if needed <= length:
                    end = self.aligned(time, time + needed)
                    return JobPlan(starts, gpus, end, time + needed, time + needed <= deadline, end)
                work -= max(length - idle, 0.0) * rate
                idle = max(idle - length, 0.0)
            held = now
        raise AssertionError("the last interval is open")

    def _ending(
        self,
        times: list[float],
        count: int,
        deadline: float,
        runs: tuple[list[float], list[int]],
        last: int,
        needed: float,
    ) -> JobPlan:
        """The plan of a job that ends so many seconds into an interval."""
        since = times[last]
        real_end = since + needed
        end = self.aligned(since, real_end)
        following = times[last + 1] if last + 1 < len(times) else inf
        if real_end <= following < end:
            # slots that were counted from elsewhere
            end = following
        if deadline < real_end <= deadline + _ROUNDING * abs(real_end):
            real_end = deadline
        charged = following if last + 1 < count else end
        return JobPlan(runs[0], runs[1], end, real_end, real_end <= deadline, charged)


def earliest_share(filling: Filling, profile: FreeProfile, job: DeadlineJob) -> JobPlan:
    """The plan of a job that has its largest level, or the largest within what is free, until it is through."""
    times, free, curve = profile.times, profile.free, job.curve
    work, held, idle = job.work, job.held, job.starting
    most, restart = curve.levels[-1], filling.restart_seconds
    starts: list[float] = []
    gpus: list[int] = []
    last = len(times) - 1
    for i, time in enumerate(times):
        now = curve.level_within[min(free[i], most)]
        if now != held or not starts:
            starts.append(time)
            gpus.append(now)
        if now:
            if now != held:
                idle = restart
            until = times[i + 1] if i < last else inf
            through = time + (work / curve.rate_within[now] + idle)
            # on the clock, as its end: what rounding adds to the seconds left is no more work in the next interval
            if through <= until:
                real_end = ceil(through) if filling.whole_seconds else through
                end = filling.aligned(time, real_end)
                if real_end <= until < end:
                    end = until
                return JobPlan(starts, gpus, end, real_end, real_end <= job.deadline, end)
            length = until - time
            work -= max(length - idle, 0.0) * curve.rate_within[now]
            idle = max(idle - length, 0.0)
        held = now
    raise AssertionError("a job that can run on all GPUs ends")
