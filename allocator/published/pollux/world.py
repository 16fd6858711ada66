"""What the simulator of Pollux does that others do not, and Optimus and Tiresias as it has them.

Source: Qiao et al., OSDI 2021, public artifact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from allocator.conversion import NotNegative
from allocator.policies.goodput.optimus import Optimus
from allocator.policies.time_sharing.tiresias import Tiresias
from allocator.simulator.rules.base import Stretch
from allocator.simulator.rules.slots import Slots
from allocator.simulator.rules.starts import Starts, StartsTakeTime

if TYPE_CHECKING:
    from allocator.simulator.world import World


@dataclass(frozen=True)
class SlotsOfTheClock(Slots):
    """Decisions at events are at least a slot apart.

    Attributes
    ----------
    slot_origin_seconds : with slot_grid, where slots begin; None: with the first arrival.
    """

    slot_origin_seconds: NotNegative | None = None

    def origin(self, world: World) -> float:
        """When the first slot of the grid begins, seconds."""
        return super().origin(world) if self.slot_origin_seconds is None else self.slot_origin_seconds


@dataclass(frozen=True)
class StartsThatServe(StartsTakeTime):
    """Gangs that start take time.

    Attributes
    ----------
    starts_count_as_service : outside rounds, time in which a job starts counts as time that it was served.
    """

    starts_count_as_service: bool = False

    def in_a_run(self, world: World) -> Starts:
        """Who starts, and is served."""
        return _Serve(self, world.jobs) if self.starts_count_as_service else super().in_a_run(world)


class _Serve(Starts):
    def begin(self, s: Stretch) -> None:
        """From the beginning."""
        super().begin(s)
        s.served = np.minimum(s.begin, s.clock)


@dataclass(frozen=True)
class PublishedOptimus(Optimus):
    """Marginal gains are those of one GPU at a time, and smaller gangs are placed first."""

    single_steps: ClassVar[bool] = True
    smaller_first: ClassVar[bool] = True


@dataclass(frozen=True)
class TiresiasByEntry(Tiresias):
    """In a queue goes first who came to it first, whether it runs or waits."""

    runs_first: ClassVar[bool] = False
