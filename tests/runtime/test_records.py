"""The journal and the book: what is written stays, by one service at a time, and what follows from it."""

from __future__ import annotations

import math
import os
import sqlite3
from contextlib import closing, suppress

import pytest

from allocator.runtime.adapters.base import NOWHERE
from allocator.runtime.records.book import Book
from allocator.runtime.records.journal import Event, Journal, JournalError
from allocator.runtime.settings import Clock
from throughputs import InputError


def kinds(journal):
    return [event.kind for event in journal.events()]


def test_events_come_back_in_order(tmp_path):
    journal = Journal(tmp_path)
    written = journal.append(Event("note", "ab"[number % 2], 1.5, {"number": number}) for number in range(9))
    assert [event.number for event in written] == list(range(1, 10))
    journal.close()
    journal = Journal(tmp_path)
    assert list(journal.events()) == written
    for asked, numbers in (
        ({"last": 3}, [6, 7, 8]),
        ({"job": "b"}, [1, 3, 5, 7]),
        ({"job": "a", "last": 2}, [6, 8]),
        ({"last": 100}, list(range(9))),
    ):
        assert [event["number"] for event in journal.events(**asked)] == numbers
    # each commit is on the disk
    assert [journal._base.execute(f"PRAGMA {of}").fetchone() for of in ("synchronous", "journal_mode")] == [
        (2,),
        ("wal",),
    ]


def test_a_second_service_is_refused_and_told_who_has_it(tmp_path):
    journal = Journal(tmp_path / "state")
    with pytest.raises(InputError, match=f"process {os.getpid()}"):
        Journal(tmp_path / "state")
    journal.close()
    Journal(tmp_path / "state").close()
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "state").iterdir())


@pytest.mark.parametrize(
    "content", [b"this is no data base, whatever its name says" * 50, b"SQLite format 3\0" + b"x" * 4000]
)
def test_a_file_that_is_no_journal_is_refused(tmp_path, content):
    (tmp_path / "journal.sqlite").write_bytes(content)
    with pytest.raises(InputError, match=r"journal\.sqlite.*the journal of a service"):
        Journal(tmp_path)
    assert (tmp_path / "journal.sqlite").read_bytes() == content


def test_a_journal_of_another_format_is_refused(tmp_path):
    Journal(tmp_path).close()
    with sqlite3.connect(tmp_path / "journal.sqlite") as base:
        base.execute("UPDATE about SET value = '7' WHERE name = 'format'")
    with pytest.raises(InputError, match="'format': found '7'"):
        Journal(tmp_path)


def test_all_or_nothing_is_written(tmp_path):
    journal = Journal(tmp_path)
    # a page limit stands for a full disk
    (pages,) = journal._base.execute("PRAGMA page_count").fetchone()
    journal._base.execute(f"PRAGMA max_page_count = {pages + 2}")
    events = [Event("note", "a", 0.0, {"text": "x" * 1000}) for _ in range(100)]
    with pytest.raises(JournalError, match=f"{tmp_path}.*full"):
        journal.append(events)
    for wrong in (Event("note", clock=math.nan), Event("note", data={"set": {1}})):
        with pytest.raises((JournalError, TypeError)):
            journal.append([Event("before"), wrong])
    assert kinds(journal) == []
    journal._base.execute("PRAGMA max_page_count = 100000")
    journal.append(events)
    assert len(kinds(journal)) == 100


def read_again(folder, content):
    """Jobs of the events of a journal, none where it is refused by name."""
    (folder / "journal.sqlite").write_bytes(content)
    found = []
    with suppress(InputError), closing(Journal(folder)) as journal:
        found = [event.job for event in journal.events()]
    return found


def test_a_journal_that_was_cut_off_or_is_damaged_is_refused_or_read_from_its_start(tmp_path):
    path, jobs = tmp_path / "journal.sqlite", [f"job{k}" for k in range(400)]
    with closing(Journal(tmp_path)) as journal:
        journal.append(Event("submitted", job, data={"command": ["x" * 50]}) for job in jobs)
    whole = path.read_bytes()
    for part in (0.0, 0.02, 0.3, 0.9, 0.99):
        found = read_again(tmp_path, whole[: int(part * len(whole))])
        assert found == jobs[: len(found)]
    for page in range(1, len(whole) // 4096):
        path.write_bytes(whole[: page * 4096] + b"\xff" * 64 + whole[page * 4096 + 64 :])
        with pytest.raises(InputError, match=r"journal\.sqlite"), closing(Journal(tmp_path)) as journal:
            list(journal.events())
    assert read_again(tmp_path, whole) == jobs


@pytest.mark.parametrize("name", ["journal.sqlite", "journal.sqlite-wal", "lock"])
@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_into_a_journal_that_is_gone(tmp_path, name, replaced):
    journal = Journal(tmp_path)
    journal.append([Event("first")])
    path, aside = tmp_path / name, tmp_path / "aside"
    path.rename(aside)
    if replaced:
        path.write_bytes(b"")
    for write in (journal.check, lambda: journal.append([Event("lost")])):
        with pytest.raises(JournalError, match=f"{name} was deleted or replaced"):
            write()
    aside.replace(path)
    journal.append([Event("second")])
    journal.close()
    assert kinds(Journal(tmp_path)) == ["first", "second"]


def test_the_clock_goes_on_and_never_back(monkeypatch):
    wall = 1e9
    monkeypatch.setattr("time.time", lambda: wall)
    for last, since, now in (
        (0.0, 0.0, 0.0),
        (100.0, 1e9 - 50.0, 150.0),
        # set back while no service ran, or years ahead
        (100.0, 1e9 + 5000.0, 100.0),
        (100.0, 1.0, 100.0),
        (100.0, 1e9 - 400 * 86400, 100.0),
        (100.0, 1e9 - 300 * 86400, 100.0 + 300 * 86400),
    ):
        assert Clock(last, since)() == pytest.approx(now, abs=60.0)
    clock = Clock(100.0, 1e9)
    before, wall = clock(), 5.0
    assert 0 <= clock() - before < 60


class Story:
    """A job, and what happens to it."""

    def __init__(self, **submitted):
        self.book = Book()
        self.tell("submitted", 10.0, command=["x"], gpus=2, total_steps=100.0, unknown=1, **submitted)

    def tell(self, kind, clock, **data):
        self.book.apply(Event(kind, "a", clock, data, at=clock))
        return self.book.jobs["a"]

    def start(self, clock, epoch):
        self.tell("starting", clock, epoch=epoch, pool="v100", places={"v": [0, 1]})
        return self.tell("running", clock + 1.0)


def test_times_of_a_job_from_its_submission_to_its_end():
    story = Story()
    story.start(15.0, 1)
    job = story.tell("stopping", 26.0, reason="its lease ended")
    # from when it ran to when it was told, and then to the end of the lease
    assert (job.run_seconds, job.gpu_seconds, job.queued_seconds) == (10.0, 20.0, 5.0)
    story.tell("ended", 30.0, outcome="yielded", saved_steps=20.0)
    assert (job.run_seconds, job.gpu_seconds) == (14.0, 28.0)
    assert (job.state, job.placed, job.restarts) == ("queued", NOWHERE, 0)
    assert not story.book.holding
    story.start(40.0, 2)
    assert (job.started_at, job.restarts, job.held_gpus) == (15.0, 1, 2)
    story.tell("ended", 46.0, outcome="completed", steps=100.0)
    assert (job.run_seconds, job.gpu_seconds, job.queued_seconds) == (19.0, 38.0, 15.0)
    assert (job.state, job.finished_at, job.steps) == ("completed", 46.0, 100.0)
    assert not story.book.active
    assert story.book.counts["completed"] == sum(story.book.counts.values()) == 1
    # an end before the present state began took no time
    story = Story()
    story.start(15.0, 1)
    assert story.tell("ended", 12.0, outcome="failed").run_seconds == 0.0


def test_what_is_not_saved_is_lost_unless_nobody_knows():
    story = Story()
    story.start(15.0, 1)
    job = story.tell("ended", 20.0, outcome="failed", steps=30.0, saved_steps=20.0, saved_at=7.0)
    assert (job.steps, job.saved_steps, job.saved_at) == (20.0, 20.0, 7.0)
    story.start(21.0, 2)
    assert story.tell("ended", 25.0, outcome="yielded", kept_steps=33.0).steps == 33.0
    story.start(26.0, 3)
    # one that does not report, and completes, has done all
    assert story.tell("ended", 30.0, outcome="completed", kept_steps=33.0).steps == 100.0


def test_failures_count_for_ever_and_what_is_fruitless_until_more_is_saved():
    story = Story()
    for epoch, (outcome, saved, *expected) in enumerate(
        [
            ("failed", 0.0, 1, 0, 0),
            ("failed", 5.0, 2, 0, 0),
            ("failed", 5.0, 3, 0, 0),
            ("yielded", 5.0, 3, 1, 0),
            ("yielded", 5.0, 3, 2, 0),
            ("yielded", None, 3, 2, 0),
            ("failed", 5.0, 4, 2, 0),
            ("lost", 5.0, 4, 2, 1),
            ("lost", None, 4, 2, 2),
            ("yielded", 6.0, 4, 0, 0),
            ("yielded", 6.0, 4, 1, 0),
            ("lost", 6.0, 4, 1, 1),
            ("lost", 7.0, 4, 0, 1),
        ],
        1,
    ):
        story.start(10.0 * epoch, epoch)
        told = {} if saved is None else {"saved_steps": saved}
        job = story.tell("ended", 10.0 * epoch + 5.0, outcome=outcome, **told)
        assert [job.failures, job.fruitless, job.lost] == expected


def test_a_trainer_that_was_stopped_before_its_first_word_has_lost_nothing():
    story = Story()
    for number in (1, 2):
        story.start(15.0, number)
        job = story.tell("ended", 20.0, outcome="yielded", reason="its lease ended", kept_steps=1.0)
        assert (job.unsaved_stops, job.reports) == (number, False)
    story.tell("progress", 23.0, steps=5.0, saved_steps=0.0)
    assert (job.unsaved_stops, job.reports) == (0, True)
    assert story.tell("ended", 24.0, outcome="yielded", kept_steps=1.0).unsaved_stops == 0
    # one that posts its progress is told of by its posts
    job = Story().tell("ended", 5.0, outcome="yielded", kept_steps=3.0, posted=True)
    assert (job.steps, job.unsaved_stops, job.reports) == (3.0, 0, True)


def test_epochs_and_the_clock_never_go_back():
    story = Story()
    for found, known in ((3, 3), (1, 3), (7, 7)):
        assert story.tell("found", 16.0, epoch=found).epoch == known
    story.tell("remark", 50.0)
    story.tell("remark", 20.0)
    # a decision for the end of a round does not move the clock
    story.book.apply(Event("decision", clock=370.0, at=16.0))
    assert (story.book.clock, story.book.at) == (50.0, 20.0)


def test_measurements_are_of_a_batch_size():
    story = Story(job_type="net16")
    story.tell("measured", 11.0, pool="v100", gpus=1, rate=7.0)
    job = story.tell("resized", 12.0, gpus=4, batch_size=None, job_type="net16")
    assert (job.gpus, job.job_type, job.measured) == (4, "net16", {("v100", 1): 7.0})
    story.tell("resized", 13.0, gpus=2, batch_size=64, job_type="net64")
    assert (job.gpus, job.job_type, job.batch_size, job.measured) == (2, "net64", 64, {})


def test_a_node_is_drained_until_it_is_resumed():
    book = Book()
    for name, drained, expected in (("v", True, {"v"}), ("w", True, {"v", "w"}), ("v", False, {"w"})):
        book.apply(Event("node", data={"name": name, "drained": drained}))
        assert book.drained == expected


def test_a_checkpoint_in_the_middle_of_a_lease_ends_a_row_of_fruitless_ones():
    story = Story()
    story.start(10.0, 1)
    job = story.tell("ended", 20.0, outcome="yielded", saved_steps=0.0)
    assert job.fruitless == 1
    story.start(30.0, 2)
    story.tell("progress", 35.0, saved_steps=4.0)
    assert story.tell("ended", 40.0, outcome="yielded", saved_steps=4.0).fruitless == 1


def test_of_a_long_journal_every_event_is_read(tmp_path):
    with closing(Journal(tmp_path)) as journal:
        journal.append(Event("note") for _ in range(250))
        assert [event.number for event in journal.events()] == list(range(1, 251))
