"""Cheapest ways to move jobs from one round of a schedule to another.

Jobs are exchanged between rounds where that makes the schedule cheaper, and moved to make places for rounds that found
none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from throughputs.arrays import Flags, Floats, Ints, Positions
from throughputs.numerics import matmul


@dataclass(frozen=True, eq=False)
class Workload:
    """What does not change when jobs move.

    Attributes
    ----------
    widths, weights : (N,) GPUs per job, and cost of each round that a job's round is later.
    gpus : G.
    held : (N,) a job's rounds before this one stay before it.
    """

    widths: Ints
    weights: Floats
    gpus: int
    held: Ints

    @cached_property
    def light_first(self) -> Positions:
        """(N,) jobs by weight."""
        return np.argsort(self.weights, kind="stable")

    def idle(self, schedule: Flags) -> Ints:
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
    cost: Floats
    width: Ints
    spare: Ints

    def jobs(self, schedule: Flags, load: Workload, a: int, b: int) -> Positions:
        """The jobs that move from round `a` to round `b`."""
        width = int(self.width[a, b])
        rows = load.light_first[load.widths[load.light_first] == width]
        able = schedule[rows, a] & ~schedule[rows, b] & ((load.held[rows] <= a) | (load.held[rows] > b))
        rows, number = rows[able], self.size // width
        if b > a:
            return np.asarray(rows[: max(number - int(self.spare[a]) // width, 0)])
        return np.asarray(rows[len(rows) - min(number, len(rows)) :])

    def carry_out(self, schedule: Flags, load: Workload, course: list[tuple[int, int]]) -> None:
        """Move jobs along a course of different rounds, at once; the schedule is changed in place."""
        taken = [self.jobs(schedule, load, a, b) for a, b in course]
        for (a, b), jobs in zip(course, taken, strict=True):
            schedule[jobs, a] = False
            schedule[jobs, b] = True


def moves_of(schedule: Flags, load: Workload, spare: Ints) -> list[Moves]:
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


def _movable(schedule: Flags, held: Ints) -> Flags:
    """(N, R, R) whether a job runs in one round, not in another, and may change from the first to the second."""
    inside = np.arange(schedule.shape[1]) < held[:, None]
    movable: Flags = schedule[:, :, None] & ~schedule[:, None, :]
    movable &= ~inside[:, :, None] | inside[:, None, :]
    return movable


_MOST_EXCHANGES = 200
_LEAST_IMPROVEMENT = 1e-12
"""Least improvement, relative to the costs exchanged."""


def improve(schedule: Flags, load: Workload, *, cost_of: Callable[[Flags], float], target: float) -> Flags:
    """A schedule (N, R) of no higher cost ``sum_j weight_j sum_r r s_jr`` with the same number of rounds per job.

    Jobs of one width, or idle GPUs, change places with as many GPUs' worth of other jobs along a cycle of two or three
    rounds; the best cycle is taken until none improves or the cost is at most `target`.
    """
    schedule = schedule.copy()
    for _ in range(_MOST_EXCHANGES):
        if cost_of(schedule) <= target:
            break
        exchange = _best_exchange(schedule, load)
        if exchange is None:
            break
        moves, cycle = exchange
        moves.carry_out(schedule, load, cycle)
    return schedule


def _best_exchange(schedule: Flags, load: Workload) -> tuple[Moves, list[tuple[int, int]]] | None:
    """The cycle of moves that saves most; None where none saves anything."""
    best, found = 0.0, None
    for moves in moves_of(schedule, load, load.idle(schedule)):
        for cycle in (_best_of_two(moves.cost), _best_of_three(moves.cost)):
            terms = [float(moves.cost[a, b]) for a, b in cycle]
            saved = sum(terms)
            if saved < best and saved < -_LEAST_IMPROVEMENT * max(abs(term) for term in terms):
                best, found = saved, (moves, cycle)
    return found


def _best_of_two(cost: Floats) -> list[tuple[int, int]]:
    both = cost + cost.T
    a, b = np.unravel_index(int(np.argmin(both)), both.shape)
    return [(int(a), int(b)), (int(b), int(a))]


def _best_of_three(cost: Floats) -> list[tuple[int, int]]:
    all_three = cost[:, :, None] + cost[None, :, :] + cost.T[:, None, :]
    a, b, c = (int(at) for at in np.unravel_index(int(np.argmin(all_three)), all_three.shape))
    return [(a, b), (b, c), (c, a)]


def place_missing(schedule: Flags, missing: Ints, load: Workload) -> Flags:
    """The schedule (N, R) with as many of the missing rounds (N,) placed as is easily done.

    Idle GPUs may be enough in all and yet lie in rounds of too few each, or in rounds in which the job runs already.
    Then jobs of one round move to idle GPUs of others, directly or by way of one other round, until the missing job
    fits. The widest jobs are placed first, and among them the heaviest.
    """
    schedule = schedule.copy()
    for job in np.lexsort((-load.weights, -load.widths, missing == 0))[: np.count_nonzero(missing)].tolist():
        for _ in range(int(missing[job])):
            found = _with_one_more(schedule, job, load)
            if found is None:
                break
            schedule = found
    return schedule


def _with_one_more(schedule: Flags, job: int, load: Workload) -> Flags | None:
    """The schedule with one more round of a job; None where no round has room or can be given it."""
    idle = load.idle(schedule)
    places = np.flatnonzero(~schedule[job])
    first = _real_moves(schedule, load) if not (idle[places] >= load.widths[job]).any() else []
    for place in places[np.argsort(-idle[places], kind="stable")].tolist():
        trial, moves = schedule.copy(), first
        while True:
            idle = load.idle(trial)
            lacking = int(load.widths[job] - idle[place])
            if lacking <= 0:
                trial[job, place] = True
                return trial
            moves = moves or _real_moves(trial, load)
            if not _move_out(trial, place, lacking, idle, moves, load):
                break
            moves = []
    return None


def _real_moves(schedule: Flags, load: Workload) -> list[Moves]:
    """Moves in which no idle GPUs stand for jobs."""
    return moves_of(schedule, load, np.zeros(schedule.shape[1], dtype=np.int64))


def _move_out(schedule: Flags, place: int, lacking: int, idle: Ints, all_moves: list[Moves], load: Workload) -> bool:
    """Move jobs of at most so many GPUs out of a round to idle GPUs of others; whether there were any."""
    for moves in reversed(all_moves):
        open_to = idle >= moves.size
        open_to[place] = False
        if moves.size > lacking or not open_to.any():
            continue
        direct = np.where(open_to, moves.cost[place], np.inf)
        by_way = moves.cost[place][:, None] + np.where(open_to, moves.cost, np.inf)
        by_way[:, place] = np.inf
        way, to = np.unravel_index(int(np.argmin(by_way)), by_way.shape)
        if min(direct.min(), by_way.min()) == np.inf:
            continue
        course = [(place, int(np.argmin(direct)))]
        if by_way[way, to] < direct.min():
            course = [(place, int(way)), (int(way), int(to))]
        moves.carry_out(schedule, load, course)
        return True
    return False
