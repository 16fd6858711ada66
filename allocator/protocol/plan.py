"""Plans: who runs as what in the coming steps, and whom to reject."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allocator.protocol.assignment import Assignment

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation


@dataclass(frozen=True)
class UpcomingRounds:
    """The rounds that a plan is about to fill.

    Attributes
    ----------
    number : of the first of them; so many rounds are over.
    seconds : length of a round.

    >>> UpcomingRounds(number=10, seconds=360.0).seconds
    360.0
    """

    number: int
    seconds: float


@dataclass(frozen=True, eq=False)
class PlanStep:
    """Who runs as what, and for how long.

    Attributes
    ----------
    assignment : jobs are positions in the state that was planned for.
    seconds : length of the step; inf: until something happens that the policy wants to be asked about. Under a policy
        that plans in rounds every step is one round, whatever it says here. A step of 0 seconds before another one
        stops whom it does not name, who may start anew in the next.

    >>> first = PlanStep(Assignment.of([0], pool=[0], gpus=[4]), seconds=600.0)
    >>> len(first.assignment), first.seconds
    (1, 600.0)
    """

    assignment: Assignment
    seconds: float = np.inf


_NOBODY: NDArray[np.int64] = np.empty(0, dtype=np.int64)


def _nobody() -> NDArray[np.int64]:
    return _NOBODY


@dataclass(frozen=True, eq=False)
class Plan:
    """What a planner, a selection or an order decided.

    A plan outlives its jobs: who has left by the time of a step is dropped from it, and who shared with them is alone.

    Attributes
    ----------
    steps : the steps, the coming one first; at least one. After the last one the policy is asked again.
    rejected : (R,) positions of jobs that are not admitted: they leave.
    allocation : shares of time with objective, bound and gap, for a planner that has them; None: not kept.

    >>> plan = Plan.until_next_event(Assignment.of([0, 1], pool=[0, 1], gpus=[1, 2]), rejected=np.array([2]))
    >>> plan.steps[0].seconds, plan.rejected.tolist()
    (inf, [2])
    """

    steps: tuple[PlanStep, ...]
    rejected: NDArray[np.int64] = field(default_factory=_nobody)
    allocation: Allocation | None = None

    @classmethod
    def until_next_event(cls, assignment: Assignment, rejected: NDArray[np.int64] | None = None) -> Plan:
        """One step that lasts until something happens."""
        return cls((PlanStep(assignment),), _nobody() if rejected is None else rejected)
