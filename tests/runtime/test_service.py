"""The service on a cluster in memory: what becomes of jobs, whatever goes wrong."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import time
from unittest.mock import Mock

import pytest

from allocator.lease.files import REPORT_FILE, Report, write_file
from allocator.runtime.adapters.base import NoAnswerError, Node, Seen
from allocator.runtime.decisions.world import Verdict
from allocator.runtime.records.journal import Journal, JournalError
from allocator.runtime.settings import ServiceSettings
from tests.runtime.model_cluster import (
    ModelCluster,
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
    world_under,
)


async def test_leases_end_and_go_on_where_they_were_saved(tmp_path):
    service = await started(tmp_path, one_type(1), job(60.0), job(60.0), policy="max_min_fairness", until=130.0)
    # they take turns, and no step is done twice
    assert states(service) == ["completed"] * 2
    assert all(one.restarts >= 2 for one in service.book.by_id)


FATES = [
    (job(20.0, "crash"), "completed", 2, 1, ""),
    (job(20.0, "broken"), "failed", 5, 5, "failed 5 times.*exit status 1"),
    (job(20.0, "refused"), "failed", 5, 0, "train: not found"),
    (job(20.0, "absent"), "failed", 1, 1, "not tried again.*: not found: the command train"),
    (job(20.0, "calls_absent"), "failed", 1, 1, "not tried again.*127"),
    (job(40.0, "doomed", retries=0), "failed", 1, 1, "^exit status 1$"),
    (job(40.0, "doomed", retries=2), "failed", 3, 3, "failed 3 times"),
    (job(40.0, "doomed"), "failed", 5, 5, "failed 5 times"),
    # one that ends early has done what it said
    (job(20.0, total_steps=50.0), "completed", 1, 0, ""),
]


async def test_failures_are_tried_again_as_often_as_is_said_and_then_given_up(tmp_path):
    service = await started(tmp_path, one_type(9), *(one for one, *_ in FATES), until=900.0)
    found = [(one.state, one.epoch, one.failures) for one in service.book.by_id]
    assert found == [tuple(fate[1:4]) for fate in FATES]
    assert all(re.search(fate[4], one.reason) for fate, one in zip(FATES, service.book.by_id, strict=True))
    assert service.book.by_id[-1].steps == 20.0


@pytest.mark.parametrize(("behaviour", "signal", "after"), [("deaf", 15, 1.0), ("stubborn", 9, 6.0)])
async def test_programs_that_know_nothing_of_leases_end_by_signals(tmp_path, behaviour, signal, after):
    service = await started(tmp_path, one_type(1), job(500.0, behaviour), until=1.0)
    assert states(service) == ["running"]
    service.cancel(service.book.by_id)
    await run_on(service, 30.0)
    assert states(service) == ["cancelled"]
    (ended,) = (event for event in service.journal.events() if event.kind == "ended")
    assert (ended["signal"], ended.clock >= after) == (signal, True)


async def test_gpus_that_fall_idle_are_filled_again_and_again_within_a_round(tmp_path):
    """In rounds of an hour a long job runs on, and short ones take turns on the other GPU."""
    service = await service_on(tmp_path, one_type(2), make_world=world_under("max_min_fairness_perf", 3600.0))
    await submit(service, job(300.0))
    service.adapter.advance(1.0)
    await submit(service, *(job(10.0) for _ in range(4)))
    await run_on(service, 100.0)
    assert states(service) == ["running", *["completed"] * 4]


class Sick(ModelCluster):
    """A cluster that does not answer, or breaks."""

    way = ""
    forgets = False

    async def observe(self):
        if self.way == "raises":
            raise OSError(24, "Too many open files")
        if self.way == "hangs":
            await asyncio.sleep(1000)
        return await super().observe()

    async def forget(self, job):
        if not self.forgets:
            self.forgets = True
            raise OSError(24, "Too many open files")
        await super().forget(job)


@pytest.mark.parametrize(
    ("way", "told"), [("hangs", "not answered in 0.05 s"), ("raises", "open files"), ("silent", "does not answer")]
)
async def test_a_cluster_that_does_not_answer_changes_nothing_and_holds_nobody_up_for_ever(tmp_path, way, told):
    cluster = Sick([Node("k", "k80", 1)], {"k80": 1.0})
    service = await started(
        tmp_path, cluster, job(10.0), job(10.0), settings=ServiceSettings(cluster_seconds=0.05), until=0.0
    )
    before = states(service)
    cluster.way, cluster.silent = way, way == "silent"
    for _ in range(3):
        cluster.advance(1.0)
        await service.look()
    assert told in service.trouble
    assert states(service) == before
    cluster.way, cluster.silent = "", False
    await run_on(service, 100.0)
    assert states(service) == ["completed"] * 2
    cluster.advance(5.0)
    await settle(service)
    assert (service.trouble, cluster.runs) == ("", {})


async def test_a_full_disk_is_told_before_anything_fails_to_be_written(tmp_path, monkeypatch):
    service = await started(tmp_path, one_type())
    full = shutil.disk_usage(tmp_path)._replace(free=2**19)
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: full)
    assert service.trouble == f"the disk is full: less than 1 MiB is left at {service.folder}"
    await leave(service)
    # so SQLite answers where there is no room for its index
    monkeypatch.setattr(sqlite3, "connect", Mock(side_effect=sqlite3.OperationalError("disk I/O error")))
    with pytest.raises(JournalError, match="the disk is full"):
        Journal(tmp_path)


async def test_what_a_program_did_that_does_not_report_counts_when_it_makes_room(tmp_path):
    service = await started(tmp_path, two_types(1, 0), job(300.0, "deaf"), until=20.0)
    service.drain("v", True, service.book.by_id)
    await run_on(service, 10.0)
    (one,) = service.book.by_id
    assert one.state == "queued"
    assert one.reason.startswith("evicted from node v")
    # nothing is known of its speed but that it is some
    assert 15.0 <= one.steps <= 30.0


async def test_a_gang_that_no_longer_fits_waits_for_its_node(tmp_path):
    cluster = one_type(2)
    cluster.machines.append(Node("k2", "k80", 2))
    jobs = job(60.0, gpus=4), job(30.0), job(10.0, gpus=3)
    service = await started(tmp_path, cluster, *jobs, policy="max_min_fairness", until=8.0)
    gone = cluster.machines.pop()
    await run_on(service, 100.0)
    assert "needs 4 GPUs" in service.deciding.why_unfit(service.book.by_id[0])
    assert not service.deciding.trouble
    for _ in range(2):
        assert states(service) == ["queued", "completed", "queued"]
        # so it stays for a service that comes after this one
        await leave(service)
        service = await service_on(tmp_path, cluster, "max_min_fairness")
        await settle(service)
    cluster.machines.append(gone)
    await run_on(service, 900.0)
    assert states(service) == ["completed"] * 3


async def until_it_is(service, state):
    """The first job, before its order is through."""
    while service.book.by_id[0].state != state:
        await service.look()
        await asyncio.sleep(0)


@pytest.mark.parametrize("phase", ["queued", "starting", "running", "stopping", "waiting to be tried again"])
async def test_cancel_in_every_state(tmp_path, phase):
    cluster = one_type(1)
    service = await service_on(tmp_path, cluster)
    service.submit([("0", job(500.0, "broken" if phase == "waiting to be tried again" else "stubborn"))])
    service.submit([("1", job(10.0))])
    if phase == "starting":
        await until_it_is(service, "starting")
    elif phase != "queued":
        await settle(service)
        cluster.advance(1.0)
        await settle(service)
    if phase == "stopping":
        service.stop([service.book.by_id[0]], "for a test")
    for _ in range(2):
        service.cancel([service.book.by_id[0]])
    await settle(service)
    await run_on(service, 100.0)
    service.cancel(service.book.by_id)
    assert states(service) == ["cancelled", "completed"]
    assert not cluster.running()


class Slow(ModelCluster):
    """What it sees is told late."""

    gate = looking = None

    async def observe(self):
        seen = await super().observe()
        if self.gate is not None:
            self.looking.set()
            await self.gate.wait()
        return seen


async def test_a_cancel_while_a_slow_cluster_is_looked_at_leaves_nothing_running(tmp_path):
    """The start is through after the cluster was looked at and before what it said is read."""
    cluster = Slow([Node("k", "k80", 1)], {"k80": 1.0})
    service = await service_on(tmp_path, cluster)
    service.submit([("0", job(500.0))])
    await until_it_is(service, "starting")
    cluster.gate, cluster.looking = asyncio.Event(), asyncio.Event()
    look = asyncio.ensure_future(service.look())
    await cluster.looking.wait()
    while not cluster.running():
        await asyncio.sleep(0.01)
    service.cancel(service.book.by_id)
    cluster.gate.set()
    await look
    cluster.gate = None
    assert states(service) == ["stopping"]
    await run_on(service, 50.0)
    await settle(service)
    assert states(service) == ["cancelled"]
    assert not cluster.running()


@pytest.mark.parametrize("last", ["training", "done"])
async def test_a_job_that_asks_for_other_gpus_with_its_last_words(tmp_path, last):
    """One that is through takes no more room; one that goes on does so with what it asked for, and keeps its turn."""
    cluster = one_type(2)
    service = await started(tmp_path, cluster, job(60.0), job(30.0), job(30.0), policy="max_min_fairness")
    one = service.book.by_id[0]
    while one.state != "running":
        await run_on(service, 1.0)
    done = last == "done"
    report = Report(one.uuid, one.epoch, last, 60.0 if done else 3.0, saved_steps=3.0, gpus=2)
    write_file(service.watching.folder(one) / REPORT_FILE, report)
    cluster.runs[one.uuid].seen = Seen(one.uuid, one.epoch, "ended", 0 if done else 1)
    await settle(service)
    assert (one.state, one.gpus) == (("completed", 1) if done else ("queued", 2))
    await run_on(service, 500.0)
    assert states(service) == ["completed"] * 3
    # no GPU was kept for who is through
    assert cluster.clock < (60.0 if done else 200.0)


class Mute(ModelCluster):
    """Does not answer to the first order of epoch 2, and does nothing about it."""

    asked = False

    async def start(self, order):
        if order.epoch == 2 and not self.asked:
            self.asked = True
            raise NoAnswerError("no answer")
        await super().start(order)


async def test_an_end_that_was_told_before_is_not_that_of_the_next_start(tmp_path):
    cluster = Mute([Node("k", "k80", 1)], {"k80": 1.0})
    service = await started(tmp_path, cluster, job(20.0, "crash"), until=100.0)
    kinds = [event.kind for event in service.journal.events()]
    assert (states(service), [epoch for _, epoch in cluster.starts]) == (["completed"], [1, 2])
    assert (kinds.count("ended"), kinds.count("found")) == (2, 0)


async def test_pauses_between_tries_double_up_to_a_minute(tmp_path):
    service = await service_on(tmp_path, one_type(1), settings=ServiceSettings())
    (one,) = service.submit([("0", job(20.0))])
    one.since = 100.0
    assert not service._waits(one, 100.0)
    for failures, pause in ((1, 0.5), (2, 1.0), (3, 2.0), (7, 32.0), (8, 60.0), (9_999, 60.0)):
        for outcome in ("failed", "lost"):
            one.outcome = outcome
            one.failures, one.lost = (failures, 1) if outcome == "failed" else (1, failures)
            assert service._waits(one, 100.0 + pause - 0.01)
            assert not service._waits(one, 100.0 + pause)
        one.outcome = "yielded"
        assert not service._waits(one, 100.0)


async def test_an_end_while_nobody_looked_is_dated_back_but_not_before_the_start(tmp_path, monkeypatch):
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now)
    cluster = one_type(1)
    cluster.clock = 100.0
    service = await service_on(tmp_path, cluster)
    (one,) = service.submit([("0", job(20.0))])
    for since, ended_at, when in (
        (0.0, now - 30.0, 70.0),
        (90.0, now - 30.0, 90.0),
        (0.0, 0.0, 100.0),
        (0.0, now + 900.0, 100.0),
    ):
        one.since = since
        assert service._when(one, Seen("0", 1, "ended", 0, ended_at=ended_at)) == pytest.approx(when)


async def test_a_job_that_runs_and_is_rejected_ends_so(tmp_path):
    service = await started(tmp_path, one_type(1), job(500.0))
    (one,) = service.book.by_id
    service._log(Verdict(service.clock(), 10.0, True, {}, (one.uuid,)))
    assert one.state == "stopping"
    await run_on(service, 60.0)
    assert one.state == "rejected"
    assert "cannot promise its deadline" in one.reason
