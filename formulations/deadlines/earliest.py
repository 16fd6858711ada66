"""Earliest deadline first: job after job takes all that it can use, from now on."""

from __future__ import annotations

from math import ceil, inf

from formulations.deadlines.filling import Filling
from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import FreeProfile, JobPlan


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
