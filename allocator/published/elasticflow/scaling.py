"""ElasticFlow's published order of scaling: the largest score first, all of them up to date."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from formulations.deadlines import DeadlineJob, Filling, FreeProfile, JobPlan
from formulations.deadlines.elastic import next_plan


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
    used = [plan.gpu_seconds(plan.charged_until) for plan in plans]
    # whose next level may fit: what is free now only gets less
    open_yet = set(listed) if profile.free[0] else set()
    while open_yet:
        found = dict[int, JobPlan | None]()
        for j in open_yet:
            held = plans[j].gpus[0]
            level = jobs[j].curve.next_level.get(held, inf)
            if level - held > profile.free[0]:
                scores[j] = -inf
            elif not held:
                scores[j] = inf
            else:
                scaled = found[j] = next_plan(filling, profile, jobs[j], plans[j])
                assert scaled is not None
                scores[j] = (scaled.gpu_seconds(scaled.charged_until) - used[j]) / (level - held)
        open_yet = {j for j in open_yet if scores[j] > -inf}
        listed.sort(key=scores.__getitem__, reverse=True)
        best = next((j for j in listed if j in open_yet), None)
        if best is None:
            break
        scaled = found.get(best) or next_plan(filling, profile, jobs[best], plans[best])
        assert scaled is not None
        passed_ends.add(plans[best].end)
        profile.give(plans[best])
        profile.take(scaled)
        plans[best], used[best] = scaled, scaled.gpu_seconds(scaled.charged_until)
        if scaled.gpus[0] not in jobs[best].curve.next_level:
            # it keeps the score, and its place in the list
            open_yet.remove(best)
    return listed, passed_ends
