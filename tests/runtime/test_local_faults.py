"""Whoever is killed when on this machine, nothing is lost, nothing runs twice, and no GPU is free too early."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from allocator.runtime.adapters.base import AdapterError, Seen
from allocator.runtime.adapters.local import adapter as local_adapter
from allocator.runtime.adapters.node import is_alive, start_time_of
from allocator.runtime.door.views import job_view, service_view
from allocator.runtime.door.words import event_line
from tests.runtime.test_real_faults import ROOT, Serving, submit, through
from tests.runtime.worlds import PYTHON, Local, lines, processes_of, until


def runs(pid):
    return is_alive(pid, start_time_of(pid))


def children_of(pid):
    found = (path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(child) for some in found for child in some]


TREE = (
    "import os, time\n"
    "for way in (os.setsid, os.setpgrp, lambda: None):\n"
    "    if not os.fork():\n"
    "        way()\n"
    "        if os.fork(): os._exit(0)\n"
    "        os.closerange(0, 3)\n"
    "        time.sleep(600)\n"
    "        os._exit(0)\n"
    "with open({ran!r}, 'a') as file: print({job!r}, {epoch}, file=file)\n"
    "time.sleep(600)\n"
)
"""Leaves grandchildren in a session, a group and nothing of their own."""


async def test_a_shim_killed_at_any_moment_takes_everything_with_it(local):
    draw, ran, adapter = random.Random(1), local.state / "ran", await local.open()

    def start(job, epoch):
        return local.start(*PYTHON, TREE.format(ran=str(ran), job=job, epoch=epoch), job=job, epoch=epoch)

    for number in range(2):
        job = local.new_job()
        starting = asyncio.create_task(start(job, 1))
        pid = await until(lambda job=job: local.shim(job))
        await asyncio.sleep(draw.uniform(0.0, 0.03))
        os.kill(pid, signal.SIGKILL)
        with suppress(AdapterError):
            await starting
        if number % 2:
            seen = await local.ended(job)
            assert seen == Seen(job, 1, "ended", None, 0, "the process that watched it was killed", seen.ended_at)
            assert not processes_of(job)
        await start(job, 2)
        assert await local.seen(job) == Seen(job, 2, "running")
        await until(lambda job=job: f"{job} 2" in lines(ran))
        # those between are gone in a moment; of the first start nothing is left
        await until(lambda job=job: len(processes_of(job)) == 4)
        await adapter.kill(job, 2)
        assert (await local.ended(job)).signal == signal.SIGKILL
        assert not processes_of(job)
    assert max(Counter(lines(ran)).values()) == 1


async def launcher_of(local):
    """The process that takes the orders of an adapter, and a job that it has started."""
    before = set(children_of(os.getpid()))
    job = await local.start()
    (launcher,) = set(children_of(os.getpid())) - before
    return launcher, job


async def test_the_process_that_takes_orders_may_be_killed(local):
    jobs = []
    for _ in range(2):
        launcher, job = await launcher_of(local)
        jobs.append(job)
        os.kill(launcher, signal.SIGKILL)
        await until(lambda pid=launcher: not runs(pid))
    assert [(await local.seen(job)).phase for job in jobs] == ["running"] * 2
    for job in jobs:
        await local.adapter.kill(job, 1)
        await local.ended(job)
    await local.adapter.close()


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
time.sleep(600)
"""
"""A daemon: forked twice, in a session of its own, without an open file or a variable."""


def detaching(there):
    return (*PYTHON, DETACHING.format(there=str(there)))


async def written_in(path):
    """The number of the process that has written it."""
    (number,) = await until(lambda: path.exists() and path.read_text().endswith("\n") and lines(path))
    return int(number)


async def detached(local):
    """A job with a daemon, and the daemon."""
    job = local.new_job()
    await local.start(*detaching(local.state / job), job=job)
    daemon = await written_in(local.state / job)
    assert daemon not in by_variable(job)
    return job, daemon


def by_variable(job):
    """Processes that have what a job is told by in their environment."""
    wanted, found = f"ALLOCATOR_JOB_ID={job}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


async def kill_shim(local, job):
    os.kill(local.shim(job), signal.SIGKILL)
    await until(lambda: not by_variable(job))


@pytest.mark.parametrize("by", ["the same scheduler", "another scheduler", "the next shim"])
async def test_a_daemon_without_environment_ends_with_its_killed_shim(local, by):
    job, daemon = await detached(local)
    await kill_shim(local, job)
    assert runs(daemon)
    if by == "the next shim":
        await local.start("true", job=job, epoch=2)
        assert not runs(daemon)
    elif by == "another scheduler":
        await local.open()
    seen = await local.ended(job)
    assert not runs(daemon)
    assert seen.code == (0 if by == "the next shim" else None)


@pytest.mark.parametrize("gone", ["local/{job}", "local", "local/{job}/run.json"])
@pytest.mark.parametrize(("start_anew", "shim_killed"), [(False, True), (True, False)])
async def test_a_start_of_which_nothing_is_known_is_found_by_its_processes(local, gone, start_anew, shim_killed):
    job, daemon = await detached(local)
    assert await local.seen(job) == Seen(job, 1, "running")
    shim, path = local.shim(job), local.state / gone.format(job=job)
    path.unlink() if path.is_file() else shutil.rmtree(path)
    if shim_killed:
        os.kill(shim, signal.SIGKILL)
        await until(lambda: not by_variable(job))
    if start_anew:
        await local.open()
    for _ in range(2):
        seen = await local.seen(job)
        assert (seen.epoch, seen.phase) == (1, "running")
        assert str(daemon) in seen.reason
    await local.adapter.kill(job, 7)
    assert runs(daemon)
    await local.adapter.kill(job, 1)
    await until(lambda: not runs(daemon) and not processes_of(job))
    seen = await local.seen(job)
    assert seen is None or seen.phase == "ended"


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


async def test_service_and_shim_are_killed_and_the_gpu_is_not_free_before_the_daemon_is_gone(local, monkeypatch):
    """It is told: in the reason of the job, as trouble, and in the history."""
    monkeypatch.setattr("allocator.runtime.service._LINGERING", 0.2)
    state, there, second = (local.state / name for name in ("state", "there", "second"))
    killed = subprocess.Popen([sys.executable, "-c", KILLED, str(state), *detaching(there)], cwd=ROOT)
    daemon = await written_in(there)
    killed.kill()
    killed.wait()
    (job,) = (path.name for path in (state / "jobs").iterdir())
    os.kill(Local(state).shim(job), signal.SIGKILL)
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
