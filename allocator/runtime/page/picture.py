"""What the page shows at a moment: plain data, bounded however many jobs there are."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from allocator.runtime.decisions.hardware import held, owners
from allocator.runtime.door.views import Room, busy_gpus, event_view, job_view, service_view
from allocator.runtime.door.words import words
from allocator.runtime.records.book import FINAL, LEAVING, QUEUED, STOPPING, Job

if TYPE_CHECKING:
    from allocator.runtime.records.journal import Event
    from allocator.runtime.service import Service


# ----------------------------------------------------------------------------------------------------------------------
# What has happened lately, heard from the service as it writes it down.
# ----------------------------------------------------------------------------------------------------------------------


_KEPT = 40
_LOOK_BACK = 500

_TOLD = frozenset({"ended", *LEAVING, "resized", "node", "policy", "cluster", "service"})
"""Events that people are shown; of ended starts only those that failed or completed."""


class History:
    """The last events of a service.

    Parameters
    ----------
    service : that is listened to.

    Attributes
    ----------
    decisions : the last ones, newest first: what their events say, with `at`, seconds since 1970.
    happenings : the last other events for people, newest first.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self.decisions: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self.happenings: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        for event in service.journal.events(last=_LOOK_BACK):
            self.hear(event)
        service.listeners.append(self.hear)

    def hear(self, event: Event) -> None:
        """Something was written down."""
        if event.kind == "decision":
            self.decisions.appendleft({"number": event.number, "at": event.at} | dict(event.data))
        elif event.kind in _TOLD and event.get("outcome") != "yielded":
            self.happenings.appendleft(self._happening(event))

    def _happening(self, event: Event) -> dict[str, Any]:
        said = {"kind": event.get("outcome") or event.kind, "data": None, "text": words(event.kind, event.data)}
        return event_view(self._service.book, event) | said


# ----------------------------------------------------------------------------------------------------------------------
# When jobs that wait are likely to start: a guess from who runs, for how long, and who is before them.
#
# Each GPU is free when the job on it is done, as far as that is known. In the order of the queue every job takes those
# that are free first, of the type on which that is soonest, and has them for as long as it needs. Where jobs wait that
# have run before, time is shared, and who waits gets a turn before others are done: a round later for each time that
# the GPUs go round among those before it. The earlier of the two is the guess. Policies are not asked, so that it is
# one, and no promise.
# ----------------------------------------------------------------------------------------------------------------------


def expected_starts(service: Service, most: int) -> dict[str, float]:
    """Seconds until the first `most` jobs of the queue are likely to start, by UUID; those without a guess are not in.

    The queue is in the order of submission, those first that the last decision wants.
    """
    deciding, book = service.deciding, service.book
    targets, to_end = deciding.wanted(), deciding.round_left(service.clock())
    free = Room(service).free_at()
    waiting = [job for job in islice(book.active.values(), 2 * most + len(book.holding)) if job.state == QUEUED]
    waiting = [job for job in waiting if not deciding.why_unfit(job)]
    waiting.sort(key=lambda job: job.uuid not in targets)
    holders = held(book.holding)
    total = max(sum(map(len, free.values())), 1)
    turns = any(job.epoch and not job.failures for job in waiting)
    guesses, before = {}, 0
    for job in waiting[:most]:
        target = targets.get(job.uuid)
        start = _in_turn(service, job, free)
        if target is not None:
            taken = any(book.holding[uuid].state != STOPPING for uuid in owners(holders, target))
            start = min(start, to_end if taken and to_end is not None else 0.0)
        elif deciding.round is not None and to_end is not None and turns:
            start = min(start, to_end + before // total * deciding.round.seconds)
        before += job.gpus if target is None else 0
        if start < inf:
            guesses[job.uuid] = start
    return guesses


def _in_turn(service: Service, job: Job, free: dict[str, list[float]]) -> float:
    """When a job starts that takes the GPUs which are free first; it has them from then on."""
    starts = {name: seconds[job.gpus - 1] for name, seconds in free.items() if len(seconds) >= job.gpus}
    pool = min(starts, key=starts.__getitem__, default=None)
    if pool is None or starts[pool] == inf:
        return inf
    knowledge = service.deciding.world.knowledge
    rate = knowledge.of(job).get((pool, job.gpus), 0.0) if knowledge.known_of(job) else 0.0
    known = job.total_steps and rate > 0
    needs = max(job.total_steps - service.steps_of(job), 0.0) / rate if known else job.duration or inf
    ends = starts[pool] + needs
    free[pool] = sorted([ends] * job.gpus + free[pool][job.gpus :])
    return starts[pool]


_MOST_RUNNING, _MOST_QUEUED, _MOST_FINISHED, _MOST_SPEEDS, _MOST_NODES = 300, 200, 30, 60, 500
_LONGEST_TEXT = 300


def picture(service: Service, history: History) -> dict[str, Any]:
    """Service, GPUs, jobs, decisions and speeds, ready for JSON."""
    book, view = service.book, service_view(service)
    queued = islice((job for job in book.active.values() if job.state == QUEUED), _MOST_QUEUED)
    running = sorted(islice(book.holding.values(), _MOST_RUNNING), key=lambda job: job.id)
    recent = (job for job in reversed(book.by_id[-_MOST_FINISHED * 20 :]) if job.state in FINAL)
    starts, busy = expected_starts(service, _MOST_QUEUED), busy_gpus(view)
    shown: Mapping[str, Any] = {name: view[name] for name in _OF_SERVICE} | {
        "at": time.time(),
        "round": service.deciding.round_left(service.clock()),
        "types": [
            {"name": name, "gpus": gpus, "busy": busy[name], "price": view["prices"].get(name)}
            for name, gpus in view["cluster"].items()
        ],
        "nodes": view["nodes"][:_MOST_NODES],
        "more_nodes": max(len(view["nodes"]) - _MOST_NODES, 0),
        "running": [_some(service, job) | {"metrics": _metrics(service, job)} for job in running],
        "queue": [_some(service, job) | {"start": starts.get(job.uuid)} for job in queued],
        "finished": [_some(service, job) for job in islice(recent, _MOST_FINISHED)],
        "decisions": list(history.decisions),
        "happenings": list(history.happenings),
        "speeds": list(islice(_speeds(service, running), _MOST_SPEEDS)),
    }
    clean: dict[str, Any] = _clean(shown)
    return clean


_OF_SERVICE = ("policy", "adapter", "trouble", "counts", "decision_seconds")
_OF_JOB = (
    "id", "name", "user", "state", "gpus", "accelerator", "places", "steps", "total_steps", "restarts", "failures",
    "reason", "run_seconds", "waited_seconds", "saved_at", "seconds_left",
)  # fmt: skip
"""What of service and jobs is shown as `status` has it."""


def _some(service: Service, job: Job) -> dict[str, Any]:
    view = job_view(service, job)
    return {name: view[name] for name in _OF_JOB}


def _metrics(service: Service, job: Job) -> dict[str, str]:
    """What a trainer says of its training."""
    told = service.watching.of(job).told
    return {} if told is None else dict(told.metrics)


def _speeds(service: Service, jobs: Iterable[Job]) -> Iterable[dict[str, Any]]:
    """Steps/s of jobs where they were measured, beside what was believed before they ran."""
    for job in jobs:
        believed = service.deciding.world.knowledge.known(job.job_type, job.gpus, {})
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
