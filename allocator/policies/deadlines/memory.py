"""What planners of deadlines remember from plan to plan: who was let in, what was promised, and who is starting."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from allocator.policies.deadlines.costs import DecisionCosts
from formulations.deadlines import JobPlan, ScalingCurve


class DeadlineMemory:
    """What is remembered of the active jobs, by label.

    Attributes
    ----------
    promised : plan by which each job that was promised its deadline meets it; all of these fit together.
    unpromised : jobs that were let in without a promise, or whose promise is broken.
    costs : what decisions turned out to cost.
    starting : GPUs that each job was last given, and when it has got going on them, seconds.
    curves : throughput by number of GPUs up to the `capacity`, as it was at `rates_version`. Not kept in a
        checkpoint.
    due : deadline of each of these jobs by which promises are made, seconds; inf for none. Not kept either.
    shared_curves : the same by what a curve depends on: jobs of a type share one.
    """

    def __init__(self) -> None:
        self.promised: dict[Hashable, JobPlan] = {}
        self.unpromised: set[Hashable] = set()
        self.starting: dict[Hashable, tuple[int, float]] = {}
        self.capacity = self.rates_version = 0
        self.costs = DecisionCosts()
        self.curves: dict[Hashable, ScalingCurve] = {}
        self.due: dict[Hashable, float] = {}
        self.shared_curves: dict[tuple[Any, ...], ScalingCurve] = {}

    def knows(self, job: Hashable) -> bool:
        """Whether a job was let in before."""
        return job in self.promised or job in self.unpromised

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; labels are ids of jobs."""
        plans = [(p.starts, p.gpus, p.end, p.real_end, p.met, p.charged_until) for p in self.promised.values()]
        return {
            "promised": list(self.promised),
            "plans": plans,
            "unpromised": sorted(self.unpromised, key=str),
            "costs": self.costs.state(),
            "starting": [(job, gpus, ready) for job, (gpus, ready) in self.starting.items()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        plans = (JobPlan(list(starts), list(gpus), *rest) for starts, gpus, *rest in state["plans"])
        self.promised = dict(zip(state["promised"], plans, strict=True))
        self.unpromised = set(state["unpromised"])
        self.costs.restore(state["costs"])
        self.starting = {job: (gpus, ready) for job, gpus, ready in state["starting"]}
        self.curves, self.due = {}, {}
