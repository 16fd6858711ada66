"""Jobs with deadlines, and how fast they go by number of GPUs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import inf


class ScalingCurve:
    """Throughput of a job by number of GPUs, on up to `capacity` GPUs.

    Any curve will do: it may have gaps, bends and falls.

    Parameters
    ----------
    levels : numbers of GPUs that the job can run on, ascending.
    rates : steps/s on each.
    capacity : GPUs of the cluster.
    most : GPUs that the job is given at most.
    useful_only : without levels that are no faster than a smaller one.

    Attributes
    ----------
    levels, rates : those that are left.
    level_within : (capacity + 1,) the largest level within so many GPUs, 0 for none.
    rate_within : (capacity + 1,) steps/s on that level.
    best_rates : for each level the largest rate up to it.
    """

    __slots__ = ("_steps", "best_rates", "level_within", "levels", "next_level", "rate_of", "rate_within", "rates")

    def __init__(
        self,
        levels: Sequence[int],
        rates: Sequence[float],
        capacity: int,
        most: float = inf,
        *,
        useful_only: bool = False,
    ) -> None:
        kept: list[tuple[int, float]] = []
        for level, rate in zip(levels, rates, strict=True):
            if level <= min(capacity, most) and rate > 0 and not (useful_only and kept and rate <= kept[-1][1]):
                kept.append((int(level), float(rate)))
        self.levels = [level for level, _ in kept]
        self.rates = [rate for _, rate in kept]
        self.best_rates = list(accumulate(self.rates, max))
        within = [bisect_right(self.levels, free) - 1 for free in range(capacity + 1)]
        self.level_within = [self.levels[k] if k >= 0 else 0 for k in within]
        self.rate_within = [self.rates[k] if k >= 0 else 0.0 for k in within]
        self.rate_of = dict(kept)
        above = {0: self.levels[0]} if kept else {}
        self.next_level = above | dict(pairwise(self.levels))
        self._steps: dict[int, list[tuple[float, int, float]]] = {}

    def efficient_steps(self, free: int) -> list[tuple[float, int, float]]:
        """Steps of the concave hull of the curve within so many GPUs: steps/s per GPU, level reached, steps/s."""
        most = self.level_within[free]
        known = self._steps.get(most)
        if known is None:
            known = self._steps[most] = self._steps_within(most)
        return known

    def _steps_within(self, most: int) -> list[tuple[float, int, float]]:
        hull = [(0, 0.0)]
        for level, rate in zip(self.levels, self.rates, strict=True):
            if level > most:
                break
            while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], (level, rate)):
                hull.pop()
            if rate > hull[-1][1]:
                hull.append((level, rate))
        return [(_slope(low, high), high[0], high[1] - low[1]) for low, high in pairwise(hull)]


def _slope(low: tuple[int, float], high: tuple[int, float]) -> float:
    return (high[1] - low[1]) / (high[0] - low[0])


class DeadlineJob:
    """What is planned: work, deadline, and what the job runs on now.

    Parameters
    ----------
    curve : its throughput by number of GPUs.
    work : steps left, above 0.
    deadline : seconds on the clock; inf for best effort.
    held : GPUs on which it runs now; a plan that begins with another number has a restart first.
    starting : seconds that it still needs to get going on those.
    """

    __slots__ = ("curve", "deadline", "held", "starting", "work")

    def __init__(self, curve: ScalingCurve, work: float, deadline: float, held: int = 0, starting: float = 0.0) -> None:
        self.curve, self.work, self.deadline = curve, work, deadline
        self.held, self.starting = held, starting

    @property
    def least_gpu_seconds(self) -> float:
        """GPU seconds that its work takes on the number of GPUs that needs the fewest."""
        return self.work * min(gpus / rate for gpus, rate in self.curve.rate_of.items())
