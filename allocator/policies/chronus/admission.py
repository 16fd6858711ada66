"""Who is promised a deadline: each arrival is packed, latest slot first, beside those that were promised theirs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from allocator.policies.chronus.memory import (
    ACCEPTED,
    BEST_EFFORT,
    UNACCEPTED,
    Array,
    ChronusMemory,
    Integers,
)
from allocator.policies.chronus.rules import LeaseRules, rounded_gpus
from formulations.leases import packs

_FAR = 20_000
"""Leases that a job may be put off beyond those that it needs: a deadline further away than that is as good as one."""


@dataclass(frozen=True, eq=False)
class Newcomer:
    """A job that is looked at for the first time.

    Attributes
    ----------
    label, gpus, submitted : of the job; submitted in units.
    duration : how long it runs alone, units.
    due, value : its deadlines, units on the clock, and their values; empty for best effort.
    """

    label: object
    gpus: int
    submitted: float
    duration: float
    due: Array
    value: Array


@dataclass(eq=False)
class OptionPool:
    """Options that are packed together: of jobs that have no plan yet."""

    gpus: list[int] = field(default_factory=list)
    needed: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    job: list[int] = field(default_factory=list)

    def add(self, gpus: int, needed: int, slots: Integers, job: int) -> None:
        """The options of a job, by their numbers of slots."""
        self.gpus += [gpus] * len(slots)
        self.needed += [needed] * len(slots)
        self.slots += slots.tolist()
        self.job += [job] * len(slots)

    def drop(self, count: int) -> None:
        """Take the last options off."""
        for column in (self.gpus, self.needed, self.slots, self.job):
            del column[len(column) - count :]

    def fits(self, capacity: int, taken: Integers) -> bool:
        """Whether all options fit beside what is `taken` of the coming slots."""
        if not self.job:
            return True
        free = np.full(max(0, *self.slots), capacity)
        planned = taken[: len(free)]
        free[: len(planned)] -= planned
        return packs(free, *(np.array(column) for column in (self.gpus, self.needed, self.slots, self.job)))


def option_slots(due: Array, lease: int, first: int, needed: int) -> Integers:
    """Whole leases from number `first` on before each deadline (units on the clock) of a job that needs so many.

    A plan has an entry for each of them, so that far deadlines count as nearer ones.
    """
    return np.minimum(np.floor(due / lease), first + needed + _FAR).astype(np.int64) - first


def unplanned_rows(memory: ChronusMemory) -> list[int]:
    """Jobs that were promised a deadline and still need leases, in the order of both lists."""
    return [
        row
        for row in memory.waiting + memory.running
        if memory.kind[row] == ACCEPTED and memory.planned[row] and memory.needed[row] > 0
    ]


def admit(memory: ChronusMemory, rules: LeaseRules, arrivals: list[Newcomer], now: int) -> None:
    """Take new jobs over, one after the other, and promise those that fit a deadline (`now`: units)."""
    first = rules.clock.running_lease(now) + 1
    pool, taken = _promised(memory, rules, first)
    for job in arrivals:
        row = _enter(memory, rules, job, now)
        if not len(job.due):
            continue
        slots, fits = rules.promises.fits(memory, rules, pool, taken, row, first)
        memory.kind[row] = ACCEPTED if fits else UNACCEPTED
        memory.planned[row] = True
        if fits:
            memory.due[row] = rules.clock.lease * (slots + first)
        else:
            memory.unaccepted += 1


def _enter(memory: ChronusMemory, rules: LeaseRules, job: Newcomer, now: int) -> int:
    """A row for the job, with what it is believed to need."""
    duration = job.duration
    if rules.noise > 0:
        scale = 0.0
        while not 0.5 < scale < 2:
            scale = 1.0 + rules.noise * memory.normal()
        duration = float(int(duration * scale))
    estimate = int(rules.estimates(np.array([duration]), np.array([job.gpus]))[0])
    return memory.add(
        job.label,
        (job.due, job.value),
        gpus=job.gpus,
        submitted=job.submitted,
        duration=duration,
        known_duration=job.duration,
        estimate=estimate,
        due=float(job.due[0]) if len(job.due) else math.inf,
        kind=UNACCEPTED if len(job.due) else BEST_EFFORT,
        needed=int(rules.leases_for(np.array([float(estimate)]))[0]),
        seen=float(now),
    )


def _promised(memory: ChronusMemory, rules: LeaseRules, first: int) -> tuple[OptionPool, Integers]:
    """Promised jobs without a plan, and the GPUs that plans take of the slots from lease number `first` on."""
    pool, plans = OptionPool(), []
    for row in unplanned_rows(memory):
        leases = memory.leases[row]
        if leases is None:
            needed = int(memory.needed[row])
            due = rules.promises.considered(memory, row)
            slots = option_slots(due, rules.clock.lease, first, needed)
            pool.add(int(rounded_gpus(memory.gpus[row])), needed, slots, row)
        else:
            plans.append((leases - first, int(memory.gpus[row])))
    taken = np.zeros(max((int(slots[-1]) + 1 for slots, _ in plans if len(slots)), default=0), dtype=np.int64)
    for slots, gpus in plans:
        taken[slots[slots >= 0]] += gpus
    return pool, taken


def extend(memory: ChronusMemory, row: int, due: float) -> None:
    """Put the last deadline of a job off."""
    dates, values = memory.options[row]
    memory.options[row] = (np.append(dates[:-1], due), values)


class Promises:
    """A job is promised the first of its deadlines for which there is room beside all other promises."""

    may_be_lost: ClassVar[bool] = False
    """Whether the greedy rule may lose promises; otherwise it goes back to the order of admission then."""

    def considered(self, memory: ChronusMemory, row: int) -> Array:
        """Deadlines, units on the clock, of a job with a promise and without a plan that others fit in beside."""
        return np.asarray(memory.due[[row]])

    def open_options(self, memory: ChronusMemory, row: int) -> tuple[Array, Array]:
        """Deadlines and values by which a job may be given leases: none later than the one that it was promised."""
        due, value = memory.options[row]
        promised = int(memory.granted[row]) + 1
        return due[:promised], value[:promised]

    def fits(
        self, memory: ChronusMemory, rules: LeaseRules, pool: OptionPool, taken: Integers, row: int, first: int
    ) -> tuple[int, bool]:
        """Slots of the first deadline for which there is room, and whether there is one.

        With `tolerate_ratio` above 1 a deadline as much later counts as the last of the job's own.
        """
        due = memory.options[row][0]
        gpus, needed = int(rounded_gpus(memory.gpus[row])), int(memory.needed[row])
        slots = option_slots(due, rules.clock.lease, first, needed).tolist()
        tolerated = memory.submitted[row] + rules.tolerate_ratio * (due[-1:] - memory.submitted[row])
        latest = int(option_slots(tolerated, rules.clock.lease, first, needed)[0])
        for option, count in enumerate([*slots, *range(slots[-1] + 1, latest + 1)]):
            if count < needed:
                continue
            pool.add(gpus, needed, np.array([count]), row)
            if pool.fits(rules.capacity, taken):
                memory.granted[row] = min(option, len(slots) - 1)
                if option >= len(slots):
                    extend(memory, row, float(rules.clock.lease * (count + first)))
                return count, True
            pool.drop(1)
        return 0, False
