"""ElasticFlow's published order of scaling: the largest score first, all of them up to date."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from formulations.deadlines import DeadlineJob, Filling, FreeProfile, JobPlan
from formulations.deadlines.elastic import next_level


def scale_as_published(
    filling: Filling, profile: FreeProfile, jobs: Sequence[DeadlineJob], plans: list[JobPlan]
) -> tuple[list[int], set[float]]:
    """Scale until nobody's next level fits; `profile` and `plans` are changed in place.

    The job whose GPU time per GPU grows most comes first, whatever it does to deadlines; before it one without GPUs,
    and equal ones as in the round before. A plan is charged to the end of the interval of the profile in which the job
    ends.

    Returns
    -------
    The jobs in the order of the list, which is sorted by score, and when the GPUs of jobs that were scaled would have
    come back before.
    """
    listed, scores, passed_ends = list(range(len(jobs))), [-inf] * len(jobs), set[float]()
    # whose next level may fit: what is free now only gets less
    open_yet = set(listed) if profile.free[0] else set()
    while open_yet:
        found: dict[int, JobPlan | None] = {}
        for j in open_yet:
            scores[j], found[j] = _scored(filling, profile, jobs[j], plans[j])
        open_yet = {j for j in open_yet if scores[j] > -inf}
        listed.sort(key=scores.__getitem__, reverse=True)
        best = next((j for j in listed if j in open_yet), None)
        if best is None:
            break
        scaled = found[best] or _next_plan(filling, profile, jobs[best], plans[best])
        assert scaled is not None
        passed_ends.add(plans[best].end)
        profile.give(plans[best])
        profile.take(scaled)
        plans[best] = scaled
        if scaled.gpus[0] not in jobs[best].curve.next_level:
            # it keeps the score, and its place in the list
            open_yet.remove(best)
    return listed, passed_ends


def _scored(filling: Filling, profile: FreeProfile, job: DeadlineJob, plan: JobPlan) -> tuple[float, JobPlan | None]:
    """What the next level costs in GPU time per GPU, and the plan with it.

    inf and no plan yet for a job without GPUs, -inf where the level does not fit.
    """
    held = plan.gpus[0]
    if not held:
        return (-inf if next_level(profile, job, plan) is None else inf), None
    scaled = _next_plan(filling, profile, job, plan)
    if scaled is None:
        return -inf, None
    more = scaled.gpu_seconds(scaled.charged_until) - plan.gpu_seconds(plan.charged_until)
    return more / (scaled.gpus[0] - held), scaled


def _next_plan(filling: Filling, profile: FreeProfile, job: DeadlineJob, plan: JobPlan) -> JobPlan | None:
    """The plan of a job with its next level now; None where that does not fit."""
    level = next_level(profile, job, plan)
    return None if level is None else filling.minimum_share(profile.without(plan), job, level)
