"""Files of the local adapter that are old, spoilt, or no files at all: one job at most pays, and none starts twice."""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from allocator.runtime.adapters.base import AdapterError, Seen
from allocator.runtime.adapters.local.folder import (
    EXIT_FILE,
    RUN_FILE,
)
from allocator.runtime.adapters.local.processes import boot_identity
from tests.runtime.worlds import (
    ended,
    lines,
    new_job,
    opened,
    order,
    processes_of,
    records_of,
    seen_of,
    until,
)


def test_a_machine_that_was_started_anew_runs_nothing(tmp_path: Path) -> None:
    """Numbers and even start times of processes come again."""

    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        await adapter.start(order(tmp_path, job, "true"))
        await ended(adapter, job)
        folder = records_of(tmp_path, job)
        (folder / EXIT_FILE).unlink()
        start_time = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        (folder / RUN_FILE).write_text(
            f'{{"epoch": 1, "pid": {os.getpid()}, "start_time": {start_time}, "boot": "an earlier one"}}'
        )
        seen = await seen_of(await opened(tmp_path), job)
        assert seen
        assert (seen.phase, seen.code, seen.reason) == ("ended", None, "the machine was started anew")
        seen = await seen_of(await opened(tmp_path), job)
        assert seen
        assert (seen.code, seen.reason) == (None, "the machine was started anew")

    asyncio.run(main())


def test_a_process_with_the_number_of_a_shim_is_not_the_shim(tmp_path: Path) -> None:
    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        await adapter.start(order(tmp_path, job, "true"))
        await ended(adapter, job)
        folder = records_of(tmp_path, job)
        (folder / EXIT_FILE).unlink()
        with subprocess.Popen(["sleep", "600"]) as innocent:
            (folder / RUN_FILE).write_text(
                f'{{"epoch": 1, "pid": {innocent.pid}, "start_time": 1, "boot": "{boot_identity()}"}}'
            )
            other = await opened(tmp_path)
            await other.stop(job, 1)
            await other.kill(job, 1)
            assert (await ended(other, job)).code is None
            assert innocent.poll() is None
            innocent.kill()

    asyncio.run(main())


ODD = (
    "[" * 50_000,
    '{"epoch": 1e400, "pid": 1, "start_time": 1, "boot": ""}',
    '{"epoch": 1, "pid": 1e400, "start_time": 1, "boot": ""}',
    f'{{"epoch": 1, "pid": {10**30}, "start_time": 1, "boot": ""}}',
    '{"epoch": 1, "pid": -1, "start_time": 1, "boot": ""}',
    '{"epoch": 1, "code": 1e400, "signal": 0, "ended_at": 1, "reason": ""}',
)


def test_files_that_make_no_sense_do_no_harm(tmp_path: Path) -> None:
    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        await adapter.start(order(tmp_path, job, "true"))
        await ended(adapter, job)
        for name in (RUN_FILE, EXIT_FILE):
            for text in ("", "{", "[]", "null", '{"epoch": null}', '{"epoch": "x", "pid": []}', "\0" * 100, *ODD):
                (records_of(tmp_path, job) / name).write_text(text)
                other = await opened(tmp_path)
                for _ in range(2):
                    await other.observe()
                await adapter.stop(job, 1)
                await adapter.kill(job, 1)

    asyncio.run(main())


def test_an_end_at_no_time_is_an_end(tmp_path: Path) -> None:
    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        await adapter.start(order(tmp_path, job, "true"))
        await ended(adapter, job)
        for number in ("NaN", "1e400", "-1e400"):
            told = f'{{"epoch": 1, "code": 0, "signal": 0, "ended_at": {number}, "reason": ""}}'
            (records_of(tmp_path, job) / EXIT_FILE).write_text(told)
            seen = await seen_of(await opened(tmp_path), job)
            assert seen == Seen(job, 1, "ended", 0)

    asyncio.run(main())


def test_a_job_that_spoils_what_is_known_of_its_start_is_started_once(tmp_path: Path) -> None:
    async def main() -> None:
        for told in ("nonsense", '{"epoch": 1, "pid": -1, "start_time": 1, "boot": ""}'):
            adapter, job = await opened(tmp_path), new_job(tmp_path)
            folder = records_of(tmp_path, job)
            spoil = f"echo started >> starts; echo '{told}' > {RUN_FILE}; exit 7"
            for epoch in (1, 2):
                again = order(tmp_path, job, "sh", "-c", spoil, epoch=epoch, working_directory=folder)
                await adapter.start(again)
                starts = folder / "starts"
                await until(lambda job=job, at=starts, n=epoch: len(lines(at)) == n and not processes_of(job))
                seen = await ended(adapter, job, epoch)
                assert seen.code == 7
                # ordered again, by another scheduler as well
                for other in (adapter, await opened(tmp_path)):
                    await other.start(again)
                    assert await ended(other, job) == seen
                assert len(lines(folder / "starts")) == epoch

    asyncio.run(main())


def test_a_job_that_puts_pipes_and_folders_in_the_place_of_files(tmp_path: Path) -> None:
    """Its own end may be lost; that of no other is, and nobody waits."""
    logs = [f"cd ../../jobs/$ALLOCATOR_JOB_ID; rm log; {what} log; cd $OLDPWD" for what in ("mkfifo", "mkdir")]
    spoils = [f"rm {RUN_FILE}; {what} {RUN_FILE}" for what in ("mkfifo", "mkdir")] + logs
    spoils += [f"{what} {EXIT_FILE}" for what in ("mkfifo", "mkdir")]
    spoils += ["rm run.lock; mkdir run.lock; kill -9 $PPID; sleep 60"]

    async def main() -> None:
        adapter, jobs = await opened(tmp_path), [new_job(tmp_path) for _ in spoils]
        for job, spoil in zip(jobs, spoils, strict=True):
            folder = records_of(tmp_path, job)
            await adapter.start(order(tmp_path, job, "sh", "-c", f"{spoil}; touch spoilt", working_directory=folder))
        await until(lambda: all((records_of(tmp_path, job) / "spoilt").exists() for job in jobs[:-1]))
        other = new_job(tmp_path)
        await adapter.start(order(tmp_path, other, "true"))
        assert (await ended(adapter, other)).code == 0
        # without a lock that could be taken, what is left of a job tells whether it has ended
        assert (await ended(adapter, jobs[-1])).code is None
        assert not processes_of(jobs[-1])
        for job in jobs:
            folder = records_of(tmp_path, job)
            await until(lambda job=job: not processes_of(job))
            for name in (RUN_FILE, EXIT_FILE):
                with suppress(OSError):
                    (folder / name).rmdir()
            # a start where the log cannot be written is refused, and leaves nobody behind
            with suppress(AdapterError):
                await adapter.start(order(tmp_path, job, "true", epoch=2))
                assert (await ended(adapter, job)).epoch == 2
            assert not processes_of(job)
        with pytest.raises(AdapterError, match="log"):
            await adapter.start(order(tmp_path, jobs[2], "true", epoch=3))

    asyncio.run(main())
