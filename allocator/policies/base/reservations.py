"""Reservations of EASY backfilling: the first gang that finds no room knows when it will, and is not delayed.

Source: D. A. Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995; A. Mu'alem and D. Feitelson, IEEE TPDS 12(6), 2001.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from allocator.fractions import WHOLE
from allocator.protocol import ClusterState


class Reservations:
    """The room that is left at one instant, and for each pool the gang that waits for it first.

    A gang is promised the time at which so many GPUs of its pool will be free as it needs, if everybody who runs ends
    when predicted; who is late is taken to end now. Another one may start before it if it ends by then, or makes do
    with the GPUs that will be over.

    Parameters
    ----------
    state : who runs, and the predicted lengths.
    since : when jobs started, seconds, by id; one that is not there starts now.
    """

    def __init__(self, state: ClusterState, since: Mapping[int, float]) -> None:
        self._room, self._clock, rows = state.room(), state.clock, state.running
        # GPUs are counted in thousandths here, so that sums of fractions are exact.
        self._ends: dict[int, list[tuple[float, int]]] = {}
        lengths, ids = state.predicted_seconds.take(rows.jobs).tolist(), state.ids.take(rows.jobs).tolist()
        for job, pool, gpus, length in zip(ids, rows.pool.tolist(), rows.gpus_taken.tolist(), lengths, strict=True):
            end = max(since.get(job, state.clock) + length, state.clock)
            self._ends.setdefault(pool, []).append((end, round(gpus * WHOLE)))
        # By pool: when the first in line gets its GPUs, and how many are over then.
        self._promised: dict[int, tuple[float, int]] = {}

    def start(self, pools: tuple[int, ...], gpus: float, seconds: float) -> int:
        """The pool on which a gang with a predicted length starts, -1 for none; the next in line is to be asked next.

        One that finds no room, and for which nobody waits on its pools, is promised GPUs.
        """
        end, size = self._clock + seconds, round(gpus * WHOLE)
        for pool in pools:
            when, over = self._promised.get(pool, (np.inf, 0))
            in_time = end <= when
            if (in_time or size <= over) and self._room.take(pool, gpus):
                if not in_time:
                    self._promised[pool] = when, over - size
                self._ends.setdefault(pool, []).append((end, size))
                return pool
        if not any(pool in self._promised for pool in pools):
            self._promise(pools, size)
        return -1

    def _promise(self, pools: tuple[int, ...], size: int) -> None:
        """Reserve GPUs on the pool that has enough of them first."""
        first = {pool: self._enough_at(pool, size) for pool in pools}
        if first:
            pool = min(first, key=lambda one: first[one][0])
            self._promised[pool] = first[pool]

    def _enough_at(self, pool: int, size: int) -> tuple[float, int]:
        """When so much of the pool will be free, and how much more at that time; in thousandths of a GPU."""
        free, when = round(self._room.free(pool) * WHOLE), self._clock
        ends = sorted(self._ends.get(pool, ()))
        for end, more in ends:
            if free >= size and end > when:
                break
            free, when = free + more, end
        return when, free - size
