"""Admission that tries harder: cheapest steps instead of quotas, and another order where the order of deadlines fails.

`cheapest_share` takes, for one job, the steps of its concave hull that do most work per GPU, in whatever intervals they
are free, the latest first, and the last step only for as long as it is needed::

    a step of an interval, from level g to g':   efficiency (T(g') - T(g)) / (g' - g),  work (T(g') - T(g)) length

Which is the plan of the least GPU time on what is free. `plans_by_repair` plans job after job so, in the order of
deadlines first. A job that finds no room moves half of its way to the front, and all are planned anew: what fails is
what is hard ("squeaky wheel" optimisation, Joslin and Clements, JAIR 1999).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from formulations.deadlines.filling import Filling
from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import FreeProfile, JobPlan

__all__ = ["cheapest_share", "plans_by_repair"]

_SPARE = 1e-6
"""Part of its work that a job is planned to do beyond it, for the rounding of many short steps."""

_RESTART_TRIES = 4
"""How often a plan is made longer for what its restarts take."""


def cheapest_share(filling: Filling, profile: FreeProfile, job: DeadlineJob) -> JobPlan | None:
    """The plan of the least GPU time that meets the deadline of `job` on what is free; None where there is none.

    With restarts, a plan whose job falls short is made anew for as much more work.
    """
    work = job.work * (1.0 + _SPARE)
    for _ in range(_RESTART_TRIES):
        plan = _cheapest(profile, job, work)
        if plan is None:
            return None
        followed = filling.carried_on(plan, job, profile.times[0])
        if followed.met:
            followed.end = plan.end
            return followed
        if not filling.restart_seconds:
            return None
        work += _missing(filling, plan, job)
    return None


def plans_by_repair(
    filling: Filling, free: FreeProfile, jobs: Sequence[DeadlineJob], rounds: int
) -> list[JobPlan] | None:
    """Plans that meet the deadlines of all jobs, in their order, or None where `rounds` orders gave none."""
    places = sorted(range(len(jobs)), key=lambda j: jobs[j].deadline)
    for _ in range(rounds):
        plans = _in_order(filling, free.copy(), [jobs[j] for j in places])
        if len(plans) == len(jobs):
            of_job = dict(zip(places, plans, strict=True))
            return [of_job[j] for j in range(len(jobs))]
        failed = len(plans)
        if failed == 0:
            return None
        places.insert(failed - max(1, failed // 2), places.pop(failed))
    return None


def _in_order(filling: Filling, free: FreeProfile, jobs: Sequence[DeadlineJob]) -> list[JobPlan]:
    """Plans of the jobs up to the first that finds no room."""
    plans: list[JobPlan] = []
    for job in jobs:
        plan = cheapest_share(filling, free, job)
        if plan is None:
            break
        free.take(plan)
        plans.append(plan)
    return plans


def _cheapest(profile: FreeProfile, job: DeadlineJob, work: float) -> JobPlan | None:
    """The plan of the least GPU time that does `work` by the deadline, restarts aside."""
    times, free, curve, deadline = profile.times, profile.free, job.curve, job.deadline
    count = bisect_left(times, deadline)
    ends = [*times[1:count], deadline]
    steps = sorted(
        (-efficiency, -times[i], i, level, gain)
        for i in range(count)
        for efficiency, level, gain in curve.efficient_steps(free[i])
    )
    levels = [0] * count
    for _, _, i, level, gain in steps:
        done = gain * (ends[i] - times[i])
        if done < work:
            work -= done
            levels[i] = level
            continue
        starts, gpus = times[:count], levels[:]
        since = ends[i] - work / gain
        if since > times[i]:
            starts.insert(i + 1, since)
            gpus.insert(i + 1, level)
        else:
            gpus[i] = level
        return _merged(starts, gpus, deadline)
    return None


def _merged(starts: list[float], gpus: list[int], deadline: float) -> JobPlan:
    kept = [k for k, level in enumerate(gpus) if not k or level != gpus[k - 1]]
    starts, gpus = [starts[k] for k in kept], [gpus[k] for k in kept]
    end = deadline
    if not gpus[-1] and len(gpus) > 1:
        end = starts.pop()
        gpus.pop()
    return JobPlan(starts, gpus, end, end, True, end)


def _missing(filling: Filling, plan: JobPlan, job: DeadlineJob) -> float:
    """Steps that the restarts of a plan take, at most."""
    lost, held = 0.0, job.held
    for level in plan.gpus:
        if level and level != held:
            lost += filling.restart_seconds * job.curve.rate_of[level]
        held = level
    return lost
