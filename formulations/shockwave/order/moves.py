"""Cheapest ways to move jobs from one round of a schedule to another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from throughputs.numerics import matmul

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Workload:
    """What does not change when jobs move.

    Attributes
    ----------
    widths, weights : (N,) GPUs per job, and cost of each round that a job's round is later.
    gpus : G.
    held : (N,) a job's rounds before this one stay before it.
    """

    widths: Integers
    weights: Array
    gpus: int
    held: Integers

    @cached_property
    def light_first(self) -> NDArray[np.intp]:
        """(N,) jobs by weight."""
        return np.argsort(self.weights, kind="stable")

    def idle(self, schedule: Booleans) -> Integers:
        """(R,) GPUs that a schedule (N, R) leaves idle."""
        return np.asarray(self.gpus - matmul(self.widths, schedule))


@dataclass(frozen=True, eq=False)
class Moves:
    """Moves of jobs that hold `size` GPUs together, all of one width.

    Attributes
    ----------
    size : GPUs.
    cost : (R, R) of the cheapest move from the round of the row to that of the column; infinite where there is none.
    width : (R, R) width of the jobs that move.
    spare : (R,) idle GPUs that may stand for jobs.
    """

    size: int
    cost: Array
    width: Integers
    spare: Integers

    def jobs(self, schedule: Booleans, load: Workload, a: int, b: int) -> NDArray[np.intp]:
        """The jobs that move from round `a` to round `b`."""
        width = int(self.width[a, b])
        rows = load.light_first[load.widths[load.light_first] == width]
        able = schedule[rows, a] & ~schedule[rows, b] & ((load.held[rows] <= a) | (load.held[rows] > b))
        rows, number = rows[able], self.size // width
        if b > a:
            return np.asarray(rows[: max(number - int(self.spare[a]) // width, 0)])
        return np.asarray(rows[len(rows) - min(number, len(rows)) :])

    def carry_out(self, schedule: Booleans, load: Workload, course: list[tuple[int, int]]) -> None:
        """Move jobs along a course of different rounds, at once; the schedule is changed in place."""
        taken = [self.jobs(schedule, load, a, b) for a, b in course]
        for (a, b), jobs in zip(course, taken, strict=True):
            schedule[jobs, a] = False
            schedule[jobs, b] = True


def moves_of(schedule: Booleans, load: Workload, spare: Integers) -> list[Moves]:
    """The moves of each size that is the width of some jobs, the smallest first.

    Jobs that move to a later round are the lightest, after as many of the round's `spare` (R,) GPUs as possible. To an
    earlier round move the heaviest, with spare GPUs only where jobs are too few.
    """
    rounds = schedule.shape[1]
    at = np.arange(rounds)
    later = at[None, :] - at[:, None]
    distinct = [int(width) for width in np.unique(load.widths)]
    costs = {size: np.full((rounds, rounds), np.inf) for size in distinct}
    chosen = {size: np.zeros((rounds, rounds), dtype=np.int64) for size in distinct}
    for width in distinct:
        rows = load.light_first[load.widths[load.light_first] == width]
        movable = _movable(schedule[rows], load.held[rows])
        ranks = np.cumsum(movable, axis=0, dtype=np.int32)
        counts, values = ranks[-1], load.weights[rows]
        places = (spare // width)[:, None]
        for size in (other for other in distinct if other % width == 0):
            number = size // width
            lightest = movable & (ranks <= np.maximum(number - places, 0))
            heaviest = movable & (ranks > counts - np.minimum(number, counts))
            weight = np.where(
                later > 0, np.einsum("i,ijk->jk", values, lightest), np.einsum("i,ijk->jk", values, heaviest)
            )
            cost = np.where((counts + places >= number) & (later != 0), weight * later, np.inf)
            better = cost < costs[size]
            costs[size][better] = cost[better]
            chosen[size][better] = width
    return [Moves(size, costs[size], chosen[size], spare) for size in distinct]


def _movable(schedule: Booleans, held: Integers) -> Booleans:
    """(N, R, R) whether a job runs in one round, not in another, and may change from the first to the second."""
    inside = np.arange(schedule.shape[1]) < held[:, None]
    movable: Booleans = schedule[:, :, None] & ~schedule[:, None, :]
    movable &= ~inside[:, :, None] | inside[:, None, :]
    return movable
