"""What is made of reports and posts: progress, speeds, and since when nothing has moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allocator.lease.files import REPORT_FILE, Report, write_file
from allocator.runtime.records.book import Book, Job
from allocator.runtime.records.journal import Event
from allocator.runtime.settings import ServiceSettings
from allocator.runtime.watching import Told, Watching

SETTINGS = ServiceSettings(hang_seconds=10.0, least_measured_steps=2.0, least_measured_seconds=0.5)


class Desk:
    """A job that runs, and its reports."""

    def __init__(self, folder: Path) -> None:
        book = Book()
        book.apply(Event("submitted", "a", 1.0, {"command": ["x"], "gpus": 2}))
        self.watching = Watching(folder, book, SETTINGS)
        self.job: Job = book.jobs["a"]
        self.book = book
        self.start(1)
        self.watching.folder(self.job).mkdir(parents=True)

    def start(self, epoch: int) -> None:
        places = {"v": [0, 1]}
        self.book.apply(Event("starting", "a", 2.0, {"epoch": epoch, "pool": "v100", "places": places}))
        self.book.apply(Event("running", "a", 2.0, {}))

    def report(self, now: float, job: str = "a", epoch: int = 1, **told: Any) -> Report | None:
        write_file(self.watching.folder(self.job) / REPORT_FILE, Report(job, epoch, **({"state": "training"} | told)))
        return self.watching.look(self.job, now).report


def test_reports_of_others_and_of_other_starts_do_not_count(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.report(3.0, epoch=2, steps=5.0) is None
    assert desk.report(3.0, job="b", steps=5.0) is None
    for wrong in ("steps", "saved_steps", "trained_steps", "trained_seconds", "saved_at", "save_seconds"):
        for value in (-1.0, 1e15, 1e300):
            assert desk.report(3.0, **{wrong: value}) is None
    for wish in ("gpus", "batch_size"):
        for number in (0, -1, 1 << 40):
            assert desk.report(3.0, **{wish: number}) is None
    good = desk.report(3.0, steps=6.0, gpus=1, batch_size=(1 << 40) - 1)
    assert good is not None
    assert desk.watching.report(desk.job) == good
    desk.start(2)
    assert desk.watching.report(desk.job) is None
    assert desk.watching.look(desk.job, 4.0).report is None
    assert desk.report(5.0, epoch=2, steps=1.0) is not None


def test_a_start_that_has_ended_is_forgotten(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.report(3.0, steps=5.0)
    desk.watching.tell(desk.job, Told(5.0, 3.0))
    desk.watching.drop(desk.job)
    assert desk.watching.report(desk.job) is None
    assert desk.watching.told(desk.job) is None


def test_a_trainer_hangs_that_has_reported_and_makes_no_step(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    job, watching = desk.job, desk.watching
    assert not watching.hangs(job, 500.0)
    desk.report(3.0, steps=5.0)
    # the same steps said again are none; another state is something
    desk.report(8.0, steps=5.0, at=1.0)
    assert not watching.hangs(job, 13.0)
    assert watching.hangs(job, 13.1)
    desk.report(12.0, steps=5.0, state="ending")
    assert not watching.hangs(job, 22.0)
    desk.report(20.0, steps=6.0, state="ending")
    assert not watching.hangs(job, 30.0)
    job.state = "stopping"
    assert not watching.hangs(job, 500.0)


@pytest.mark.parametrize("posted", [False, True])
def test_speeds_are_those_between_two_measurements(tmp_path: Path, posted: bool) -> None:
    desk = Desk(tmp_path)

    def measure(steps: float, seconds: float) -> list[tuple[str, Any]]:
        if posted:
            desk.watching.of(desk.job, seconds).told = Told(steps, seconds, (steps, seconds))
        else:
            desk.report(seconds, steps=steps, trained_steps=steps, trained_seconds=seconds)
        events = [event for event in desk.watching.measure() if event.kind == "measured"]
        for event in events:
            desk.book.apply(event)
        return [(event["pool"], event["gpus"], event["rate"]) for event in events]  # type: ignore[misc]

    assert measure(1.0, 10.0) == []
    assert measure(50.0, 0.4) == []
    assert measure(20.0, 10.0) == [("v100", 2, 2.0)]
    # two more steps, half a second more: from there on it counts
    assert measure(21.9, 20.0) == []
    assert measure(30.0, 10.4) == []
    assert measure(30.0, 12.5) == [("v100", 2, 3.0)]
    assert measure(30.0, 12.5) == []


def test_time_between_posts_counts_as_far_as_steps_were_made(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for steps, clock, begins in ((5.0, 10.0, True), (9.0, 20.0, False), (12.0, 21.0, False), (3.0, 30.0, False)):
        desk.watching.tell(desk.job, Told(steps, clock, begins=begins))
    told = desk.watching.told(desk.job)
    assert told is not None
    # not from the first word, which said no steps, nor back
    assert told.trained == (3.0, 1.0)
