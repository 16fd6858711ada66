"""Room: which gangs find GPUs under the placement in force, for policies whose decision depends on it.

A line that lets nobody pass ends at the first gang that finds none, and with whole servers that is not a matter of
the number of free GPUs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

__all__ = ["CountedGpus", "FreeGpus", "Room"]


class FreeGpus(Protocol):
    """The free GPUs of one pool."""

    @property
    def count(self) -> int:
        """How many there are."""

    def take(self, gpus: int) -> bool:
        """Take as many for a gang, if it finds room; whether it does."""

    def give_back(self, gpus: tuple[int, ...]) -> None:
        """These ids are free from now on."""


class CountedGpus:
    """A pool in which a gang finds room wherever as many GPUs are free."""

    def __init__(self, count: int) -> None:
        self.count = count

    def take(self, gpus: int) -> bool:
        """See FreeGpus."""
        if gpus > self.count:
            return False
        self.count -= gpus
        return True

    def give_back(self, gpus: tuple[int, ...]) -> None:
        """See FreeGpus."""
        self.count += len(gpus)


class Room:
    """The GPUs that are free at one instant, pool by pool; what a policy takes or gives back is noted here alone.

    Parameters
    ----------
    pools : the free GPUs of each pool, to be changed.
    held : the pool of a job that runs (its position in the state), and the ids of its GPUs.

    >>> room = Room([CountedGpus(4)], lambda job: (0, (4, 5)))
    >>> room.take(0, 3), room.take(0, 2), room.free(0)
    (True, False, 1)
    >>> room.give_back(7)
    >>> room.free(0)
    3
    """

    def __init__(self, pools: Sequence[FreeGpus], held: Callable[[int], tuple[int, tuple[int, ...]]]) -> None:
        self._pools = pools
        self._held = held

    def free(self, pool: int) -> int:
        """GPUs of the pool that are free."""
        return self._pools[pool].count

    def take(self, pool: int, gpus: int) -> bool:
        """Take GPUs of the pool for a gang of so many, as placement would; False: it finds no room, nothing changes."""
        return self._pools[pool].take(gpus)

    def give_back(self, job: int) -> None:
        """A job that runs alone on its GPUs (its position) is to stop."""
        pool, gpus = self._held(job)
        self._pools[pool].give_back(gpus)
