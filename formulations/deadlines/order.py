"""Plans in the order of deadlines, each on what those before it leave free; and who can be let in.

Whether a newcomer can be admitted depends on the jobs from its place in the order on: what those before it leave free
is kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Generic, TypeAlias, TypeVar

from formulations.deadlines.filling import Filling
from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import FreeProfile, JobPlan

Planner: TypeAlias = Callable[[FreeProfile, DeadlineJob], JobPlan]


Job = TypeVar("Job", bound=DeadlineJob)

_KEPT_EVERY = 16
"""Jobs between two profiles that are kept: a copy costs about as much as to take a plan."""


class DeadlineOrder(Generic[Job]):
    """Jobs in the order of their deadlines, those of equal ones as they were added, with plans that fit together.

    Jobs that are added are planned when their plans are asked for, or with the newcomers that are tried next.

    Parameters
    ----------
    free : what all of them share.
    planner : how a job is planned on what is free; `Filling.minimum_share` or `earliest_share`.
    """

    __slots__ = ("_added", "_after", "_jobs", "_kept", "_planner", "_plans")

    def __init__(self, free: FreeProfile, planner: Planner) -> None:
        self._jobs: list[Job] = []
        self._plans: list[JobPlan] = []
        self._added: list[Job] = []
        self._planner = planner
        # what is free before every so many jobs, and after the last
        self._kept = [free]
        self._after = free

    @classmethod
    def filled(cls, filling: Filling, free: FreeProfile) -> DeadlineOrder[Job]:
        """With minimum satisfactory shares."""
        return cls(free, filling.minimum_share)

    @property
    def jobs(self) -> list[Job]:
        """The jobs, in order."""
        self._plan_added()
        return self._jobs

    @property
    def plans(self) -> list[JobPlan]:
        """Their plans."""
        self._plan_added()
        return self._plans

    @property
    def left_over(self) -> FreeProfile:
        """What all plans leave free; a copy."""
        self._plan_added()
        return self._after.copy()

    @property
    def all_met(self) -> bool:
        """Whether every job meets its deadline."""
        return all(plan.met for plan in self.plans)

    def add(self, newcomers: Iterable[Job]) -> None:
        """Plan more jobs, whether or not they or others meet their deadlines then."""
        self._added += newcomers

    def admit(self, newcomers: Iterable[Job]) -> bool:
        """Plan more jobs if all jobs meet their deadlines then; returns whether they do."""
        if self._insert([*self._added, *newcomers], only_met=True):
            self._added = []
            return True
        self._plan_added()
        return False

    def _plan_added(self) -> None:
        added, self._added = self._added, []
        if added:
            self._insert(added, only_met=False)

    def _insert(self, newcomers: list[Job], *, only_met: bool) -> bool:
        if not newcomers:
            return not only_met or all(plan.met for plan in self._plans)
        place = bisect_right(self._jobs, min(map(_deadline, newcomers)), key=_deadline)
        if only_met and not all(plan.met for plan in self._plans[:place]):
            return False
        # stable, so that those who were there come first
        later = sorted([*self._jobs[place:], *newcomers], key=_deadline)
        plans: list[JobPlan] = []
        kept: list[FreeProfile] = []
        free = self._free_before(place)
        for at, job in enumerate(later, place):
            if at and at % _KEPT_EVERY == 0:
                kept.append(free.copy())
            plan = self._planner(free, job)
            if only_met and not plan.met:
                return False
            free.take(plan)
            plans.append(plan)
        self._jobs[place:], self._plans[place:], self._after = later, plans, free
        self._kept[max(1, -(-place // _KEPT_EVERY)) :] = kept
        return True

    def _free_before(self, place: int) -> FreeProfile:
        """What the jobs before a place leave free; a copy."""
        if place == len(self._jobs):
            return self._after.copy()
        k = place // _KEPT_EVERY
        free = self._kept[k].copy()
        for plan in self._plans[k * _KEPT_EVERY : place]:
            free.take(plan)
        return free


def _deadline(job: DeadlineJob) -> float:
    return job.deadline
