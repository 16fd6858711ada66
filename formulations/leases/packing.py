"""Packing by rule: latest slot first. Source: the admission test and the fallback of Chronus' public code.

A job takes the latest slots before its deadline that have room for its GPUs. What is left free is early, where the
next arrival may need it; a later job that finds no room is not helped by moving earlier ones, so that a packing which
fails does not prove that none exists.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from formulations.leases.program import LeaseProgram
from throughputs.arrays import Flags, Floats, Ints


def latest_slots(free: Ints, gpus: int, needed: int, deadline: int) -> Ints | None:
    """The `needed` latest of the first `deadline` slots with `gpus` GPUs free, ascending; None: too few have them."""
    room = np.flatnonzero(free[: max(deadline, 0)] >= gpus)
    return room[len(room) - needed :] if len(room) >= needed else None


def _placed(
    free: Ints, gpus: Ints, needed: Ints, deadline: Ints, job: Ints, value: Floats
) -> Iterator[tuple[int, Ints | None]]:
    """Options in order, those of jobs that have slots left out, and the latest slots with room; None: too few have it.

    By value, then wide ones, then those with the least slack, then those due last.
    """
    left, served = free.copy(), set[int]()
    for r in np.lexsort((-deadline, deadline - needed, -gpus, -value)).tolist():
        if job[r] in served:
            continue
        slots = latest_slots(left, int(gpus[r]), int(needed[r]), int(deadline[r]))
        if slots is not None:
            served.add(int(job[r]))
            left[slots] -= gpus[r]
        yield r, slots


def packs(free: Ints, gpus: Ints, needed: Ints, deadline: Ints, job: Ints) -> bool:
    """Whether all jobs find room: wide ones first, then those with the least slack, then those due last.

    Parameters
    ----------
    free : (T,) GPUs of each slot.
    gpus, needed, deadline, job : (R,) the options; of a job with several only the one with the least slack is looked
        at, as published.
    """
    equal = np.zeros(len(job))
    return all(slots is not None for _, slots in _placed(free, gpus, needed, deadline, job, equal))


def greedy_choice(program: LeaseProgram) -> tuple[Ints, Flags]:
    """Options (J,), -1 for a job that found no room, and the schedule (J, T).

    Options in the order of value, then wide ones, then those with the least slack, then those due last; the first one
    of a job for which there is room is taken.
    """
    job, free = program.job, program.capacity
    option = np.full(program.n_jobs, -1, dtype=np.int64)
    schedule = np.zeros((program.n_jobs, program.n_slots), dtype=np.bool_)
    for r, slots in _placed(free, program.gpus[job], program.needed[job], program.deadline, job, program.value):
        if slots is not None:
            option[job[r]] = r
            schedule[job[r], slots] = True
    return option, schedule


def slot_by_slot(program: LeaseProgram, option: Ints, first: Flags) -> Flags | None:
    """A schedule (J, T) for options (J,) whose slot 0 is given (J,); None where these rules find none.

    The other slots are filled from the last one on. Jobs that need every slot that is left come first, then wide gangs,
    which leaves no GPU idle where widths divide each other, and of one width those with the most leases left. Of gangs
    of one size in slots of one capacity this order finds a schedule wherever there is one (in reverse time it is the
    longest job first, which ends all of them soonest).
    """
    taken, gpus = option >= 0, program.gpus
    left = np.where(taken, program.needed, 0) - first
    due = np.where(taken, program.deadline[np.maximum(option, 0)], 0)
    if int(gpus[first].sum()) > program.capacity[0] or (left < 0).any():
        return None
    schedule = np.zeros((program.n_jobs, program.n_slots), dtype=np.bool_)
    schedule[:, 0] = first
    for slot in range(program.n_slots - 1, 0, -1):
        jobs = np.flatnonzero((left > 0) & (due > slot))
        # jobs that need every slot that is left; where one of them finds no room it is late in the end
        order = jobs[np.lexsort((-left[jobs], -gpus[jobs], left[jobs] < slot))]
        free = int(program.capacity[slot])
        for job, width in zip(order.tolist(), gpus[order].tolist(), strict=True):
            if width <= free:
                schedule[job, slot] = True
                free -= width
        left -= schedule[:, slot]
    return None if left.any() else schedule
