"""Gang fill: from queues of jobs to the rows of one round. Plain loops over ids, all in queue order.

``free[j]`` is the number of GPUs of type j still free and is counted down; ``taken`` is the set of jobs that already
run in this round; a gang is never split, and one that does not fit lets smaller ones behind it pass.
Source: Gavel, OSDI'20, sec. 5, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["fill_best_type", "fill_merged", "fill_types", "preference"]


def fill_types(
    queues: Sequence[Iterable[int]],
    visit_order: Sequence[int],
    sizes: Sequence[int],
    free: list[int],
    taken: set[int],
    strict: bool = False,
) -> list[list[int]]:
    """Let the types choose one after the other; returns the jobs of each type. `sizes` is GPUs per gang, by job id."""
    chosen: list[list[int]] = [[] for _ in queues]
    for j in visit_order:
        left = free[j]
        if not left:
            continue
        rows = chosen[j]
        for job in queues[j]:
            if job not in taken:
                size = sizes[job]
                if size <= left:
                    rows.append(job)
                    left -= size
                    if not left:
                        break
                elif strict:
                    break
        taken.update(rows)
        free[j] = left
    return chosen


def fill_merged(
    rows: Iterable[tuple[int, int]], sizes: Sequence[int], free: list[int], taken: set[int], strict: bool = False
) -> list[list[int]]:
    """Serve one queue of (job id, type) `rows` from the front; returns the jobs of each type."""
    chosen: list[list[int]] = [[] for _ in free]
    open_types = sum(count > 0 for count in free)
    for job, j in rows:
        if job not in taken:
            size = sizes[job]
            if size <= free[j]:
                chosen[j].append(job)
                taken.add(job)
                free[j] -= size
                if not free[j]:
                    open_types -= 1
                    if not open_types:
                        break
            elif strict and free[j]:
                free[j] = 0
                open_types -= 1
                if not open_types:
                    break
    return chosen


def fill_best_type(
    waiting: Iterable[int], preferred: Callable[[int], Sequence[int]], sizes: Sequence[int], free: list[int]
) -> list[tuple[int, int]]:
    """Give each waiting job the first of its preferred types that has room; returns (job id, type) rows."""
    chosen: list[tuple[int, int]] = []
    left = sum(free)
    for job in waiting:
        if not left:
            break
        size = sizes[job]
        if size > left:
            continue
        for j in preferred(job):
            if size <= free[j]:
                chosen.append((job, j))
                free[j] -= size
                left -= size
                break
    return chosen


def preference(rates: NDArray[np.float64]) -> list[list[int]]:
    """For each of the (N, M) `rates` the types that can run the job, fastest first, equal ones in the given order."""
    order = (-rates).argsort(axis=1, kind="stable")
    counts = (rates > 0).sum(axis=1)
    return [row[:count].tolist() for row, count in zip(order, counts.tolist(), strict=True)]
