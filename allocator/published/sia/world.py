"""What the simulator of Sia does that others do not (Jayaram Subramanya et al., SOSP 2023, public artifact)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allocator.protocol.decision import Decision
from allocator.simulator.goodput.runs import GoodputRuns
from allocator.simulator.rules.starts import Starts, StartsTakeTime

if TYPE_CHECKING:
    from allocator.simulator.world import World


@dataclass(frozen=True)
class StartsByShape(StartsTakeTime):
    """Gangs that start take time.

    Attributes
    ----------
    restart_keeps_shape : of jobs with goodput, one that goes on with as many GPUs on each node of the same type does
        not start anew, whichever nodes these are.
    """

    restart_keeps_shape: bool = False

    def in_a_run(self, world: World) -> Starts:
        """Who starts, and on another shape."""
        return _ByShape(self, world) if self.restart_keeps_shape else super().in_a_run(world)


class _ByShape(Starts):
    def __init__(self, rule: StartsByShape, world: World) -> None:
        super().__init__(rule, world.jobs)
        self._world = world

    def lost(self, decision: Decision) -> NDArray[np.float64]:
        """Nothing on the same shape."""
        lost = super().lost(decision)
        for running in self._world.running:
            if isinstance(running, GoodputRuns):
                return np.where(running.alike, 0.0, lost)
        return lost
