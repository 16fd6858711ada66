"""What the service shows of itself: plain data, ready for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from math import inf
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from allocator.runtime.door.words import span
from allocator.runtime.records.book import HOLDS_GPUS, QUEUED, RUNNING, STOPPING, Book, Job

if TYPE_CHECKING:
    from allocator.runtime.records.journal import Event
    from allocator.runtime.service import Service


_MOST_NAMED = 100
"""Jobs that are named because they cannot run now."""


def status(service: Service, jobs: Iterable[Job]) -> dict[str, Any]:
    """The service, and some of its jobs, one after the other as they are asked for."""
    room = cache(lambda: Room(service))
    return {"service": service_view(service), "jobs": (job_view(service, job, room) for job in jobs)}


def service_view(service: Service) -> dict[str, Any]:
    """Policy, clock, hardware, how many jobs are where, and what is wrong."""
    deciding = service.deciding
    active = () if deciding.all_fit else service.book.active.values()
    unfit = (job.id for job in active if not deciding.fits(job))
    return {
        "policy": deciding.policy.name,
        "adapter": service.adapter.name,
        "clock": round(service.clock(), 3),
        "cluster": dict(service.hardware.cluster.gpus),
        "nodes": node_views(service),
        "counts": dict(service.book.counts),
        "deadlines": dict(service.book.deadlines),
        "cannot_run": list(islice(unfit, _MOST_NAMED)),
        "prices": dict(deciding.prices),
        "decision_seconds": deciding.last_seconds,
        # what the dearest of the last starts of the jobs there cost
        "start_seconds": max((job.start_cost for job in service.book.active.values()), default=0.0),
        "trouble": service.trouble or deciding.trouble,
    }


def node_views(service: Service) -> list[dict[str, Any]]:
    """Each node, and who is on its GPUs."""
    owners: dict[tuple[str, int], list[int]] = {}
    for job in service.book.holding.values():
        for gpu in job.placed.gpus:
            owners.setdefault(gpu, []).append(job.id)
    return [
        {
            "name": node.name,
            "accelerator": node.accelerator,
            "gpus": node.gpus,
            "state": "up" if service.hardware.usable(node) else "drained" if node.up else "down",
            "reason": node.reason,
            "jobs": [owners.get((node.name, position), []) for position in range(node.gpus)],
        }
        for node in service.hardware.nodes
    ]


def busy_gpus(view: Mapping[str, Any]) -> Counter[str]:
    """GPUs of each type that jobs hold, of a `service_view`."""
    return Counter(node["accelerator"] for node in view["nodes"] for jobs in node["jobs"] if jobs)


def job_view(service: Service, job: Job, room: Callable[[], Room] | None = None) -> dict[str, Any]:
    """One job; with the `room` that there is also what a job that waits finds in its way."""
    now, steps = service.clock(), service.steps_of(job)
    saved = service.watching.of(job).report or job
    so_far = now - job.since
    return {name: getattr(job, name) for name in _AS_KEPT} | {
        "name": job.name or _program(job.command),
        "reason": reason(service, job, room),
        "accelerator": job.placed.pool,
        "places": {node: list(positions) for node, positions in job.placed.places.items()},
        "steps": round(steps, 3),
        "reckoned": service.reckons(job),
        "total_steps": job.total_steps or None,
        "duration": job.duration or None,
        "time_limit": job.time_limit or None,
        "accelerators": list(job.accelerators),
        "after": list(job.after),
        "saved_steps": saved.saved_steps,
        "saved_at": saved.saved_at or None,
        "met": job.met(now),
        "due_in": None if job.deadline is None else round(job.deadline - now, 3),
        "submitted_at": round(job.submitted_at, 3),
        "run_seconds": round(job.run_seconds + (so_far if job.state in (RUNNING, STOPPING) else 0.0), 3),
        "waited_seconds": round(job.queued_seconds + (so_far if job.state == QUEUED else 0.0), 3),
        "exit_code": job.code,
        "signal": job.signal or None,
        "measured": [{"accelerator": pool, "gpus": gpus, "rate": rate} for (pool, gpus), rate in job.measured.items()],
        "believed_rate": service.deciding.believed_rate(job) if job.placed.pool else None,
        "seconds_left": seconds_left(service, job),
        "folder": str(service.watching.folder(job).absolute()),
    }


_AS_KEPT = (
    "id", "uuid", "user", "state", "gpus", "job_type", "weight", "deadline", "started_at", "finished_at", "restarts",
    "failures", "retries", "fruitless", "unsaved_stops", "start_seconds", "save_seconds",
    "epoch",
)  # fmt: skip
"""What of a job is shown as the book has it."""


def event_view(book: Book, event: Event) -> dict[str, Any]:
    """An event of the journal, with number and name of its job."""
    job = book.jobs.get(event.job)
    of_job = {"job": None, "name": ""} if job is None else {"job": job.id, "name": job.name}
    return vars(event) | of_job | {"data": dict(event.data)}


def _program(command: tuple[str, ...]) -> str:
    """What a command runs, for people: the script of an interpreter or a launcher, else the program."""
    names = [PurePath(part).name for part in command]
    scripts = [name for name, part in zip(names[1:], command[1:], strict=True) if part.endswith((".py", ".sh"))]
    return scripts[0] if scripts else names[0]


def seconds_left(service: Service, job: Job) -> float | None:
    """What a job needs if it runs on where it is: as it told, or as its speed there is known; None where nothing is."""
    if job.state not in HOLDS_GPUS:
        return None
    told = service.watching.of(job).told
    if told is not None and told.seconds_left is not None:
        return round(max(told.seconds_left - (service.clock() - told.clock), 0.0), 3)
    rate = service.watching.speed(job) or service.deciding.world.knowledge.known_of(job).get(job.placed.way)
    left = job.total_steps - service.steps_of(job)
    # steps that nobody told may be done anew after a stop, and are no more than a guess in the end
    astray = service.reckons(job) and (job.unsaved_stops > 0 or left <= 0)
    return None if astray or not job.total_steps or not rate else round(max(left, 0.0) / rate, 3)


class Room:
    """GPUs that nobody holds, and those that hold the others: what stands in the way of jobs that wait.

    Attributes
    ----------
    free : GPUs by type. holders : by type, seconds until each job is expected to be through (inf: not known), the job,
        and its GPUs; who is through first stands first.
    waiting : jobs that wait, by number; none in rounds, in which GPUs are kept for nobody.
    """

    def __init__(self, service: Service) -> None:
        self.free = dict(service.hardware.cluster.gpus)
        self.holders: dict[str, list[tuple[float, int, int]]] = {name: [] for name in self.free}
        for job in service.book.holding.values():
            left, pool = 0.0 if job.state == STOPPING else seconds_left(service, job), job.placed.pool
            if pool in self.free:
                self.free[pool] -= job.held_gpus
                self.holders[pool].append((inf if left is None else left, job.id, job.held_gpus))
        for held in self.holders.values():
            held.sort()
        waiting = service.book.active.values() if service.deciding.round is None else ()
        self.waiting = [one for one in waiting if one.state == QUEUED and not one.blocked]

    def free_at(self) -> dict[str, list[float]]:
        """By type, in how many seconds each GPU is free, in order."""
        taken = {name: [left for left, _, gpus in held for _ in range(gpus)] for name, held in self.holders.items()}
        return {name: [0.0] * free + taken[name] for name, free in self.free.items()}

    def in_the_way(self, job: Job, types: Iterable[str]) -> str:
        """For whom a job has to wait, and how long they need as far as is known, on the type where it is soonest."""
        ways = [(*self._after(name, job.gpus), name) for name in types if name in self.free]
        if not ways:
            return ""
        seconds, ids, name = min(ways)
        needs = f"it needs {job.gpus} {name}, {max(self.free[name], 0) or 'none'} free"
        if not ids:
            kept = [one for one in self.waiting if one.id < job.id and one.gpus > self.free[name]]
            before = [f"{one.gpus} {name} are kept for job {one.id}, before it" for one in kept[:_MOST_IN_THE_WAY]]
            return "; ".join(before)
        when = "" if seconds == inf else f", with {span(seconds)} left"
        return f"{needs}; {_named(ids)} run{'s' * (len(ids) == 1)} there{when}"

    def _after(self, name: str, gpus: int) -> tuple[float, list[int]]:
        """Seconds until so many GPUs of a type may be free, and the jobs that have to end before."""
        free, seconds, ids = self.free[name], 0.0, []
        for left, number, held in self.holders[name]:
            if free >= gpus:
                break
            free, seconds = free + held, left
            ids.append(number)
        return (seconds if free >= gpus else inf), ids


_MOST_IN_THE_WAY = 4


def _named(ids: Sequence[int]) -> str:
    """Jobs by number, the first of many."""
    more = f" and {len(ids) - _MOST_IN_THE_WAY} more" if len(ids) > _MOST_IN_THE_WAY else ""
    return f"job{'s' * (len(ids) > 1)} {', '.join(map(str, ids[:_MOST_IN_THE_WAY]))}{more}"


def reason(service: Service, job: Job, room: Callable[[], Room] | None = None) -> str:
    """Why a job is where it is."""
    if job.uuid in service.lingering:
        return service.lingering[job.uuid]
    if job.state != QUEUED:
        return job.reason if job.reason != job.state else ""
    unfit = service.deciding.why_unfit(job)
    if unfit:
        return unfit
    if job.blocked:
        numbers = [one.id for one in service.book.before(job)]
        return f"waits until {_named(numbers)} {'have' if len(numbers) > 1 else 'has'} completed"
    last = f" (before: {job.reason})" if job.reason and job.epoch else ""
    if job.fruitless > 1:
        last += f"; no step was saved in its last {job.fruitless} leases"
    why = service.deciding.why_waiting(job, service.book)
    if room is not None and service.deciding.passed_over(job):
        left = service.deciding.round_left(service.clock())
        there = room().in_the_way(job, service.deciding.prospects.types_of(job))
        if left is not None:
            there = f"the next round begins in {span(left)}; {there}"
        why = f"{why}: {there}".rstrip("; :")
    return why + last
