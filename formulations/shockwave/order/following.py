"""A schedule that follows the course of fractional shares, round by round."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from throughputs.numerics import matmul

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


def follow(
    shares: Array,
    rounds_per_job: Integers,
    widths: Integers,
    density: Array,
    gpus: int,
    needed: Integers,
    until: Integers,
) -> Booleans:
    """(N, R) schedule: in each round those furthest behind their shares (N, R) run, the denser first.

    Jobs that need every round that is left run in any case, and so many GPUs of wide jobs that the rounds that remain
    can take the others. Some rounds of some jobs may yet find no place.
    """
    rounds = shares.shape[1]
    schedule = np.zeros(shares.shape, dtype=np.bool_)
    left, early = rounds_per_job.copy(), needed.copy()
    courses = np.round(np.cumsum(shares, axis=1), 6)
    distinct = [int(width) for width in np.unique(widths)[::-1]]
    for now in range(rounds):
        after = rounds - now - 1
        behind = courses[:, now] - (rounds_per_job - left)
        pressed = (left > after) | ((early > 0) & (early > until - now - 1))
        order = np.lexsort((-density, -behind, ~pressed)).tolist()
        free = _take(order, np.flatnonzero(pressed).size, left, widths, gpus, schedule[:, now])
        for width in distinct:
            wide = widths >= width
            room = after * width * (gpus // width)
            short = int((widths * left)[wide].sum()) - room - int(matmul(widths[wide], schedule[wide, now]))
            if short > 0:
                wider = [job for job in order if wide[job]]
                free = _take(wider, len(wider), left, widths, free, schedule[:, now], at_least=short)
        _take(order, len(order), left, widths, free, schedule[:, now])
        left -= schedule[:, now]
        early -= schedule[:, now]
    return schedule


def _take(
    order: list[int],
    first: int,
    left: Integers,
    widths: Integers,
    free: int,
    running: Booleans,
    at_least: int | None = None,
) -> int:
    """Let the first jobs of an order run as far as they fit, or until enough GPUs are theirs; the GPUs still free."""
    start = free
    for job in order[:first]:
        if free <= 0 or (at_least is not None and start - free >= at_least):
            break
        if left[job] > 0 and not running[job] and widths[job] <= free:
            running[job] = True
            free -= int(widths[job])
    return free
