"""Faults with real processes under the local adapter: the final state of every job, and that nothing ran twice."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from allocator.runtime.adapters.local import LocalAdapter, virtual_accelerators
from allocator.runtime.records.journal import JournalError
from allocator.runtime.service import Service
from allocator.runtime.settings import ServiceSettings
from tests.runtime.model_cluster import world_under
from tests.runtime.small_disks import small_disk_at

TRAINER = Path(__file__).with_name("quick_trainer.py")
ROOT = Path(__file__).parents[2]
PYTHON = (sys.executable, "-I", "-S")
PATIENCE = 90.0
QUICK = ServiceSettings(
    poll_seconds=0.02, notice_seconds=0.5, grace_seconds=1.0, retry_seconds=0.05, retries=2, log_bytes=1 << 16
)


class Serving:
    """A service with real processes, for the time of a ``with`` block; started anew on the same folder by the next."""

    def __init__(self, state, virtual="v100:2", settings=QUICK):
        self._state, self._virtual, self._settings = state, virtual, settings

    async def __aenter__(self):
        adapter = LocalAdapter(self._state, virtual_accelerators(self._virtual))
        self.service = Service(self._state, adapter, self._settings)
        self.service.journal._base.execute("PRAGMA synchronous=OFF")
        await self.service.open(world_under("fifo_perf", 2.0))
        self._running = asyncio.ensure_future(self.service.run())
        return self.service

    async def __aexit__(self, *_):
        self.service.close()
        await self._running


def submit(service, *commands, **more):
    told = {"working_directory": "/", "environment": {"PYTHONPATH": str(ROOT)}} | more
    service.submit((uuid.uuid4().hex, {"command": list(command)} | told) for command in commands)


def trainer(result, steps=20, gate=Path("/")):
    return (*PYTHON, str(TRAINER), str(steps), "0.02", str(result), str(gate))


def states(service):
    return [job.state for job in service.book.by_id]


async def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)


async def through(service):
    await until(lambda: not service.book.active)


def steps_in(result):
    return [line.split() for line in result.read_text().splitlines()] if result.exists() else []


async def test_trainers_that_crash_hang_flood_or_do_not_end(tmp_path):
    ignoring = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)\n"
    flood = "while True: print('x' * 1000)\n"
    # many processes that write as fast as they can, and outlive their parent if they are let
    bomb = "import os\nfor _ in range(6): os.fork()\nwhile True: os.write(1, b'y' * 4096)\n"
    hang = """
import json, os, time
job, epoch = os.environ["ALLOCATOR_JOB_ID"], int(os.environ["ALLOCATOR_LEASE_EPOCH"])
path = os.path.dirname(os.environ["ALLOCATOR_CHECKPOINT_DIR"]) + "/report.json"
with open(path + ".new", "w") as file:
    json.dump({"job": job, "epoch": epoch, "state": "training", "steps": 1.0}, file)
os.replace(path + ".new", path)
time.sleep(1000)
"""
    scripts = [ignoring + "time.sleep(1000)", flood, bomb, hang, "import os; os.kill(os.getpid(), 11)"]

    settings = ServiceSettings(**vars(QUICK) | {"hang_seconds": 0.5})
    async with Serving(tmp_path, "v100:8", settings) as service:
        submit(service, *((*PYTHON, "-c", script) for script in scripts), trainer(tmp_path / "fine"))
        deaf, flooding, bombing, hanging, _, _ = service.book.by_id
        await until(lambda: all(job.state not in ("queued", "starting") or job.epoch > 1 for job in service.book.by_id))
        logs = [service.watching.folder(job) / "log.1" for job in (flooding, bombing)]
        await until(lambda: (service.watching.folder(deaf) / "log").read_text() and all(log.exists() for log in logs))
        await until(lambda: hanging.state == "failed")
        service.cancel([deaf, flooding, bombing])
        await through(service)
        for job in (flooding, bombing):
            folder = service.watching.folder(job)
            assert sum((folder / name).stat().st_size for name in ("log", "log.1")) <= QUICK.log_bytes
        ended = [event for event in service.journal.events(deaf.uuid) if event.kind == "ended"]
        assert [event["signal"] for event in ended] == [9]
    assert states(service) == ["cancelled"] * 3 + ["failed", "failed", "completed"]
    assert "no step in 0.5 s" in service.book.by_id[3].reason
    assert "SIGSEGV" in service.book.by_id[4].reason or "signal 11" in service.book.by_id[4].reason
    for job in service.book.by_id:
        assert not subprocess.run(["pgrep", "-f", job.uuid], capture_output=True, check=False).stdout


ALONE = """
import fcntl, time
lock = open("{folder}/lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open("{folder}/twice", "w")
open("{folder}/starts", "a").write("x")
time.sleep(1000)
"""


async def test_a_folder_deleted_under_a_job_that_runs(tmp_path):
    """It runs on, and is started once."""

    async with Serving(tmp_path / "state") as service:
        # deaf to leases: it holds the lock of the result for as long as it lives
        script = ALONE.format(folder=tmp_path)
        submit(service, (*PYTHON, "-c", script), trainer(tmp_path / "fine"))
        job = service.book.by_id[0]
        await until(lambda: (tmp_path / "starts").exists())
        shutil.rmtree(service.watching.folder(job))
        await until(lambda: service.book.by_id[1].state == "completed")
        assert job.state == "running"
        service.cancel([job])
        await through(service)
        assert (tmp_path / "starts").read_text() == "x"
    assert states(service) == ["cancelled", "completed"]


async def test_a_state_folder_that_is_moved_between_two_services(tmp_path):

    async with Serving(tmp_path / "one") as service:
        submit(service, *(trainer(tmp_path / f"result{k}", 30) for k in range(4)))
        await until(lambda: steps_in(tmp_path / "result0"))
    (tmp_path / "one").rename(tmp_path / "two")
    async with Serving(tmp_path / "two") as service:
        await through(service)
    assert states(service) == ["completed"] * 4
    for number in range(4):
        lines = steps_in(tmp_path / f"result{number}")
        assert all(line[0] == "step" for line in lines), "it ran twice at once"
        assert lines[-1][1] == "30"


SAVING = """
import sys, time
from contextlib import suppress
from pathlib import Path
from allocator.lease import Lease
lease = Lease(int(sys.argv[1]))
found = []
lease.restore(lambda folder: found.append((folder / "weights").read_text()))
with open(sys.argv[2], "a") as file:
    file.write(f"restored {lease.steps} {found}\\n")
def save(folder):
    (folder / "weights").write_text(str(lease.steps))
while not lease.step():
    time.sleep(0.02)
    if lease.steps % 5 == 0:
        lease.checkpoint(save)
lease.checkpoint_if_ending(save)
"""


async def test_a_checkpoint_that_is_damaged_is_passed_over(tmp_path):

    async with Serving(tmp_path / "state") as service:
        submit(service, (sys.executable, "-S", "-c", SAVING, "120", str(tmp_path / "told")))
        job = service.book.by_id[0]
        await until(lambda: service.steps_of(job) >= 30)
        service.drain("local-v100", True, [job])
        await until(lambda: job.state == "queued")
        weights = (service.watching.folder(job) / "checkpoint").rglob("weights")
        saved = sorted(weights, key=lambda path: int(path.read_text()))
        assert len(saved) >= 1
        steps = [int(path.read_text()) for path in saved]
        saved[-1].write_text("ruined")
        service.drain("local-v100", False)
        await through(service)
        lines = (tmp_path / "told").read_text().splitlines()
        assert lines[0] == "restored 0 []"
        assert "ruined" not in lines[1]
        assert lines[1] == (f"restored {steps[-2]} ['{steps[-2]}']" if len(steps) > 1 else "restored 0 []")
    assert states(service) == ["completed"]


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 2 MiB."""
    with small_disk_at(tmp_path / "disk", "2m") as disk:
        yield disk


def fill(file):
    with suppress(OSError), file.open("wb", buffering=0) as filler:
        while True:
            filler.write(b"f" * 4096)


async def test_a_full_disk(small_disk, tmp_path):
    """Nothing new is started or taken; what runs runs on; all complete when there is room again."""

    async with Serving(small_disk, settings=ServiceSettings(**vars(QUICK) | {"retries": 49})) as service:
        gate = tmp_path / "gate"
        talk = "import os, sys, time\nfor n in range(150): print('z' * 5000, flush=True); time.sleep(0.02)\n"
        talk += "while not os.path.exists(sys.argv[1]): time.sleep(0.02)"
        talking = (*PYTHON, "-c", talk, str(gate))
        submit(service, talking, trainer(tmp_path / "result", 60, gate), trainer(tmp_path / "later"))
        await until(lambda: steps_in(tmp_path / "result"))
        filler = small_disk / "filler"
        fill(filler)
        before = states(service)
        with pytest.raises(JournalError):
            submit(service, *[("true",)] * 50, environment={"FILL": "e" * 4000})
        taken = len(service.book.by_id)
        await asyncio.sleep(1.0)
        assert "completed" not in before
        filler.unlink()
        gate.touch()
        await through(service)
        assert service.trouble == ""
        assert len(service.book.by_id) == taken
        assert service.watching.folder(service.book.by_id[0]).joinpath("log").stat().st_size <= QUICK.log_bytes
    assert set(states(service)) == {"completed"}
    lines = steps_in(tmp_path / "result")
    assert all(line[0] == "step" for line in lines), "it ran twice at once"
    assert lines[-1][1] == "60"
