"""GPUs that no lease uses: who runs on them, and who must give them back."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from allocator.policies.chronus.clock import LeaseClock
from allocator.policies.chronus.leases import count_needed
from allocator.policies.chronus.memory import (
    ACCEPTED,
    BEST_EFFORT,
    LOWEST,
    UNACCEPTED,
    ChronusMemory,
    Integers,
)
from allocator.policies.chronus.rules import LeaseRules


def look_at_running(memory: ChronusMemory, rules: LeaseRules, now: int) -> None:
    """Enter what running jobs did up to `now` (units). Who has run for its estimate loses its promise."""
    if not memory.running:
        return
    rows = np.array(memory.running)
    memory.ran[rows] += now - memory.seen[rows]
    memory.seen[rows] = now
    over = memory.ran[rows] >= memory.estimate[rows]
    if now % rules.clock.lease:
        over &= ~memory.leased[rows]
    late = rows[over]
    memory.kind[late] = UNACCEPTED
    memory.overrun[late] = True
    memory.planned[late] = False
    for row in late.tolist():
        memory.leases[row] = None
    early = ~(memory.leased[rows] | memory.forced[rows]) & (memory.kind[rows] == ACCEPTED)
    count_needed(memory, rules, rows[early].tolist())
    if 0 < rules.noise <= rules.trusted_noise:
        shorter = rows[memory.known_duration[rows] < memory.duration[rows]]
        part = memory.ran[shorter] / memory.duration[shorter]
        known = memory.duration[shorter] + (memory.known_duration[shorter] - memory.duration[shorter]) * part
        memory.estimate[shorter] = rules.estimates(known, memory.gpus[shorter])


def serve_waiting(memory: ChronusMemory, rules: LeaseRules, now: int) -> None:
    """Guarantee GPUs to jobs that end within the lease, then run who can (`now`: units)."""
    if rules.forced_guarantee:
        _guarantee(memory, rules, now)
    waiting = np.array(memory.waiting, dtype=np.int64)
    memory.seen[waiting] = now
    _give_up_hopeless(memory, rules, waiting, now)
    memory.urgency[waiting] = _urgency(memory, waiting, now)
    forced = [row for row in memory.waiting if memory.forced[row]]
    wanted = int(memory.gpus[forced].sum())
    if wanted > memory.free(rules.capacity):
        _preempt(memory, rules, wanted, now)
    memory.start(forced, now)
    waiting = np.array(memory.waiting, dtype=np.int64)
    by_class = (-memory.submitted[waiting], -memory.urgency[waiting], -memory.kind[waiting])
    memory.waiting = waiting[np.lexsort(by_class)].tolist()
    free = memory.free(rules.capacity)
    if free > 0:
        memory.waiting = _in_order(memory, memory.waiting, last_first=True)
        memory.start(_first_fit(memory, _able(memory, rules), free), now)
    memory.filled = False


def fill(memory: ChronusMemory, rules: LeaseRules, now: int) -> list[int]:
    """Offer GPUs that are left between slots to jobs that wait; answers those that start (`now`: units)."""
    memory.filled = True
    free = memory.free(rules.capacity)
    if free <= 0 or not memory.waiting:
        return []
    memory.waiting = rules.offers.in_order(memory)
    able = rules.offers.able(memory, rules)
    started = _first_fit(memory, able, free)
    memory.start(started, now, waited_counts=rules.offers.waiting_counts)
    return started


def _able(memory: ChronusMemory, rules: LeaseRules) -> list[int]:
    return [row for row in memory.waiting if rules.accepted_run_early or memory.kind[row] != ACCEPTED]


class Offers:
    """Between slots GPUs that are left are offered as at slots."""

    waiting_counts: ClassVar[bool] = False
    """Whether time in which a job waited counts as training."""

    def are_made_at(self, tick: int, clock: LeaseClock) -> bool:
        """Whether GPUs are offered at a tick, units."""
        return tick % clock.slot != 0

    def end_at_slots(self) -> bool:
        """Whether what was offered at a slot is not offered again before something happens."""
        return True

    def in_order(self, memory: ChronusMemory) -> list[int]:
        """Jobs that wait, the first in line first."""
        return _in_order(memory, memory.waiting, last_first=True)

    def able(self, memory: ChronusMemory, rules: LeaseRules) -> list[int]:
        """Those of them that may run without a lease."""
        return _able(memory, rules)


class NoOffers(Offers):
    """Nothing is offered between slots."""

    def are_made_at(self, tick: int, clock: LeaseClock) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def end_at_slots(self) -> bool:
        """There are none."""
        return False


def _guarantee(memory: ChronusMemory, rules: LeaseRules, now: int) -> None:
    """Jobs without a promise that end within the lease have their GPUs to its end, shortest first in GPU time."""
    end = (rules.clock.running_lease(now) + 1) * rules.clock.lease
    waiting = np.array(memory.waiting, dtype=np.int64)
    left = memory.known_duration[waiting] - memory.ran[waiting]
    short = waiting[(memory.kind[waiting] == UNACCEPTED) & (left <= end - now)]
    gpu_time = (memory.known_duration[short] - memory.ran[short]) * memory.gpus[short]
    holding = memory.forced[waiting] & (memory.kind[waiting] == ACCEPTED)
    room = rules.capacity - _guaranteed(memory) - int(memory.gpus[waiting[holding]].sum())
    for row in short[np.argsort(gpu_time, kind="stable")].tolist():
        if memory.gpus[row] <= room:
            room -= int(memory.gpus[row])
            memory.forced[row] = True
            memory.planned[row] = False
            if memory.submitted[row] >= end - rules.clock.lease:
                memory.kind[row] = ACCEPTED


def _guaranteed(memory: ChronusMemory) -> int:
    """GPUs of running jobs that nobody may take."""
    rows = np.array(memory.running, dtype=np.int64)
    return int(memory.gpus[rows[memory.leased[rows] | memory.forced[rows]]].sum())


def _give_up_hopeless(memory: ChronusMemory, rules: LeaseRules, rows: Integers, now: int) -> None:
    """Jobs that would end after their deadline if they ran from now on come last."""
    duration = memory.known_duration if rules.noise <= rules.trusted_noise else memory.duration
    late = memory.due[rows] < now + duration[rows] - memory.ran[rows]
    memory.kind[rows[late & (memory.kind[rows] != BEST_EFFORT)]] = LOWEST


def _urgency(memory: ChronusMemory, rows: Integers, now: int) -> np.ndarray:
    """Minus the GPU time that is left or, of jobs with a promise or past hope, minus slack times GPUs."""
    left = memory.estimate[rows] - memory.ran[rows]
    free = (memory.kind[rows] == BEST_EFFORT) | (memory.kind[rows] == UNACCEPTED)
    due = np.where(free, 0.0, memory.due[rows])
    return -np.where(free, left, due - now - left) * memory.gpus[rows]


def _preempt(memory: ChronusMemory, rules: LeaseRules, wanted: int, now: int) -> None:
    """Jobs without a guarantee give GPUs back, those last in the order first, until `wanted` are free."""
    running = np.array(memory.running)
    rows = running[~(memory.leased[running] | memory.forced[running])]
    _give_up_hopeless(memory, rules, rows, now)
    memory.urgency[rows] = _urgency(memory, rows, now)
    free, stopped = memory.free(rules.capacity), []
    for row in _in_order(memory, rows.tolist(), last_first=False):
        if free >= wanted:
            break
        stopped.append(row)
        free += int(memory.gpus[row])
    count_needed(memory, rules, stopped)
    memory.stop(stopped, now)


def _in_order(memory: ChronusMemory, rows: list[int], *, last_first: bool) -> list[int]:
    """By overrun, class (without a promise and best effort as one), urgency and arrival; equal ones as they stand."""
    at = np.array(rows, dtype=np.int64)
    kind = np.minimum(memory.kind[at], UNACCEPTED)
    keys = (-memory.submitted[at], memory.urgency[at], kind, memory.overrun[at].astype(np.int64))
    order = np.lexsort(tuple(-key for key in keys) if last_first else keys)
    return [int(row) for row in at[order]]


def _first_fit(memory: ChronusMemory, rows: list[int], free: int) -> list[int]:
    """Jobs in order, each whose GPUs are there."""
    chosen = []
    for row, gpus in zip(rows, memory.gpus[rows].tolist(), strict=True):
        if gpus <= free:
            chosen.append(row)
            free -= gpus
            if not free:
                break
    return chosen
