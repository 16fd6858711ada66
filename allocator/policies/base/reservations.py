"""Reservations of backfilling: a gang that finds no room knows when it will, and is not delayed.

Source: D. A. Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995; A. Mu'alem and D. Feitelson, IEEE TPDS 12(6), 2001.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from math import inf


class Timetable:
    """Free GPUs of a pool from now on, if everybody runs as long as predicted: `free[k]` from `times[k]` on.

    GPUs are counted in thousandths, so that sums of fractions are exact.
    """

    def __init__(self, now: float, free: int, ends: Iterable[tuple[float, int]] = ()) -> None:
        """With so much free now, and what becomes free at the `ends` (seconds) of those who run."""
        self.times, self.free = [now], [free]
        for end, gpus in sorted(ends):
            if end > self.times[-1]:
                self.times.append(end)
                self.free.append(self.free[-1])
            self.free[-1] += gpus

    def copy(self) -> Timetable:
        """Another one that may be tried things on."""
        made = Timetable(0.0, 0)
        made.times, made.free = self.times.copy(), self.free.copy()
        return made

    def fits_now(self, gpus: int, seconds: float) -> bool:
        """Whether so many GPUs are free from now on for so long."""
        steps = zip(self.times, self.free, strict=True)
        end = self.times[0] + seconds
        return self.free[0] >= gpus and all(free >= gpus for time, free in steps if time < end)

    def earliest(self, gpus: int, seconds: float, *, later: bool = True) -> float:
        """The first time from which that holds, after now or (`later` False) from now on; inf: never."""
        start = inf
        for time, free in zip(self.times[later:], self.free[later:], strict=True):
            if free < gpus:
                start = inf
            elif start == inf:
                start = time
            if time - start >= seconds:
                break
        return start

    def take(self, start: float, seconds: float, gpus: int) -> None:
        """Somebody has so many GPUs from `start` on for so long."""
        first, last = self._at(start), self._at(start + seconds)
        for k in range(first, last):
            self.free[k] -= gpus

    def _at(self, time: float) -> int:
        """Position of the step that begins at a time, which is split off where there is none."""
        k = bisect_left(self.times, time)
        if time < inf and (k == len(self.times) or self.times[k] > time):
            self.times.insert(k, time)
            self.free.insert(k, self.free[k - 1])
        return k
