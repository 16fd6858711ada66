"""What trainers report, looked at again and again, and how their starts came out."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allocator.lease.files import REPORT_FILE, Report, read_file
from allocator.runtime.adapters.base import Seen
from allocator.runtime.adapters.node import NOT_EXECUTABLE, NOT_FOUND
from allocator.runtime.decisions.knowledge import moving_average
from allocator.runtime.records.book import (
    FAILED,
    LEAVING,
    LOST,
    PROGRESS,
    RUNNING,
    STARTING,
    STOPPING,
    TIMED_OUT,
    Book,
    Job,
)
from allocator.runtime.records.journal import Event
from allocator.runtime.settings import ServiceSettings

# ----------------------------------------------------------------------------------------------------------------------
# How a start of a job came out, from what the cluster saw and what the trainer last said.
# ----------------------------------------------------------------------------------------------------------------------


def progress(report: Report, *more: str) -> dict[str, Any]:
    """What a report says of a job, as data of an event."""
    return {name: getattr(report, name) for name in (*PROGRESS, *more)}


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
    if outcome != "completed" and job.then in LEAVING:
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
    that it is done, unless it was told to make room: then it may have been in the middle. Before its time limit it is
    told for good. Nobody knows what such a trainer has saved: the steps that it `posted` are taken to count, or where
    it posted none those that are estimated of it.
    """
    told = report.state if report is not None else ""
    asked = job.state == STOPPING
    # these tell the speed of this start, without what came before and after training
    data = {} if report is None else progress(report, "trained_steps", "trained_seconds")
    data |= {"code": seen.code, "signal": seen.signal}
    if report is None:
        data |= {"kept_steps": job.steps} if posted is None else {"kept_steps": posted, "posted": True}
    if seen.code == 0 and (told == "done" or (told != "ending" and (not asked or job.then == TIMED_OUT))):
        return data | {"outcome": "completed", "reason": ""}
    if asked and job.then == FAILED:
        return data | {"outcome": "failed", "reason": job.reason}
    if asked or (seen.code == 0 and told == "ending"):
        return data | {"outcome": "yielded", "reason": _yielded(job, seen)}
    return data | {"outcome": LOST if seen.code is None else "failed", "reason": seen.reason}


def _yielded(job: Job, seen: Seen) -> str:
    why = job.reason or "its trainer made room"
    if seen.signal == signal.SIGKILL:
        return f"{why}; killed, as it had not ended in time"
    return why if seen.code == 0 or seen.signal else f"{why}; {seen.reason}"


_MOST_REFUSALS = 5
"""Starts in a row that the cluster refuses: as long as a job is tried again, GPUs are kept for it."""

_CANNOT_RUN = (NOT_EXECUTABLE, NOT_FOUND)
"""Exit statuses after which another start would come to the same."""


@dataclass
class Told:
    """What a trainer without a report has posted of its progress.

    Attributes
    ----------
    steps : of the job so far. clock : when it said so, seconds on the clock.
    trained : steps and seconds between its posts.
    begins : whether it only said that it begins, perhaps in the middle: then `steps` are what was known before.
    seconds_left : that it expects to need, None if it does not say.
    metrics : what it says of its training, by name.
    """

    steps: float
    clock: float
    trained: tuple[float, float] = (0.0, 0.0)
    seconds_left: float | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    begins: bool = False


@dataclass
class Watch:
    """What is remembered of a start between two looks. Nothing of it has to survive the service.

    Attributes
    ----------
    epoch : of the start.
    report : the last, None before the first. stamp : of its file: which it is, when it was written, and its size.
    changed_at : when steps or state last changed, seconds on the clock.
    asked_at : when the job was told to end; None: not yet.
    trained : steps and seconds up to the last measurement.
    ends : whether its lease says that it ends.
    told : the last progress that was posted; None: none was.
    well_at : when nothing spoke against its end for the last time, or at the first look; None: before that.
    """

    epoch: int
    changed_at: float = 0.0
    report: Report | None = None
    stamp: tuple[int, int, int] = (0, 0, 0)
    asked_at: float | None = None
    trained: tuple[float, float] = (0.0, 0.0)
    ends: bool = False
    told: Told | None = None
    well_at: float | None = None

    @property
    def training(self) -> tuple[float, float]:
        """Steps and seconds of training so far, as reported or posted."""
        if self.report is not None:
            return self.report.trained_steps, self.report.trained_seconds
        return (0.0, 0.0) if self.told is None else self.told.trained


class Watching:
    """The watches of all jobs that hold GPUs.

    Parameters
    ----------
    folder : of the state. book, settings : of the service.
    """

    def __init__(self, folder: Path, book: Book, settings: ServiceSettings) -> None:
        self._folder, self._book, self._settings = folder, book, settings
        self._watches: dict[str, Watch] = {}

    def folder(self, job: Job) -> Path:
        """Where the files of a job are."""
        return self._folder / "jobs" / job.uuid

    def of(self, job: Job) -> Watch:
        """The watch of the present start of a job; an empty one, which nobody keeps, of one that holds no GPUs."""
        watch = self._watches.get(job.uuid)
        if watch is None or watch.epoch != job.epoch:
            watch = Watch(job.epoch)
            if job.placed.gpus:
                self._watches[job.uuid] = watch
        return watch

    def drop(self, job: Job) -> None:
        """Its start has ended."""
        self._watches.pop(job.uuid, None)

    def steps(self, job: Job) -> float | None:
        """Steps that the present start has told; None where it has told none."""
        watch = self.of(job)
        said = watch.report or watch.told
        return None if said is None else said.steps

    def tell(self, job: Job, told: Told) -> None:
        """Progress was posted; its `trained` is computed here."""
        watch = self.of(job)
        before = watch.told
        if before is not None:
            told.trained = steps, seconds = before.trained
            if told.steps >= before.steps and not before.begins:
                told.trained = steps + told.steps - before.steps, seconds + told.clock - before.clock
        if before is None or told.steps != before.steps:
            watch.changed_at = told.clock
        watch.told = told

    def look(self, job: Job, now: float, *, again: bool = False) -> Watch:
        """Read the report of a job, if it has changed. One of another start, or that makes no sense, is ignored.

        Parameters
        ----------
        again : read it even if it looks unchanged: the clock of a file system may tick only every few milliseconds.
        """
        watch = self.of(job)
        path = self.folder(job) / REPORT_FILE
        try:
            status = path.stat()
        except OSError:
            return watch
        stamp = status.st_ino, status.st_mtime_ns, status.st_size
        if stamp == watch.stamp and not again:
            return watch
        report = read_file(path, Report)
        if report is None or report.epoch != job.epoch or report.job != job.uuid or not _makes_sense(report):
            return watch
        if watch.report is None or (report.steps, report.state) != (watch.report.steps, watch.report.state):
            watch.changed_at = now
        watch.stamp, watch.report = stamp, report
        return watch

    def hangs(self, job: Job, now: float) -> bool:
        """Whether a trainer that reports has made no step for too long."""
        watch, limit = self.of(job), self._settings.hang_seconds
        if limit is None or job.state != RUNNING or watch.report is None:
            return False
        return now > watch.changed_at + limit

    def speed(self, job: Job) -> float | None:
        """Steps/s of the present start so far, None before there are enough of them."""
        steps, seconds = self.of(job).training
        return steps / seconds if self._enough(steps, seconds) else None

    def _enough(self, steps: float, seconds: float) -> bool:
        """Whether so many steps tell a speed."""
        return steps >= self._settings.least_measured_steps and seconds >= self._settings.least_measured_seconds

    def measure(self) -> list[Event]:
        """Speeds since the last time, as events."""
        events: list[Event] = []
        for job in self._book.holding.values():
            watch = self.of(job)
            report, told = watch.report, watch.training
            steps, seconds = told[0] - watch.trained[0], told[1] - watch.trained[1]
            if not self._enough(steps, seconds):
                continue
            watch.trained = told
            pool, gpus = job.placed.way
            rate = moving_average(job.measured.get((pool, gpus)), steps / seconds)
            events.append(Event("measured", job.uuid, data={"pool": pool, "gpus": gpus, "rate": rate}))
            if report is not None:
                events.append(Event("progress", job.uuid, data=progress(report)))
        return events


def _makes_sense(report: Report) -> bool:
    """Whether a report can be believed: it comes from a process that we do not control."""
    counts = report.steps, report.saved_steps, report.trained_steps, report.trained_seconds
    seconds = report.saved_at, report.save_seconds, report.start_seconds
    wanted = report.gpus, report.batch_size
    return all(0 <= value < _MOST for value in (*counts, *seconds)) and all(
        value is None or 0 < value < _MOST_WANTED for value in wanted
    )


_MOST = 1e15
_MOST_WANTED = 1 << 40
