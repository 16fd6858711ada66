"""What is to be placed in the rounds of a window, and the cheapest ways to move jobs from one round to another.

Jobs are exchanged between rounds where that makes a schedule cheaper, and moved to make places for rounds that found
none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from throughputs.arrays import Flags, Floats, Ints, Positions
from throughputs.numerics import matmul


@dataclass(frozen=True, eq=False)
class Ordering:
    """What is to be placed: the jobs of a plan in the rounds of its window.

    Attributes
    ----------
    widths : (N,) GPUs per job.
    rounds_per_job : (N,) n_j.
    weights : (N,) cost of each round that each of a job's rounds is later.
    gpus, rounds : G and R.
    needed, until : (N,) so many of a job's rounds have to lie in the first so many of the window.
    """

    widths: Ints
    rounds_per_job: Ints
    weights: Floats
    gpus: int
    rounds: int
    needed: Ints
    until: Ints

    def take(self, jobs: Positions) -> Ordering:
        """The same of some of the jobs."""
        per_job = ("widths", "rounds_per_job", "weights", "needed", "until")
        return replace(self, **{name: getattr(self, name)[jobs] for name in per_job})

    def missing(self, schedule: Flags) -> Ints:
        """(N,) rounds that a schedule (N, R) owes to each job, in all or by its early rounds."""
        early = (schedule & (np.arange(self.rounds) < self.until[:, None])).sum(axis=1)
        missing: Ints = np.maximum(self.rounds_per_job - schedule.sum(axis=1), self.needed - early)
        return np.maximum(missing, 0)

    def cost(self, schedule: Flags) -> float:
        """``sum_j weight_j sum_r r s_jr`` of a schedule (N, R)."""
        return math.fsum(self.weights * (schedule * np.arange(self.rounds)).sum(axis=1))

    def idle(self, schedule: Flags) -> Ints:
        """(R,) GPUs that a schedule (N, R) leaves idle."""
        return np.asarray(self.gpus - matmul(self.widths, schedule))

    @cached_property
    def light_first(self) -> list[tuple[int, Positions]]:
        """Each width, narrowest first, with its jobs, lightest first."""
        by_weight = np.argsort(self.weights, kind="stable")
        return [(int(width), by_weight[self.widths[by_weight] == width]) for width in np.unique(self.widths)]


@dataclass(eq=False)
class Moves:
    """The cheapest moves of jobs that hold `size` GPUs together, all of one width.

    Attributes
    ----------
    size : GPUs.
    cost : (R, R) of the move from the round of the row to that of the column; infinite where there is none.
    way : (R, R) position in `ways` of the jobs that move.
    ways : jobs of one width (n,) and which of them move from one round to another (n, R, R).
    """

    size: int
    cost: Floats
    way: Ints
    ways: list[tuple[Positions, Flags]]

    def carry_out(self, schedule: Flags, course: list[tuple[int, int]]) -> None:
        """Move jobs along a course of different rounds, at once; the schedule is changed in place."""
        for a, b in course:
            if a != b:
                jobs, moving = self.ways[self.way[a, b]]
                schedule[jobs[moving[:, a, b]], a] = False
                schedule[jobs[moving[:, a, b]], b] = True


def moves_of(schedule: Flags, ordering: Ordering, spare: Ints) -> list[Moves]:
    """The moves of each size that is the width of some jobs, the smallest first; to stay costs nothing.

    Jobs that move to a later round are the lightest, after as many of the round's `spare` (R,) GPUs as possible. To an
    earlier round move the heaviest, with spare GPUs only where jobs are too few. Early rounds have to stay early.
    """
    R = ordering.rounds
    later = np.arange(R) - np.arange(R)[:, None]
    inside = np.arange(R) < np.where(ordering.needed > 0, ordering.until, R)[:, None]
    found = [
        Moves(width, np.where(later == 0, 0.0, np.inf), np.zeros((R, R), dtype=np.int64), [])
        for width, _ in ordering.light_first
    ]
    for width, jobs in ordering.light_first:
        runs, early = schedule[jobs], inside[jobs]
        movable = runs[:, :, None] & ~runs[:, None, :] & (~early[:, :, None] | early[:, None, :])
        ranks = np.cumsum(movable, axis=0, dtype=np.int32)
        places = (spare // width)[:, None]
        for moves in found:
            number, rest = divmod(moves.size, width)
            if rest or not number:
                continue
            moving = movable & np.where(later > 0, ranks <= number - places, ranks > ranks[-1] - number)
            cost = np.einsum("i,ijk->jk", ordering.weights[jobs], moving) * later
            better = (ranks[-1] + places >= number) & (cost < moves.cost)
            moves.cost[better], moves.way[better] = cost[better], len(moves.ways)
            moves.ways.append((jobs, moving))
    return found


def fill(order: Positions, running: Flags, widths: Ints, gpus: int, wanted: float = np.inf) -> None:
    """Let jobs of an order run (N,) in a round as far as they fit, until `wanted` more GPUs are theirs; in place."""
    free = gpus - int(widths[running].sum())
    order = order[~running[order] & (widths[order] <= free)]
    for job, width in zip(order.tolist(), widths[order].tolist(), strict=True):
        if wanted > 0 and width <= free:
            running[job] = True
            free, wanted = free - width, wanted - width


_MOST_EXCHANGES = 200
_LEAST_IMPROVEMENT = 1e-12
"""Least improvement, relative to the costs exchanged."""


def improve(schedule: Flags, ordering: Ordering, target: float) -> Flags:
    """A schedule (N, R) of no higher cost with the same number of rounds per job.

    Jobs of one width, or idle GPUs, change places with as many GPUs' worth of other jobs along a cycle of two or three
    rounds; the best cycle is taken until none improves or the cost is at most `target`.
    """
    schedule = schedule.copy()
    for _ in range(_MOST_EXCHANGES):
        if ordering.cost(schedule) <= target:
            break
        best, exchange = 0.0, None
        for moves in moves_of(schedule, ordering, ordering.idle(schedule)):
            cost = moves.cost
            for saved in (cost + cost.T, cost[:, :, None] + cost + cost.T[:, None, :]):
                rounds = [int(at) for at in np.unravel_index(int(np.argmin(saved)), saved.shape)]
                cycle = list(zip(rounds, rounds[1:] + rounds[:1], strict=True))
                least = -_LEAST_IMPROVEMENT * max(abs(cost[move]) for move in cycle)
                if saved.min() < min(best, least):
                    best, exchange = saved.min(), (moves, cycle)
        if exchange is None:
            break
        exchange[0].carry_out(schedule, exchange[1])
    return schedule


def place_missing(schedule: Flags, ordering: Ordering) -> Flags:
    """The schedule (N, R) with as many of the missing rounds placed as is easily done.

    Idle GPUs may be enough in all and yet lie in rounds of too few each, or in rounds in which the job runs already.
    Then jobs of one round move to idle GPUs of others, directly or by way of one other round, until the missing job
    fits. The widest jobs are placed first, and among them the heaviest.
    """
    order = np.lexsort((-ordering.weights, -ordering.widths))
    missing = ordering.rounds_per_job - schedule.sum(axis=1)
    for job in np.repeat(order, missing[order]).tolist():
        schedule = _with_one_more(schedule, job, ordering)
    return schedule


def _with_one_more(schedule: Flags, job: int, ordering: Ordering) -> Flags:
    """The schedule with one more round of a job; as it is where no round has room or can be given it."""
    idle, width = ordering.idle(schedule), ordering.widths[job]
    places = np.flatnonzero(~schedule[job])
    for place in places[np.argsort(-idle[places], kind="stable")].tolist():
        trial = schedule.copy()
        while (lacking := int(width - ordering.idle(trial)[place])) > 0:
            if not _move_out(trial, place, lacking, ordering):
                break
        else:
            trial[job, place] = True
            return trial
    return schedule


def _move_out(schedule: Flags, place: int, lacking: int, ordering: Ordering) -> bool:
    """Move jobs of at most so many GPUs out of a round to idle GPUs of others; whether there were any."""
    idle = ordering.idle(schedule)
    # first by way of the round itself, which is directly
    ways = np.roll(np.arange(ordering.rounds), -place)
    for moves in reversed(moves_of(schedule, ordering, np.zeros_like(idle))):
        open_to = idle >= moves.size
        open_to[place] = False
        by_way = moves.cost[place, ways, None] + np.where(open_to, moves.cost[ways], np.inf)
        way, to = (int(at) for at in np.unravel_index(int(np.argmin(by_way)), by_way.shape))
        if moves.size <= lacking and by_way[way, to] < np.inf:
            moves.carry_out(schedule, [(place, int(ways[way])), (int(ways[way]), to)])
            return True
    return False
