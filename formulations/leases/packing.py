"""Packing by rule: latest slot first. Source: the admission test and the fallback of Chronus' public code.

A job takes the latest slots before its deadline that have room for its GPUs. What is left free is early, where the
next arrival may need it; a later job that finds no room is not helped by moving earlier ones, so that a packing which
fails does not prove that none exists.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.leases.program import Array, Integers, LeaseProgram

__all__ = ["greedy_choice", "latest_slots", "packs"]


def latest_slots(free: Integers, gpus: int, needed: int, deadline: int) -> Integers | None:
    """The `needed` latest of the first `deadline` slots with `gpus` GPUs free, ascending; None: too few have them."""
    room = np.flatnonzero(free[: max(deadline, 0)] >= gpus)
    return room[len(room) - needed :] if len(room) >= needed else None


def packs(free: Integers, gpus: Integers, needed: Integers, deadline: Integers, job: Integers) -> bool:
    """Whether all jobs find room: wide ones first, then those with the least slack, then those due last.

    Parameters
    ----------
    free : (T,) GPUs of each slot.
    gpus, needed, deadline, job : (R,) the options; of a job with several only the one with the least slack is looked
        at, as published.
    """
    left = free.copy()
    seen: set[int] = set()
    for r in np.lexsort((-deadline, deadline - needed, -gpus)).tolist():
        if job[r] in seen:
            continue
        seen.add(int(job[r]))
        slots = latest_slots(left, int(gpus[r]), int(needed[r]), int(deadline[r]))
        if slots is None:
            return False
        left[slots] -= gpus[r]
    return True


def greedy_choice(program: LeaseProgram) -> tuple[Integers, NDArray[np.bool_]]:
    """Options (J,), -1 for a job that found no room, and the schedule (J, T).

    Options in the order of value, then wide ones, then those with the least slack, then those due last; the first one
    of a job for which there is room is taken.
    """
    n, D = program.needed[program.job], program.deadline
    g, v = program.gpus[program.job], _negative(program.value)
    left = program.capacity.copy()
    option = np.full(program.n_jobs, -1, dtype=np.int64)
    schedule = np.zeros((program.n_jobs, program.n_slots), dtype=np.bool_)
    for r in np.lexsort((-D, D - n, -g, v)).tolist():
        j = int(program.job[r])
        if option[j] >= 0:
            continue
        slots = latest_slots(left, int(g[r]), int(n[r]), int(D[r]))
        if slots is not None:
            option[j] = r
            schedule[j, slots] = True
            left[slots] -= g[r]
    return option, schedule


def _negative(values: Array) -> Array:
    return -np.asarray(values, dtype=np.float64)
