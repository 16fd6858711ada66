"""What is shown of jobs and nodes: by a service, from the folder of one that does not run, in tables and in words."""

from __future__ import annotations

import hashlib
import io
import re

import pytest

from allocator.cli.service.tables import due, jobs_table
from allocator.runtime.door.requests import Requests
from allocator.runtime.door.stopped import at_rest
from allocator.runtime.door.views import job_view, service_view
from allocator.runtime.records.journal import Event
from tests.runtime.model_cluster import end, job, leave, one_type, run_on, started, two_types


def views(service):
    return [job_view(service, one) for one in service.book.by_id]


def shown(jobs, width=200):
    from rich.console import Console

    screen = Console(width=width, file=io.StringIO())
    screen.print(jobs_table(jobs, width))
    return screen.file.getvalue()


async def test_deadlines_are_shown_and_counted_as_they_are_met_or_missed(tmp_path):
    jobs = (job(10.0, deadline=20.0), job(30.0, deadline=20.0), job(10.0, "absent", deadline=50.0), job(60.0))
    service = await started(tmp_path, one_type(4), *jobs, until=0.0)
    assert [view["met"] for view in views(service)] == [None, None, False, None]
    assert views(service)[0]["due_in"] == 20.0
    assert "20s" in due(views(service)[0])
    await run_on(service, 25.0)
    assert [view["met"] for view in views(service)] == [True, False, False, None]
    assert due(views(service)[1]).endswith("missed 5s ago")
    await run_on(service, 15.0)
    for view, said in zip(views(service), (r"\d\d:\d\d(:\d\d)?, met", ", missed by 10s", ", missed", ""), strict=True):
        assert re.search(f"{said}$", due(view))
    assert due(views(service)[3]) == ""
    assert service_view(service)["deadlines"] == service.book.deadlines == {"met": 1, "missed": 2}
    ends = [event for event in service.journal.events() if event.kind == "ended" and event["outcome"] != "failed"]
    assert [event.get("late_seconds") for event in ends] == [0.0, 10.0]
    assert "job 1: due" in shown(views(service), 80)


async def test_the_time_left_is_unknown_until_the_speed_is(tmp_path):
    cluster = two_types(1, 1)
    service = await started(tmp_path, cluster, job(400.0), until=0.0)
    (one,) = service.book.by_id

    def left():
        return views(service)[0]["seconds_left"]

    assert left() is None
    cluster.advance(3.0)
    first = one.placed.pool
    # told in passing, before any measurement is written down
    service.watching.look(one, cluster.clock)
    assert not one.measured
    assert left() == pytest.approx(400 / cluster.rates[first] - 3.0)
    await run_on(service, 7.0)
    service.record(service.watching.measure())
    assert left() == pytest.approx(400 / cluster.rates[first] - 10.0)
    # on the other type nothing is known of it: not that it is as fast there
    service.drain(first[0], True, service.book.by_id)
    await run_on(service, 0.5)
    assert (one.state, one.placed.pool) == ("running", "k80" if first == "v100" else "v100")
    assert left() is None
    service.record([Event("measured", one.uuid, data={"pool": one.placed.pool, "gpus": 1, "rate": 2.0})])
    assert left() == pytest.approx((400 - service.steps_of(one)) / 2.0)


async def test_programs_that_tell_no_steps_are_told_apart_and_warned_of(tmp_path):
    jobs = job(500.0, "deaf", name="d"), job(500.0)
    service = await started(tmp_path, one_type(1), *jobs, policy="max_min_fairness", until=100.0)
    deaf, trainer = views(service)
    assert (deaf["reckoned"], trainer["reckoned"], trainer["unsaved_stops"]) == (True, False, 0)
    assert deaf["unsaved_stops"] > 1
    # it begins anew each time: nobody knows how long it still needs
    assert deaf["seconds_left"] is None
    text = shown(views(service))
    assert re.search(r"~\d+/500", text)
    assert "job 0 made room without having told a step" in text
    service.cancel(service.book.by_id)
    await run_on(service, 60.0)
    assert "made room" not in shown(views(service))


QUESTIONS = [
    {"do": "status"},
    {"do": "status", "active": True},
    {"do": "status", "jobs": [2]},
    {"do": "status", "jobs": [9]},
    {"do": "history", "job": 0},
    {"do": "history", "last": 5},
]


async def ended(folder, killed=False):
    """What a service has answered that has ended since: two jobs are through, two run, one waits, one has no room."""
    jobs = [job(2.0), job(2.0), *(job(500.0) for _ in range(4)), job(5.0, gpus=9)]
    service = await started(folder, two_types(2, 1), *jobs, until=9.0)
    service.drain("k", True)
    answers = [Requests(service).answer(asked) for asked in QUESTIONS]
    await (leave if killed else end)(service)
    return answers


def shape(told):
    """Names and kinds of values."""
    if isinstance(told, dict):
        return {name: shape(value) for name, value in told.items()}
    if isinstance(told, list):
        return [shape(one) for one in told]
    return "number" if isinstance(told, int | float) and not isinstance(told, bool) else type(told).__name__


@pytest.mark.parametrize("killed", [False, True])
async def test_answers_of_a_service_that_has_ended_are_those_of_the_service(tmp_path, killed):
    before = await ended(tmp_path, killed)
    service = at_rest(tmp_path)
    assert service.book.stopped is not killed
    assert service.book.at > 0
    *told, history = [Requests(service).answer(asked) for asked in QUESTIONS]
    assert history["events"][-1]["kind"] == ("node" if killed else "stopped")
    assert [shape(one) for one in told] == [shape(one) for one in before[:-1]]
    for now, was in zip(told[:3], before, strict=False):
        for name in ("policy", "counts", "nodes", "cluster"):
            assert now["service"][name] == was["service"][name]
        for one, other in zip(now["jobs"], was["jobs"], strict=True):
            for name in ("id", "uuid", "state", "places", "saved_steps", "epoch", "finished_at", "folder"):
                assert one[name] == other[name]
            assert one["steps"] >= other["steps"]
    reasons = [one["reason"] for one in told[0]["jobs"][-2:]]
    assert reasons == ["no decision: no service runs", before[0]["jobs"][-1]["reason"]]


async def test_nothing_is_changed_in_the_folder_of_a_service_that_has_ended(tmp_path):
    await ended(tmp_path)

    def files():
        left = (path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".sqlite-shm")
        return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in left if path.stat().st_size}

    before = files()
    for asked in (
        {"do": "submit", "jobs": [{"command": ["true"], "working_directory": "/"}]},
        {"do": "cancel", "jobs": [3, 4]},
        {"do": "drain", "node": "v"},
    ):
        answer = Requests(at_rest(tmp_path)).answer(asked)
        assert (answer["ok"], answer["fault"]) == (False, True)
        assert str(tmp_path) in answer["error"]
    assert files() == before
