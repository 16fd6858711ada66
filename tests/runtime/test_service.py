"""The service on a cluster in memory: what happens to jobs, and what never does."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocator.runtime.adapters.base import Node, Seen
from allocator.runtime.outcome import events_of_end
from allocator.runtime.records.journal import Journal
from allocator.runtime.service import Service
from allocator.runtime.settings import ServiceSettings
from tests.runtime.model_cluster import (
    Crash,
    ModelCluster,
    job,
    one_type,
    run_on,
    service_on,
    settle,
    two_types,
    world_under,
)


def submit(service: Service, *jobs: dict[str, object]) -> None:
    service.submit((uuid.uuid4().hex, one) for one in jobs)


def states(service: Service) -> list[str]:
    return [one.state for one in service.book.by_id]


def run(folder: Path, cluster: ModelCluster, jobs: list[dict[str, object]], policy: str = "fifo_perf"):  # type: ignore[no-untyped-def]
    """A service with these jobs, after they are all through or 1,000 s have passed."""

    async def go() -> Service:
        service = await service_on(folder, cluster, policy)
        submit(service, *jobs)
        await settle(service)
        await run_on(service, cluster, 1000.0)
        await service._finish()
        return service

    return asyncio.run(go())


@pytest.mark.parametrize(
    "policy",
    ["fifo_perf", "max_min_fairness_perf", "finish_time_fairness_perf", "shockwave", "srtf", "max_min_fairness"],
)
def test_all_jobs_complete_under_every_kind_of_policy(tmp_path: Path, policy: str) -> None:
    cluster = one_type() if policy == "shockwave" else two_types()
    service = run(tmp_path, cluster, [job(40.0 + 7 * k, gpus=1 + k % 2) for k in range(9)], policy)
    assert states(service) == ["completed"] * 9
    assert all(one.steps == one.total_steps for one in service.book.by_id)


def test_a_policy_for_deadlines_lets_in_whom_it_can_promise(tmp_path: Path) -> None:
    cluster = one_type(1)
    service = run(tmp_path, cluster, [job(50.0, deadline=100.0), job(50.0, deadline=70.0)], "elasticflow")
    assert states(service) == ["completed", "rejected"]
    assert "cannot promise" in service.book.by_id[1].reason


def test_leases_end_and_go_on_where_they_were_saved(tmp_path: Path) -> None:
    cluster = one_type(1)
    service = run(tmp_path, cluster, [job(60.0), job(60.0)], "max_min_fairness")
    one, other = service.book.by_id
    assert states(service) == ["completed"] * 2
    # they take turns, and no step is done twice
    assert one.restarts >= 2
    assert other.restarts >= 2
    assert cluster.clock < 130


def test_failures_are_tried_again_and_then_given_up(tmp_path: Path) -> None:
    jobs = [job(20.0, "crash"), job(20.0, "broken"), job(20.0, "refused"), job(20.0)]
    service = run(tmp_path, two_types(), jobs)
    assert states(service) == ["completed", "failed", "failed", "completed"]
    crash, broken, refused, _ = service.book.by_id
    assert crash.restarts == 1
    assert (broken.failures, refused.failures) == (5, 0)
    assert "failed 5 times" in broken.reason
    assert "exit status 1" in broken.reason
    assert refused.epoch == 5
    assert "train: not found" in refused.reason


def test_a_command_that_cannot_be_run_is_tried_once(tmp_path: Path) -> None:
    service = run(tmp_path, one_type(), [job(20.0, "absent"), job(20.0, "calls_absent")])
    absent, caller = service.book.by_id
    assert states(service) == ["failed"] * 2
    assert (absent.epoch, caller.epoch) == (1, 1)
    assert absent.reason == "a command cannot be run, so it is not tried again: not found: the command train"
    assert caller.reason == "a command cannot be run, so it is not tried again: exit status 127"
    # a trainer that has saved steps was found before: what it calls may come back
    trainer = replace(caller, state="running", saved_steps=3.0, failures=0)
    seen = Seen(trainer.uuid, trainer.epoch, "ended", 127)
    assert [event.kind for event in events_of_end(trainer, seen, None, 9.0, service.settings, None)] == ["ended"]


@pytest.mark.parametrize("behaviour", ["deaf", "stubborn"])
def test_programs_that_know_nothing_of_leases_end_by_signals(tmp_path: Path, behaviour: str) -> None:
    cluster = one_type(1)

    async def go() -> None:
        service = await service_on(tmp_path, cluster)
        submit(service, job(500.0, behaviour))
        await settle(service)
        cluster.advance(1.0)
        await settle(service)
        assert states(service) == ["running"]
        service.cancel(service.book.by_id)
        await run_on(service, cluster, 30.0)
        assert states(service) == ["cancelled"]
        ended = next(event for event in service.journal.events() if event.kind == "ended")
        assert ended["signal"] == {"deaf": 15, "stubborn": 9}[behaviour]
        assert ended.clock >= {"deaf": 1.0, "stubborn": 6.0}[behaviour]
        await service._finish()

    asyncio.run(go())


def test_a_trainer_that_stands_still_is_killed(tmp_path: Path) -> None:
    cluster = one_type(1)

    async def go() -> Service:
        service = await service_on(tmp_path, cluster, settings=ServiceSettings(hang_seconds=20.0))
        submit(service, job(100.0))
        await settle(service)
        await run_on(service, cluster, 10.0)
        cluster.rates["k80"] = 0.0
        await run_on(service, cluster, 100.0)
        await service._finish()
        return service

    service = asyncio.run(go())
    assert states(service) == ["failed"]
    assert "no step in 20" in service.book.by_id[0].reason


def test_nodes_that_go_and_come_back(tmp_path: Path) -> None:
    async def go() -> Service:
        cluster = two_types(2, 2)
        service = await service_on(tmp_path, cluster, "max_min_fairness_perf")
        submit(service, job(100.0), job(100.0), job(200.0, gpus=2), job(100.0, gpus=4))
        await settle(service)
        await run_on(service, cluster, 10.0)
        service.drain("v", True)
        await run_on(service, cluster, 40.0)
        assert all(one.pool in ("", "k80") for one in service.book.by_id)
        assert service.book.by_id[3].state == "queued"
        assert "needs 4 GPUs" in service.deciding.why_unfit(service.book.by_id[3])
        service.drain("v", False)
        cluster.machines.append(Node("v2", "v100", 2))
        await run_on(service, cluster, 900.0)
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"] * 4


def test_gpus_that_fall_idle_are_filled_again_and_again_within_a_round(tmp_path: Path) -> None:
    """In rounds of an hour a long job runs on, and short ones take turns on the other GPU."""

    async def go() -> None:
        cluster = one_type(2)
        service = await service_on(tmp_path, cluster)
        service.use_policy(world_under("max_min_fairness_perf", 3600.0), {})
        submit(service, job(300.0))
        await settle(service)
        cluster.advance(1.0)
        submit(service, *(job(10.0) for _ in range(4)))
        await run_on(service, cluster, 100.0)
        assert states(service) == ["running", *["completed"] * 4]
        await service._finish()

    asyncio.run(go())


def test_a_job_that_ends_early_has_done_what_it_said(tmp_path: Path) -> None:
    service = run(tmp_path, one_type(1), [job(20.0, total_steps=50.0)])
    assert states(service) == ["completed"]
    assert service.book.by_id[0].steps == 20.0


def test_a_cluster_that_does_not_answer_changes_nothing(tmp_path: Path) -> None:
    async def go() -> Service:
        cluster = two_types()
        service = await service_on(tmp_path, cluster)
        submit(service, job(100.0), job(100.0))
        await settle(service)
        before = states(service)
        cluster.silent = True
        for _ in range(20):
            cluster.advance(1.0)
            await settle(service)
        assert states(service) == before
        assert "does not answer" in service.trouble
        cluster.silent = False
        await run_on(service, cluster, 500.0)
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"] * 2


def test_the_policy_may_change_while_jobs_run(tmp_path: Path) -> None:
    async def go() -> tuple[Service, int]:
        cluster = two_types()
        service = await service_on(tmp_path, cluster)
        submit(service, *(job(60.0) for _ in range(8)))
        await settle(service)
        await run_on(service, cluster, 5.0)
        starts = len(cluster.starts)
        service.use_policy(world_under("srtf"))
        await settle(service)
        changed = len(cluster.starts) - starts
        await run_on(service, cluster, 900.0)
        await service._finish()
        return service, changed

    service, _ = asyncio.run(go())
    assert states(service) == ["completed"] * 8
    assert service.deciding.policy.name == "srtf"


class CrashingJournal:
    """Raises `Crash` at a write, before or after it is done."""

    def __init__(self, journal: Journal, at: int, *, before: bool) -> None:
        self._journal, self._left, self._before = journal, at, before

    def append(self, events):  # type: ignore[no-untyped-def]
        self._left -= 1
        if self._left == 0 and self._before:
            raise Crash
        written = self._journal.append(events)
        if self._left == 0:
            raise Crash
        return written

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    crashes=st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=6),
    kinds=st.lists(st.sampled_from(["", "", "crash", "deaf", "broken", "doomed"]), min_size=1, max_size=7),
    policy=st.sampled_from(["fifo_perf", "max_min_fairness_perf", "srtf", "shockwave"]),
)
def test_crashes_at_any_write_lose_nothing_and_run_nothing_twice(
    tmp_path_factory: pytest.TempPathFactory, crashes: list[tuple[int, bool]], kinds: list[str], policy: str
) -> None:
    folder = tmp_path_factory.mktemp("crashes")
    cluster = one_type(3) if policy == "shockwave" else two_types(1, 2)

    async def life(crash: tuple[int, bool] | None, fresh: bool) -> Service:
        service = await service_on(folder, cluster, policy)
        if fresh:
            submit(service, *(job(30.0 + 5 * k, kind) for k, kind in enumerate(kinds)))
        if crash is not None:
            service.journal = CrashingJournal(service.journal, crash[0], before=crash[1])  # type: ignore[assignment]
        try:
            await settle(service)
            await run_on(service, cluster, cluster.clock + (1000.0 if crash is None else 100.0))
        except Crash:
            pass
        for task in service._dispatch.tasks.values():
            task.cancel()
        service.deciding.abandon()
        service.journal.close()
        return service

    for number, crash in enumerate([*crashes, None]):
        service = asyncio.run(life(crash, number == 0))
    assert not cluster.violations
    assert len(cluster.starts) == len(set(cluster.starts))
    expected = ["failed" if kind in ("broken", "doomed") else "completed" for kind in kinds]
    assert states(service) == expected
