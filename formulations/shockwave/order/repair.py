"""Places for rounds that found none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.shockwave.order.moves import Moves, Workload, moves_of

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


def place_missing(schedule: Booleans, missing: Integers, load: Workload) -> Booleans:
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


def _with_one_more(schedule: Booleans, job: int, load: Workload) -> Booleans | None:
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


def _real_moves(schedule: Booleans, load: Workload) -> list[Moves]:
    """Moves in which no idle GPUs stand for jobs."""
    return moves_of(schedule, load, np.zeros(schedule.shape[1], dtype=np.int64))


def _move_out(
    schedule: Booleans, place: int, lacking: int, idle: Integers, all_moves: list[Moves], load: Workload
) -> bool:
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
