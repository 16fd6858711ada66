"""What is left over goes where it saves most: one level at a time, to the job with the best marginal score (sec. 4.2).

    score_j = - (GPU seconds of j's plan with the next level now  -  those of its plan)  /  GPUs of the step

A job without GPUs comes first. Only the plan of the job that is scaled changes. Savings mostly shrink as GPUs get
fewer, so a job's score is looked at again when its turn comes: lazy evaluation. They can also grow, as jobs with more
GPUs now give them back sooner, so that other jobs may be scaled than with scores that are all up to date, for as much
GPU time (0.1 % more on small random instances).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace

from formulations.deadlines.filling import Filling
from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.marginal import Marginal
from formulations.deadlines.profile import FreeProfile, JobPlan


def use_left_over(filling: Filling, profile: FreeProfile, jobs: Sequence[DeadlineJob], plans: list[JobPlan]) -> None:
    """Give free GPUs of now to jobs that have plans; `profile` (what they leave free) and `plans` are changed in place.

    Parameters
    ----------
    jobs : in the order in which ties are resolved.
    """
    _Saving(filling, profile, jobs, plans).run()


class _Saving(Marginal):
    """The smallest increase first, scores looked at again when their turn comes."""

    def gpu_seconds(self, plan: JobPlan) -> float:
        """Until the end of the job."""
        return plan.gpu_seconds(plan.real_end)

    def run(self) -> None:
        """Scale until nobody's next level fits."""
        free = self.profile.free[0]
        found = [self.following(j) for j in range(len(self.jobs))]
        # (increase, place of the job, the number of steps when it was scored, candidate); no two of one place
        queue = [
            (candidate.increase, candidate.job, 0 if candidate.held else -1, candidate)
            for candidate in found
            if candidate is not None
            and candidate.level - candidate.held <= free
            and (not candidate.held or self.rescore(candidate))
        ]
        heapify(queue)
        while queue:
            _, j, scored_at, best = queue[0]
            if best.level - best.held > free or (scored_at != self.steps and not self.rescore(best)):
                heappop(queue)
                continue
            if scored_at != self.steps and len(queue) > 1:
                heapreplace(queue, (best.increase, j, self.steps, best))
                if queue[0][3] is not best:
                    continue
            heappop(queue)
            following = self.adopt(best)
            free = self.profile.free[0]
            if following is not None and following.level - following.held <= free and self.rescore(following):
                heappush(queue, (following.increase, j, self.steps, following))
