"""Plans: who runs as what in the coming steps, and whom to reject; and what planners remember from one to the next."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from allocator.checkpoint.kept import Kept, hold
from allocator.protocol.assignment import NOBODY, Assignment
from throughputs.arrays import Ints

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation


class UpcomingRounds(NamedTuple):
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


def _nobody() -> Ints:
    return NOBODY


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
    rejected: Ints = field(default_factory=_nobody)
    allocation: Allocation | None = None

    @classmethod
    def until_next_event(cls, assignment: Assignment, rejected: Ints | None = None) -> Plan:
        """One step that lasts until something happens."""
        return cls((PlanStep(assignment),), _nobody() if rejected is None else rejected)


class Memory(Kept):
    """A dataclass of what a planner remembers.

    A checkpoint keeps the fields that it can be made with: numbers, text, arrays, lists, tuples, dicts and sets of
    such, and objects of the classes in `holds`, named tuples among them.
    """

    holds: ClassVar[tuple[type, ...]] = ()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        own: tuple[Any, ...] = fields(self)  # type: ignore[arg-type]
        return {each.name: getattr(self, each.name) for each in own if each.init}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        hold(*cls.holds)


def of_each_job(new: Any) -> Any:
    """A field of a `JobMemory`: an array over its jobs, in which a new one has this."""
    return field(default_factory=lambda: np.full(0, new), metadata={"new": new})


@dataclass(eq=False)
class JobMemory(Memory):
    """What a planner remembers of each of the N jobs of its last decision.

    Attributes
    ----------
    jobs : their labels, in its order, or their ids, ascending.

    >>> @dataclass(eq=False)
    ... class Turns(JobMemory):
    ...     turns: Ints = of_each_job(0)
    >>> memory = Turns(("a", "b"), np.array([3, 4]))
    >>> memory.align(("b", "c")).tolist(), memory.turns.tolist()
    ([1, -1], [4, 0])
    """

    jobs: Labels = ()

    def align(self, labels: Labels) -> Ints:
        """Make it the memory of the jobs with these labels; (N,) where they stood before, -1 for new ones."""
        before = _places(labels, self.jobs)
        fresh = (before < 0).nonzero()[0]
        for name, new in _of_each_job(type(self)):  # type: ignore[arg-type] # instances alone have no hash
            values = getattr(self, name)
            moved = values.take(before, mode="clip") if len(values) else np.full(len(before), new)
            moved[fresh] = new
            setattr(self, name, moved)
        self.jobs = labels
        return before


Labels = tuple[Hashable, ...] | Ints


@cache
def _of_each_job(kind: type[Any]) -> list[tuple[str, Any]]:
    """The fields that are arrays over the jobs, and what each is for a new one."""
    return [(each.name, each.metadata["new"]) for each in fields(kind) if "new" in each.metadata]


def _places(labels: Labels, before: Labels) -> Ints:
    """(N,) where the labels stood `before`, -1 for new ones."""
    if isinstance(labels, np.ndarray) and isinstance(before, np.ndarray) and len(before):
        place = before.searchsorted(labels)
        return np.where(before.take(place, mode="clip") == labels, place, -1)
    known, wanted = (each.tolist() if isinstance(each, np.ndarray) else each for each in (before, labels))
    at = dict(zip(known, range(len(known)), strict=True))
    return np.fromiter(map(at.get, wanted, repeat(-1)), np.int64, len(labels))
