"""What is made of reports, posts and ends: progress, speeds, since when nothing has moved, and how a start came out."""

from __future__ import annotations

import pytest

from allocator.lease.files import REPORT_FILE, Report, write_file
from allocator.runtime.adapters.base import Seen
from allocator.runtime.records.book import Book, Job
from allocator.runtime.records.journal import Event
from allocator.runtime.settings import ServiceSettings
from allocator.runtime.watching import Told, Watching, events_of_end

SETTINGS = ServiceSettings(
    hang_seconds=10.0, least_measured_steps=2.0, least_measured_seconds=0.5, retries=2, max_fruitless=3
)


class Desk:
    """A job that runs, and its reports."""

    def __init__(self, folder):
        self.book = book = Book()
        book.apply(Event("submitted", "a", 1.0, {"command": ["x"], "gpus": 2}))
        self.watching = Watching(folder, book, SETTINGS)
        self.job = book.jobs["a"]
        self.start(1)
        self.watching.folder(self.job).mkdir(parents=True)

    def start(self, epoch):
        self.book.apply(Event("starting", "a", 2.0, {"epoch": epoch, "pool": "v100", "places": {"v": [0, 1]}}))
        self.book.apply(Event("running", "a", 2.0, {}))

    def report(self, now, job="a", epoch=1, **told):
        write_file(self.watching.folder(self.job) / REPORT_FILE, Report(job, epoch, **({"state": "training"} | told)))
        return self.watching.look(self.job, now).report


def test_reports_of_others_of_other_starts_and_without_sense_do_not_count(tmp_path):
    desk = Desk(tmp_path)
    wrong = [{"epoch": 2}, {"job": "b"}]
    for name in ("steps", "saved_steps", "trained_steps", "trained_seconds", "saved_at", "save_seconds"):
        wrong += [{name: value} for value in (-1.0, 1e15, 1e300)]
    for name in ("gpus", "batch_size"):
        wrong += [{name: value} for value in (0, -1, 1 << 40)]
    assert [desk.report(3.0, **one) for one in wrong] == [None] * len(wrong)
    good = desk.report(3.0, steps=6.0, gpus=1, batch_size=(1 << 40) - 1)
    assert good is not None
    assert desk.watching.of(desk.job).report == good
    desk.start(2)
    assert desk.watching.of(desk.job).report is None
    assert desk.watching.look(desk.job, 4.0).report is None
    assert desk.report(5.0, epoch=2, steps=1.0) is not None
    # a start that has ended is forgotten
    desk.watching.tell(desk.job, Told(5.0, 3.0))
    desk.watching.drop(desk.job)
    assert desk.watching.of(desk.job).report is desk.watching.of(desk.job).told is None


def test_a_trainer_hangs_that_has_reported_and_makes_no_step(tmp_path):
    desk = Desk(tmp_path)
    job, watching = desk.job, desk.watching
    assert not watching.hangs(job, 500.0)
    desk.report(3.0, steps=5.0)
    # the same steps said again are none; another state is something
    desk.report(8.0, steps=5.0, at=1.0)
    assert [watching.hangs(job, now) for now in (13.0, 13.1)] == [False, True]
    desk.report(12.0, steps=5.0, state="ending")
    assert not watching.hangs(job, 22.0)
    desk.report(20.0, steps=6.0, state="ending")
    assert not watching.hangs(job, 30.0)
    # steps that it has posted are steps
    watching.tell(job, Told(6.0, 25.0))
    watching.tell(job, Told(7.0, 32.0))
    assert not watching.hangs(job, 42.0)
    job.state = "stopping"
    assert not watching.hangs(job, 500.0)


@pytest.mark.parametrize("posted", [False, True])
def test_speeds_are_those_between_two_measurements(tmp_path, posted):
    desk = Desk(tmp_path)

    def measure(steps, seconds):
        if posted:
            desk.watching.of(desk.job).told = Told(steps, seconds, (steps, seconds))
        else:
            desk.report(seconds, steps=steps, trained_steps=steps, trained_seconds=seconds)
        events = [event for event in desk.watching.measure() if event.kind == "measured"]
        for event in events:
            desk.book.apply(event)
        return [(event["pool"], event["gpus"], event["rate"]) for event in events]

    assert measure(1.0, 10.0) == measure(50.0, 0.4) == []
    assert measure(20.0, 10.0) == [("v100", 2, 2.0)]
    # two more steps, half a second more: from there on it counts, as half of an average
    assert measure(21.9, 20.0) == measure(30.0, 10.4) == []
    assert measure(30.0, 12.5) == [("v100", 2, 3.0)]
    assert measure(30.0, 12.5) == []


def test_time_between_posts_counts_as_far_as_steps_were_made(tmp_path):
    desk = Desk(tmp_path)
    for steps, clock, begins in ((5.0, 10.0, True), (9.0, 20.0, False), (12.0, 21.0, False), (3.0, 30.0, False)):
        desk.watching.tell(desk.job, Told(steps, clock, begins=begins))
    # not from the first word, which said no steps, nor back
    assert desk.watching.of(desk.job).told.trained == (3.0, 1.0)


def end(state="running", told=None, code=0, signal=0, settings=SETTINGS, saved=0.0, wishes=None, **job):
    """Kinds of the events of an end, each with its outcome or reason."""
    one = Job(0, "a", ("x",), state=state, epoch=1, **({"reason": "its lease ended"} | job))
    report = None if told is None else Report("a", 1, told, 9.0, saved_steps=saved, **(wishes or {}))
    events = events_of_end(one, Seen("a", 1, "ended", code, signal, f"exit status {code}"), report, 5.0, settings, 4.0)
    return [(event.kind, event.get("outcome") or event.get("reason") or event.data) for event in events]


def kinds(*words, **more):
    return [kind for kind, _ in end(*words, **more)]


def test_the_outcome():
    for state, told, code, outcome in [
        # a program that knows nothing of leases: status 0 is the end of it, unless it was told to end
        ("running", None, 0, "completed"),
        ("stopping", None, 0, "yielded"),
        ("running", None, 1, "failed"),
        ("stopping", None, 1, "yielded"),
        ("running", None, 137, "failed"),
        # without an exit status it was not the job that ended it
        ("running", None, None, "lost"),
        ("running", "training", None, "lost"),
        ("stopping", None, None, "yielded"),
        # one that reports says which it is
        ("running", "training", 0, "completed"),
        ("stopping", "training", 0, "yielded"),
        ("running", "ending", 0, "yielded"),
        ("stopping", "ending", 0, "yielded"),
        ("running", "done", 0, "completed"),
        ("stopping", "done", 0, "completed"),
        ("running", "ending", 1, "failed"),
        ("stopping", "done", 1, "yielded"),
        ("running", "done", 1, "failed"),
    ]:
        assert end(state, told, code) == [("ended", outcome)], (state, told, code)


def test_what_a_job_that_was_told_to_end_becomes():
    for then in ("cancelled", "rejected"):
        assert end("stopping", "ending", then=then, reason="why") == [("ended", "yielded"), (then, "why")]
        # it was through before it heard of it
        assert end("stopping", "done", then=then, reason="why") == [("ended", "completed")]
    assert end("stopping", "training", then="failed", code=None, signal=9) == [("ended", "failed")]


def test_who_fails_is_tried_again_as_often_as_it_says_or_else_the_service():
    once = ServiceSettings()
    assert end(code=1, failures=1) == [("ended", "failed")]
    assert end(code=1, failures=2)[1:] == [("gave_up", "failed 3 times, the last time: exit status 1")]
    assert end(code=1, retries=0)[1:] == end(code=1, settings=once)[1:] == [("gave_up", "exit status 1")]
    assert end(code=1, settings=once, retries=1) == end(code=1, failures=2, retries=3) == [("ended", "failed")]
    # a trainer that hangs has failed, too
    assert kinds("stopping", "training", then="failed", code=137, signal=9, retries=0) == ["ended", "gave_up"]
    # what cannot be run is not tried again, unless it has saved steps: then it was found before
    assert kinds(code=127) == kinds(code=126) == ["ended", "gave_up"]
    assert kinds(code=127, saved_steps=3.0) == kinds(code=125) == ["ended"]


def test_a_job_is_given_up_after_so_many_fruitless_leases_or_starts():
    # who was lost while it ran is started again, whatever it takes
    assert end(code=None, failures=9, lost=99) == end("starting", code=None, lost=3) == [("ended", "lost")]
    ((_, outcome), (kind, reason)) = end("starting", code=None, lost=4)
    assert (outcome, kind) == ("lost", "gave_up")
    assert "5 times" in reason
    assert kinds("stopping", "ending", fruitless=2) == ["ended", "gave_up"]
    for more in ({"fruitless": 1}, {"fruitless": 2, "saved": 1.0}, {"fruitless": 2, "told": None}):
        assert end("stopping", **({"told": "ending"} | more)) == [("ended", "yielded")]


def test_wishes_are_heard_of_jobs_that_go_on():
    wishes = {"gpus": 4, "batch_size": 64}
    assert end("stopping", "ending", wishes=wishes)[1:] == [("resized", wishes)]
    assert kinds("stopping", "ending", wishes={"gpus": 2}, gpus=2) == kinds(told="done", wishes=wishes) == ["ended"]
    assert kinds("stopping", "ending", wishes=wishes, then="cancelled") == ["ended", "cancelled"]
