"""What is shown of jobs and nodes: by a service, from the folder of one that does not run, in tables and in words."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from allocator.cli.app import load
from allocator.cli.service.asking import asked_or_read
from allocator.cli.service.events import event_line
from allocator.cli.service.tables import due, jobs_table, service_lines
from allocator.runtime.adapters.base import Node
from allocator.runtime.door.client import AbsentError, RefusedError
from allocator.runtime.door.requests import Requests
from allocator.runtime.door.stopped import StoppedService
from allocator.runtime.door.views import job_view, service_view
from allocator.runtime.records.journal import Event
from tests.runtime.model_cluster import end, job, leave, one_type, run_on, settle, started, two_types
from tests.runtime.small_disks import small_disk_at


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
    first = one.pool
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
    assert (one.state, one.pool) == ("running", "k80" if first == "v100" else "v100")
    assert left() is None
    service.record([Event("measured", one.uuid, data={"pool": one.pool, "gpus": 1, "rate": 2.0})])
    assert left() == pytest.approx((400 - service.steps_of(one)) / 2.0)


async def test_programs_that_tell_no_steps_are_told_apart_and_warned_of_once(tmp_path):
    jobs = job(500.0, "deaf", name="d"), job(500.0)
    service = await started(tmp_path, one_type(1), *jobs, policy="max_min_fairness", until=100.0)
    deaf, trainer = views(service)
    assert (deaf["reckoned"], trainer["reckoned"], trainer["unsaved_stops"]) == (True, False, 0)
    assert deaf["unsaved_stops"] > 1
    # it begins anew each time: nobody knows how long it still needs
    assert deaf["seconds_left"] is None
    ends = [event for event in service.journal.events() if event.kind == "ended"]
    first, *others = [event["reason"] for event in ends if event.job == deaf["uuid"]]
    assert re.match(r"its lease ended; \d+ s of work may be lost", first)
    assert set(others) == {event["reason"] for event in ends if event.job != deaf["uuid"]} == {"its lease ended"}
    text = shown(views(service))
    assert re.search(r"~\d+/500", text)
    assert "job 0 made room without having told a step" in text
    service.cancel(service.book.by_id)
    await run_on(service, 60.0)
    assert "made room" not in shown(views(service))


async def test_a_trainer_that_has_told_steps_is_not_credited_for_those_of_its_next_start(tmp_path):
    cluster = one_type(2)
    service = await started(tmp_path, cluster, job(500.0), policy="max_min_fairness", until=10.0)
    (one,) = service.book.by_id
    service.drain("k", True, [one])
    await run_on(service, 5.0)
    assert one.state == "queued"
    saved = one.saved_steps
    assert saved > 0
    service.drain("k", False)
    await settle(service)
    # it loads its checkpoint and has not reported yet
    cluster.clock += 8.0
    assert one.places
    assert service.steps_of(one) == saved
    assert not job_view(service, one)["reckoned"]


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("submitted", {"command": ["sh", "-c", "a b"], "gpus": 2}, "submitted, 2 GPUs: sh -c 'a b'"),
        ("starting", {"epoch": 2, "pool": "k80", "places": {"n": [0]}}, "n:0 (start 2)"),
        ("ended", {"outcome": "yielded", "reason": "its lease ended"}, "made room: its lease ended"),
        ("ended", {"outcome": "completed", "late_seconds": 90.0, "reason": ""}, "completed, 1.5m after its deadline"),
        (
            "decision",
            {"jobs": 1, "asked": True, "seconds": 0.002, "status": ""},
            "1 job to run; the policy took 2.0 ms",
        ),
        ("cluster", {"nodes": [{"name": "n", "up": False, "reason": "DOWN"}]}, "node n is down: DOWN"),
        ("later", {"surprise": 7}, "later surprise 7"),
    ],
)
def test_events_are_told_in_words(kind, data, expected):
    number = None if kind in ("decision", "cluster", "node", "later") else 3
    assert event_line({"kind": kind, "at": time.time(), "job": number, "data": data}).endswith(expected)


async def test_every_event_is_one_line_of_a_hundred_columns(tmp_path):
    jobs = (job(40.0, name="x" * 300, deadline=30.0), job(30.0, "deaf"), job(9.0, "broken"), job(60.0, "crash"))
    service = await started(tmp_path, two_types(1, 1), *jobs, policy="max_min_fairness_perf", until=0.0)
    service.drain("v", True)
    await run_on(service, 20.0)
    service.drain("v", False)
    service.adapter.machines[1] = Node("k", "k80", 1, up=False, reason="not responding" * 20)
    service.see_nodes(service.adapter.machines)
    service.cancel([service.book.by_id[3]])
    await run_on(service, 300.0)
    events = list(service.journal.events())
    kinds = {event.kind for event in events}
    assert kinds >= {"submitted", "starting", "running", "stopping", "ended", "measured", "cluster", "gave_up"}
    for event in events:
        told = {"kind": event.kind, "at": event.at, "job": 1 if event.job else None, "data": event.data or {}}
        text = event_line(told)
        assert len(text) <= 100
        # nothing of Python's own: no lists, no objects
        assert not any(sign in text for sign in ("\n", "{'", "['", "None"))


QUESTIONS = [
    {"do": "status"},
    {"do": "status", "active": True},
    {"do": "status", "jobs": [2]},
    {"do": "status", "jobs": [9]},
    {"do": "job", "job": 0},
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
    stopped = StoppedService(tmp_path)
    assert stopped.in_order is not killed
    assert stopped.last_at > 0
    *told, history = [stopped.answer(asked) for asked in QUESTIONS]
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
        answer = StoppedService(tmp_path).answer(asked)
        assert (answer["ok"], answer["fault"]) == (False, True)
        assert str(tmp_path) in answer["error"]
    assert files() == before


async def test_commands_say_where_their_answers_are_from(tmp_path, capsys):
    await ended(tmp_path)
    assert len(asked_or_read(tmp_path, "status")["jobs"]) == 7
    output, errors = capsys.readouterr()
    assert output == ""
    assert re.fullmatch(rf"no service runs on {tmp_path}: .*it ended \d+s ago, .*--state {tmp_path}\n", errors)
    with pytest.raises(RefusedError, match="from 0 to 6"):
        asked_or_read(tmp_path, "status", jobs=[7])
    for name, words in (("nowhere", "no such folder"), ("empty", "allocator serve")):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(AbsentError, match=words):
            asked_or_read(tmp_path / name, "status")


@pytest.mark.exhaustive
@pytest.mark.parametrize("killed", [False, True])
def test_a_stopped_service_answers_from_a_disk_that_cannot_be_written_to(tmp_path, killed):
    with small_disk_at(tmp_path / "disk", "8m") as disk:
        (disk / "state").mkdir()
        asyncio.run(ended(disk / "state", killed))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert len(asked_or_read(disk / "state", "status")["jobs"]) == 7
        assert asked_or_read(disk / "state", "history", last=3)["events"]


async def test_logs_are_found_wherever_the_service_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    await ended(Path("state"))
    told = StoppedService(Path("state")).answer({"do": "status"})["jobs"]
    folders = [one["folder"] for one in told]
    assert folders[0] == str(tmp_path / "state" / "jobs" / told[0]["uuid"])
    (Path(folders[0]) / "log").write_text("step 1\n")
    (Path(folders[1]) / "log").touch()
    os.mkdir("elsewhere")
    monkeypatch.chdir("elsewhere")
    # of one that ran and has no log, and of one that never ran, it is not said that they printed nothing
    for number, words in enumerate(
        ("step 1\n", "has printed nothing so far", folders[2], "", "", "", "was not started")
    ):
        if words:
            done = CliRunner().invoke(load("logs"), ["--state", str(tmp_path / "state"), str(number)])
            assert done.exit_code == 0
            assert words in done.output
            assert ("nothing so far" in done.output) == (number == 1)


def view(number, **more):
    names = ("deadline", "met", "due_in", "finished_at")
    told = {"id": number, "name": "train.py", "state": "running", "gpus": 1, "accelerator": "v100", "steps": 12.0}
    told |= {"waited_seconds": 44.0, "run_seconds": 9000.0, "seconds_left": 400.0, "reckoned": False}
    return told | dict.fromkeys(names) | {"unsaved_stops": 0, "total_steps": 200_000.0, "reason": ""} | more


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_and_says_why(width):
    why = "failed 5 times, the last time: not found: the command x, " + "y" * 300
    jobs = [view(12_345, name="train_resnet_imagenet.py"), view(2, state="failed", reason=why, name="a [bold]name")]
    text = shown(jobs, width)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    words = " ".join(text.split())
    for said in ("train_resnet_imagenet.py", "a [bold]name", "12/200000"):
        assert said in words
    assert width > 80 or "job 2: failed 5 times, the last time: not found" in words


def test_the_lines_above_the_table_say_what_is_wrong():
    node = {"name": "n[v]", "accelerator": "v100", "gpus": 2, "state": "drained", "reason": "", "jobs": [[3], []]}
    other = node | {"name": "m", "state": "up", "jobs": [[], [4]]}
    told = {"policy": "fifo", "counts": {"queued": 0, "running": 2}, "nodes": [node, other], "trouble": "[disk] full"}
    assert service_lines(told | {"deadlines": {"met": 3, "missed": 1}}) == [
        "fifo: 1 of 2 GPUs busy; jobs: 2 running",
        "[yellow]node n\\[v] is drained[/]; 1 of its GPUs are still busy",
        "deadlines of jobs that are through: 3 met, 1 missed",
        "[red]trouble:[/] \\[disk] full",
    ]
