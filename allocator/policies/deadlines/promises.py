"""The plans that jobs were promised, and those that are let in beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from allocator.policies.deadlines.base import PlannedJob
from formulations.deadlines import DeadlineOrder, Filling, FreeProfile, JobPlan, plans_by_repair

__all__ = ["Promises"]


class Promises:
    """Plans at one instant: some that are carried on, and jobs in the order of deadlines on what these leave free.

    Parameters
    ----------
    filling : how single jobs are planned.
    now : seconds on the clock.
    gpus : of the cluster.
    repair_rounds : orders of all jobs that are tried where the order of deadlines does not let a job in; 0: none.
    repair_jobs : number of jobs up to which they are.
    """

    def __init__(self, filling: Filling, now: float, gpus: int, repair_rounds: int = 0, repair_jobs: int = 0) -> None:
        self.filling, self.now, self.gpus = filling, now, gpus
        self._rounds, self._most_jobs = repair_rounds, repair_jobs
        self._fixed: list[PlannedJob] = []
        self._fixed_plans: list[JobPlan] = []
        self._order: DeadlineOrder[PlannedJob] = DeadlineOrder.filled(filling, FreeProfile(now, gpus))

    @property
    def jobs(self) -> list[PlannedJob]:
        """All jobs."""
        return [*self._fixed, *self._order.jobs]

    @property
    def plans(self) -> list[JobPlan]:
        """Their plans."""
        return [*self._fixed_plans, *self._order.plans]

    @property
    def left_over(self) -> FreeProfile:
        """What all plans leave free; a copy."""
        return self._order.left_over

    @property
    def all_met(self) -> bool:
        """Whether every job meets its deadline."""
        return self._order.all_met

    def fix(self, jobs: Sequence[PlannedJob], plans: Sequence[JobPlan]) -> bool:
        """Carry on these plans, in place of all there were; returns whether there are GPUs for them."""
        free = FreeProfile(self.now, self.gpus)
        for plan in plans:
            free.take(plan)
        if min(free.free) < 0:
            return False
        self._fixed, self._fixed_plans = list(jobs), list(plans)
        self._order = DeadlineOrder.filled(self.filling, free)
        return True

    def add(self, jobs: Iterable[PlannedJob]) -> None:
        """Plan more jobs, whether or not they or others meet their deadlines then."""
        self._order.add(jobs)

    def admit(self, newcomers: Sequence[PlannedJob]) -> bool:
        """Plan more jobs if all jobs meet their deadlines then; returns whether they do."""
        if self._order.admit(newcomers):
            return True
        everybody = [*self.jobs, *newcomers]
        if not self._rounds or len(everybody) > self._most_jobs:
            return False
        plans = plans_by_repair(self.filling, FreeProfile(self.now, self.gpus), everybody, self._rounds)
        return plans is not None and self.fix(everybody, plans)
