"""Idle GPUs of a plan, and who gets them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from throughputs.numerics import matmul

Booleans = NDArray[np.bool_]


def backfill(
    schedule: Booleans, widths: NDArray[np.int64], gpus: int, remaining_seconds: NDArray[np.float64]
) -> Booleans:
    """The schedule (N, R) with jobs added to each round while they fit, those with most left to run first.

    Jobs with equally much left are taken in the order in which they are given.

    Source: the public implementation of Zheng et al., NSDI 2023 (work-conserving backfill).
    """
    filled = schedule.copy()
    idle = gpus - matmul(widths, schedule)
    longest_first = np.argsort(-remaining_seconds, kind="stable")
    ordered = widths[longest_first]
    for now in np.flatnonzero(idle > 0):
        free = int(idle[now])
        waiting = np.flatnonzero(~filled[longest_first, now] & (ordered <= free))
        for job, width in zip(longest_first[waiting].tolist(), ordered[waiting].tolist(), strict=True):
            if width <= free:
                filled[job, now] = True
                free -= width
                if free == 0:
                    break
    return filled


def fill_with_gain(schedule: Booleans, gains: NDArray[np.float64], widths: NDArray[np.int64], gpus: int) -> Booleans:
    """The schedule (N, R) with rounds of any gain added where they fit, those with most gain per GPU first."""
    filled = schedule.copy()
    idle = gpus - matmul(widths, schedule)
    counts = filled.sum(axis=1)
    further = np.arange(gains.shape[1]) >= counts[:, None]
    density = np.where(further, gains / widths[:, None], 0.0)
    candidates = np.argsort(-density, axis=None, kind="stable")[: np.count_nonzero(density > 0)]
    for job in (candidates // gains.shape[1]).tolist():
        places = np.flatnonzero(~filled[job] & (idle >= widths[job]))
        if len(places):
            filled[job, places[0]] = True
            idle[places[0]] -= widths[job]
    return filled
