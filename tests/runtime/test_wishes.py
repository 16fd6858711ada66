"""What submitters ask of when, where and for how long a job runs, and who is told of it."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import replace

import pytest

from allocator.runtime.adapters.base import Seen
from allocator.runtime.door.requests import Requests
from allocator.runtime.records.book import Job
from allocator.runtime.settings import ServiceSettings
from allocator.runtime.watching import ended
from tests.runtime.model_cluster import (
    QUICK,
    job,
    leave,
    one_type,
    run_on,
    service_on,
    settle,
    started,
    states,
    submit,
    two_types,
)
from throughputs import InputError


async def test_a_time_limit_holds_over_all_leases_and_is_told_before(tmp_path):
    limited = job(500.0, time_limit=40.0)
    service = await started(tmp_path, one_type(1), limited, job(500.0), policy="max_min_fairness", until=300.0)
    one = service.book.by_id[0]
    assert (one.state, one.failures) == ("failed", 0)
    assert "time limit" in one.reason
    # they took turns; it was told a grace of 5 s before the limit, and saved
    assert one.epoch > 1
    assert 35.0 <= one.run_seconds <= 40.0
    assert one.saved_steps > 0
    # half of a limit that is short
    await submit(service, job(500.0, "stubborn", time_limit=4.0))
    service.cancel(service.book.by_id[1:2])
    await run_on(service, 60.0)
    short = service.book.by_id[2]
    assert (short.state, 2.0 <= short.run_seconds <= 4.0) == ("failed", True)


async def test_who_is_past_a_time_limit_when_a_service_begins_has_time_to_save(tmp_path):
    cluster = one_type(1)
    service = await started(tmp_path, cluster, job(500.0, "stubborn", time_limit=40.0))
    await leave(service)
    cluster.advance(100.0)
    service = await service_on(tmp_path, cluster)
    (one,) = service.book.by_id
    await run_on(service, 4.0)
    assert one.state == "stopping"
    await run_on(service, 4.0)
    assert one.state == "failed"


async def test_jobs_start_after_those_that_they_wait_for(tmp_path):
    service = await service_on(tmp_path, one_type(4))
    await submit(service, job(10.0), job(20.0))
    await submit(service, job(5.0, after=[0, 1]))
    answer = Requests(service).answer({"do": "status", "jobs": [2]})["jobs"][0]
    assert (answer["state"], answer["after"]) == ("queued", [0, 1])
    assert "jobs 0, 1" in answer["reason"]
    await run_on(service, 12.0)
    assert states(service) == ["completed", "running", "queued"]
    # a service that is killed knows it from its journal
    cluster = service.adapter
    await leave(service)
    service = await service_on(tmp_path, cluster)
    await run_on(service, 100.0)
    _, second, last = service.book.by_id
    assert states(service) == ["completed"] * 3
    assert last.started_at >= second.finished_at


async def test_who_waits_for_a_job_that_does_not_complete_is_cancelled(tmp_path):
    service = await service_on(tmp_path, one_type(4))
    await submit(service, job(100.0), job(10.0))
    await submit(service, job(5.0, after=[0, 1]))
    await submit(service, job(5.0, after=[2]))
    service.cancel(service.book.by_id[:1])
    await run_on(service, 30.0)
    assert states(service) == ["cancelled", "completed", "cancelled", "cancelled"]
    assert "job 0" in service.book.by_id[2].reason
    assert "job 2" in service.book.by_id[3].reason
    refused = Requests(service).answer({"do": "submit", "jobs": [job(1.0, after=[0])]})
    assert "cancelled" in refused["error"]
    assert "after" in refused["error"]
    assert "job" in Requests(service).answer({"do": "submit", "jobs": [job(1.0, after=[9])]})["error"]


async def test_a_user_asks_for_so_many_gpus_at_a_time(tmp_path):
    settings = ServiceSettings(user_gpus=3)
    service = await service_on(tmp_path, one_type(8), settings=settings)
    wanted = [("ann", 2, 20.0), ("ann", 2, 20.0), ("ann", 1, 20.0), ("bob", 3, 60.0)]
    await submit(service, *(job(seconds, gpus=gpus, user=user) for user, gpus, seconds in wanted))
    await run_on(service, 5.0)
    # the last one of ann's would fit, and keeps its place behind the one before
    assert states(service) == ["running", "queued", "queued", "running"]
    told = Requests(service).answer({"do": "status", "jobs": [1]})["jobs"][0]
    assert told["reason"] == "jobs of ann may ask for 3 GPUs at a time"
    # so does a service that comes after this one
    cluster = service.adapter
    await leave(service)
    service = await service_on(tmp_path, cluster, settings=settings)
    await run_on(service, 10.0)
    assert states(service) == ["running", "queued", "queued", "running"]
    await run_on(service, 12.0)
    assert states(service) == ["completed", "running", "running", "running"]
    refused = Requests(service).answer({"do": "submit", "jobs": [job(1.0, gpus=4, user="bob")]})
    assert "at most 3" in refused["error"]


async def test_who_asks_for_more_than_a_lower_limit_is_told_and_in_nobodys_way(tmp_path):
    service = await service_on(tmp_path, one_type(2))
    await submit(service, job(9.0, gpus=2, user="bob"), job(90.0, gpus=2, user="ann"), job(9.0, gpus=1, user="ann"))
    cluster = service.adapter
    await leave(service)
    service = await service_on(tmp_path, cluster, settings=ServiceSettings(user_gpus=1))
    await run_on(service, 30.0)
    assert states(service)[1:] == ["queued", "completed"]
    told = Requests(service).answer({"do": "status", "jobs": [1]})["jobs"][0]
    assert "cancel it, or raise --user-gpus" in told["reason"]
    # `wait` names it as one that cannot run
    assert Requests(service).answer({"do": "status"})["service"]["cannot_run"] == [1]


async def test_who_waits_for_a_user_that_cancels_is_let_in(tmp_path):
    service = await service_on(tmp_path, one_type(4), settings=ServiceSettings(user_gpus=2))
    await submit(service, job(90.0, user="ann"), job(9.0, gpus=2, user="ann"), job(9.0, user="ann"))
    await run_on(service, 5.0)
    assert states(service) == ["running", "queued", "queued"]
    service.cancel(service.book.by_id[1:2])
    await run_on(service, 5.0)
    assert states(service) == ["running", "cancelled", "running"]


async def test_a_job_runs_on_the_types_that_it_names(tmp_path):
    wanted = ["k80", "v100", "k80", "v100", "v100"]
    service = await started(tmp_path, two_types(), *(job(40.0, accelerators=[name]) for name in wanted), until=3.0)
    assert [one.placed.pool for one in service.book.by_id] == ["k80", "v100", "k80", "v100", ""]
    asked = {"do": "submit", "jobs": [job(1.0, accelerators=["k80"], gpus=3), job(1.0, accelerators=["h100"])]}
    requests = Requests(service)
    assert "at most 2, of k80" in requests.answer(asked | {"jobs": asked["jobs"][:1]})["error"]
    assert "'h100'" in requests.answer(asked | {"jobs": asked["jobs"][1:]})["error"]


async def test_who_waits_is_told_of_whom_and_until_when(tmp_path):
    service = await started(tmp_path, one_type(4), job(100.0, gpus=2), job(200.0, gpus=1), policy="fcfs", until=10.0)
    await submit(service, job(50.0, gpus=3), job(50.0, gpus=2), job(50.0, gpus=1))
    await run_on(service, 15.0)
    asked = Requests(service).answer({"do": "status", "jobs": [2, 3, 4]})["jobs"]
    third, fourth, fifth = (one["reason"] for one in asked)
    assert re.search("it needs 3 k80, 1 free; job 0 runs there, with 1.[23]m left", third)
    assert re.search("it needs 2 k80, 1 free; job 0 runs there, with 1.[23]m left", fourth)
    # under this policy nobody overtakes
    assert "3 k80 are kept for job 2, before it; 2 k80 are kept for job 3, before it" in fifth


async def test_who_waits_for_a_turn_is_told_when_the_next_begins(tmp_path):
    service = await started(tmp_path, one_type(1), job(100.0), job(100.0), policy="max_min_fairness", until=13.0)
    waits = next(one for one in service.book.by_id if one.state == "queued")
    told = Requests(service).answer({"do": "status", "jobs": [waits.id]})["jobs"][0]["reason"]
    assert re.search("next round begins in 7s; it needs 1 k80, none free; job [01] runs there, with 1.[56]m left", told)


_HOOK = """
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
if (folder / "broken").exists():
    sys.exit(3)
with open(folder / "told", "a") as file:
    file.write(sys.stdin.read())
"""


async def test_a_hook_is_told_each_event_in_order_also_after_it_has_failed(tmp_path, monkeypatch):
    monkeypatch.setattr("allocator.runtime.hook._AGAIN", 0.2)
    (tmp_path / "hook.py").write_text(_HOOK)
    (tmp_path / "broken").touch()
    settings = replace(QUICK, hook=f"{sys.executable} {tmp_path / 'hook.py'} '{tmp_path}'")
    service = await service_on(tmp_path / "state", one_type(1), settings=settings)
    await submit(service, job(3.0, environment={"SECRET": "s3cret"}))
    async with asyncio.timeout(20.0):
        while "status 3" not in service.trouble:
            await asyncio.sleep(0.02)
        (tmp_path / "broken").unlink()
        await run_on(service, 10.0)
        while service.trouble or service.hook._waiting:
            await asyncio.sleep(0.02)
    text = (tmp_path / "told").read_text()
    told = [json.loads(line) for line in text.splitlines()]
    kinds = [one["kind"] for one in told if one["job"] == 0]
    assert kinds == ["submitted", "starting", "running", "ended"]
    numbers = [one["number"] for one in told]
    assert numbers == sorted(set(numbers))
    assert "s3cret" not in text
    await settle(service)


async def test_a_service_that_begins_anew_tells_the_hook_what_the_one_before_had_not(tmp_path, monkeypatch):
    monkeypatch.setattr("allocator.runtime.hook._AGAIN", 0.2)
    (tmp_path / "hook.py").write_text(_HOOK)
    settings = replace(QUICK, hook=f"{sys.executable} {tmp_path / 'hook.py'} '{tmp_path}'")
    cluster = one_type(1)
    service = await service_on(tmp_path / "state", cluster)
    await submit(service, job(1.0))  # before there is a hook
    for broken in (True, False):
        if service.hook is not None:
            service.hook._task.cancel()
        await leave(service)
        (tmp_path / "broken").touch() if broken else (tmp_path / "broken").unlink()
        service = await service_on(tmp_path / "state", cluster, settings=settings)
        await submit(service, job(1.0))
        async with asyncio.timeout(20.0):
            while ("status 3" not in service.trouble) if broken else (service.trouble or service.hook._waiting):
                await asyncio.sleep(0.02)
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert [one["job"] for one in told if one["kind"] == "submitted"] == [1, 2]
    assert service.journal.noted("hook") == told[-1]["number"]


def test_a_hook_is_a_program():
    assert not ServiceSettings(hook="").hook_words
    for bad in ("  ", "notify 'unclosed"):
        with pytest.raises(InputError, match="hook"):
            ServiceSettings(hook=bad)


@pytest.mark.parametrize(("then", "code", "outcome"), [("timed_out", 0, "completed"), ("timed_out", 1, "yielded"),
                                                       ("", 0, "yielded")])  # fmt: skip
def test_a_program_that_ends_well_within_its_limit_has_completed(then, code, outcome):
    told = replace(Job.submitted(0, "a" * 32, job(1.0)), state="stopping", then=then, reason="its time limit")
    assert ended(told, Seen(told.uuid, 0, "ended", code), None, None)["outcome"] == outcome
