"""What is left over goes where it saves most: one level at a time, to the job with the best marginal score (sec. 4.2).

    score_j = - (GPU seconds of j's plan with the next level now  -  those of its plan)  /  GPUs of the step

A job without GPUs comes first. Only the plan of the job that is scaled changes. Savings mostly shrink as GPUs get
fewer, so a job's score is looked at again when its turn comes: lazy evaluation. They can also grow, as jobs with more
GPUs now give them back sooner, so that other jobs may be scaled than with scores that are all up to date, for as much
GPU time (0.1 % more on small random instances).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

from formulations.deadlines.filling import Filling
from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import FreeProfile, JobPlan


def next_level(profile: FreeProfile, job: DeadlineJob, plan: JobPlan) -> int | None:
    """The next number of GPUs of a job, None where it has none or fewer GPUs are free for it now."""
    held = plan.gpus[0]
    level = job.curve.next_level.get(held)
    return None if level is None or level - held > profile.free[0] else level


def use_left_over(filling: Filling, profile: FreeProfile, jobs: Sequence[DeadlineJob], plans: list[JobPlan]) -> None:
    """Give free GPUs of now to jobs that have plans; `profile` (what they leave free) and `plans` are changed in place.

    Jobs are not scaled where they would miss a deadline that they meet, nor where that is no gain: what a restart takes
    is more than what the next level saves.

    Parameters
    ----------
    jobs : in the order in which ties are resolved.
    """
    steps = 0
    # (increase of GPU seconds per GPU, place of the job, the number of steps when it was scored, plan, free without it)
    queue: list[tuple[float, int, int, JobPlan, FreeProfile | None]] = []

    def score(j: int, without: FreeProfile | None) -> None:
        job, plan = jobs[j], plans[j]
        level = next_level(profile, job, plan)
        if level is None:
            return
        without = without or profile.without(plan)
        scaled = filling.minimum_share(without, job, level)
        if (plan.met and not scaled.met) or not _gains(filling, job, plan, scaled):
            return
        used = scaled.gpu_seconds(scaled.real_end) - plan.gpu_seconds(plan.real_end)
        increase = used / (scaled.gpus[0] - plan.gpus[0]) if plan.gpus[0] else -inf
        heappush(queue, (increase, j, steps, scaled, without))

    for j, plan in enumerate(plans):
        if plan.gpus[0]:
            score(j, None)
        else:
            heappush(queue, (-inf, j, -1, plan, None))
    while queue:
        _, j, scored_at, scaled, without = heappop(queue)
        if scored_at != steps:
            score(j, None)
            continue
        assert without is not None
        profile.times, profile.free = without.times[:], without.free[:]
        profile.take(scaled)
        plans[j] = scaled
        steps += 1
        # what the others leave free is as it was
        score(j, without)


def _gains(filling: Filling, job: DeadlineJob, plan: JobPlan, scaled: JobPlan) -> bool:
    """Whether a job would be through sooner if it kept the next level; always where it has no GPUs."""
    before, after = (
        job.work / job.curve.rate_of[gpus] + (job.starting if gpus == job.held else filling.restart_seconds)
        if gpus
        else inf
        for gpus in (plan.gpus[0], scaled.gpus[0])
    )
    return after < before
