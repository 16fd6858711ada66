"""What trainers report, looked at again and again: progress, speed, and since when nothing has moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from allocator.lease.files import REPORT_FILE, Report, read_file
from allocator.runtime.decisions.knowledge import moving_average
from allocator.runtime.outcome import progress
from allocator.runtime.records.book import RUNNING, Book, Job
from allocator.runtime.records.journal import Event
from allocator.runtime.settings import ServiceSettings


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
    asked_at, termed_at, killed_at : when the job was told to end, was sent SIGTERM, was killed; None: not yet.
    trained : steps and seconds up to the last measurement.
    serial : of its lease as it was last written; -1: not yet.
    told : the last progress that was posted; None: none was.
    """

    epoch: int
    changed_at: float
    report: Report | None = None
    stamp: tuple[int, int, int] = (0, 0, 0)
    asked_at: float | None = None
    termed_at: float | None = None
    killed_at: float | None = None
    trained: tuple[float, float] = (0.0, 0.0)
    serial: int = -1
    told: Told | None = None

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

    def of(self, job: Job, now: float) -> Watch:
        """The watch of the present start of a job."""
        watch = self._present(job)
        if watch is None:
            watch = self._watches[job.uuid] = Watch(job.epoch, now)
        return watch

    def drop(self, job: Job) -> None:
        """Its start has ended."""
        self._watches.pop(job.uuid, None)

    def _present(self, job: Job) -> Watch | None:
        """The same, None where nobody has looked at that start so far."""
        watch = self._watches.get(job.uuid)
        return watch if watch is not None and watch.epoch == job.epoch else None

    def report(self, job: Job) -> Report | None:
        """The last report of the present start."""
        watch = self._present(job)
        return None if watch is None else watch.report

    def told(self, job: Job) -> Told | None:
        """The last progress that the present start has posted."""
        watch = self._present(job)
        return None if watch is None else watch.told

    def tell(self, job: Job, told: Told) -> None:
        """Progress was posted; its `trained` is reckoned here."""
        watch = self.of(job, told.clock)
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
        watch = self.of(job, now)
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
        watch, limit = self.of(job, now), self._settings.hang_seconds
        if limit is None or job.state != RUNNING or watch.report is None:
            return False
        return now > watch.changed_at + limit

    def speed(self, job: Job) -> float | None:
        """Steps/s of the present start so far, None before there are enough of them."""
        watch = self._present(job)
        steps, seconds = (0.0, 0.0) if watch is None else watch.training
        return steps / seconds if self._enough(steps, seconds) else None

    def _enough(self, steps: float, seconds: float) -> bool:
        """Whether so many steps tell a speed."""
        return steps >= self._settings.least_measured_steps and seconds >= self._settings.least_measured_seconds

    def measure(self) -> list[Event]:
        """Speeds since the last time, as events."""
        events: list[Event] = []
        for job in self._book.holding.values():
            watch = self._present(job)
            if watch is None:
                continue
            report, told = watch.report, watch.training
            steps, seconds = told[0] - watch.trained[0], told[1] - watch.trained[1]
            if not self._enough(steps, seconds):
                continue
            watch.trained = told
            pool, gpus = job.pool, job.held_gpus
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
