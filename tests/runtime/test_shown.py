"""What is shown of jobs: deadlines and whether they were met, time left, and steps that nobody told."""

from __future__ import annotations

import io
import re
import time

import pytest

from allocator.cli.service.events import event_line
from allocator.cli.service.tables import due, jobs_table
from allocator.runtime.adapters.base import Node
from allocator.runtime.door.views import job_view, service_view
from allocator.runtime.records.book import Book
from allocator.runtime.records.journal import Event
from tests.runtime.model_cluster import job, one_type, run_on, service_on, settle, two_types


async def serving(folder, cluster, policy, *jobs):
    service = await service_on(folder, cluster, policy)
    service.submit((str(number), one) for number, one in enumerate(jobs))
    await settle(service)
    return service


def views(service):
    return [job_view(service, one) for one in service.book.by_id]


def shown(service, width=200):
    from rich.console import Console

    screen = Console(width=width, file=io.StringIO())
    screen.print(jobs_table(views(service), width))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


async def test_deadlines_are_shown_and_counted_as_they_are_met_or_missed(tmp_path):

    cluster = one_type(4)
    jobs = (job(10.0, deadline=20.0), job(30.0, deadline=20.0), job(10.0, "absent", deadline=50.0), job(60.0))
    service = await serving(tmp_path, cluster, "fifo_perf", *jobs)
    assert [view["met"] for view in views(service)] == [None, None, False, None]
    assert views(service)[0]["due_in"] == 20.0
    assert "20s" in due(views(service)[0])
    await run_on(service, cluster, 25.0)
    assert [view["met"] for view in views(service)] == [True, False, False, None]
    assert due(views(service)[1]).endswith("missed 5s ago")
    await run_on(service, cluster, 40.0)
    kept, late, failed, none = views(service)
    assert re.fullmatch(r"(\d\d:\d\d:\d\d|\w{3} \d\d \d\d:\d\d), met", due(kept))
    assert due(late).endswith(", missed by 10s")
    assert due(failed).endswith(", missed")
    assert due(none) == ""
    assert service_view(service)["deadlines"] == {"met": 1, "missed": 2}
    ends = [event for event in service.journal.events() if event.kind == "ended" and event["outcome"] != "failed"]
    assert [event.get("late_seconds") for event in ends] == [0.0, 10.0]
    assert "missed by 10s" in shown(service)
    assert "job 1: due" in shown(service, 80)
    # the book that is read again counts the same
    again = Book()
    for event in service.journal.events():
        again.apply(event)
    assert again.deadlines == service.book.deadlines
    await service._finish()


async def test_the_time_left_is_unknown_until_the_speed_is(tmp_path):

    cluster = two_types(1, 1)
    service = await serving(tmp_path, cluster, "fifo_perf", job(400.0))
    assert views(service)[0]["seconds_left"] is None
    cluster.advance(3.0)
    first = service.book.by_id[0].pool
    # told in passing, before any measurement is written down
    service.watching.look(service.book.by_id[0], cluster.clock)
    assert not service.book.by_id[0].measured
    assert views(service)[0]["seconds_left"] == pytest.approx(400 / cluster.rates[first] - 3.0)
    await run_on(service, cluster, 10.0)
    service.record(service.watching.measure())
    assert views(service)[0]["seconds_left"] == pytest.approx(400 / cluster.rates[first] - 10.0)
    # on the other type nothing is known of it: not that it is as fast there
    service.drain({"v100": "v", "k80": "k"}[first], True, service.book.by_id)
    await settle(service)
    cluster.advance(0.5)
    await settle(service)
    one = service.book.by_id[0]
    assert (one.state, one.pool) == ("running", "k80" if first == "v100" else "v100")
    assert views(service)[0]["seconds_left"] is None
    service.record([Event("measured", one.uuid, data={"pool": one.pool, "gpus": 1, "rate": 2.0})])
    assert views(service)[0]["seconds_left"] == pytest.approx((400 - service.steps_of(one)) / 2.0)
    await service._finish()


async def test_programs_that_tell_no_steps_are_told_apart_and_warned_of_once(tmp_path):

    cluster = one_type(1)
    service = await serving(tmp_path, cluster, "max_min_fairness", job(500.0, "deaf"), job(500.0))
    await run_on(service, cluster, 100.0)
    deaf, trainer = views(service)
    assert (deaf["reckoned"], trainer["reckoned"]) == (True, False)
    assert deaf["unsaved_stops"] > 1
    assert trainer["unsaved_stops"] == 0
    # it begins anew each time: nobody knows how long it still needs
    assert deaf["seconds_left"] is None
    reasons = [event["reason"] for event in service.journal.events("0") if event.kind == "ended"]
    lost = r"its lease ended; \d+ s of work may be lost: see `python -m pydoc allocator\.lease`"
    assert re.fullmatch(lost, reasons[0])
    assert set(reasons[1:]) == {"its lease ended"}
    assert not any("may be lost" in event.get("reason", "") for event in service.journal.events("1"))
    text = shown(service)
    assert re.search(r"~\d+/500", text)
    assert "~ reckoned from the time that the job ran" in text
    assert "job 0 made room without having told a step" in text
    assert "pydoc allocator.lease" in text
    service.cancel(service.book.by_id)
    await run_on(service, cluster, 200.0)
    assert "made room" not in shown(service)
    await service._finish()


async def test_a_trainer_that_has_told_steps_is_not_credited_for_those_of_its_next_start(tmp_path):

    cluster = one_type(2)
    service = await serving(tmp_path, cluster, "max_min_fairness", job(500.0))
    await run_on(service, cluster, 10.0)
    one = service.book.by_id[0]
    service.drain("k", True, [one])
    await run_on(service, cluster, 15.0)
    assert one.state == "queued"
    saved = one.saved_steps
    assert saved > 0
    service.drain("k", False)
    await settle(service)
    assert one.state in ("starting", "running")
    # it loads its checkpoint and has not reported yet
    cluster.clock += 8.0
    assert service.steps_of(one) == saved
    assert not job_view(service, one)["reckoned"]
    await service._finish()


def line(kind, job=None, **data):
    """What an event of now is in a line, without its time."""
    return event_line({"kind": kind, "at": time.time(), "job": job, "data": data})[20:]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (line("submitted", 3, command=["sh", "-c", "a b"], gpus=2), "job 3 submitted, 2 GPUs: sh -c 'a b'"),
        (line("submitted", 3, command=["x"], total_steps=1e6, deadline=9.0), "1e+06 steps, with a deadline: x"),
        (line("starting", 3, epoch=1, pool="k80", places={"n": [0, 2]}), "job 3 starts on k80, n:0,2"),
        (line("starting", 3, epoch=2, pool="k80", places={"n": [0]}), "n:0 (start 2)"),
        (line("running", 3), "job 3 runs"),
        (line("stopping", 3, reason="its lease ended", steps=4.0), "job 3 is told to end: its lease ended"),
        (line("ended", 3, outcome="yielded", reason="its lease ended"), "job 3 made room: its lease ended"),
        (line("ended", 3, outcome="failed", reason="exit status 1"), "job 3 failed: exit status 1"),
        (line("ended", 3, outcome="completed", reason=""), "job 3 completed"),
        (line("ended", 3, outcome="completed", late_seconds=0.0), "job 3 completed, in time"),
        (line("ended", 3, outcome="completed", late_seconds=90.0), "job 3 completed, 1.5m after its deadline"),
        (line("cancelled", 3, reason="cancelled"), "job 3 cancelled"),
        (line("decision", jobs=1, asked=True, seconds=0.002, status=""), "1 job to run; the policy took 2.0 ms"),
        (line("cluster", nodes=[{"name": "n", "up": False, "reason": "DOWN"}]), "node n is down: DOWN"),
        (line("node", name="n", drained=False), "node n is in use again"),
        (line("later", surprise=7), "later surprise 7"),
    ],
)
def test_events_are_told_in_words(told, expected):
    assert told.endswith(expected)


async def test_every_event_is_one_line_of_a_hundred_columns(tmp_path):

    cluster = two_types(1, 1)
    jobs = (job(40.0, name="x" * 300, deadline=30.0), job(30.0, "deaf"), job(9.0, "broken"), job(60.0, "crash"))
    service = await serving(tmp_path, cluster, "max_min_fairness_perf", *jobs)
    service.drain("v", True)
    await run_on(service, cluster, 20.0)
    service.drain("v", False)
    cluster.machines[1] = Node("k", "k80", 1, up=False, reason="not responding" * 20)
    service.see_nodes(cluster.machines)
    service.cancel([service.book.by_id[3]])
    await run_on(service, cluster, 300.0)
    told = [
        event_line({"kind": event.kind, "at": event.at, "job": 1 if event.job else None, "data": event.data or {}})
        for event in service.journal.events()
    ]
    kinds = {event.kind for event in service.journal.events()}
    assert kinds >= {"submitted", "starting", "running", "stopping", "ended", "measured", "cluster", "gave_up"}
    assert all(len(text) <= 100 and "\n" not in text for text in told)
    # nothing of Python's own: no lists, no objects
    assert not any(sign in text for text in told for sign in ("{'", "['", "None"))
    await service._finish()


def test_a_trainer_that_was_stopped_before_its_first_word_has_lost_nothing():
    book = Book()
    stop = Event("ended", "a", 2.0, {"outcome": "yielded", "reason": "its lease ended", "kept_steps": 1.0})
    for event in (
        Event("submitted", "a", 0.0, {"command": ["train"]}),
        Event("starting", "a", 1.0, {"epoch": 1, "pool": "k80", "places": {"k": [0]}}),
        stop,
    ):
        book.apply(event)
    (job,) = book.by_id
    assert (job.unsaved_stops, job.reports) == (1, False)
    book.apply(Event("progress", "a", 3.0, {"steps": 5.0, "saved_steps": 0.0}))
    assert (job.unsaved_stops, job.reports) == (0, True)
    book.apply(stop)
    assert job.unsaved_stops == 0
    # one that posts its progress is told of by its posts
    book.apply(Event("submitted", "b", 4.0, {"command": ["train"]}))
    book.apply(Event("ended", "b", 5.0, {"outcome": "yielded", "reason": "", "kept_steps": 3.0, "posted": True}))
    assert (book.by_id[1].steps, book.by_id[1].unsaved_stops, book.by_id[1].reports) == (3.0, 0, True)
