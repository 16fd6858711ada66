"""What a service keeps is lost, or older than what runs: nothing runs twice, and every job completes."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from pathlib import Path

import pytest

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.runtime.adapters.base import Node
from allocator.runtime.service import Service
from tests.runtime.lives import QUICK, leave, started, states, submit
from tests.runtime.model_cluster import job, one_type, run_on, service_on, settle, two_types


@pytest.mark.parametrize("policy", ["fifo_perf", "max_min_fairness_perf", "srtf"])
def test_a_service_that_comes_back_with_fewer_accelerators(tmp_path: Path, policy: str) -> None:
    async def go() -> Service:
        cluster = two_types(2, 2)
        service = await started(tmp_path, cluster, *(job(80.0) for _ in range(5)), policy=policy, until=6.0)
        await leave(service)
        # one type is gone, and one GPU of the other; the jobs on them run on
        cluster.machines[:] = [Node("k", "k80", 1)]
        service = await service_on(tmp_path, cluster, policy, QUICK)
        await settle(service)
        await run_on(service, cluster, cluster.clock + 27.0)
        assert all(set(one.places) <= {"k"} for one in service.book.by_id)
        assert sum(one.state == "running" for one in service.book.by_id) == 1
        await run_on(service, cluster, cluster.clock + 900.0)
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"] * 5


@pytest.mark.parametrize("lost", ["some", "all"])
def test_a_journal_whose_end_is_lost(tmp_path: Path, lost: str) -> None:
    """Jobs run that it does not have, or at later epochs than it has: they end, and no GPU ever has two."""

    async def go() -> Service:
        cluster = two_types(2, 2)
        service = await started(tmp_path, cluster, *(job(60.0) for _ in range(6)), policy="max_min_fairness_perf")
        copy = tmp_path / "copy"
        if lost == "some":
            service.journal._base.execute("VACUUM INTO ?", (str(copy),))
        await run_on(service, cluster, 40.0)
        submit(service, job(1000.0), job(1000.0))
        await run_on(service, cluster, 60.0)
        await leave(service)
        for name in ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        if lost == "some":
            shutil.move(copy, tmp_path / "journal.sqlite")
        service = await service_on(tmp_path, cluster, "max_min_fairness_perf", QUICK)
        await settle(service)
        if lost == "all":
            submit(service, job(30.0))
        await run_on(service, cluster, cluster.clock + 900.0)
        # what nobody knows does not run on
        await settle(service)
        assert not cluster.running()
        assert not cluster.violations
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"] * (6 if lost == "some" else 1)


def test_a_lease_of_a_later_epoch_than_the_journal_has(tmp_path: Path) -> None:
    async def go() -> Service:
        cluster = one_type(1)
        service = await service_on(tmp_path, cluster, settings=QUICK)
        key = uuid.uuid4().hex
        folder = tmp_path / "jobs" / key
        folder.mkdir(parents=True)
        write_file(folder / LEASE_FILE, Grant(key, 7))
        service.submit([(key, job(10.0))])
        await settle(service)
        await run_on(service, cluster, 100.0)
        await service._finish()
        return service

    service = asyncio.run(go())
    assert states(service) == ["completed"]
    assert service.book.by_id[0].epoch == 8


def test_a_memory_of_the_policy_that_is_damaged(tmp_path: Path) -> None:
    async def go(damage: bytes) -> Service:
        folder = tmp_path / str(len(damage))
        cluster = two_types()
        service = await started(folder, cluster, *(job(40.0) for _ in range(6)), policy="max_min_fairness_perf")
        await leave(service)
        whole = (folder / "policy.state").read_bytes()
        (folder / "policy.state").write_bytes(damage or whole[: len(whole) // 2])
        service = await service_on(folder, cluster, "max_min_fairness_perf", QUICK)
        await settle(service)
        await run_on(service, cluster, 900.0)
        await service._finish()
        return service

    for damage in (b"", b"nonsense"):
        assert states(asyncio.run(go(damage))) == ["completed"] * 6


def test_a_folder_of_a_job_that_is_deleted_while_it_runs(tmp_path: Path) -> None:
    async def go() -> Service:
        cluster = two_types()
        service = await started(tmp_path, cluster, job(100.0, "deaf"), job(40.0))
        shutil.rmtree(service.watching.folder(service.book.by_id[0]))
        service.deciding.serial += 1
        service._wake.clear()
        for _ in range(20):
            await service.look()
            assert "lease.json: No such file" in service.trouble
            # what does not work is not tried again at once
            assert not service._wake.is_set()
        service.cancel([service.book.by_id[0]])
        await run_on(service, cluster, 200.0)
        assert service.trouble == ""
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["cancelled", "completed"]
