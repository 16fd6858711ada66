"""What a service keeps is lost, damaged, copied, or older than what runs: nothing runs twice, every job completes."""

from __future__ import annotations

import os
import shutil
import stat
import time
import uuid

import pytest

from allocator.lease.files import LEASE_FILE, REPORT_FILE, Grant, write_file
from allocator.runtime.adapters.node import boot_identity
from allocator.runtime.records.journal import Journal, JournalError
from allocator.runtime.service import Service
from tests.runtime.model_cluster import (
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


@pytest.mark.parametrize(("boot", "passed"), [("", 0.0), ("another", 3600.0)])
async def test_a_wall_clock_that_is_set_while_no_service_runs_moves_no_time_on_the_same_boot(
    tmp_path, monkeypatch, boot, passed
):
    await leave(await started(tmp_path, one_type(1), until=0.0))
    later = time.time() + 3600.0
    monkeypatch.setattr("time.time", lambda: later)
    monkeypatch.setattr("allocator.runtime.service.boot_identity", lambda: boot or boot_identity())
    service = Service(tmp_path, one_type(1))
    assert passed <= service.clock() < passed + 1800.0
    service.journal.close()


@pytest.mark.parametrize("lost", ["some", "all"])
async def test_a_journal_whose_end_is_lost(tmp_path, lost):
    """Jobs run that it does not have, or at later epochs than it has: they end, and no GPU ever has two."""
    cluster, policy = two_types(), "max_min_fairness_perf"
    service = await started(tmp_path, cluster, *(job(60.0) for _ in range(6)), policy=policy)
    copy = tmp_path / "copy"
    if lost == "some":
        service.journal._base.execute("VACUUM INTO ?", (str(copy),))
    await run_on(service, 40.0)
    await submit(service, job(1000.0), job(1000.0))
    await run_on(service, 20.0)
    await leave(service)
    for name in ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    if lost == "some":
        shutil.move(copy, tmp_path / "journal.sqlite")
    service = await service_on(tmp_path, cluster, policy)
    await settle(service)
    if lost == "all":
        await submit(service, job(30.0))
    await run_on(service, 900.0)
    # what nobody knows does not run on
    await settle(service)
    assert not cluster.running()
    assert states(service) == ["completed"] * (6 if lost == "some" else 1)


async def test_a_lease_of_a_later_epoch_than_the_journal_has(tmp_path):
    service = await service_on(tmp_path, one_type(1))
    key = uuid.uuid4().hex
    folder = tmp_path / "jobs" / key
    folder.mkdir(parents=True)
    write_file(folder / LEASE_FILE, Grant(key, 7))
    (one,) = service.submit([(key, job(10.0))])
    await settle(service)
    await run_on(service, 100.0)
    assert (one.state, one.epoch) == ("completed", 8)


@pytest.mark.parametrize("damage", [b"", b"nonsense"])
async def test_a_memory_of_the_policy_that_is_damaged(tmp_path, damage):
    cluster = two_types()
    service = await started(tmp_path, cluster, *(job(20.0) for _ in range(6)), policy="max_min_fairness_perf")
    await leave(service)
    whole = (tmp_path / "policy.state").read_bytes()
    (tmp_path / "policy.state").write_bytes(damage or whole[: len(whole) // 2])
    service = await service_on(tmp_path, cluster, "max_min_fairness_perf")
    await settle(service)
    await run_on(service, 900.0)
    assert states(service) == ["completed"] * 6


async def test_a_folder_of_a_job_that_is_deleted_while_it_runs(tmp_path):
    service = await started(tmp_path, two_types(), job(100.0, "deaf"), job(40.0))
    shutil.rmtree(service.watching.folder(service.book.by_id[0]))
    service.cancel([service.book.by_id[0]])
    service._wake.clear()
    for _ in range(5):
        await service.look()
        assert "lease.json: No such file" in service.trouble
        # what does not work is not tried again at once
        assert not service._wake.is_set()
    await run_on(service, 200.0)
    assert (service.trouble, states(service)) == ("", ["cancelled", "completed"])


async def test_what_is_kept_is_for_the_user_alone_in_any_folder_and_under_any_umask(tmp_path):
    tmp_path.chmod(0o755)
    before = os.umask(0)
    try:
        service = await started(tmp_path, two_types(), job(20.0), policy="max_min_fairness_perf")
        await leave(service)
    finally:
        os.umask(before)
    found = {path.relative_to(tmp_path): stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert {path.name for path in found} >= {"jobs", "checkpoint", "lease.json", "policy.state", "journal.sqlite"}
    # what the trainers of the model write is theirs
    assert not {path: mode for path, mode in found.items() if mode & 0o077 and path.name != REPORT_FILE}


async def test_a_journal_that_is_deleted_under_a_service(tmp_path):
    """It says so, and takes and starts nothing; what runs, runs on, and is taken up when the journal is back."""
    cluster, aside = one_type(1), tmp_path / "aside"
    service = await started(tmp_path, cluster, job(40.0), job(40.0))
    aside.mkdir()
    names = [name for name in os.listdir(tmp_path) if name.startswith("journal.sqlite")]
    for name in names:
        shutil.move(tmp_path / name, aside / name)
    with pytest.raises(JournalError):
        await submit(service, job(40.0))
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
    await run_on(service, 400.0)
    assert states(service) == ["completed"] * 2


async def test_a_copy_is_refused_and_a_folder_that_was_moved_goes_on(tmp_path):
    cluster, state, copy, moved = one_type(), *(tmp_path / name for name in ("state", "copy", "moved"))
    service = await started(state, cluster, job(30.0), job(300.0))
    # of a service that runs
    shutil.copytree(state, copy, symlinks=True)
    told = f"a copy of a state.*{state}, or"
    for _ in range(2):
        with pytest.raises(InputError, match=told):
            await service_on(copy, cluster)
    assert len(cluster.running()) == 2
    await run_on(service, 40.0)
    await leave(service)
    # of one that does not
    with pytest.raises(InputError, match=told):
        Journal(copy)
    state.rename(moved)
    # another service in its old place is none of it
    Journal(state).close()
    service = await service_on(moved, cluster)
    assert states(service) == ["completed", "running"]
    await leave(service)
    # another name of the same folder is no copy
    (tmp_path / "link").symlink_to(moved)
    for path in (tmp_path / "link", moved):
        Journal(path).close()
    # and now that place counts
    shutil.copytree(moved, tmp_path / "another")
    with pytest.raises(InputError, match=f"a copy of a state.*{moved}, or"):
        Journal(tmp_path / "another")


async def test_jobs_that_run_are_not_left_for_another_kind_of_cluster(tmp_path):
    cluster = one_type()
    await leave(await started(tmp_path, cluster, job(60.0)))
    cluster.name = "other"
    with pytest.raises(InputError, match="found 'other, while jobs hold GPUs of model"):
        await service_on(tmp_path, cluster)
    assert len(cluster.running()) == 1
