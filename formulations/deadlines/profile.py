"""Free GPUs over the time to come, and what a plan takes of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf


@dataclass(eq=False, slots=True)
class JobPlan:
    """When one job has how many GPUs.

    Attributes
    ----------
    starts, gpus : from each of these instants (seconds) on so many GPUs, until the next one or the end. Neighbours
        differ.
    end : when the GPUs are free again: the end of the slot in which the job ends, seconds.
    real_end : when the job ends, seconds.
    met : whether that is within its deadline.
    charged_until : the end of the interval in which the job ends, which ElasticFlow's published score charges for.
    """

    starts: list[float]
    gpus: list[int]
    end: float
    real_end: float
    met: bool
    charged_until: float

    def gpu_seconds(self, until: float) -> float:
        """GPU seconds where the last number of GPUs is kept `until` then (`end`, `real_end`, `charged_until`)."""
        total, held, last = 0.0, 0, until
        for start, gpus in zip(self.starts, self.gpus, strict=True):
            total += held * (start - last)
            last, held = start, gpus
        return total + held * (until - last)

    def gpus_at(self, clock: float) -> int:
        """GPUs that the job has at `clock`; 0 before the first start and from the end on."""
        at = bisect_right(self.starts, clock) - 1
        return self.gpus[at] if at >= 0 and clock < self.end else 0

    def rest(self, clock: float, until: float) -> tuple[list[float], list[int]]:
        """Starts and GPUs from `clock` on, its number of GPUs then kept `until` a later instant (seconds)."""
        now, then = (max(bisect_right(self.starts, time) - 1, 0) for time in (clock, until))
        starts, gpus = [clock, *self.starts[then + 1 :]], [self.gpus[now], *self.gpus[then + 1 :]]
        if self.gpus[now] != self.gpus[then]:
            starts.insert(1, until)
            gpus.insert(1, self.gpus[then])
        return starts, gpus


class FreeProfile:
    """Free GPUs as a step function of time.

    Attributes
    ----------
    times : ascending; `free` holds from each of these on until the next, the last for ever. Neighbours differ.
    free : free GPUs.

    >>> profile = FreeProfile(0, 8)
    >>> profile.take(JobPlan([0, 10], [2, 4], end=20, real_end=19.5, met=True, charged_until=20))
    >>> profile.times, profile.free
    ([0, 10, 20], [6, 4, 8])
    """

    def __init__(self, now: float, gpus: int) -> None:
        self.times: list[float] = [now]
        self.free: list[int] = [gpus]

    @classmethod
    def of(cls, steps: Iterable[tuple[float, int]]) -> FreeProfile:
        """From (time, free GPUs), in order."""
        made = cls(0.0, 0)
        made.times, made.free = map(list, zip(*steps, strict=True))
        return made

    def copy(self) -> FreeProfile:
        """Another one that changes on its own."""
        made = FreeProfile.__new__(FreeProfile)
        made.times, made.free = self.times[:], self.free[:]
        return made

    def without(self, plan: JobPlan) -> FreeProfile:
        """What is free without a plan that was taken."""
        made = self.copy()
        made.give(plan)
        return made

    def take(self, plan: JobPlan) -> None:
        """Without the GPUs of a plan."""
        self._change(plan, 1)

    def give(self, plan: JobPlan) -> None:
        """With the GPUs of a plan that was taken."""
        self._change(plan, -1)

    def _change(self, plan: JobPlan, sign: int) -> None:
        times, free = self.times, self.free
        # breakpoints of the plan, ascending, so that later ones leave earlier ones in place
        borders: list[int] = []
        j = 0
        for start, end, gpus in zip(plan.starts, [*plan.starts[1:], plan.end], plan.gpus, strict=True):
            if not gpus:
                continue
            i = bisect_left(times, start, j)
            if i == len(times) or times[i] != start:
                times.insert(i, start)
                free.insert(i, free[i - 1])
            j = bisect_left(times, end, i)
            if end < inf and (j == len(times) or times[j] != end):
                times.insert(j, end)
                free.insert(j, free[j - 1])
            borders += i, j
            change = sign * gpus
            free[i:j] = [count - change for count in free[i:j]]
        for i in reversed(borders):
            if 0 < i < len(free) and free[i] == free[i - 1]:
                del times[i], free[i]
