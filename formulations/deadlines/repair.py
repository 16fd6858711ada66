"""Admission that tries harder: cheapest steps instead of quotas, and another order where the order of deadlines fails.

`cheapest_share` takes, for one job, the steps of its concave hull that do most work per GPU, in whatever intervals they
are free, the latest first, and the last step only for as long as it is needed::

    a step of an interval, from level g to g':   efficiency (T(g') - T(g)) / (g' - g),  work (T(g') - T(g)) length

Which is the plan of the least GPU time on what is free. Where decisions are slots apart, what is not planned for now
may come up to a slot late. A plan then has time in reserve for all its rises to do so, begins them at borders of slots,
and gives way to that of filling, with fewer rises, where this is cheaper.

`plans_by_repair` plans job after job so, in the order of deadlines first. A job that finds no room moves half of its
way to the front, and all are planned anew: what fails is what is hard ("squeaky wheel" optimisation, Joslin and
Clements, JAIR 1999).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from formulations.deadlines.filling import Filling
from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import FreeProfile, JobPlan

_SPARE = 1e-6
"""Part of its work that a job is planned to do beyond it, for the rounding of many short steps."""

_TRIES = 4
"""How often a plan is made longer for what its restarts and late rises take."""


def cheapest_share(filling: Filling, profile: FreeProfile, job: DeadlineJob) -> JobPlan | None:
    """The plan of the least GPU time that meets the deadline of `job` on what is free; None where there is none.

    With restarts, a plan whose job falls short is made anew for as much more work.
    """
    work = needed = job.work * (1.0 + _SPARE)
    for _ in range(_TRIES):
        plan = _cheapest(filling, profile, job, needed)
        if plan is None:
            return None
        followed = filling.carried_on(plan, job, profile.times[0], filling.slot_seconds)
        reserve = _lost_by_late_rises(filling, plan, job)
        if followed.met and needed >= work + reserve:
            return followed
        missing = 0.0 if followed.met else _lost_by_restarts(filling, plan, job)
        if not (missing or reserve):
            return None
        needed = max(needed + missing, work + reserve)
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
        plan = _share(filling, free, job)
        if plan is None:
            break
        free.take(plan)
        plans.append(plan)
    return plans


def _share(filling: Filling, free: FreeProfile, job: DeadlineJob) -> JobPlan | None:
    """The cheaper one of the plan by steps and that of filling, both with time for rises that come late."""
    cheapest = cheapest_share(filling, free, job)
    if not filling.slot_seconds:
        return cheapest
    found = [plan for plan in (cheapest, _filled(filling, free, job)) if plan is not None]
    return min(found, key=lambda plan: plan.gpu_seconds(plan.end), default=None)


def _filled(filling: Filling, free: FreeProfile, job: DeadlineJob) -> JobPlan | None:
    """The minimum share that meets the deadline though rises come late; None where there is none."""
    needed = job.work
    for _ in range(_TRIES):
        plan = filling.minimum_share(free, DeadlineJob(job.curve, needed, job.deadline, job.held, job.starting))
        if not plan.met:
            return None
        reserve = _lost_by_late_rises(filling, plan, job)
        if needed >= job.work + reserve:
            return plan
        needed = job.work + reserve
    return None


def _cheapest(filling: Filling, profile: FreeProfile, job: DeadlineJob, work: float) -> JobPlan | None:
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
        since = filling.begun(times[0], ends[i] - work / gain)
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


def _lost_by_late_rises(filling: Filling, plan: JobPlan, job: DeadlineJob) -> float:
    """Steps that are not done, at most, where what is not planned for now comes up to a slot late."""
    rates = [job.curve.rate_of[level] if level else 0.0 for level in plan.gpus]
    return filling.slot_seconds * sum(max(after - before, 0.0) for before, after in pairwise(rates))


def _lost_by_restarts(filling: Filling, plan: JobPlan, job: DeadlineJob) -> float:
    """Steps that the restarts of a plan take, at most."""
    lost, held = 0.0, job.held
    for level in plan.gpus:
        if level and level != held:
            lost += filling.restart_seconds * job.curve.rate_of[level]
        held = level
    return lost
