"""How a start of a job came out, from what the cluster saw and what the trainer last said."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from allocator.lease.files import Report
from allocator.runtime.adapters.base import Seen
from allocator.runtime.adapters.node import NOT_EXECUTABLE, NOT_FOUND
from allocator.runtime.records.book import CANCELLED, FAILED, LOST, REJECTED, STARTING, STOPPING, Job
from allocator.runtime.records.journal import Event
from allocator.runtime.settings import ServiceSettings


def progress(report: Report) -> dict[str, Any]:
    """What a report says of a job, as data of an event."""
    return {
        "steps": report.steps,
        "saved_steps": report.saved_steps,
        "saved_at": report.saved_at,
        "start_seconds": report.start_seconds,
        "save_seconds": report.save_seconds,
    }


def events_of_end(
    job: Job, seen: Seen, report: Report | None, clock: float, settings: ServiceSettings, posted: float | None
) -> list[Event]:
    """The end of a start at `clock` seconds, and what becomes of its job; `posted` as in `ended`."""
    data = ended(job, seen, report, posted)
    if data["outcome"] == "completed" and job.deadline is not None:
        data["late_seconds"] = round(max(clock - job.deadline, 0.0), 3)
    leaving = _leaving(job, data, settings)
    events = [Event("ended", job.uuid, clock, data), *leaving]
    if report is None or leaving or data["outcome"] == "completed":
        return events
    wanted = {"gpus": report.gpus or job.gpus, "batch_size": report.batch_size or job.batch_size}
    if wanted != {"gpus": job.gpus, "batch_size": job.batch_size}:
        events.append(Event("resized", job.uuid, data=wanted))
    return events


def _leaving(job: Job, data: Mapping[str, Any], settings: ServiceSettings) -> list[Event]:
    """The last event of a job that is not tried again, though it has not completed."""
    outcome, fruitless, lost = data["outcome"], job.fruitless_after(data), job.lost_after(data)
    retries = settings.retries if job.retries is None else job.retries
    kind, reason = "gave_up", ""
    if outcome != "completed" and job.then in (CANCELLED, REJECTED):
        kind, reason = job.then, job.reason
    elif outcome == "failed" and data["code"] in _CANNOT_RUN and not job.saved_steps:
        reason = f"a command cannot be run, so it is not tried again: {data['reason']}"
    elif outcome == "failed" and job.failures >= retries:
        again = f"failed {job.failures + 1} times, the last time: " if job.failures else ""
        reason = again + data["reason"]
    elif outcome == LOST and job.state == STARTING and lost >= _MOST_REFUSALS:
        reason = f"could not be started {lost} times in a row, the last time: {data['reason']}"
    elif outcome == "yielded" and fruitless >= settings.max_fruitless:
        reason = f"no step was saved in {fruitless} leases in a row: they are too short for it, or it never saves"
    return [Event(kind, job.uuid, data={"reason": reason})] if reason else []


def ended(job: Job, seen: Seen, report: Report | None, posted: float | None) -> dict[str, Any]:
    """Data of the event ``ended``: outcome "completed", "yielded", "failed" or "lost", with the reason.

    A start has failed that ended with an error, or hung. One without an exit status is lost: its node is gone, or the
    cluster took it or refused it.
    A trainer that knows of leases says whether it is done or has made room. Of one that does not, exit status 0 means
    that it is done, unless it was told to end: then it may have been in the middle. Nobody knows what such a trainer
    has saved: the steps that it `posted` are taken to count, or where it posted none those that are reckoned of it.
    """
    told = report.state if report is not None else ""
    asked = job.state == STOPPING
    data: dict[str, Any] = {} if report is None else progress(report) | _trained(report)
    data |= {"code": seen.code, "signal": seen.signal, "why": job.reason if asked else ""}
    if report is None:
        data |= {"kept_steps": job.steps} if posted is None else {"kept_steps": posted, "posted": True}
    if seen.code == 0 and (told == "done" or (told != "ending" and not asked)):
        return data | {"outcome": "completed", "reason": ""}
    if asked and job.then == FAILED:
        return data | {"outcome": "failed", "reason": job.reason}
    if asked or (seen.code == 0 and told == "ending"):
        lost = _LOST.format(seconds=job.run_seconds) if _first_loss(job, data) else ""
        return data | {"outcome": "yielded", "reason": _yielded(job, seen) + lost}
    return data | {"outcome": LOST if seen.code is None else "failed", "reason": _failed(seen)}


def _trained(report: Report) -> dict[str, Any]:
    """What tells the speed of this start, without what came before and after training."""
    return {"trained_steps": report.trained_steps, "trained_seconds": report.trained_seconds}


def _first_loss(job: Job, end: Mapping[str, Any]) -> bool:
    """Whether a program that has told no steps, and most likely knows nothing of leases, makes room and had not yet.

    What becomes of one that is not to go on is no loss.
    """
    return not (job.then or job.reports or job.unsaved_stops or end.get("posted") or "saved_steps" in end)


_LOST = "; {seconds:.0f} s of work may be lost: see `python -m pydoc allocator.lease`"
"""What a user is told once."""


def _yielded(job: Job, seen: Seen) -> str:
    why = job.reason or "its trainer made room"
    if seen.signal == signal.SIGKILL:
        return f"{why}; killed, as it had not ended in time"
    return why if seen.code == 0 or seen.signal else f"{why}; {_failed(seen)}"


def _failed(seen: Seen) -> str:
    if seen.reason:
        return seen.reason
    if seen.signal:
        return f"ended by {signal.Signals(seen.signal).name}" if seen.signal in _SIGNALS else f"signal {seen.signal}"
    return "ended, nobody knows how" if seen.code is None else f"exit status {seen.code}"


_MOST_REFUSALS = 5
"""Starts in a row that the cluster refuses: as long as a job is tried again, GPUs are kept for it."""

_CANNOT_RUN = (NOT_EXECUTABLE, NOT_FOUND)
"""Exit statuses after which another start would come to the same."""

_SIGNALS = {int(one) for one in signal.Signals}
