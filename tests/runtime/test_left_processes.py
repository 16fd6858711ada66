"""Jobs that detach, clear their environment, or remove what is known of them: no GPU is free before they have ended."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from allocator.cli.service.events import event_line
from allocator.runtime.adapters.base import NoAnswerError, Seen
from allocator.runtime.adapters.local import LocalAdapter
from allocator.runtime.adapters.local import adapter as local_adapter
from allocator.runtime.adapters.local.folder import number_in as number_of
from allocator.runtime.adapters.local.processes import is_alive, start_time_of
from allocator.runtime.door.views import job_view, service_view
from allocator.runtime.records.book import Book
from allocator.runtime.records.journal import ReadOnlyJournal
from tests.runtime.test_local_adapter_faults import children_of
from tests.runtime.test_real_faults import Serving, submit, through
from tests.runtime.worlds import (
    PYTHON,
    ended,
    lines,
    new_job,
    opened,
    order,
    processes_of,
    seen_of,
    shim_of,
    until,
)

DETACHING = """
import os, sys, time
if not os.fork():
    os.setsid()
    if os.fork(): os._exit(0)
    os.chdir("/")
    os.closerange(0, 256)
    # nothing of what it was started with is left
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c",
        "import os, time; open({there!r}, 'w').write(f'{{os.getpid()}}\\\\n'); time.sleep(600)"], {{}})
os.wait()
{then}
"""
"""A daemon: forked twice, in a session of its own, without an open file or a variable."""


def detaching(there: Path, then: str = "time.sleep(600)") -> tuple[str, ...]:
    return (*PYTHON, DETACHING.format(there=str(there), then=then))


async def number_in(path: Path) -> int:
    """That of the process that has written it."""
    (number,) = await until(lambda: path.exists() and path.read_text().endswith("\n") and lines(path))
    return int(number)


def runs(pid: int) -> bool:
    return is_alive(pid, start_time_of(pid))


async def detached(state: Path, adapter: LocalAdapter, then: str = "time.sleep(600)") -> tuple[str, int]:
    """A job with a daemon, and the daemon."""
    job = new_job(state)
    await adapter.start(order(state, job, *detaching(state / job, then)))
    daemon = await number_in(state / job)
    assert daemon not in processes_by_variable(job)
    return job, daemon


def processes_by_variable(job: str) -> list[int]:
    wanted, found = f"ALLOCATOR_JOB_ID={job}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("by", ["the same scheduler", "another scheduler", "the next shim"])
def test_a_daemon_without_environment_ends_with_its_killed_shim(tmp_path: Path, by: str) -> None:
    async def main() -> None:
        adapter = await opened(tmp_path)
        job, daemon = await detached(tmp_path, adapter)
        os.kill(shim_of(tmp_path, job), signal.SIGKILL)
        await until(lambda: not processes_by_variable(job))
        assert runs(daemon)
        if by == "the next shim":
            await adapter.start(order(tmp_path, job, "true", epoch=2))
            assert not runs(daemon)
        seen = await ended(await opened(tmp_path) if by == "another scheduler" else adapter, job)
        assert not runs(daemon)
        assert seen.code == (0 if by == "the next shim" else None)

    asyncio.run(main())


@pytest.mark.parametrize("start_anew", [False, True])
def test_a_process_that_does_not_end_keeps_its_job_running(
    tmp_path: Path, start_anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that waits for a disk for ever, or of another user."""

    async def main() -> None:
        adapter = await opened(tmp_path)
        job, daemon = await detached(tmp_path, adapter)
        with monkeypatch.context() as patched:
            patched.setattr(local_adapter, "end_processes", lambda pids, **_: list(pids))
            os.kill(shim_of(tmp_path, job), signal.SIGKILL)
            await until(lambda: not processes_by_variable(job))
            adapter = await opened(tmp_path) if start_anew else adapter
            for _ in range(3):
                seen = await seen_of(adapter, job)
                assert seen
                assert (seen.epoch, seen.phase) == (1, "running")
                assert str(daemon) in seen.reason
        assert (await ended(adapter, job)).epoch == 1
        assert not runs(daemon)

    asyncio.run(main())


def test_a_job_that_removes_its_own_folder_runs_and_ends_as_any_other(tmp_path: Path) -> None:
    program = (
        "import os, shutil, sys, time; shutil.rmtree(os.path.dirname(os.environ['ALLOCATOR_CHECKPOINT_DIR']))\n"
        "open(sys.argv[1], 'w').write('removed')\n"
        "while not os.path.exists(sys.argv[2]): time.sleep(0.01)\nsys.exit(3)"
    )

    async def main() -> None:
        adapter = await opened(tmp_path)
        jobs = [new_job(tmp_path) for _ in range(2)]
        gate = tmp_path / "gate"
        for job in jobs:
            await adapter.start(order(tmp_path, job, *PYTHON, program, str(tmp_path / job), str(gate)))
        await until(lambda: all(lines(tmp_path / job) for job in jobs))
        assert not any((tmp_path / "jobs" / job).exists() for job in jobs)
        for other in (adapter, await opened(tmp_path)):
            assert [await seen_of(other, job) for job in jobs] == [Seen(job, 1, "running") for job in jobs]
        await adapter.stop(jobs[0], 1)
        assert (await ended(adapter, jobs[0])).signal == signal.SIGTERM
        gate.touch()
        assert (await ended(adapter, jobs[1])).code == 3

    asyncio.run(main())


@pytest.mark.parametrize("gone", ["local/{job}", "local", "local/{job}/run.json"])
@pytest.mark.parametrize("start_anew", [False, True])
@pytest.mark.parametrize("shim_killed", [False, True])
def test_a_start_of_which_nothing_is_known_is_found_by_its_processes(
    tmp_path: Path, gone: str, start_anew: bool, shim_killed: bool
) -> None:
    async def main() -> None:
        adapter = await opened(tmp_path)
        job, daemon = await detached(tmp_path, adapter)
        assert await seen_of(adapter, job) == Seen(job, 1, "running")
        shim, path = shim_of(tmp_path, job), tmp_path / gone.format(job=job)
        path.unlink() if path.is_file() else shutil.rmtree(path)
        if shim_killed:
            os.kill(shim, signal.SIGKILL)
            await until(lambda: not processes_by_variable(job))
        adapter = await opened(tmp_path) if start_anew else adapter
        for _ in range(2):
            seen = await seen_of(adapter, job)
            assert seen
            assert (seen.epoch, seen.phase) == (1, "running")
            assert str(daemon) in seen.reason
        await adapter.kill(job, 7)
        assert runs(daemon)
        await adapter.kill(job, 1)
        await until(lambda: not runs(daemon))
        await until(lambda: not processes_of(job))
        seen = await seen_of(adapter, job)
        assert seen is None or seen.phase == "ended"

    asyncio.run(main())


def test_what_is_started_by_a_shell_with_other_limits_is_found(tmp_path: Path) -> None:
    """Programs that set limits of their own leave the mark alone."""

    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        there = tmp_path / "there"
        program = f"ulimit -n 100; ulimit -c 0; env -i setsid sh -c 'echo $$ > {there}; exec sleep 600' & wait"
        await adapter.start(order(tmp_path, job, "sh", "-c", program))
        pid = await number_in(there)
        os.kill(shim_of(tmp_path, job), signal.SIGKILL)
        assert (await ended(adapter, job)).code is None
        assert not runs(pid)

    asyncio.run(main())


KILLED = """
import asyncio, sys
from pathlib import Path
from tests.runtime.test_real_faults import Serving, submit
async def main():
    async with Serving(Path(sys.argv[1]), "v100:1") as service:
        submit(service, tuple(sys.argv[2:]))
        await asyncio.sleep(600)
asyncio.run(main())
"""


def test_service_and_shim_are_killed_and_the_gpu_is_not_free_before_the_daemon_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told: in the reason of the job, as trouble, and in the history."""
    monkeypatch.setattr("allocator.runtime.service._LINGERING", 0.2)
    state, there, second = tmp_path / "state", tmp_path / "there", tmp_path / "second"
    killed = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(state), *detaching(there)], cwd=Path(__file__).parents[2]
    )

    async def main() -> None:
        daemon = await number_in(there)
        killed.kill()
        killed.wait()
        (job,) = (path.name for path in (state / "jobs").iterdir())
        os.kill(shim_of(state, job), signal.SIGKILL)
        with monkeypatch.context() as patched:
            patched.setattr(local_adapter, "end_processes", lambda pids, **_: list(pids))
            async with Serving(state, "v100:1") as service:
                submit(service, ("touch", str(second)))
                await until(lambda: str(daemon) in service.trouble)
                first = service.book.by_id[0]
                assert str(daemon) in job_view(service, first)["reason"]
                assert "job 0" in service_view(service)["trouble"]
                assert service_view(service)["nodes"][0]["jobs"] == [[0]]
                (event,) = [event for event in service.journal.events() if event.kind == "lingers"]
                line = event_line({"at": event.at, "job": 0, "kind": event.kind, "data": dict(event.data or {})})
                assert "GPUs are not free" in line
                assert not second.exists()
                assert runs(daemon)
                patched.undo()
                await until(lambda: not runs(daemon))
                service.cancel([first])
                await through(service)
                assert service.trouble == ""
                assert second.exists()

    asyncio.run(main())


def test_no_other_job_gets_the_gpu_of_one_that_has_removed_its_folder(tmp_path: Path) -> None:
    gate, both = tmp_path / "gate", tmp_path / "both"
    first = f'rm -r "$(dirname $ALLOCATOR_CHECKPOINT_DIR)"; : > {gate}.here; until [ -e {gate} ]; do sleep 0.01; done'
    second = f"[ -e {gate} ] || : > {both}"

    async def main() -> None:
        async with Serving(tmp_path / "state", "v100:1") as service:
            submit(service, ("sh", "-c", first), ("sh", "-c", second))
            await until(Path(f"{gate}.here").exists)
            await asyncio.sleep(0.5)
            assert [job.state for job in service.book.by_id] == ["running", "queued"]
            gate.touch()
            await through(service)
            assert [job.state for job in service.book.by_id] == ["completed"] * 2
            assert [job.epoch for job in service.book.by_id] == [1, 1]

    asyncio.run(main())
    assert not both.exists()


def test_a_shim_that_is_killed_before_it_has_answered_has_perhaps_started_the_job(tmp_path: Path) -> None:
    """So the start is not over before nothing of it is left."""
    there = tmp_path / "there"
    first = f"[ $RANK = 0 ] || exec sleep 600; env -i setsid sh -c 'echo $$ > {there}; exec sleep 600' & "
    first += f"until [ -s {there} ]; do :; done; kill -9 $PPID"

    async def main() -> None:
        adapter, job = await opened(tmp_path, "v100:64"), new_job(tmp_path)
        with suppress(NoAnswerError):
            await adapter.start(order(tmp_path, job, "sh", "-c", first, gpus=64, one_process_per_gpu=True))
        assert (await ended(adapter, job)).code is None
        assert not there.exists() or not runs(int(lines(there)[0]))

    asyncio.run(main())


HOLDING = """
import fcntl, os, sys, time
state = os.path.dirname(os.path.dirname(os.path.dirname(os.environ["ALLOCATOR_CHECKPOINT_DIR"])))
gpu, mine = f"{state}/gpu{os.environ['CUDA_VISIBLE_DEVICES']}", f"{state}/held{os.getpid()}"
hold = '''
import fcntl, sys, time
lock = open(sys.argv[1], "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(sys.argv[1] + ".twice", "w")
open(sys.argv[2], "w")
time.sleep(600)
'''
if not os.fork():
    os.setsid()
    if os.fork(): os._exit(0)
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", hold, gpu, mine], {})
os.wait()
while not os.path.exists(mine): time.sleep(0.005)
time.sleep(0.3)
"""
"""Its daemon holds the GPU, and notes where another one does."""

SERVING = """
import asyncio, os, sys
from pathlib import Path
from allocator.runtime.settings import ServiceSettings
from tests.runtime.test_real_faults import QUICK, Serving, submit
async def main(state):
    settings = ServiceSettings(**vars(QUICK) | {"retries": 1000, "longest_retry_seconds": 0.1})
    async with Serving(state, "v100:2", settings) as service:
        if not service.book.by_id:
            submit(service, *[(sys.executable, "-I", "-S", "-c", sys.argv[2])] * 16)
        while service.book.active:
            await asyncio.sleep(0.02)
for line in sys.stdin:
    if not os.fork():
        asyncio.run(main(Path(sys.argv[1])))
        os._exit(0)
    print("forked", flush=True)
    os.wait()
    print("gone", flush=True)
"""


def test_whoever_is_killed_no_two_jobs_ever_hold_one_gpu(tmp_path: Path) -> None:
    """Service, launcher and shims are killed in any order while the GPUs are in the hands of daemons."""
    draw, state = random.Random(2), tmp_path / "state"
    services = subprocess.Popen(
        [sys.executable, "-c", SERVING, str(state), HOLDING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    )
    assert services.stdin
    assert services.stdout
    for life in range(9):
        print(file=services.stdin, flush=True)
        assert services.stdout.readline() == "forked\n"
        if life == 8:
            break
        # none may run for long: those that were lost several times are not started at once, all others may have ended
        give_up = time.monotonic() + 10.0
        while not (shims := [pid for pid in shims_in(state) if runs(pid)]) and time.monotonic() < give_up:
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, 0.4))
        (service,) = children_of(services.pid)
        victims = [one for one in (*shims, *children_of(service)) if draw.random() < 0.6]
        for victim in draw.sample([*victims, service], len(victims) + 1):
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        assert services.stdout.readline() == "gone\n"
    assert services.stdout.readline() == "gone\n"
    services.stdin.close()
    assert services.wait() == 0
    services.stdout.close()
    assert not list(state.glob("gpu*.twice"))
    assert [job.state for job in book_of(state).by_id] == ["completed"] * 16
    assert not subprocess.run(["pgrep", "-f", str(state)], capture_output=True, check=False).stdout


def shims_in(state: Path) -> list[int]:
    return [number_of(str(path), "pid") or 0 for path in sorted(state.glob("local/*/run.json"))]


def book_of(state: Path) -> Book:
    book = Book()
    for event in ReadOnlyJournal(state).events():
        book.apply(event)
    return book
