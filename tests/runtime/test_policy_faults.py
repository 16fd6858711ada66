"""Policies that fail, that take their time, and clocks that jump: what runs runs on, and every job completes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from allocator.lease.files import LEASE_FILE, Grant, read_file
from allocator.presets import preset
from allocator.registry import get_policy
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.world import News, Verdict, World
from allocator.runtime.records.clock import Clock
from allocator.runtime.service import Service
from allocator.runtime.settings import ServiceSettings
from tests.runtime.model_cluster import ModelCluster, job, run_on, service_on, settle, two_types


def odd_worlds(before: Callable[[], None], policy: str = "max_min_fairness_perf") -> Callable[[Hardware], World]:
    """Worlds that do something before each decision."""

    class Odd(World):
        def decide(self, news: News) -> Verdict:
            before()
            return super().decide(news)

    mechanism = preset("default").replace(round_seconds=10.0).mechanism
    return lambda hardware: Odd(hardware.cluster, get_policy(policy), mechanism)


def submit(service: Service, *jobs: dict[str, object]) -> None:
    service.submit((uuid.uuid4().hex, one) for one in jobs)


def states(service: Service) -> list[str]:
    return [one.state for one in service.book.by_id]


@pytest.mark.parametrize("kind", [RuntimeError, KeyError, StopIteration, MemoryError])
def test_a_policy_that_raises_is_asked_again(tmp_path: Path, kind: type[Exception]) -> None:
    failing = [False, True, True, True, False, True] + [False] * 10_000

    def before() -> None:
        if failing.pop(0):
            raise kind("the policy is broken")

    async def go() -> Service:
        cluster = two_types()
        service = await service_on(tmp_path, cluster, "max_min_fairness_perf")
        service.use_policy(odd_worlds(before))
        submit(service, *(job(100.0) for _ in range(6)))
        await settle(service)
        submit(service, *(job(30.0) for _ in range(3)))
        troubles = []
        for _ in range(60):
            await run_on(service, cluster, cluster.clock + 1.0)
            troubles.append(service.deciding.trouble)
            # who ran runs on
            assert cluster.running() or not service.book.active
        assert any("the policy is broken" in trouble for trouble in troubles)
        assert troubles[-1] == ""
        await run_on(service, cluster, 900.0)
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"] * 9


def test_nodes_that_go_while_the_policy_fails(tmp_path: Path) -> None:
    """The next answer is about the nodes there are, not about those of the question that was not answered."""
    broken = False

    def before() -> None:
        if broken:
            raise RuntimeError("broken")

    async def go() -> Service:
        nonlocal broken
        cluster = two_types()
        service = await service_on(tmp_path, cluster)
        service.use_policy(odd_worlds(before))
        submit(service, *(job(50.0) for _ in range(6)))
        await settle(service)
        await run_on(service, cluster, 4.0)
        broken = True
        service.drain("v", True)
        await run_on(service, cluster, 12.0)
        assert "broken" in service.deciding.trouble
        broken = False
        await run_on(service, cluster, 40.0)
        assert service.deciding.trouble == ""
        assert all(set(one.places) <= {"k"} for one in service.book.by_id)
        await run_on(service, cluster, 900.0)
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"] * 6


def test_a_decision_that_takes_its_time_holds_nothing_up(tmp_path: Path) -> None:
    """While a policy thinks, jobs are taken, cancelled and told so, leases are written, and ends are seen."""
    thinking, answer = threading.Event(), threading.Event()

    def before() -> None:
        if slow:
            thinking.set()
            assert answer.wait(60)

    async def go() -> Service:
        nonlocal slow
        cluster = two_types(1, 1)
        service = await service_on(tmp_path, cluster)
        service.use_policy(odd_worlds(before, "fifo_perf"))
        submit(service, job(20.0), job(500.0, "stubborn"), job(50.0))
        await settle(service)
        slow = True
        cluster.advance(1.0)
        while not thinking.is_set():
            # once it is asked, the policy begins to think when its thread has its turn
            if service.deciding._task is None:
                cluster.advance(0.5)
            await service.look()
            await asyncio.sleep(0.01)
        took = []
        stubborn = service.book.by_id[1]
        for number in range(60):
            began = time.perf_counter()
            cluster.advance(0.5)
            await service.look()
            if number == 5:
                service.cancel([stubborn])
                grant = read_file(service.watching.folder(stubborn) / LEASE_FILE, Grant)
                assert grant is not None
                assert grant.ends
                submit(service, job(20.0))
            await asyncio.sleep(0.001)
            took.append(time.perf_counter() - began)
        assert not answer.is_set()
        assert service.deciding._task is not None
        assert stubborn.state == "cancelled"
        assert "completed" in states(service)
        assert sorted(took)[len(took) // 2] < 1.0
        slow = False
        answer.set()
        await settle(service)
        await run_on(service, cluster, 900.0)
        await service._finish()
        return service

    slow = False
    assert states(asyncio.run(go())) == ["completed", "cancelled", "completed", "completed"]


def test_a_policy_is_changed_while_the_one_before_thinks(tmp_path: Path) -> None:
    answer = threading.Event()

    async def go() -> Service:
        cluster = two_types()
        service = await service_on(tmp_path, cluster)
        submit(service, *(job(50.0) for _ in range(6)))
        service.use_policy(odd_worlds(lambda: answer.wait(60) and None))
        cluster.advance(1.0)
        await service.look()
        await asyncio.sleep(0.01)
        abandoned = service.deciding
        service.use_policy(odd_worlds(lambda: None, "srtf"))
        await settle(service)
        assert len(cluster.running()) == 4
        memory = (tmp_path / "policy.state").read_bytes()
        answer.set()
        await asyncio.wait([abandoned._task], timeout=60)
        # what comes late counts for nothing
        assert (tmp_path / "policy.state").read_bytes() == memory
        await run_on(service, cluster, 900.0)
        await service._finish()
        return service

    service = asyncio.run(go())
    assert states(service) == ["completed"] * 6
    assert service.book.policy == {"name": "srtf", "settings": {}}


def test_a_clock_that_is_set_forward_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock jumps by a year every few seconds: no time is negative, nobody is taken to hang or be overdue."""
    wall = time.time()
    real = time.time
    shift = 0.0
    monkeypatch.setattr("time.time", lambda: real() + shift)

    async def go() -> Service:
        nonlocal shift
        cluster: ModelCluster = two_types()
        settings = ServiceSettings(grace_seconds=5.0, notice_seconds=2.0, hang_seconds=20.0)
        service = await service_on(tmp_path, cluster, "max_min_fairness_perf", settings)
        submit(service, *(job(60.0, deadline=1e6) for _ in range(8)))
        await settle(service)
        for number in range(60):
            shift = (0.0, 3.2e7, -3.2e7)[number % 3]
            await run_on(service, cluster, cluster.clock + 2.0)
        await run_on(service, cluster, 900.0)
        await service._finish()
        return service

    service = asyncio.run(go())
    assert states(service) == ["completed"] * 8
    for one in service.book.by_id:
        assert one.failures == 0
        assert 0 < one.run_seconds <= (one.finished_at or 0.0) - one.submitted_at + 1e-6
    # a service that starts while the clock is wrong goes on no earlier than the one before it ended
    for jump in (3.2e7, -3.2e7, -wall):
        shift = jump
        assert Clock(service.book.clock, service.book.at)() >= service.book.clock


SLOW = """
import asyncio, signal, sys, time, uuid
from pathlib import Path
from tests.runtime.model_cluster import job, service_on, two_types
from tests.runtime.test_policy_faults import odd_worlds

async def serve():
    service = await service_on(Path(sys.argv[1]), two_types())
    service.use_policy(odd_worlds(lambda: print("thinking", flush=True) or time.sleep(600)))
    service.submit([(uuid.uuid4().hex, job(10.0))])
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, service.close)
    await service.run()

asyncio.run(serve())
"""


def test_a_service_ends_while_its_policy_thinks(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW, str(tmp_path)]
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env=os.environ | {"PYTHONPATH": root}) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == b"thinking\n"
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0
