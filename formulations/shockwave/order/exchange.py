"""Exchanges of jobs between rounds that make a schedule cheaper."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from formulations.shockwave.order.moves import Moves, Workload, moves_of

Array = NDArray[np.float64]
Booleans = NDArray[np.bool_]

_MOST_EXCHANGES = 200
"""Exchanges after which a schedule is taken as it is."""
_LEAST_IMPROVEMENT = 1e-12
"""Least improvement, relative to the costs exchanged."""


def improve(schedule: Booleans, load: Workload, *, cost_of: Callable[[Booleans], float], target: float) -> Booleans:
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


def _best_exchange(schedule: Booleans, load: Workload) -> tuple[Moves, list[tuple[int, int]]] | None:
    """The cycle of moves that saves most; None where none saves anything."""
    best, found = 0.0, None
    for moves in moves_of(schedule, load, load.idle(schedule)):
        for cycle in (_best_of_two(moves.cost), _best_of_three(moves.cost)):
            terms = [float(moves.cost[a, b]) for a, b in cycle]
            saved = sum(terms)
            if saved < best and saved < -_LEAST_IMPROVEMENT * max(abs(term) for term in terms):
                best, found = saved, (moves, cycle)
    return found


def _best_of_two(cost: Array) -> list[tuple[int, int]]:
    both = cost + cost.T
    a, b = np.unravel_index(int(np.argmin(both)), both.shape)
    return [(int(a), int(b)), (int(b), int(a))]


def _best_of_three(cost: Array) -> list[tuple[int, int]]:
    all_three = cost[:, :, None] + cost[None, :, :] + cost.T[:, None, :]
    a, b, c = (int(at) for at in np.unravel_index(int(np.argmin(all_three)), all_three.shape))
    return [(a, b), (b, c), (c, a)]
