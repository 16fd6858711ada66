"""When jobs that wait are likely to start: a guess from who runs, for how long, and who is before them.

Each GPU is free when the job on it is done, as far as that is known. In the order of the queue every job takes those
that are free first, of the type on which that is soonest, and has them for as long as it needs. Where jobs wait that
have run before, time is shared, and who waits gets a turn before others are done: a round later for each time that the
GPUs go round among those before it. The earlier of the two is the guess. Policies are not asked, so that it is one, and
no promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from allocator.runtime.decisions.hardware import Placed, gpus_of, held
from allocator.runtime.door.views import seconds_left
from allocator.runtime.records.book import HOLDS_GPUS, QUEUED, STOPPING, Job

if TYPE_CHECKING:
    from allocator.runtime.service import Service


def expected_starts(service: Service, most: int) -> dict[str, float]:
    """Seconds until the first `most` jobs of the queue are likely to start, by UUID; those without a guess are not in.

    The queue is in the order of submission, those first that the last decision wants.
    """
    deciding, book, now = service.deciding, service.book, service.clock()
    outlook = deciding.outlook()
    to_end = max(outlook.ends - now, 0.0)
    free = _free_at(service)
    waiting = [job for job in islice(book.active.values(), 2 * most + len(book.holding)) if job.state == QUEUED]
    waiting = [job for job in waiting if not deciding.why_unfit(job)]
    waiting.sort(key=lambda job: job.uuid not in outlook.targets)
    holders = held(book.holding.values())
    total = max(sum(map(len, free.values())), 1)
    turns = outlook.ends < inf and any(job.epoch and not job.failures for job in waiting)
    guesses, before = {}, 0
    for job in waiting[:most]:
        target = outlook.targets.get(job.uuid)
        start = _in_turn(service, job, free)
        if target is not None:
            start = min(start, to_end if _taken(target, holders, book.holding) and to_end < inf else 0.0)
        elif turns:
            start = min(start, to_end + before // total * outlook.seconds)
        before += job.gpus if target is None else 0
        if start < inf:
            guesses[job.uuid] = start
    return guesses


def _needs(service: Service, job: Job, rate: float) -> float | None:
    if not job.total_steps or rate <= 0:
        return None
    return max(job.total_steps - service.steps_of(job), 0.0) / rate


def _free_at(service: Service) -> dict[str, list[float]]:
    """By type, in how many seconds each GPU is free, in order; inf: nobody knows."""
    until: dict[tuple[str, int], float] = {}
    for job in service.book.holding.values():
        left = 0.0 if job.state == STOPPING else seconds_left(service, job)
        for gpu in gpus_of(job.places):
            until[gpu] = max(until.get(gpu, 0.0), inf if left is None else left)
    hardware = service.hardware
    free: dict[str, list[float]] = {}
    for node in hardware.nodes:
        if hardware.usable(node):
            free.setdefault(node.accelerator, []).extend(until.get((node.name, at), 0.0) for at in range(node.gpus))
    return {name: sorted(seconds) for name, seconds in free.items()}


def _in_turn(service: Service, job: Job, free: dict[str, list[float]]) -> float:
    """When a job starts that takes the GPUs which are free first; it has them from then on."""
    starts = {name: seconds[job.gpus - 1] for name, seconds in free.items() if len(seconds) >= job.gpus}
    pool = min(starts, key=starts.__getitem__, default=None)
    if pool is None or starts[pool] == inf:
        return inf
    ways = service.deciding.ways(job)
    needs = None if ways is None else _needs(service, job, ways.get((pool, job.gpus), 0.0))
    ends = starts[pool] + (needs if needs is not None else job.duration or inf)
    free[pool] = sorted([ends] * job.gpus + free[pool][job.gpus :])
    return starts[pool]


def _taken(target: Placed, holders: Mapping[tuple[str, int], set[str]], holding: Mapping[str, Job]) -> bool:
    """Whether somebody is on the GPUs that a job is to have who has not been told to end."""
    owners = {uuid for gpu in gpus_of(target.places) for uuid in holders.get(gpu, ())}
    return any(holding[uuid].state in HOLDS_GPUS - {STOPPING} for uuid in owners)
