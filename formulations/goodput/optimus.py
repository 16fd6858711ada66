"""Optimus: the least remaining time by marginal gains, and as the program that it is.

Y. Peng et al., "Optimus", EuroSys 2018, sec. 4.1, in the form that Pollux' simulator compares with.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import ArrayLike

from formulations.arguments import figures
from formulations.columns import ColumnProgram, ColumnSolution, Total, solve_columns
from formulations.reference.stopping import TIME_LIMIT_SECONDS
from throughputs import Configurations, InputError
from throughputs.arrays import Ints


def marginal_gains(remaining_seconds: ArrayLike, gpus: int, *, single_steps: bool = False) -> Ints:
    """(N,) GPUs: the fewest that it can use for each job in order, where there are so many, and then for whom they save
    the most time.

    A step to a larger number of GPUs counts by the time that it saves per GPU; that with the most is taken first, of
    equal ones that of the first job. Where jobs can use any number, and the remaining time of each is convex in it,
    this is the optimum of `least_remaining_time`.

    Parameters
    ----------
    remaining_seconds : (N, R) time that a job still needs on 1 .. R GPUs; inf or nan for numbers that it cannot use.
    gpus : that there are, of one type.
    single_steps : jobs get one GPU more at a time, and none beyond a number at which one more saves nothing, as in the
        simulator of Pollux.
    """
    times = np.asarray(remaining_seconds, dtype=np.float64)
    if times.ndim != 2 or (times[~np.isnan(times)] < 0).any():
        raise InputError("remaining time", found=times.shape, expected="shape (jobs, GPUs), at least 0")
    given, left = np.zeros(len(times), dtype=np.int64), gpus
    usable = np.isfinite(times)
    queue: list[tuple[float, int, int]] = []

    def offer(i: int) -> None:
        """Put the best step of a job that GPUs are left for into the queue."""
        ahead = times[i, given[i] : given[i] + (min(left, 1) if single_steps else left)]
        saved = np.where(np.isfinite(ahead), times[i, given[i] - 1] - ahead, 0.0) / np.arange(1, len(ahead) + 1)
        if saved.max(initial=0.0) > 0:
            best = int(saved.argmax())
            heappush(queue, (-float(saved[best]), i, best + 1))

    for i in np.flatnonzero(usable.any(axis=1)).tolist():
        fewest = int(usable[i].argmax()) + 1
        if fewest <= left:
            given[i] = fewest
            left -= fewest
    for i in np.flatnonzero(given).tolist():
        offer(i)
    while queue and left:
        _, i, step = heappop(queue)
        if step <= left:
            given[i] += step
            left -= step
        offer(i)
    return given


def least_remaining_time(
    ways: Configurations,
    remaining_seconds: ArrayLike,
    capacity: ArrayLike,
    *,
    solver: str = "auto",
    seconds: float = TIME_LIMIT_SECONDS,
) -> ColumnSolution:
    """One column for as many jobs as can have one, then the least total of remaining times::

        max sum_c x_c,   then  min sum_c T_c x_c      one column of a job, capacity of each pool, x_c in {0, 1}

    Parameters
    ----------
    remaining_seconds : (C,) T, what the job of a column still needs with it.
    capacity : (M,) GPUs.
    """
    times = figures("remaining time", "seconds", remaining_seconds, (ways.n_columns,), "numbers of at least 0")
    goals = [Total(np.ones(ways.n_columns)), Total(times, maximise=False)]
    return solve_columns(ColumnProgram(ways, capacity, whole=True), goals, solver=solver, seconds=seconds)
