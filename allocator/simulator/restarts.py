"""What it costs to start a gang anew, as a function of what changes from one step to the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.protocol.assignment import among_ids
from allocator.protocol.decision import Decision
from allocator.protocol.jobs import JobTable
from throughputs.numerics import log2

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RestartCost:
    """Seconds without training when a gang starts, resumes, or goes on with other GPUs.

    Attributes
    ----------
    seconds : for every gang.
    per_doubling : the same for each time that its number of GPUs doubles from 1.
    by_gpus : pairs (GPUs, seconds), ascending; a gang costs what the largest number that it reaches costs, and
        as above where it reaches none.
    by_job_type : pairs (job type, seconds), instead of the others for these types.
    moves : whether a job that runs on with other GPUs, or another number of them, starts anew too.
    """

    seconds: float = 0.0
    per_doubling: float = 0.0
    by_gpus: tuple[tuple[int, float], ...] = ()
    by_job_type: tuple[tuple[str, float], ...] = ()
    moves: bool = True

    def __bool__(self) -> bool:
        return self.seconds > 0 or self.per_doubling > 0 or bool(self.by_gpus) or bool(self.by_job_type)

    def of_rows(self, decision: Decision, jobs: JobTable) -> _Floats:
        """(K,) seconds that each row of a decision loses at its start."""
        rows, change = decision.assignment, decision.transition
        anew = change.rows
        if not self.moves:
            anew = anew[among_ids(rows.jobs[anew], change.start)]
        lost = np.zeros(len(rows))
        if not len(anew):
            return lost
        lost[anew] = self.seconds_of(rows.gpus[anew], jobs.job_type[jobs.rows(rows.jobs[anew])])
        return lost

    def dearest(self, most_gpus: int) -> float:
        """Seconds that a gang of any type needs to start at most, if it has at most so many GPUs."""
        gpus = np.arange(1, max(most_gpus, 1) + 1)
        untold = np.full(len(gpus), "", dtype=object)
        return max(float(self.seconds_of(gpus, untold).max()), *(cost for _, cost in self.by_job_type), 0.0)

    @staticmethod
    def gpu_seconds(decision: Decision, lost: _Floats) -> _Floats:
        """(K,) GPU-seconds that rows lose which lose so many seconds each; GPUs that two jobs share count half."""
        rows = decision.assignment
        seconds: _Floats = lost * rows.gpus_taken
        return np.where(rows.partner >= 0, 0.5 * seconds, seconds) if rows.shares_gpus else seconds

    def seconds_of(self, gpus: NDArray[np.int64], job_type: NDArray[np.object_]) -> _Floats:
        """(K,) seconds that gangs of so many `gpus` of these types need to start."""
        cost = np.full(len(gpus), self.seconds)
        if self.per_doubling:
            cost += self.per_doubling * log2(gpus)
        if self.by_gpus:
            counts, seconds = (np.array(column) for column in zip(*self.by_gpus, strict=True))
            reached = np.searchsorted(counts, gpus, side="right") - 1
            cost = np.where(reached >= 0, seconds[np.maximum(reached, 0)], cost)
        if self.by_job_type:
            known = dict(self.by_job_type)
            cost = np.array([known.get(kind, c) for kind, c in zip(job_type.tolist(), cost.tolist(), strict=True)])
        return cost
