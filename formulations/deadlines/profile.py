"""Free GPUs over the time to come, and what a plan takes of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from math import inf


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

    __slots__ = ("charged_until", "end", "gpus", "met", "real_end", "starts")

    def __init__(
        self, starts: list[float], gpus: list[int], end: float, real_end: float, met: bool, charged_until: float
    ) -> None:
        self.starts, self.gpus = starts, gpus
        self.end, self.real_end, self.met, self.charged_until = end, real_end, met, charged_until

    def gpu_seconds(self, until: float) -> float:
        """GPU seconds where the last number of GPUs is kept `until` then (`end`, `real_end`, `charged_until`)."""
        total, held, last = 0.0, 0, self.starts[0]
        for start, gpus in zip(self.starts, self.gpus, strict=True):
            total += held * (start - last)
            last, held = start, gpus
        return total + held * (until - last)

    def gpus_at(self, clock: float) -> int:
        """GPUs that the job has at `clock`; 0 before the first start and from the end on."""
        at = bisect_left(self.starts, clock)
        if at == len(self.starts) or self.starts[at] != clock:
            at -= 1
        return self.gpus[at] if at >= 0 and clock < self.end else 0

    def since(self, clock: float) -> JobPlan:
        """The part of the plan from `clock` on."""
        at = bisect_left(self.starts, clock)
        if at == len(self.starts) or self.starts[at] != clock:
            at -= 1
        if at <= 0 and self.starts[0] >= clock:
            return self
        starts = [clock, *self.starts[at + 1 :]]
        return JobPlan(starts, self.gpus[at:], self.end, self.real_end, self.met, self.charged_until)

    def settled(self, until: float) -> JobPlan:
        """The plan with its first number of GPUs `until` then (seconds); later ones are as they were."""
        at = bisect_left(self.starts, until)
        if at == len(self.starts) or self.starts[at] != until:
            at -= 1
        if at <= 0:
            starts, gpus = self.starts, self.gpus
        else:
            starts, gpus = [self.starts[0], until, *self.starts[at + 1 :]], [self.gpus[0], *self.gpus[at:]]
            if gpus[0] == gpus[1]:
                del starts[1], gpus[1]
        return JobPlan(starts, gpus, max(self.end, until), self.real_end, self.met, self.charged_until)


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

    __slots__ = ("free", "times")

    def __init__(self, now: float, gpus: int) -> None:
        self.times: list[float] = [now]
        self.free: list[int] = [gpus]

    @classmethod
    def of(cls, steps: Iterable[tuple[float, int]]) -> FreeProfile:
        """From (time, free GPUs), in order."""
        made = cls.__new__(cls)
        listed = list(steps)
        made.times, made.free = [time for time, _ in listed], [free for _, free in listed]
        return made

    def copy(self) -> FreeProfile:
        """Another one that changes on its own."""
        made = FreeProfile.__new__(FreeProfile)
        made.times, made.free = self.times[:], self.free[:]
        return made

    def take(self, plan: JobPlan) -> None:
        """Without the GPUs of a plan."""
        self._change(plan, 1)

    def give(self, plan: JobPlan) -> None:
        """With the GPUs of a plan that was taken."""
        self._change(plan, -1)

    def _change(self, plan: JobPlan, sign: int) -> None:
        times, free, starts = self.times, self.free, plan.starts
        last = len(starts) - 1
        # where it begins and ends, in the end; breakpoints come in ascending order, so that earlier ones stay in place
        borders: list[int] = []
        j = 0
        for k, gpus in enumerate(plan.gpus):
            if not gpus:
                continue
            start = starts[k]
            i = j if times[j] == start else bisect_left(times, start, j)
            if i == len(times) or times[i] != start:
                times.insert(i, start)
                free.insert(i, free[i - 1])
            borders.append(i)
            end = plan.end if k == last else starts[k + 1]
            change = sign * gpus
            if end == inf:
                free[i:] = [count - change for count in free[i:]]
                break
            j = bisect_left(times, end, i)
            if j == len(times) or times[j] != end:
                times.insert(j, end)
                free.insert(j, free[j - 1])
            borders.append(j)
            if j == i + 1:
                free[i] -= change
            else:
                free[i:j] = [count - change for count in free[i:j]]
        for i in reversed(borders):
            if 0 < i < len(times) and free[i] == free[i - 1]:
                del times[i], free[i]
