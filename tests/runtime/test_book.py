"""What follows from events, one by one: states, times, failures and what is kept."""

from __future__ import annotations

from typing import Any

import pytest

from allocator.runtime.records.book import Book, Job
from allocator.runtime.records.journal import Event

PLACES = {"v": [0, 1]}
REPORTED: dict[str, Any] = {"steps": 30.0, "saved_steps": 20.0, "saved_at": 7.0}


class Story:
    """A job, and what happens to it."""

    def __init__(self, **submitted: Any) -> None:
        self.book = Book()
        self.tell("submitted", 10.0, command=["x"], gpus=2, total_steps=100.0, **submitted)

    @property
    def job(self) -> Job:
        return self.book.jobs["a"]

    def tell(self, kind: str, clock: float, **data: Any) -> Job:
        self.book.apply(Event(kind, "a", clock, data, at=clock))
        return self.book.jobs["a"]

    def start(self, clock: float, epoch: int) -> None:
        self.tell("starting", clock, epoch=epoch, pool="v100", places=PLACES)
        self.tell("running", clock + 1.0)


def test_times_of_a_job_from_its_submission_to_its_end() -> None:
    story = Story()
    story.start(15.0, 1)
    job = story.tell("stopping", 26.0, reason="its lease ended")
    # from when it ran to when it was told; and the end of the lease is not counted twice
    assert (job.run_seconds, job.gpu_seconds) == (10.0, 20.0)
    job = story.tell("ended", 30.0, outcome="yielded", **REPORTED)
    assert (job.run_seconds, job.gpu_seconds) == (10.0, 20.0)
    assert (job.state, job.places, job.pool, job.restarts) == ("queued", {}, "", 0)
    assert not story.book.holding
    story.start(40.0, 2)
    assert (job.started_at, job.restarts, job.held_gpus) == (15.0, 1, 2)
    job = story.tell("ended", 46.0, outcome="completed", steps=100.0)
    assert (job.run_seconds, job.gpu_seconds) == (15.0, 30.0)
    assert (job.state, job.finished_at, job.steps) == ("completed", 46.0, 100.0)
    assert not story.book.active
    assert story.book.counts["completed"] == sum(story.book.counts.values()) == 1


def test_what_is_not_saved_is_lost_unless_nobody_knows() -> None:
    story = Story()
    story.start(15.0, 1)
    job = story.tell("ended", 20.0, outcome="failed", **REPORTED)
    assert (job.steps, job.saved_steps, job.saved_at) == (20.0, 20.0, 7.0)
    story.start(21.0, 2)
    job = story.tell("ended", 25.0, outcome="yielded", kept_steps=33.0)
    assert job.steps == 33.0
    story.start(26.0, 3)
    # one that does not report, and completes, has done all
    assert story.tell("ended", 30.0, outcome="completed", kept_steps=33.0).steps == 100.0


def test_failures_count_for_ever_and_what_is_fruitless_until_more_is_saved() -> None:
    story, seen = Story(), []
    ends: list[tuple[str, float | None]] = [
        ("failed", 0.0),
        ("failed", 0.0),
        ("failed", 5.0),
        ("failed", 5.0),
        ("yielded", 5.0),
        ("yielded", 5.0),
        ("yielded", None),
        ("failed", 5.0),
        ("lost", 5.0),
        ("lost", None),
        ("yielded", 6.0),
        ("yielded", 6.0),
        ("lost", 6.0),
        ("lost", 7.0),
    ]
    for epoch, (outcome, saved) in enumerate(ends, 1):
        story.start(10.0 * epoch, epoch)
        told = {} if saved is None else {"saved_steps": saved}
        job = story.tell("ended", 10.0 * epoch + 5.0, outcome=outcome, **told)
        seen.append((job.failures, job.fruitless, job.lost))
    failures, fruitless, lost = map(list, zip(*seen, strict=True))
    assert failures == [1, 2, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5]
    assert fruitless == [0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 0, 1, 1, 0]
    assert lost == [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 1, 1]


@pytest.mark.parametrize(("found", "known"), [(7, 7), (1, 3)])
def test_epochs_never_go_back(found: int, known: int) -> None:
    story = Story()
    story.start(15.0, 3)
    assert story.tell("found", 16.0, epoch=found).epoch == known


def test_the_clock_of_the_book_is_the_latest() -> None:
    story = Story()
    story.tell("remark", 50.0)
    story.tell("remark", 20.0)
    assert (story.book.clock, story.book.at) == (50.0, 20.0)


def test_a_decision_for_the_end_of_a_round_does_not_move_the_clock() -> None:
    story = Story()
    story.tell("starting", 15.0, epoch=1, pool="v100", places=PLACES)
    story.book.apply(Event("decision", clock=370.0, data={"asked": True}, at=16.0))
    assert (story.book.clock, story.book.at) == (15.0, 15.0)


def test_an_end_before_the_present_state_began_took_no_time() -> None:
    story = Story()
    story.start(15.0, 1)
    assert story.tell("ended", 12.0, outcome="failed").run_seconds == 0.0
