"""What has happened lately, heard from the service as it writes it down: for the page, and counted for metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocator.runtime.records.journal import Event
    from allocator.runtime.service import Service

DECISION_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Upper ends of the classes in which decisions are counted by the time that they took."""

_KEPT = 40
_LOOK_BACK = 500

_TOLD = frozenset({"ended", "gave_up", "rejected", "cancelled", "resized", "node", "policy", "cluster", "service"})
"""Events that people are shown; of ended starts only those that failed or completed."""


class History:
    """The last events of a service, and counts of all since it was started.

    Parameters
    ----------
    service : that is listened to.

    Attributes
    ----------
    decisions : the last ones, newest first: what their events say, with `at`, seconds since 1970.
    happenings : the last other events for people, newest first.
    kinds : events by kind. failures : starts that failed.
    by_seconds : decisions in which the policy was asked, by class of `DECISION_SECONDS`, the last one for longer ones.
    decision_seconds : that they took together.
    last : number of the last event in the journal.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self.decisions: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self.happenings: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self.kinds: Counter[str] = Counter()
        self.failures = 0
        self.by_seconds = [0] * (len(DECISION_SECONDS) + 1)
        self.decision_seconds = 0.0
        self.last = 0
        self._show(service.journal.events(last=_LOOK_BACK))
        service.listeners.append(self.hear)

    def hear(self, event: Event) -> None:
        """Something was written down."""
        self._show([event])
        self.kinds[event.kind] += 1
        if event.kind == "ended":
            self.failures += event["outcome"] == "failed"
        elif event.kind == "decision" and event["asked"]:
            self.by_seconds[bisect_left(DECISION_SECONDS, event["seconds"])] += 1
            self.decision_seconds += event["seconds"]

    def _show(self, events: Iterable[Event]) -> None:
        for event in events:
            self.last = event.number
            if event.kind == "decision":
                self.decisions.appendleft({"number": event.number, "at": event.at} | dict(event.data or {}))
            elif event.kind in _TOLD and event.get("outcome") != "yielded":
                self.happenings.appendleft(self._happening(event))

    def _happening(self, event: Event) -> dict[str, Any]:
        job = self._service.book.jobs.get(event.job)
        return {
            "number": event.number,
            "at": event.at,
            "kind": event.get("outcome") or event.kind,
            "job": None if job is None else job.id,
            "text": _text(event),
        }


def _text(event: Event) -> str:
    """What an event says, in words."""
    if event.kind == "node":
        return f"{event['name']} {'drained' if event['drained'] else 'in use again'}"
    if event.kind == "policy":
        return str(event["name"])
    if event.kind == "cluster":
        changed = event.get("nodes", ())
        return ", ".join(f"{node['name']} {'up' if node['up'] else 'down'}" for node in changed)
    if event.kind == "resized":
        size = event.get("batch_size")
        return f"{event.get('gpus') or 'as many'} GPUs" + (f", batch size {size}" if size else "")
    return "started" if event.kind == "service" else str(event.get("reason", ""))
