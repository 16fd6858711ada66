"""What planners of deadlines remember: who was let in, what was promised, who is starting, and what decisions cost."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from allocator.protocol import ClusterState
from allocator.protocol.plan import Memory
from formulations.deadlines import JobPlan, ScalingCurve

_REMEMBERED = 1000
"""Starts, and changes of the number of GPUs, that are remembered: one that took long is forgotten in the end."""


@dataclass(eq=False)
class DecisionCosts(Memory):
    """What decisions have cost, told apart by what they did to the GPUs of a job: learned for plans that hold.

    A plan that is to be kept needs room for the dearest start that may come, not for the mean: half of the starts cost
    more than that. Jobs that start and jobs that run on with another number of GPUs are kept apart, so that one that
    is frequent and cheap does not hide what the other costs.

    Attributes
    ----------
    start_seconds, resize_seconds : what it cost jobs without GPUs to start, and jobs with GPUs to go on with another
        number of them, seconds; the last thousand of each.
    kept_seconds, lost_seconds : for how long jobs ran on a number of GPUs that a decision left as it was, and what of
        that these decisions cost them, seconds.
    clock : of the last decision, seconds.
    given : GPUs that each job had before it, and has since.
    """

    start_seconds: list[float] = field(default_factory=list)
    resize_seconds: list[float] = field(default_factory=list)
    kept_seconds: float = 0.0
    lost_seconds: float = 0.0
    clock: float = 0.0
    given: dict[Hashable, tuple[int, int]] = field(default_factory=dict)

    @property
    def restart_seconds(self) -> float:
        """What it takes a job at most to get going on another number of GPUs, as far as is known; 0: nothing is."""
        return max([0.0, *self.start_seconds, *self.resize_seconds])

    @property
    def lost_share(self) -> float:
        """Share of its time that a job loses by decisions that leave its GPUs as they are; below 1."""
        return self.lost_seconds / self.kept_seconds if self.kept_seconds else 0.0

    def learn(self, state: ClusterState) -> None:
        """See what the last decision cost those who are still there."""
        passed = float(state.clock) - self.clock
        if passed <= 0:
            return
        for label, lost in zip(state.throughputs.jobs, state.lost_seconds.tolist(), strict=True):
            before, after = self.given.get(label, (0, 0))
            if before != after:
                seconds = self.resize_seconds if before else self.start_seconds
                seconds.append(lost)
                del seconds[:-_REMEMBERED]
            elif after:
                self.kept_seconds += passed
                self.lost_seconds += min(lost, passed / 2)
        self.given = {}

    def note(self, now: float, given: Mapping[Hashable, tuple[int, int]]) -> None:
        """A decision at `now` (seconds) lets jobs run on so many GPUs: before and after."""
        self.clock, self.given = now, dict(given)


@dataclass(eq=False)
class DeadlineMemory(Memory):
    """What is remembered of the active jobs, by label.

    Attributes
    ----------
    promised : plan by which each job that was promised its deadline meets it; all of these fit together.
    unpromised : jobs that were let in without a promise, or whose promise is broken.
    starting : GPUs that each job was last given, and when it has got going on them, seconds.
    costs : what decisions turned out to cost.
    curves : throughput by number of GPUs up to the `capacity`, as it was at `rates_version`. Not kept in a
        checkpoint.
    due : deadline of each of these jobs by which promises are made, seconds; inf for none. Not kept either.
    shared_curves : the same by what a curve depends on: jobs of a type share one.
    """

    holds: ClassVar[tuple[type, ...]] = (JobPlan, DecisionCosts)

    promised: dict[Hashable, JobPlan] = field(default_factory=dict)
    unpromised: set[Hashable] = field(default_factory=set)
    starting: dict[Hashable, tuple[int, float]] = field(default_factory=dict)
    costs: DecisionCosts = field(default_factory=DecisionCosts)
    capacity: int = field(default=0, init=False)
    rates_version: int = field(default=0, init=False)
    curves: dict[Hashable, ScalingCurve] = field(default_factory=dict, init=False)
    due: dict[Hashable, float] = field(default_factory=dict, init=False)
    shared_curves: dict[tuple[Any, ...], ScalingCurve] = field(default_factory=dict, init=False)

    def knows(self, job: Hashable) -> bool:
        """Whether a job was let in before."""
        return job in self.promised or job in self.unpromised
