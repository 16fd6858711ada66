"""Jobs and people that bring the files of the state into disorder, and what the service makes of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import uuid
from pathlib import Path

import pytest

from allocator.lease.files import REPORT_FILE, Report, write_file
from allocator.runtime.records.journal import JournalError
from allocator.runtime.service import Service
from tests.runtime.lives import leave, started, states, submit
from tests.runtime.model_cluster import job, one_type, run_on, service_on, settle, two_types


def test_a_report_is_read_though_the_clock_of_the_file_system_has_not_ticked(tmp_path: Path) -> None:
    async def go() -> None:
        service = await started(tmp_path, one_type(1), job(60.0, "deaf"))
        (one,) = service.book.by_id
        path = service.watching.folder(one) / REPORT_FILE
        for steps in (5.0, 50.0):
            write_file(path, Report(one.uuid, one.epoch, "training", steps))
            os.utime(path, ns=(10**18, 10**18))
            await service.look()
            assert service.steps_of(one) == steps
        # even into the same file, with as many bytes
        path.write_text(path.read_text().replace("50.0", "55.0"))
        os.utime(path, ns=(10**18, 10**18))
        assert service.watching.look(one, 0.0).report == Report(one.uuid, one.epoch, "training", 50.0)
        service.cancel([one])
        await run_on(service, service.adapter, 60.0)  # type: ignore[arg-type]
        (end,) = [event for event in service.journal.events() if event.kind == "ended"]
        assert end["steps"] == 55.0
        await service._finish()

    asyncio.run(go())


def test_a_file_in_the_place_of_a_folder_is_a_failure_of_that_job_alone(tmp_path: Path) -> None:
    async def go() -> Service:
        cluster = one_type(2)
        service = await service_on(tmp_path, cluster)
        names = [uuid.uuid4().hex for _ in range(3)]
        (tmp_path / "jobs" / names[1] / "lease.json" / "x").mkdir(parents=True)
        (tmp_path / "jobs" / names[0]).write_text("")
        service.submit((name, job(20.0)) for name in names)
        await settle(service)
        await run_on(service, cluster, 400.0)
        await service._finish()
        return service

    service = asyncio.run(go())
    assert states(service) == ["failed", "failed", "completed"]
    assert "File exists" in service.book.by_id[0].reason
    assert "Is a directory" in service.book.by_id[1].reason


def test_a_file_in_the_place_of_all_folders_loses_no_job(tmp_path: Path) -> None:
    async def go() -> Service:
        cluster = one_type(2)
        (tmp_path / "jobs").write_text("")
        service = await started(tmp_path, cluster, job(20.0), until=200.0)
        assert "File exists" in service.trouble
        assert states(service) == ["starting"]
        (tmp_path / "jobs").unlink()
        await run_on(service, cluster, 400.0)
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"]


def test_what_is_kept_is_for_the_user_alone_in_any_folder_and_under_any_umask(tmp_path: Path) -> None:
    async def go() -> None:
        service = await started(tmp_path, two_types(), job(20.0), policy="max_min_fairness_perf")
        await service._finish()

    tmp_path.chmod(0o755)
    before = os.umask(0)
    try:
        asyncio.run(go())
    finally:
        os.umask(before)
    found = {path.relative_to(tmp_path): stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert {path.name for path in found} >= {"jobs", "checkpoint", "lease.json", "policy.state", "journal.sqlite"}
    # what the trainers of the model write is theirs
    assert {str(path): mode for path, mode in found.items() if mode & 0o077 and path.name != REPORT_FILE} == {}


def test_a_journal_that_is_deleted_under_a_service(tmp_path: Path) -> None:
    """It says so, and takes and starts nothing; what runs, runs on, and is taken up when the journal is back."""

    async def go() -> Service:
        cluster = one_type(1)
        service = await started(tmp_path, cluster, job(40.0), job(40.0))
        aside = tmp_path / "aside"
        aside.mkdir()
        names = [name for name in os.listdir(tmp_path) if name.startswith("journal.sqlite")]
        for name in names:
            shutil.move(tmp_path / name, aside / name)
        with pytest.raises(JournalError):
            submit(service, job(40.0))
        await service.look()
        assert "journal.sqlite was deleted or replaced" in service.trouble
        cluster.advance(100.0)
        await settle(service)
        assert states(service) == ["running", "queued"]
        for name in names:
            shutil.move(aside / name, tmp_path / name)
        await leave(service)
        service = await service_on(tmp_path, cluster)
        await settle(service)
        await run_on(service, cluster, 400.0)
        await service._finish()
        return service

    assert states(asyncio.run(go())) == ["completed"] * 2
