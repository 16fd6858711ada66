"""Optimus: the least remaining time by marginal gains, and as the program that it is.

Y. Peng et al., "Optimus", EuroSys 2018, sec. 4.1, in the form that Pollux' simulator compares with.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import ArrayLike, NDArray

from formulations.columns import ColumnProgram, ColumnSolution, Total, solve_columns
from throughputs import Configurations, InputError

__all__ = ["least_remaining_time", "marginal_gains"]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


def marginal_gains(remaining_seconds: ArrayLike, gpus: int) -> Whole:
    """(N,) GPUs: one for each job in order while there are any, each further one to whom it saves the most time.

    Where the remaining time of every job is convex in its GPUs, this is the optimum of `least_remaining_time`.

    Parameters
    ----------
    remaining_seconds : (N, R) time that a job still needs on 1 .. R GPUs; inf or nan beyond the most that it can use.
    gpus : that there are, of one type.
    """
    times = np.asarray(remaining_seconds, dtype=np.float64)
    if times.ndim != 2 or (times[~np.isnan(times)] < 0).any():
        raise InputError("remaining time", found=times.shape, expected="shape (jobs, GPUs), at least 0")
    N = len(times)
    given = np.zeros(N, dtype=np.int64)
    given[: min(N, gpus)] = 1
    with np.errstate(invalid="ignore"):
        gains = np.where(np.isfinite(times[:, 1:]), times[:, :-1] - times[:, 1:], 0.0)
    # ties go to the job that comes first
    queue = [(-gains[i, 0], i) for i in range(min(N, gpus)) if gains.shape[1]]
    heapify(queue)
    for _ in range(gpus - int(given.sum())):
        if not queue or queue[0][0] >= 0:
            break
        _, i = heappop(queue)
        given[i] += 1
        if given[i] <= gains.shape[1]:
            heappush(queue, (-gains[i, given[i] - 1], i))
    return given


def least_remaining_time(
    ways: Configurations, remaining_seconds: ArrayLike, capacity: ArrayLike, *, solver: str = "auto"
) -> ColumnSolution:
    """One column for as many jobs as can have one, then the least total of remaining times::

        max sum_c x_c,   then  min sum_c T_c x_c      one column of a job, capacity of each pool, x_c in {0, 1}

    Parameters
    ----------
    remaining_seconds : (C,) T, what the job of a column still needs with it.
    capacity : (M,) GPUs.
    """
    times = np.asarray(remaining_seconds, dtype=np.float64)
    if times.shape != (ways.n_columns,) or not (np.isfinite(times) & (times >= 0)).all():
        expected = f"{ways.n_columns} finite figures of at least 0"
        raise InputError("remaining time", found=times.shape, expected=expected)
    goals = [Total(np.ones(ways.n_columns)), Total(times, maximise=False)]
    return solve_columns(ColumnProgram(ways, capacity, whole=True), goals, solver=solver)
