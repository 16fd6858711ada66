"""Whoever is killed when on this machine, nothing is lost, nothing runs twice, and no GPU is free too early."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from allocator.cli.service.events import event_line
from allocator.runtime.adapters.base import AdapterError, NoAnswerError, Seen
from allocator.runtime.adapters.local import adapter as local_adapter
from allocator.runtime.adapters.local.folder import EXIT_FILE, RUN_FILE, number_in, take_lock
from allocator.runtime.adapters.local.processes import is_alive, start_time_of
from allocator.runtime.door.views import job_view, service_view
from tests.runtime.small_disks import fill, small_disk_at
from tests.runtime.test_real_faults import ROOT, Forking, Serving, states_in, submit, through
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


@pytest.mark.parametrize("times", [2, pytest.param(25, marks=pytest.mark.exhaustive)])
async def test_a_shim_killed_at_any_moment_takes_everything_with_it(local, times):
    draw, ran, adapter = random.Random(1), local.state / "ran", await local.open()

    def start(job, epoch):
        return local.start(*PYTHON, TREE.format(ran=str(ran), job=job, epoch=epoch), job=job, epoch=epoch)

    for number in range(times):
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


async def test_a_start_that_nobody_waits_for_any_more_does_not_begin(local):
    launcher, first = await launcher_of(local)
    os.kill(launcher, signal.SIGSTOP)
    job = local.new_job()
    late = asyncio.ensure_future(local.start("true", job=job))
    await asyncio.sleep(0.1)
    late.cancel()
    with suppress(asyncio.CancelledError):
        await late
    os.kill(launcher, signal.SIGCONT)
    await local.ended(await local.start("true"))
    records = local.records(job)
    # its shim has looked, and left
    await until(lambda: (records / "run.lock").exists() and (lock := take_lock(str(records))) and not os.close(lock))
    assert not (records / RUN_FILE).exists()
    assert not local.log(job)
    await local.adapter.kill(first, 1)
    await local.ended(first)


@pytest.mark.exhaustive
async def test_a_full_disk_costs_output_and_nothing_else(tmp_path):
    gates = [tmp_path / f"gate{i}" for i in range(3)]
    waits = [f"until [ -e {gate} ]; do sleep 0.05; done" for gate in gates]
    # more than a pipe holds: when it is written, the full disk has been met
    written = tmp_path / "written"
    command = f"echo first; {waits[0]}; seq 50000; : > {written}; {waits[1]}; echo last; {waits[2]}; exit 5"
    with small_disk_at(tmp_path / "disk", "512k") as disk:
        local, filling = Local(disk), disk / "filling"
        job = await local.start("sh", "-c", command)
        await until(lambda: local.log(job) == ["first"])
        fill(filling)
        gates[0].touch()
        await until(written.exists)
        filling.unlink()
        gates[1].touch()
        await until(lambda: local.log(job)[-1] == "last")
        (said,) = [line for line in local.log(job) if "were lost: the disk was full" in line]
        fill(filling)
        gates[2].touch()
        assert (await local.ended(job)).code == 5
        told = number_in(str(local.records(job) / EXIT_FILE), "lost_output")
        assert said == f"[{told} bytes of output were lost: the disk was full]"
        await local.open()
        assert (await local.seen(job)).code == 5
        filling.unlink()
        later = local.order(job, "true", epoch=2)
        fill(filling)
        with pytest.raises(AdapterError, match="No space left on device"):
            await local.adapter.start(later)
        filling.unlink()
        await local.adapter.start(later)
        assert (await local.ended(job)).epoch == 2


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


async def test_a_process_that_does_not_end_keeps_its_job_running(local, monkeypatch):
    """As one that waits for a disk for ever, or of another user."""
    job, daemon = await detached(local)
    with monkeypatch.context() as patched:
        patched.setattr(local_adapter, "end_processes", lambda pids, **_: list(pids))
        await kill_shim(local, job)
        for _ in range(2):
            seen = await local.seen(job)
            assert (seen.epoch, seen.phase) == (1, "running")
            assert str(daemon) in seen.reason
            await local.open()
    assert (await local.ended(job)).epoch == 1
    assert not runs(daemon)


async def test_a_job_that_removes_its_own_folder_runs_and_ends_as_any_other(local):
    gate = local.state / "gate"
    os.mkfifo(gate)
    program = f'rm -r "$(dirname $ALLOCATOR_CHECKPOINT_DIR)"; : > $ALLOCATOR_JOB_ID; read _ < {gate}; exit 3'
    jobs = [await local.start("sh", "-c", program) for _ in range(2)]
    await until(lambda: all((local.state / job).exists() for job in jobs))
    assert not any(local.folder(job).exists() for job in jobs)
    for _ in range(2):
        assert [await local.seen(job) for job in jobs] == [Seen(job, 1, "running") for job in jobs]
        await local.open()
    await local.adapter.stop(jobs[0], 1)
    assert (await local.ended(jobs[0])).signal == signal.SIGTERM
    with open(gate, "w") as writer:
        writer.write("\n")
    assert (await local.ended(jobs[1])).code == 3


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


async def test_what_is_started_by_a_shell_with_other_limits_is_found(local):
    """Programs that set limits of their own leave the mark alone."""
    there = local.state / "there"
    program = f"ulimit -n 100; ulimit -c 0; env -i setsid sh -c 'echo $$ > {there}; exec sleep 600' & wait"
    job = await local.start("sh", "-c", program)
    pid = await written_in(there)
    os.kill(local.shim(job), signal.SIGKILL)
    assert (await local.ended(job)).code is None
    assert not runs(pid)


@pytest.mark.exhaustive
async def test_a_shim_that_is_killed_before_it_has_answered_has_perhaps_started_the_job(local):
    """So the start is not over before nothing of it is left."""
    there, job = local.state / "there", local.new_job()
    first = f"[ $RANK = 0 ] || exec sleep 600; env -i setsid sh -c 'echo $$ > {there}; exec sleep 600' & "
    first += f"until [ -s {there} ]; do :; done; kill -9 $PPID"
    await local.open("v100:64")
    with suppress(NoAnswerError):
        await local.start("sh", "-c", first, job=job, gpus=64, one_process_per_gpu=True)
    assert (await local.ended(job)).code is None
    assert not there.exists() or not runs(int(lines(there)[0]))


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
while not os.path.exists(mine): time.sleep(0.02)
time.sleep(0.3)
"""
"""Its daemon holds the GPU, and notes where another one does."""

SERVICE = """
from allocator.runtime.settings import ServiceSettings
from tests.runtime.test_real_faults import QUICK, Serving, submit
async def main(_):
    settings = ServiceSettings(**vars(QUICK) | {"retries": 1000, "longest_retry_seconds": 0.1})
    async with Serving(Path(sys.argv[1]), "v100:2", settings) as service:
        if not service.book.by_id:
            submit(service, *[(sys.executable, "-I", "-S", "-c", sys.argv[2])] * 16)
        while service.book.active:
            await asyncio.sleep(0.05)
"""


@pytest.mark.exhaustive
def test_whoever_is_killed_no_two_jobs_ever_hold_one_gpu(tmp_path):
    """Service, launcher and shims are killed in any order while the GPUs are in the hands of daemons."""
    draw, state = random.Random(2), tmp_path / "state"
    with Forking(SERVICE, str(state), HOLDING) as services:
        for _ in range(8):
            service = services.fork()
            # none may run for long: who was lost several times is not started at once, and all others may have ended
            give_up, shims = time.monotonic() + 10.0, []
            while not shims and time.monotonic() < give_up:
                time.sleep(0.05)
                found = [number_in(str(path), "pid") for path in state.glob("local/*/run.json")]
                shims = [pid for pid in found if pid and runs(pid)]
            time.sleep(draw.uniform(0.0, 0.4))
            victims = [one for one in (*shims, *children_of(service)) if draw.random() < 0.6]
            for victim in draw.sample([*victims, service], len(victims) + 1):
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
            services.gone()
        services.fork()
        services.gone()
    assert not list(state.glob("gpu*.twice"))
    assert states_in(state) == ["completed"] * 16
    assert not subprocess.run(["pgrep", "-f", str(state)], capture_output=True, check=False).stdout
