"""Shockwave's planner as its published code has it; the program itself is solved in our form."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from allocator.policies.shockwave.memory import ShockwaveMemory
from allocator.policies.shockwave.policy import Shockwave
from allocator.protocol import ClusterState
from allocator.protocol.plan import UpcomingRounds
from formulations.shockwave import PlanningProgram
from throughputs.training.forecast import ForecastMode


@dataclass(frozen=True)
class PublishedShockwave(Shockwave):
    """Time is the number of the round times D, whatever the rounds lasted, and rho counts from the start of the clock.

    So rho is the closer to 1 the later a job arrives, whatever happens to it. The code knows the batch sizes to come.
    """

    forecast: ForecastMode = "oracle"
    fairness_rows: str = "published"
    priority_cap: float | None = None
    momentum: float = 0.9

    def _program(
        self,
        state: ClusterState,
        jobs: NDArray[np.intp],
        kind: int,
        upcoming: UpcomingRounds,
        memory: ShockwaveMemory,
    ) -> PlanningProgram:
        """The program of the coming rounds by that clock."""
        program = super()._program(state, jobs, kind, upcoming, memory)
        return replace(program, now_seconds=upcoming.number * upcoming.seconds, start_seconds=0.0)
