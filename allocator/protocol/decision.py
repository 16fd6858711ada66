"""What the decision core tells a world: who runs as what on which GPUs, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from allocator.protocol.assignment import Assignment
from allocator.protocol.transition import Transition, transition


@dataclass(frozen=True, eq=False)
class Decision:
    """Who runs as what from now on.

    Attributes
    ----------
    assignment : K rows, ids of jobs, in the order in which they were chosen.
    gpus : for each row the ids of its GPUs; empty when placement is off, and in a step that may be interrupted
        (`DecisionCore.gpus_of` knows them).
    seconds : the core wants to be asked again after so many seconds; inf: only when something happens.
    interruptible : whether the step ends early when something happens that the policy wants to be asked about.
    recomputed : whether the policy was asked for it.
    shares : (K,) in a world without rounds, the share of the time of its pool that each row has; else None.
    rejected : ids of the jobs that the policy did not admit; they are gone.
    before, gpus_before : who ran as what before, and on which GPUs; empty where they are not known.
    change : what changes where placement has found it, who has other GPUs of the same pool included; else None.
    """

    assignment: Assignment
    gpus: tuple[tuple[int, ...], ...]
    seconds: float
    interruptible: bool
    recomputed: bool
    shares: NDArray[np.float64] | None
    rejected: NDArray[np.int64]
    before: Assignment
    change: Transition | None = None
    gpus_before: tuple[tuple[int, ...], ...] = ()

    @property
    def jobs(self) -> NDArray[np.int64]:
        """(K,) ids."""
        return self.assignment.jobs

    @property
    def transition(self) -> Transition:
        """What changes."""
        return self._found if self.change is None else self.change

    @cached_property
    def _found(self) -> Transition:
        moved: list[int] = []
        if self.gpus and self.gpus_before and self.gpus is not self.gpus_before:
            had = dict(zip(self.before.jobs.tolist(), self.gpus_before, strict=True))
            moved = [job for job, ids in zip(self.jobs.tolist(), self.gpus, strict=True) if had.get(job, ids) != ids]
        return transition(self.before, self.assignment, moved)
