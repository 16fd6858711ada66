"""Gang packing: from queues of rows to the rows of one round. Plain loops, all in queue order.

A *row* is a job alone or two jobs on the same GPUs, known by its position in the ledger; a job runs in one row only. A
gang is never split, and one that does not fit lets smaller ones behind it pass, unless the queue is strict.

Source: Gavel, OSDI'20, sec. 5, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from throughputs.arrays import Floats


@dataclass(frozen=True)
class Rows:
    """What packing needs to know of R rows of n jobs.

    Attributes
    ----------
    first, second : (R,) positions of the jobs of each row; second is -1 for a job alone.
    gpus : (R,) GPUs that the row takes.
    """

    first: list[int]
    second: list[int]
    gpus: list[int]


class Vacancies:
    """What is left to give in a round.

    Attributes
    ----------
    free : GPUs of each type; counted down.
    taken : one byte for each of the n jobs, 1 where it runs already.
    waiting : jobs that do not run yet.
    """

    def __init__(self, capacity: list[int], n_jobs: int) -> None:
        self.free = capacity.copy()
        self.taken = bytearray(n_jobs)
        self.waiting = n_jobs


def pack(queue: Iterable[tuple[int, int]], rows: Rows, left: Vacancies, strict: bool = False) -> list[list[int]]:
    """Serve one queue of (row, type) from the front; returns the rows of each type."""
    free, taken, waiting = left.free, left.taken, left.waiting
    first, second, gpus = rows.first, rows.second, rows.gpus
    chosen: list[list[int]] = [[] for _ in free]
    open_types = sum(count > 0 for count in free)
    for row, j in queue:
        job = first[row]
        if taken[job]:
            continue
        size = gpus[row]
        if size > free[j]:
            if not (strict and free[j]):
                continue
            free[j] = 0
        else:
            partner = second[row]
            if partner >= 0:
                if taken[partner]:
                    continue
                taken[partner] = 1
                waiting -= 1
            taken[job] = 1
            waiting -= 1
            chosen[j].append(row)
            free[j] -= size
        if not free[j]:
            open_types -= 1
            if not open_types:
                break
        if not waiting:
            break
    left.waiting = waiting
    return chosen


def preference(rates: Floats) -> list[list[int]]:
    """For each of the (N, M) `rates` the types that can run the job, fastest first, equal ones in the given order."""
    order = (-rates).argsort(axis=1, kind="stable")
    counts = (rates > 0).sum(axis=1)
    return [row[:count].tolist() for row, count in zip(order, counts.tolist(), strict=True)]
