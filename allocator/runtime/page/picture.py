"""What the page shows at a moment: plain data, bounded however many jobs there are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any

from allocator.runtime.door.views import job_view, seconds_left, service_view
from allocator.runtime.page.expected import expected_starts
from allocator.runtime.page.history import History
from allocator.runtime.records.book import FINAL, QUEUED, Job

if TYPE_CHECKING:
    from allocator.runtime.service import Service

_MOST_RUNNING, _MOST_QUEUED, _MOST_FINISHED, _MOST_SPEEDS, _MOST_NODES = 300, 200, 30, 60, 500
_LONGEST_TEXT = 300


def picture(service: Service, history: History) -> dict[str, Any]:
    """Service, GPUs, jobs, decisions and speeds, ready for JSON."""
    book = service.book
    view = service_view(service)
    queued = list(islice((job for job in book.active.values() if job.state == QUEUED), _MOST_QUEUED))
    running = sorted(islice(book.holding.values(), _MOST_RUNNING), key=lambda job: job.id)
    starts = expected_starts(service, _MOST_QUEUED)
    through = islice(
        (job for job in reversed(book.by_id[-_MOST_FINISHED * 20 :]) if job.state in FINAL), _MOST_FINISHED
    )
    same = ("policy", "adapter", "trouble", "counts", "decision_seconds")
    shown: Mapping[str, Any] = {name: view[name] for name in same} | {
        "at": time.time(),
        "round": _round(service),
        "types": _types(view),
        "nodes": view["nodes"][:_MOST_NODES],
        "more_nodes": max(len(view["nodes"]) - _MOST_NODES, 0),
        "running": [
            _some(service, job, "places", "run_seconds", "reason", "saved_at") | _training(service, job)
            for job in running
        ],
        "queue": [_some(service, job, "reason", "waited_seconds") | {"start": starts.get(job.uuid)} for job in queued],
        "finished": [_some(service, job, "reason", "run_seconds", "waited_seconds") for job in through],
        "decisions": list(history.decisions),
        "happenings": list(history.happenings),
        "speeds": list(islice(_speeds(service, running), _MOST_SPEEDS)),
    }
    clean: dict[str, Any] = _clean(shown)
    return clean


def _types(view: Mapping[str, Any]) -> list[dict[str, Any]]:
    """GPUs of each type: how many there are, how many are busy, and the price of one more."""
    busy: dict[str, int] = {}
    for node in view["nodes"]:
        busy[node["accelerator"]] = busy.get(node["accelerator"], 0) + sum(map(bool, node["jobs"]))
    return [
        {"name": name, "gpus": gpus, "busy": busy.get(name, 0), "price": view["prices"].get(name)}
        for name, gpus in view["cluster"].items()
    ]


def _round(service: Service) -> float | None:
    """Seconds to the end of the round, None where there is none."""
    left = service.deciding.outlook().ends - service.clock()
    return round(max(left, 0.0), 1) if isfinite(left) else None


_COMMON = ("id", "name", "user", "state", "gpus", "accelerator", "steps", "total_steps", "restarts", "failures")


def _some(service: Service, job: Job, *names: str) -> dict[str, Any]:
    view = job_view(service, job)
    return {name: view[name] for name in (*_COMMON, *names)}


def _training(service: Service, job: Job) -> dict[str, Any]:
    told = service.watching.told(job)
    return {"left": seconds_left(service, job), "metrics": {} if told is None else dict(told.metrics)}


def _speeds(service: Service, jobs: Iterable[Job]) -> Iterable[dict[str, Any]]:
    """Steps/s of jobs where they were measured, beside what was believed before they ran."""
    for job in jobs:
        believed = service.deciding.ways(job, measured=False) or {}
        for (pool, gpus), rate in job.measured.items():
            yield {
                "id": job.id,
                "job_type": job.job_type,
                "accelerator": pool,
                "gpus": gpus,
                "measured": rate,
                "believed": believed.get((pool, gpus)),
            }


def _clean(value: Any) -> Any:
    """The same without numbers that JSON lacks, and without long texts."""
    if isinstance(value, float):
        return round(value, 6) if isfinite(value) else None
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else f"{value[: _LONGEST_TEXT - 1]}…"
    if isinstance(value, Mapping):
        return {str(name): _clean(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(one) for one in value]
    return value
