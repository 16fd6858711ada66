"""What is shown of jobs: deadlines and whether they were met, time left, and steps that nobody told."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path
from typing import Any

import pytest

from allocator.cli.service.tables import due, jobs_table
from allocator.runtime.door.views import job_view, service_view
from allocator.runtime.records.book import Book
from allocator.runtime.records.journal import Event
from allocator.runtime.service import Service
from tests.runtime.model_cluster import ModelCluster, job, one_type, run_on, service_on, settle, two_types


async def serving(folder: Path, cluster: ModelCluster, policy: str, *jobs: dict[str, object]) -> Service:
    service = await service_on(folder, cluster, policy)
    service.submit((str(number), one) for number, one in enumerate(jobs))
    await settle(service)
    return service


def views(service: Service) -> list[dict[str, Any]]:
    return [job_view(service, one) for one in service.book.by_id]


def shown(service: Service, width: int = 200) -> str:
    from rich.console import Console

    screen = Console(width=width, file=io.StringIO())
    screen.print(jobs_table(views(service), width))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_deadlines_are_shown_and_counted_as_they_are_met_or_missed(tmp_path: Path) -> None:
    async def go() -> None:
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

    asyncio.run(go())


def test_the_time_left_is_unknown_until_the_speed_is(tmp_path: Path) -> None:
    async def go() -> None:
        cluster = two_types(1, 1)
        service = await serving(tmp_path, cluster, "fifo_perf", job(400.0))
        assert views(service)[0]["seconds_left"] is None
        await run_on(service, cluster, 10.0)
        first = service.book.by_id[0].pool
        service.record(service.watching.measure())
        assert views(service)[0]["seconds_left"] == pytest.approx(400 / cluster.rates[first] - 10.0)
        # on the other type nothing is known of it: not that it is as fast there
        service.drain({"v100": "v", "k80": "k"}[first], True)
        await run_on(service, cluster, 20.0)
        one = service.book.by_id[0]
        assert (one.state, one.pool) == ("running", "k80" if first == "v100" else "v100")
        assert views(service)[0]["seconds_left"] is None
        service.record([Event("measured", one.uuid, data={"pool": one.pool, "gpus": 1, "rate": 2.0})])
        assert views(service)[0]["seconds_left"] == pytest.approx((400 - service.steps_of(one)) / 2.0)
        await service._finish()

    asyncio.run(go())


def test_programs_that_tell_no_steps_are_told_apart_and_warned_of_once(tmp_path: Path) -> None:
    async def go() -> None:
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
        lost = r"its lease ended; \d+ s of work may be lost: see docs/leases.md"
        assert re.fullmatch(lost, reasons[0])
        assert set(reasons[1:]) == {"its lease ended"}
        assert not any("may be lost" in event.get("reason", "") for event in service.journal.events("1"))
        text = shown(service)
        assert re.search(r"~\d+/500", text)
        assert "~ reckoned from the time that the job ran" in text
        assert "job 0 made room without having told a step" in text
        assert "docs/leases.md" in text
        service.cancel(service.book.by_id)
        await run_on(service, cluster, 200.0)
        assert "made room" not in shown(service)
        await service._finish()

    asyncio.run(go())


def test_a_trainer_that_has_told_steps_is_not_credited_for_those_of_its_next_start(tmp_path: Path) -> None:
    async def go() -> None:
        cluster = one_type(2)
        service = await serving(tmp_path, cluster, "max_min_fairness", job(500.0))
        await run_on(service, cluster, 10.0)
        one = service.book.by_id[0]
        service.drain("k", True)
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

    asyncio.run(go())
