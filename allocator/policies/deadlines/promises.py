"""The plans that jobs were promised, and those that are let in beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from allocator.policies.deadlines.base import PlannedJob
from formulations.deadlines import DeadlineOrder, Filling, FreeProfile, JobPlan, plans_by_repair


class Repair(NamedTuple):
    """When admission tries harder, and how hard.

    Attributes
    ----------
    rounds : orders of all jobs that are tried where the order of deadlines does not let a job in; 0: none.
    jobs : number of jobs up to which they are.
    quantile : of the least GPU time that the others still need: who needs more is not let in so. None: everybody may.
    """

    rounds: int = 0
    jobs: int = 0
    quantile: float | None = 1.0

    def is_for(self, newcomers: Sequence[PlannedJob], others: Sequence[PlannedJob]) -> bool:
        """Whether it is tried to let newcomers in beside others."""
        if not self.rounds or len(newcomers) + len(others) > self.jobs:
            return False
        if self.quantile is None:
            return True
        needed = sorted(job.least_gpu_seconds for job in others)
        most = needed[int(self.quantile * (len(needed) - 1))] if needed else inf
        return all(job.least_gpu_seconds <= most for job in newcomers)


NO_REPAIR = Repair()


class Promises(DeadlineOrder[PlannedJob]):
    """Plans at one instant: some that are carried on, and jobs in the order of deadlines on what these leave free.

    Parameters
    ----------
    filling : how single jobs are planned.
    now : seconds on the clock.
    gpus : of the cluster.
    wait : seconds until the next decision at least.
    repair : whether all are planned in other orders where a job is not let in otherwise.
    """

    def __init__(self, filling: Filling, now: float, gpus: int, wait: float = 0.0, repair: Repair = NO_REPAIR) -> None:
        self.filling, self.now, self.gpus, self.wait, self._repair = filling, now, gpus, wait, repair
        self.fix([], [])

    def copy(self, repair: Repair) -> Promises:
        """Others that change on their own, the same so far, with another `repair`."""
        made = Promises(self.filling, self.now, self.gpus, self.wait, repair)
        made.fix(self._fixed, self._fixed_plans)
        made.add(super().jobs)
        return made

    @property
    def jobs(self) -> list[PlannedJob]:
        """All jobs, those that are carried on first."""
        return [*self._fixed, *super().jobs]

    @property
    def plans(self) -> list[JobPlan]:
        """Their plans."""
        return [*self._fixed_plans, *super().plans]

    def fix(self, jobs: Sequence[PlannedJob], plans: Sequence[JobPlan]) -> bool:
        """Carry on these plans, in place of all there were; returns whether there are GPUs for them."""
        free = FreeProfile(self.now, self.gpus)
        for plan in plans:
            free.take(plan)
        if min(free.free) < 0:
            return False
        self._fixed, self._fixed_plans = list(jobs), list(plans)
        super().__init__(free, self.filling.minimum_share)
        return True

    def admit(self, newcomers: Iterable[PlannedJob]) -> bool:
        """Plan more jobs if all jobs meet their deadlines then; returns whether they do."""
        newcomers = list(newcomers)
        if super().admit(newcomers):
            return True
        others = self.jobs
        if not self._repair.is_for(newcomers, others):
            return False
        everybody = [*others, *newcomers]
        plans = plans_by_repair(self.filling, FreeProfile(self.now, self.gpus), everybody, self._repair.rounds)
        return plans is not None and self.fix(everybody, plans)
