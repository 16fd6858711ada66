"""What goes wrong with jobs, nodes and clusters, on a cluster in memory: the final state of every job."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from allocator.lease.files import REPORT_FILE, Report, read_file, write_file
from allocator.runtime.adapters.base import NoAnswerError, Node, Seen, StartOrder
from allocator.runtime.decisions.world import Verdict
from allocator.runtime.records.book import Job
from allocator.runtime.records.journal import Event
from allocator.runtime.service import Service
from allocator.runtime.settings import ServiceSettings
from tests.runtime.lives import QUICK, leave, started, states, submit
from tests.runtime.model_cluster import ModelCluster, job, one_type, run_on, service_on, settle, two_types, world_under


def test_a_job_that_never_saves_is_given_up_and_the_other_completes(tmp_path: Path) -> None:
    async def go() -> Service:
        service = await started(
            tmp_path, one_type(1), job(300.0, "careless"), job(100.0), policy="max_min_fairness", until=900.0
        )
        await service._finish()
        return service

    service = asyncio.run(go())
    assert states(service) == ["failed", "completed"]
    assert "no step was saved in 4 leases in a row" in service.book.by_id[0].reason


def test_who_fails_is_started_again_as_often_as_it_says(tmp_path: Path) -> None:
    async def go() -> Service:
        jobs = [job(40.0, "doomed", **more) for more in ({"retries": 0}, {"retries": 2}, {})]
        service = await started(tmp_path, one_type(3), *jobs, until=900.0)
        await service._finish()
        return service

    service = asyncio.run(go())
    assert states(service) == ["failed"] * 3
    assert [one.epoch for one in service.book.by_id] == [1, 3, 1 + QUICK.retries]
    assert [one.failures for one in service.book.by_id] == [1, 3, 1 + QUICK.retries]
    assert service.book.by_id[0].reason == "exit status 1"


def test_a_job_of_an_older_journal_that_had_failed_and_waited_is_started_again(tmp_path: Path) -> None:
    async def go() -> Service:
        cluster = one_type(1)
        service = await started(tmp_path, cluster, job(20.0, "crash"), until=0.0)
        (one,) = service.book.by_id
        await run_on(service, cluster, 8.0)
        # as a service wrote it that tried five times by itself
        service.record([Event("ended", one.uuid, data={"outcome": "failed", "reason": "exit status 1", "code": 1})])
        await leave(service)
        cluster.runs.clear()
        service = await service_on(tmp_path, cluster, settings=ServiceSettings())
        assert (service.book.by_id[0].state, service.book.by_id[0].failures) == ("queued", 1)
        await settle(service)
        await run_on(service, cluster, 100.0)
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"]


def test_what_a_program_did_that_does_not_report_counts_when_it_makes_room(tmp_path: Path) -> None:
    async def go() -> None:
        cluster = two_types(1, 0)
        service = await started(tmp_path, cluster, job(300.0, "deaf"), until=20.0)
        service.drain("v", True, service.book.by_id)
        await run_on(service, cluster, 30.0)
        (one,) = service.book.by_id
        assert one.state == "queued"
        assert one.reason == "evicted from node v; 20 s of work may be lost: see `python -m pydoc allocator.lease`"
        # nothing is known of its speed but that it is some
        assert 15.0 <= one.steps <= 30.0
        await service._finish()

    asyncio.run(go())


def test_a_node_that_is_lost_with_its_jobs_and_comes_back_with_them_still_running(tmp_path: Path) -> None:
    async def go() -> Service:
        cluster = two_types(2, 2)
        service = await started(tmp_path, cluster, job(200.0), job(200.0), policy="max_min_fairness_perf", until=8.0)
        there = {run.order.job: run for run in cluster.running() if "v" in run.order.gpus}
        assert there
        # cut off: nobody sees its jobs, which run on
        cluster.machines[0] = Node("v", "v100", 2, up=False, reason="no answer")
        for key in there:
            del cluster.runs[key]
        await run_on(service, cluster, cluster.clock + 10.0)
        assert all(one.pool in ("", "k80") for one in service.book.by_id)
        cluster.machines[0] = Node("v", "v100", 2)
        await run_on(service, cluster, 900.0)
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"] * 2


def test_a_gang_that_no_longer_fits_waits_for_its_node(tmp_path: Path) -> None:
    async def go() -> Service:
        cluster = one_type(2)
        cluster.machines.append(Node("k2", "k80", 2))
        service = await started(
            tmp_path, cluster, job(60.0, gpus=4), job(30.0), job(10.0, gpus=3), policy="max_min_fairness", until=8.0
        )
        gone = cluster.machines.pop()
        await run_on(service, cluster, cluster.clock + 100.0)
        assert states(service) == ["queued", "completed", "queued"]
        assert "needs 4 GPUs" in service.deciding.why_unfit(service.book.by_id[0])
        assert not service.deciding.trouble
        # so it stays for a service that comes after this one
        await leave(service)
        service = await service_on(tmp_path, cluster, "max_min_fairness", QUICK)
        await settle(service)
        assert states(service) == ["queued", "completed", "queued"]
        cluster.machines.append(gone)
        await run_on(service, cluster, cluster.clock + 900.0)
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"] * 3


@pytest.mark.parametrize("phase", ["queued", "starting", "running", "stopping", "waiting to be tried again"])
def test_cancel_in_every_state(tmp_path: Path, phase: str) -> None:
    async def go() -> tuple[Service, ModelCluster]:
        cluster = one_type(1)
        service = await service_on(tmp_path, cluster, settings=QUICK)
        first = "broken" if phase == "waiting to be tried again" else "stubborn"
        submit(service, job(500.0, first), job(10.0))
        if phase == "queued":
            service.cancel([service.book.by_id[0]])
        elif phase == "starting":
            while service.book.by_id[0].state != "starting":
                await service.look()
                await asyncio.sleep(0)
            service.cancel([service.book.by_id[0]])
        else:
            await settle(service)
            cluster.advance(1.0)
            await settle(service)
            if phase == "stopping":
                service.stop([service.book.by_id[0]], "for a test")
            service.cancel([service.book.by_id[0]])
        service.cancel([service.book.by_id[0]])
        await settle(service)
        await run_on(service, cluster, 100.0)
        service.cancel(service.book.by_id)
        await service._finish()
        return service, cluster

    service, cluster = asyncio.run(go())
    assert states(service) == ["cancelled", "completed"]
    assert not cluster.running()


def test_a_cancel_while_a_slow_cluster_is_looked_at_leaves_nothing_running(tmp_path: Path) -> None:
    """The start is through after the cluster was looked at and before what it said is read."""

    class Slow(ModelCluster):
        gate: asyncio.Event | None = None
        looking: asyncio.Event | None = None

        async def observe(self) -> list[Seen]:
            seen = list(await super().observe())
            if self.gate is not None:
                self.looking.set()  # type: ignore[union-attr]
                await self.gate.wait()
            return seen

    async def go() -> tuple[Service, Slow]:
        cluster = Slow([Node("k", "k80", 1)], {"k80": 1.0})
        service = await service_on(tmp_path, cluster, settings=QUICK)
        submit(service, job(500.0))
        while service.book.by_id[0].state != "starting":
            await service.look()
            await asyncio.sleep(0)
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
        await run_on(service, cluster, 50.0)
        await settle(service)
        await service._finish()
        return service, cluster

    service, cluster = asyncio.run(go())
    assert states(service) == ["cancelled"]
    assert not cluster.running()


def test_a_node_that_is_drained_while_a_job_starts_there(tmp_path: Path) -> None:
    async def go() -> Service:
        cluster = two_types(1, 1)
        service = await service_on(tmp_path, cluster, settings=QUICK)
        submit(service, job(200.0))
        while service.book.by_id[0].state != "starting":
            await service.look()
            await asyncio.sleep(0)
        (node,) = service.book.by_id[0].places
        service.drain(node, True)
        service.drain(node, True)
        await settle(service)
        await run_on(service, cluster, 20.0)
        assert set(service.book.by_id[0].places) == {"v", "k"} - {node}
        service.drain(node, False)
        await run_on(service, cluster, 500.0)
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"]


def test_reports_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    async def go() -> Service:
        cluster = one_type(2)
        service = await started(tmp_path, cluster, job(60.0, "deaf"), job(40.0))
        (one, _), told = service.book.by_id, []
        for wrong in ({"gpus": -3}, {"gpus": 0}, {"steps": -5.0}, {"steps": 1e300}, {"trained_seconds": -1.0}):
            report = Report(one.uuid, one.epoch, "training", **wrong)  # type: ignore[arg-type]
            write_file(service.watching.folder(one) / REPORT_FILE, report)
            assert read_file(service.watching.folder(one) / REPORT_FILE, Report) == report
            await service.look()
            told.append(service.watching.report(one))
        assert told == [None] * 5
        await run_on(service, cluster, 500.0)
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"] * 2


def test_two_hundred_jobs_at_once(tmp_path: Path) -> None:
    async def go() -> tuple[Service, ModelCluster]:
        cluster = two_types(60, 60)
        kinds = ["", "", "", "crash", "broken"]
        jobs = [job(10.0 + number % 9, kinds[number % 5], gpus=1 + number % 2) for number in range(200)]
        service = await started(tmp_path, cluster, *jobs, policy="fifo_perf", until=600.0)
        await service._finish()
        return service, cluster

    service, cluster = asyncio.run(go())
    expected = ["completed", "completed", "completed", "completed", "failed"]
    assert states(service) == [expected[number % 5] for number in range(200)]
    assert len(cluster.starts) == len(set(cluster.starts))


def test_a_policy_in_place_of_another_that_cannot_run_the_jobs_is_refused(tmp_path: Path) -> None:
    async def go() -> Service:
        cluster = two_types()
        service = await started(tmp_path, cluster, job(40.0), job(40.0))
        with pytest.raises(ValueError, match="shockwave"):
            service.use_policy(world_under("shockwave"))
        assert service.deciding.policy.name == "fifo_perf"
        await run_on(service, cluster, 500.0)
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"] * 2


@pytest.mark.parametrize("last", ["training", "done"])
def test_a_job_that_asks_for_other_gpus_with_its_last_words(tmp_path: Path, last: str) -> None:
    """One that is through takes no more room; one that goes on does so with what it asked for, and keeps its turn."""

    async def go() -> tuple[Service, ModelCluster]:
        cluster = one_type(2)
        service = await started(tmp_path, cluster, job(60.0), job(30.0), job(30.0), policy="max_min_fairness")
        one = service.book.by_id[0]
        await until_it_runs(service, cluster, one)
        report = Report(one.uuid, one.epoch, last, 60.0 if last == "done" else 3.0, saved_steps=3.0, gpus=2)
        write_file(service.watching.folder(one) / REPORT_FILE, report)
        run = cluster.runs[one.uuid]
        run.seen = Seen(one.uuid, one.epoch, "ended", 0 if last == "done" else 1)
        await settle(service)
        assert (one.state, one.gpus) == (("completed", 1) if last == "done" else ("queued", 2))
        await run_on(service, cluster, 500.0)
        await service._finish()
        return service, cluster

    service, cluster = asyncio.run(go())
    assert states(service) == ["completed"] * 3
    # no GPU was kept for who is through
    assert cluster.clock < (60.0 if last == "done" else 200.0)


async def until_it_runs(service: Service, cluster: ModelCluster, one: Job) -> None:
    while one.state != "running":
        await run_on(service, cluster, cluster.clock + 1.0)


@pytest.mark.parametrize("way", ["hangs", "raises"])
def test_a_cluster_that_hangs_or_breaks_holds_nobody_up_for_ever(tmp_path: Path, way: str) -> None:
    class Sick(ModelCluster):
        sick = False

        async def observe(self) -> list[Seen]:
            if self.sick and way == "raises":
                raise OSError(24, "Too many open files")
            if self.sick:
                await asyncio.sleep(1000)
            return list(await super().observe())

        async def forget(self, job: str) -> None:
            if self.sick_to_forget:
                self.sick_to_forget = False
                raise OSError(24, "Too many open files")
            await super().forget(job)

        sick_to_forget = True

    async def go() -> Service:
        cluster = Sick([Node("k", "k80", 1)], {"k80": 1.0})
        service = await service_on(tmp_path, cluster, settings=ServiceSettings(cluster_seconds=0.05))
        submit(service, job(10.0), job(10.0))
        await settle(service)
        cluster.sick = True
        await service.look()
        assert ("open files" if way == "raises" else "not answered in 0.05 s") in service.trouble
        cluster.sick = False
        await run_on(service, cluster, 100.0)
        cluster.advance(5.0)
        await settle(service)
        assert service.trouble == ""
        assert not cluster.runs
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"] * 2


class Mute(ModelCluster):
    """Does not answer to the first order of epoch 2, and does nothing about it."""

    async def start(self, order: StartOrder) -> None:
        if order.epoch == 2 and not self.asked:
            self.asked = True
            raise NoAnswerError("no answer")
        await super().start(order)

    asked = False


def test_an_end_that_was_told_before_is_not_that_of_the_next_start(tmp_path: Path) -> None:
    async def go() -> tuple[Service, list[str]]:
        cluster = Mute([Node("k", "k80", 1)], {"k80": 1.0})
        service = await started(tmp_path, cluster, job(20.0, "crash"), until=100.0)
        kinds = [event.kind for event in service.journal.events()]
        await service._finish()
        assert [epoch for _, epoch in cluster.starts] == [1, 2]
        return service, kinds

    service, kinds = asyncio.run(go())
    assert states(service) == ["completed"]
    assert kinds.count("ended") == 2
    assert "found" not in kinds


def test_pauses_between_tries_double_up_to_a_minute(tmp_path: Path) -> None:
    async def go() -> None:
        service = await service_on(tmp_path, one_type(1))
        submit(service, job(20.0))
        (one,) = service.book.by_id
        one.since = 100.0
        assert not service._waits(one, 100.0)
        for failures, pause in ((1, 0.5), (2, 1.0), (3, 2.0), (7, 32.0), (8, 60.0), (9_999, 60.0)):
            one.outcome, one.failures = "failed", failures
            assert service._waits(one, 100.0 + pause - 0.01)
            assert not service._waits(one, 100.0 + pause)
            one.outcome, one.lost = "lost", failures
            assert service._waits(one, 100.0 + pause - 0.01)
            one.outcome = "yielded"
            assert not service._waits(one, 100.0)
        await service._finish()

    asyncio.run(go())


def test_an_end_while_nobody_looked_is_dated_back_but_not_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now)

    async def go() -> None:
        cluster = one_type(1)
        cluster.clock = 100.0
        service = await service_on(tmp_path, cluster)
        submit(service, job(20.0))
        (one,) = service.book.by_id
        for since, ended_at, when in (
            (0.0, now - 30.0, 70.0),
            (90.0, now - 30.0, 90.0),
            (0.0, 0.0, 100.0),
            (0.0, now + 900.0, 100.0),
        ):
            one.since = since
            seen = Seen(one.uuid, 1, "ended", 0, ended_at=ended_at)
            assert service._when(one, seen) == pytest.approx(when)
        await service._finish()

    asyncio.run(go())


def test_a_node_that_is_drained_twice_is_written_down_once(tmp_path: Path) -> None:
    async def go() -> None:
        service = await service_on(tmp_path, two_types())
        for drained in (False, True, True, False, False):
            service.drain("v", drained)
        assert [event["drained"] for event in service.journal.events() if event.kind == "node"] == [True, False]
        await service._finish()

    asyncio.run(go())


def test_a_job_that_runs_and_is_rejected_ends_so(tmp_path: Path) -> None:
    async def go() -> Service:
        cluster = one_type(1)
        service = await started(tmp_path, cluster, job(500.0))
        (one,) = service.book.by_id
        service._log(Verdict(cluster.clock, 10.0, True, {}, (one.uuid,)))
        assert one.state == "stopping"
        await run_on(service, cluster, cluster.clock + 60.0)
        await service._finish()
        return service

    service = asyncio.run(go())
    assert states(service) == ["rejected"]
    assert "cannot promise its deadline" in service.book.by_id[0].reason


def test_steps_that_are_only_believed_are_no_more_than_there_are(tmp_path: Path) -> None:
    async def go() -> None:
        cluster = one_type(1)
        service = await started(tmp_path, cluster, job(500.0, "deaf", total_steps=20.0), until=10.0)
        (one,) = service.book.by_id
        assert 5.0 < service.steps_of(one) < 20.0
        await run_on(service, cluster, 60.0)
        assert service.steps_of(one) == 20.0
        await service._finish()

    asyncio.run(go())
