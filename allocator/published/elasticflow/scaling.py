"""ElasticFlow's published order of scaling: the largest score first, all of them up to date."""

from __future__ import annotations

from math import inf

from formulations.deadlines.marginal import Candidate, Marginal
from formulations.deadlines.profile import JobPlan


class Published(Marginal):
    """The largest increase first, whatever it does to deadlines, among scores that are all up to date; equal ones as in
    the round before.

    Attributes
    ----------
    passed_ends : when the GPUs of jobs that were scaled would have come back before.
    """

    keep_met = False

    def gpu_seconds(self, plan: JobPlan) -> float:
        """Until the end of the interval of the profile in which the job ends."""
        return plan.gpu_seconds(plan.charged_until)

    def run(self) -> list[int]:
        """Scale until nobody's next level fits; returns the jobs in the order of the list, which is sorted by score."""
        self.passed_ends = set[float]()
        listed, scores = list(range(len(self.jobs))), [-inf] * len(self.jobs)
        if not self.profile.free[0]:
            return listed
        following: dict[int, Candidate] = {}
        for j in listed:
            candidate = self.following(j)
            if candidate is not None:
                following[j] = candidate
        while True:
            for j, candidate in list(following.items()):
                scores[j] = self._score(candidate)
                if scores[j] == -inf:
                    del following[j]
            listed.sort(key=scores.__getitem__, reverse=True)
            while True:
                best = next((j for j in listed if j in following), None)
                if best is None:
                    return listed
                candidate = following.pop(best)
                if candidate.held or self.rescore(candidate):
                    break
            self.passed_ends.add(self.plans[best].end)
            then = self.adopt(candidate)
            if then is not None:
                following[best] = then

    def _score(self, candidate: Candidate) -> float:
        """What the next level costs in GPU time per GPU; inf for a job without GPUs, -inf where it does not fit."""
        if candidate.level - candidate.held > self.profile.free[0]:
            return -inf
        if not candidate.held:
            return inf
        return candidate.increase if self.rescore(candidate) else -inf
