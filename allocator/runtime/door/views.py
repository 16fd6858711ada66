"""What the service shows of itself: plain data, ready for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from allocator.runtime.records.book import HOLDS_GPUS, QUEUED, Job

if TYPE_CHECKING:
    from allocator.runtime.service import Service


_MOST_NAMED = 100
"""Jobs that are named because they cannot run now."""


def status(service: Service, jobs: Iterable[Job]) -> dict[str, Any]:
    """The service, and some of its jobs, one after the other as they are asked for."""
    return {"service": service_view(service), "jobs": (job_view(service, job) for job in jobs)}


def service_view(service: Service) -> dict[str, Any]:
    """Policy, clock, hardware, how many jobs are where, and what is wrong."""
    deciding = service.deciding
    active = () if deciding.prospects.all_fit else service.book.active.values()
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
        "start_seconds": deciding.start_seconds,
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


def job_view(service: Service, job: Job) -> dict[str, Any]:
    """One job."""
    now, steps = service.clock(), service.steps_of(job)
    saved = service.watching.of(job).report or job
    running = job.run_seconds + (now - job.since if job.state in HOLDS_GPUS else 0.0)
    return {name: getattr(job, name) for name in _AS_KEPT} | {
        "name": job.name or _program(job.command),
        "reason": reason(service, job),
        "accelerator": job.placed.pool,
        "places": {node: list(positions) for node, positions in job.placed.places.items()},
        "steps": round(steps, 3),
        "reckoned": service.reckons(job),
        "total_steps": job.total_steps or None,
        "duration": job.duration or None,
        "saved_steps": saved.saved_steps,
        "saved_at": saved.saved_at or None,
        "met": job.met(now),
        "due_in": None if job.deadline is None else round(job.deadline - now, 3),
        "submitted_at": round(job.submitted_at, 3),
        "run_seconds": round(running, 3),
        "waited_seconds": round(max((job.finished_at or now) - job.submitted_at - running, 0.0), 3),
        "exit_code": job.code,
        "signal": job.signal or None,
        "measured": [{"accelerator": pool, "gpus": gpus, "rate": rate} for (pool, gpus), rate in job.measured.items()],
        "believed_rate": service.deciding.believed_rate(job) if job.placed.pool else None,
        "seconds_left": seconds_left(service, job),
        "folder": str(service.watching.folder(job).absolute()),
    }


_AS_KEPT = (
    "id", "uuid", "user", "state", "gpus", "job_type", "weight", "deadline", "started_at", "finished_at", "restarts",
    "failures", "retries", "fruitless", "unsaved_stops", "start_seconds", "save_seconds", "epoch",
)  # fmt: skip
"""What of a job is shown as the book has it."""


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


def reason(service: Service, job: Job) -> str:
    """Why a job is where it is."""
    if job.uuid in service.lingering:
        return service.lingering[job.uuid]
    if job.state != QUEUED:
        return job.reason if job.reason != job.state else ""
    unfit = service.deciding.why_unfit(job)
    if unfit:
        return unfit
    last = f" (before: {job.reason})" if job.reason and job.epoch else ""
    if job.fruitless > 1:
        last += f"; no step was saved in its last {job.fruitless} leases"
    return service.deciding.why_waiting(job, service.book) + last
