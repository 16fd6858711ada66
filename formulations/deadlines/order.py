"""Plans in the order of deadlines, each on what those before it leave free; and who can be let in.

Whether a newcomer can be admitted depends on the jobs from its place in the order on: what is free before some of
them is kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from math import inf
from operator import attrgetter
from typing import Generic, TypeAlias, TypeVar

from formulations.deadlines.filling import Filling
from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import FreeProfile, JobPlan

Planner: TypeAlias = Callable[[FreeProfile, DeadlineJob], JobPlan]

Job = TypeVar("Job", bound=DeadlineJob)

_deadline = attrgetter("deadline")

_KEPT_EVERY = 16
"""Jobs between two profiles that are kept: a copy costs about as much as to take a plan."""


class DeadlineOrder(Generic[Job]):
    """Jobs in the order of their deadlines, those of equal ones as they were added, with plans that fit together.

    Parameters
    ----------
    free : what all of them share.
    planner : how a job is planned on what is free; `Filling.minimum_share` or `earliest_share`.
    """

    def __init__(self, free: FreeProfile, planner: Planner) -> None:
        self._jobs: list[Job] = []
        self._plans: list[JobPlan] = []
        self._planner = planner
        # what is free before every so many jobs, and after the last
        self._kept = [free]
        self._left = free

    @classmethod
    def filled(cls, filling: Filling, free: FreeProfile) -> DeadlineOrder[Job]:
        """With minimum satisfactory shares."""
        return cls(free, filling.minimum_share)

    @property
    def jobs(self) -> list[Job]:
        """The jobs, in order."""
        return self._jobs

    @property
    def plans(self) -> list[JobPlan]:
        """Their plans."""
        return self._plans

    @property
    def left_over(self) -> FreeProfile:
        """What all plans leave free; a copy."""
        return self._left.copy()

    @property
    def all_met(self) -> bool:
        """Whether every job meets its deadline."""
        return all(plan.met for plan in self.plans)

    def add(self, newcomers: Iterable[Job]) -> None:
        """Plan more jobs, whether or not they or others meet their deadlines then."""
        self._insert(list(newcomers), only_met=False)

    def admit(self, newcomers: Iterable[Job]) -> bool:
        """Plan more jobs if all jobs meet their deadlines then; returns whether they do."""
        return self._insert(list(newcomers), only_met=True)

    def _insert(self, newcomers: list[Job], *, only_met: bool) -> bool:
        place = bisect_right(self._jobs, min(map(_deadline, newcomers), default=inf), key=_deadline)
        if only_met and not all(plan.met for plan in self._plans[:place]):
            return False
        # stable, so that those who were there come first
        later = sorted([*self._jobs[place:], *newcomers], key=_deadline)
        if not later:
            return True
        known = max(place - 1, 0) // _KEPT_EVERY
        free = self._kept[known].copy()
        for plan in self._plans[known * _KEPT_EVERY : place]:
            free.take(plan)
        plans: list[JobPlan] = []
        kept: list[FreeProfile] = []
        for at, job in enumerate(later, place):
            if at % _KEPT_EVERY == 0:
                kept.append(free.copy())
            plan = self._planner(free, job)
            if only_met and not plan.met:
                return False
            free.take(plan)
            plans.append(plan)
        self._jobs[place:], self._plans[place:], self._left = later, plans, free
        self._kept[-(-place // _KEPT_EVERY) :] = kept
        return True
