"""A stretch as it takes shape, and what a rule may do to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from allocator.mechanism.core import DecisionCore
from allocator.protocol.assignment import Assignment
from allocator.protocol.decision import Decision
from allocator.protocol.jobs import JobTable

_Floats = NDArray[np.float64]
_Ids = NDArray[np.int64]

_NONE: _Floats = np.empty(0)


@dataclass(slots=True, eq=False)
class Stretch:
    """One stretch as it takes shape; arrays are over its K rows.

    Attributes
    ----------
    clock : its start, seconds.
    decision : who runs.
    at : where the jobs are in the job table.
    begin : when each row begins to train, seconds; later than `clock` where a start takes time.
    rates : steps/s of each row.
    finish : when each row is through if nothing happens before; inf: never.
    until : when rows cease to train, be they through or not, seconds.
    trained : when rows have done their last step, where they are through only later, seconds.
    judged : what the deadlines of those who are through are compared with, seconds.
    """

    clock: float
    decision: Decision
    at: _Ids
    begin: _Floats | float
    rates: _Floats
    finish: _Floats = field(default_factory=lambda: _NONE)
    judged: _Floats = field(default_factory=lambda: _NONE)
    until: _Floats | float = np.inf
    trained: _Floats | None = None


class StretchRule:
    """Does nothing.

    Attributes
    ----------
    notes_stops : whether the rule wants to be told of jobs that are stopped before they are through.
    """

    notes_stops: ClassVar[bool] = False

    def bind(self, jobs: JobTable, core: DecisionCore) -> None:
        """Register what the rule keeps for each job."""

    def stop(self, rows: Assignment, at: _Ids, rates: _Floats) -> None:
        """The (K,) rows ran at these `rates` (K,), steps/s, and are stopped; their jobs are `at` (K,) in the table."""

    def begin(self, s: Stretch) -> None:
        """Change when rows begin to train, or how fast; `finish` is not known yet."""

    def shape(self, s: Stretch) -> None:
        """Change when rows are through."""

    def state(self) -> Any:
        """What a checkpoint keeps."""
        return None

    def restore(self, state: Any) -> None:
        """Go on from `state`."""
