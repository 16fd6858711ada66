"""What policies share that keep jobs in line from decision to decision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.policies.base.ordering import in_order_of_arrival
from allocator.protocol import ClusterState
from allocator.protocol.plan import JobMemory, of_each_job

_Ids = NDArray[np.int64]


@dataclass(eq=False)
class Turns(JobMemory):
    """A line.

    Attributes
    ----------
    turn : (N,) ascending in the order in which jobs have their turn.
    """

    turn: _Ids = of_each_job(0)

    def recall(self, state: ClusterState) -> _Ids:
        """Make it the line of the jobs of `state`, new ones last; (N,) where they stood before, -1 for new ones."""
        before = self.align(state.throughputs.jobs)
        self.send_back(in_order_of_arrival(state, np.flatnonzero(before < 0)))
        return before

    def send_back(self, jobs: _Ids) -> None:
        """Put `jobs` (positions) at the end of the line, in this order."""
        if len(jobs):
            self.turn[jobs] = self.turn.max(initial=0) + 1 + np.arange(len(jobs))
