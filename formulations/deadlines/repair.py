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
from throughputs.numerics import slot_begin

_SPARE = 1e-6
"""Part of its work that a job is planned to do beyond it, for the rounding of many short steps."""

_TRIES = 4
"""How often a plan is made longer for what its restarts and late rises take."""


def cheapest_share(filling: Filling, profile: FreeProfile, job: DeadlineJob) -> JobPlan | None:
    """The plan of the least GPU time that meets the deadline of `job` on what is free; None where there is none.

    A plan in which time for restarts or late rises is missing is made anew for as much more work.
    """
    least = needed = job.work * (1.0 + _SPARE)
    for _ in range(_TRIES):
        plan = _cheapest(filling, profile, job, needed)
        if plan is None:
            return None
        followed = filling.carried_on(plan, job, profile.times[0], filling.slot_seconds)
        with_late_rises = least + filling.slot_seconds * _risen(plan, job)
        if followed.met and needed >= with_late_rises:
            return followed
        missing = 0.0 if followed.met else filling.lost_by_restarts(plan, job)
        needed = max(needed + missing, with_late_rises)
    return None


def plans_by_repair(
    filling: Filling, free: FreeProfile, jobs: Sequence[DeadlineJob], rounds: int
) -> list[JobPlan] | None:
    """Plans that meet the deadlines of all jobs, in their order, or None where `rounds` orders gave none."""
    places = sorted(range(len(jobs)), key=lambda j: jobs[j].deadline)
    for _ in range(rounds):
        left, plans = free.copy(), dict[int, JobPlan]()
        for j in places:
            plan = _share(filling, left, jobs[j])
            if plan is None:
                break
            left.take(plan)
            plans[j] = plan
        failed = len(plans)
        if failed == len(jobs):
            return [plans[j] for j in range(len(jobs))]
        if failed == 0:
            return None
        places.insert(failed - max(1, failed // 2), places.pop(failed))
    return None


def _share(filling: Filling, free: FreeProfile, job: DeadlineJob) -> JobPlan | None:
    """The cheaper one of the plan by steps and that of filling, both with time for rises that come late."""
    found = [cheapest_share(filling, free, job)]
    if filling.slot_seconds:
        found.append(_filled(filling, free, job))
    return min((plan for plan in found if plan), key=lambda plan: plan.gpu_seconds(plan.end), default=None)


def _filled(filling: Filling, free: FreeProfile, job: DeadlineJob) -> JobPlan | None:
    """The minimum share that meets the deadline though rises come late; None where there is none."""
    needed = job.work
    for _ in range(_TRIES):
        plan = filling.minimum_share(free, DeadlineJob(job.curve, needed, job.deadline, job.held, job.starting))
        reserved, needed = needed, job.work + filling.slot_seconds * _risen(plan, job)
        if not plan.met or reserved >= needed:
            return plan if plan.met else None
    return None


def _cheapest(filling: Filling, profile: FreeProfile, job: DeadlineJob, work: float) -> JobPlan | None:
    """The plan of the least GPU time that does `work` by the deadline, restarts aside."""
    times, free, deadline = profile.times, profile.free, job.deadline
    count = bisect_left(times, deadline)
    starts, ends, levels = times[:count], [*times[1:count], deadline], [0] * count
    hulls = {within: job.curve.efficient_steps(within) for within in set(free[:count])}
    steps = sorted((-step[0], -times[i], i, step) for i in range(count) for step in hulls[free[i]])
    left = work
    for _, _, i, (_, level, gain) in steps:
        done = gain * (ends[i] - starts[i])
        if done < left:
            left -= done
            levels[i] = level
            continue
        since = slot_begin(times[0], filling.slot_seconds, ends[i] - left / gain)
        if since > starts[i]:
            starts.insert(i + 1, since)
            levels.insert(i, levels[i])
            i += 1
        levels[i] = level
        return _planned(starts, levels, deadline)
    return None


def _planned(starts: list[float], levels: list[int], deadline: float) -> JobPlan:
    """The plan of these levels from these times on, until the last GPUs are given back or the deadline."""
    changes = [k for k, level in enumerate(levels) if not k or level != levels[k - 1]]
    starts, gpus, end = [starts[k] for k in changes], [levels[k] for k in changes], deadline
    if not gpus[-1]:
        end = starts.pop()
        gpus.pop()
    return JobPlan(starts, gpus, end, end, True, end)


def _risen(plan: JobPlan, job: DeadlineJob) -> float:
    """By how much the plan gets faster when its number of GPUs changes, steps/s in all."""
    rates = [job.curve.rate_of[level] if level else 0.0 for level in plan.gpus]
    return sum(max(after - before, 0.0) for before, after in pairwise(rates))
