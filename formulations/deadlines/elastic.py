"""What is left over goes where it saves most: one level at a time, to the job with the best marginal score (sec. 4.2).

    score_j = -/+ (GPU seconds of j's plan with the next level now  -  those of its plan)  /  GPUs of the step

A job without GPUs comes first. Only the plan of the job that is scaled changes. The published score is reckoned anew
for every job whose plan may have become another one by that, which is those with a changed stretch of the profile
before their deadlines. Savings mostly shrink as GPUs get fewer, so there a job's score is looked at again when its turn
comes: lazy evaluation. They can also grow, as jobs with more GPUs now give them back sooner, so that other jobs may be
scaled than with scores that are all up to date, for as much GPU time (0.1 % more on small random instances).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Literal, NamedTuple

from formulations.deadlines.filling import Filling
from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.marginal import Marginal
from formulations.deadlines.profile import FreeProfile, JobPlan
from formulations.deadlines.published import Published

Score = Literal["saving", "published"]


class Scaled(NamedTuple):
    """How the jobs came out.

    Attributes
    ----------
    listed : positions of the jobs in the order in which they stand in the end: the published code sorts its list by
        score again and again. Otherwise that is their order of before.
    passed_ends : when the GPUs of jobs that were scaled would have come back before, as published.
    """

    listed: list[int]
    passed_ends: set[float]


def use_left_over(
    filling: Filling,
    profile: FreeProfile,
    jobs: Sequence[DeadlineJob],
    plans: list[JobPlan],
    *,
    score: Score = "saving",
    keep_met: bool = True,
) -> Scaled:
    """Give free GPUs of now to jobs that have plans; `profile` (what they leave free) and `plans` are changed in place.

    Parameters
    ----------
    jobs : in the order in which ties are resolved.
    score : "saving": the smallest increase of GPU seconds until the job's end first. "published": the largest, as the
        published code has it, GPU seconds counted to the end of the interval of the profile in which the job ends.
    keep_met : jobs are not scaled where they would miss a deadline that they meet, nor where that is no gain: what a
        restart takes is more than what the next level saves. False: whatever it does, as published.
    """
    if score == "published":
        published = Published(filling, profile, jobs, plans, keep_met)
        return Scaled(published.run(), published.passed_ends)
    _Saving(filling, profile, jobs, plans, keep_met).run()
    return Scaled(list(range(len(jobs))), set())


class _Saving(Marginal):
    """The smallest increase first, scores looked at again when their turn comes."""

    def gpu_seconds(self, plan: JobPlan) -> float:
        """Until the end of the job."""
        return plan.gpu_seconds(plan.real_end)

    def run(self) -> None:
        """Scale until nobody's next level fits."""
        free = self.profile.free[0]
        found = [self.following(j) for j in range(len(self.jobs))]
        # (increase, place of the job, the number of steps when that was reckoned, candidate); no two of one place
        queue = [
            (candidate.increase, candidate.job, 0 if candidate.held else -1, candidate)
            for candidate in found
            if candidate is not None
            and candidate.level - candidate.held <= free
            and (not candidate.held or self.reckon(candidate))
        ]
        heapify(queue)
        while queue:
            _, j, reckoned, best = queue[0]
            if best.level - best.held > free or (reckoned != self.steps and not self.reckon(best)):
                heappop(queue)
                continue
            if reckoned != self.steps and len(queue) > 1:
                heapreplace(queue, (best.increase, j, self.steps, best))
                if queue[0][3] is not best:
                    continue
            heappop(queue)
            following, _ = self.adopt(best)
            free = self.profile.free[0]
            if following is not None and following.level - following.held <= free and self.reckon(following):
                heappush(queue, (following.increase, j, self.steps, following))
