"""What the simulator of Pollux does that others do not, and Optimus and Tiresias as it has them.

Source: Qiao et al., OSDI 2021, public artifact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from allocator.conversion import Seconds
from allocator.mechanism.placement.gangs import Consolidated, Gang, Gpus
from allocator.policies.goodput.optimus import Optimus
from allocator.policies.time_sharing.tiresias import Tiresias
from allocator.simulator.rules.base import Stretch
from allocator.simulator.rules.general import Slots
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

    slot_origin_seconds: Seconds | None = None

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
        return _Serve(self, world) if self.starts_count_as_service else super().in_a_run(world)


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


class MostFree(Consolidated):
    """Gangs keep their GPUs; new ones go to the server with most free GPUs, in the order of their rows.

    A gang that needs more than are free there takes all of them, and the rest of it goes to the next such server. A job
    whose number of GPUs changes starts anew.
    """

    resizes_anew = True
    for_single_gpus = True

    def place(self, gangs: list[Gang]) -> dict[int, Gpus]:
        """See PoolRule."""
        return self._place_in_order(gangs)

    def _take(self, size: int) -> Gpus:
        taken: list[int] = []
        while len(taken) < size:
            count = max(c for c, servers in enumerate(self._with_free) if servers)
            servers = self._with_free[count]
            taken += self._take_on((servers & -servers).bit_length() - 1, min(count, size - len(taken)))
        return tuple(sorted(taken))
