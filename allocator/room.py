"""Room: which gangs find GPUs under the placement in force, for policies whose decision depends on it.

A line that lets nobody pass ends at the first gang that finds none, and with whole servers that is not a matter of
the number of free GPUs alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from allocator.fractions import WHOLE


class Held(NamedTuple):
    """What a job has.

    Attributes
    ----------
    pool : position of the pool.
    gpus : ids of its GPUs; one for a job with a fraction.
    number : of its GPU in `allocator.fractions.SharedGpus`, -1 for a job that has its GPUs whole.
    thousandths : of the GPU.
    """

    pool: int
    gpus: tuple[int, ...]
    number: int = -1
    thousandths: int = WHOLE


class FreeGpus(Protocol):
    """The free GPUs of one pool."""

    @property
    def count(self) -> float:
        """How many there are."""

    def take(self, gpus: float) -> bool:
        """Take as many for a gang, or less than one for a job that shares it, if it finds room; whether it does."""

    def give_back(self, held: Held) -> None:
        """What a job has is free from now on."""


class CountedGpus:
    """A pool in which a gang finds room wherever as many GPUs are free in sum, fractions of them in thousandths."""

    def __init__(self, count: float) -> None:
        self.count = round(count, _DECIMALS)

    def take(self, gpus: float) -> bool:
        """See FreeGpus."""
        if gpus > self.count:
            return False
        self.count = round(self.count - gpus, _DECIMALS)
        return True

    def give_back(self, held: Held) -> None:
        """See FreeGpus."""
        gpus = len(held.gpus)
        freed = gpus if held.thousandths == WHOLE else gpus * held.thousandths / WHOLE
        self.count = round(self.count + freed, _DECIMALS)


_DECIMALS = 3
"""Sums of thousandths are rounded to them, so that they are exact; whole numbers stay whole."""


class Room:
    """The GPUs that are free at one instant, pool by pool; what a policy takes or gives back is noted here alone.

    Parameters
    ----------
    free_of : the free GPUs of a pool, to be changed; asked for once, if at all.
    held : what a job that runs (its position in the state) has.

    >>> room = Room(lambda pool: CountedGpus(4), lambda job: Held(0, (4, 5)))
    >>> room.take(0, 3), room.take(0, 2), room.free(0)
    (True, False, 1)
    >>> room.give_back(7)
    >>> room.free(0)
    3
    """

    def __init__(self, free_of: Callable[[int], FreeGpus], held: Callable[[int], Held]) -> None:
        self._free_of = free_of
        self._held = held
        self._pools: dict[int, FreeGpus] = {}

    def _pool(self, pool: int) -> FreeGpus:
        known = self._pools.get(pool)
        if known is None:
            known = self._pools[pool] = self._free_of(pool)
        return known

    def free(self, pool: int) -> float:
        """GPUs of the pool that are free; a whole number where nobody asks for a fraction of one."""
        return self._pool(pool).count

    def take(self, pool: int, gpus: float) -> bool:
        """Take GPUs of the pool for a gang of so many, as placement would; False: it finds no room, nothing changes.

        Less than 1 is what a job takes that shares a GPU with others.
        """
        return self._pool(pool).take(gpus)

    def give_back(self, job: int) -> None:
        """A job that runs alone on its GPUs (its position) is to stop."""
        held = self._held(job)
        self._pool(held.pool).give_back(held)
