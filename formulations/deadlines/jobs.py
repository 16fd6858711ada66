"""Jobs with deadlines, and how fast they go by number of GPUs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
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
    rate_of : steps/s on each level.
    next_level : the level after each, and after 0.
    best_rates : for each level the largest rate up to it.
    """

    def __init__(
        self,
        levels: Sequence[int],
        rates: Sequence[float],
        capacity: int,
        most: float = inf,
        *,
        useful_only: bool = False,
    ) -> None:
        self.rate_of: dict[int, float] = {}
        fastest = 0.0
        for level, rate in zip(levels, rates, strict=True):
            if level <= min(capacity, most) and rate > (fastest if useful_only else 0):
                self.rate_of[int(level)] = fastest = float(rate)
        self.levels, self.rates = list(self.rate_of), list(self.rate_of.values())
        self.best_rates = list(accumulate(self.rates, max))
        self.next_level = dict(pairwise([0, *self.levels]))
        self.level_within = [[0, *self.levels][bisect_right(self.levels, free)] for free in range(capacity + 1)]

    def efficient_steps(self, free: int) -> list[tuple[float, int, float]]:
        """Steps of the concave hull of the curve within so many GPUs: steps/s per GPU, level reached, steps/s."""
        hull = [(0, 0.0)]
        for level, rate in self.rate_of.items():
            if level <= free and rate > hull[-1][1]:
                while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], (level, rate)):
                    hull.pop()
                hull.append((level, rate))
        return [(_slope(low, high), high[0], high[1] - low[1]) for low, high in pairwise(hull)]


def _slope(low: tuple[int, float], high: tuple[int, float]) -> float:
    return (high[1] - low[1]) / (high[0] - low[0])


@dataclass(eq=False, slots=True)
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

    curve: ScalingCurve
    work: float
    deadline: float
    held: int = 0
    starting: float = 0.0

    @property
    def least_gpu_seconds(self) -> float:
        """GPU seconds that its work takes on the number of GPUs that needs the fewest."""
        return self.work * min(gpus / rate for gpus, rate in self.curve.rate_of.items())
