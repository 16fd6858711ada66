"""Faults with real processes under the local adapter: the final state of every job, and that nothing ran twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from allocator.runtime.adapters.local import LocalAdapter, virtual_accelerators
from allocator.runtime.records.book import Book
from allocator.runtime.records.journal import ReadOnlyJournal
from allocator.runtime.service import Service
from allocator.runtime.settings import ServiceSettings
from tests.runtime.model_cluster import states, world_under
from tests.runtime.worlds import PYTHON, lines, until

TRAINER = Path(__file__).with_name("quick_trainer.py")
ROOT = Path(__file__).parents[2]
QUICK = ServiceSettings(
    poll_seconds=0.05, notice_seconds=0.5, grace_seconds=1.0, retry_seconds=0.05, retries=2, log_bytes=1 << 16
)


class Serving:
    """A service with real processes, for the time of a ``with`` block; started anew on the same folder by the next."""

    def __init__(self, state, virtual="v100:2", settings=QUICK, policy="fifo_perf"):
        self._state, self._virtual, self._settings, self._policy = state, virtual, settings, policy

    async def __aenter__(self):
        adapter = LocalAdapter(self._state, virtual_accelerators(self._virtual))
        self.service = Service(self._state, adapter, self._settings)
        self.service.journal._base.execute("PRAGMA synchronous=OFF")
        await self.service.open(world_under(self._policy, 1.0))
        self._running = asyncio.ensure_future(self.service.run())
        return self.service

    async def __aexit__(self, *_):
        self.service.close()
        await self._running


def submit(service, *commands, **more):
    told = {"working_directory": "/", "environment": {"PYTHONPATH": str(ROOT)}} | more
    return service.submit((uuid.uuid4().hex, {"command": list(command)} | told) for command in commands)


def trainer(result, steps=20, gate=Path("/")):
    return (sys.executable, "-I", "-S", str(TRAINER), str(steps), "0.02", str(result), str(gate))


class Forking(subprocess.Popen):
    """A process with everything imported that forks one which does something, once for each line that it is told."""

    def __init__(self, code, *arguments):
        lines = (
            "for line in sys.stdin:\n    pid = os.fork()\n    if not pid:\n        asyncio.run(main(line.split()))\n"
        )
        lines += (
            "        os._exit(0)\n    print(pid, flush=True)\n    os.waitpid(pid, 0)\n    print('gone', flush=True)\n"
        )
        command = [
            sys.executable,
            "-c",
            f"import asyncio, os, sys\nfrom pathlib import Path\n{code}{lines}",
            *arguments,
        ]
        super().__init__(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)

    def fork(self, *words):
        print(*words, file=self.stdin, flush=True)
        return int(self.stdout.readline())

    def gone(self):
        assert self.stdout.readline() == "gone\n"


def states_in(state):
    """Those of the jobs in a journal."""
    book = Book()
    for event in ReadOnlyJournal(state).events():
        book.apply(event)
    return states(SimpleNamespace(book=book))


async def through(service):
    await until(lambda: not service.book.active)


HANG = """
import json, os, time
job, epoch = os.environ["ALLOCATOR_JOB_ID"], int(os.environ["ALLOCATOR_LEASE_EPOCH"])
path = os.path.dirname(os.environ["ALLOCATOR_CHECKPOINT_DIR"]) + "/report.json"
with open(path + ".new", "w") as file:
    json.dump({"job": job, "epoch": epoch, "state": "training", "steps": 1.0}, file)
os.replace(path + ".new", path)
time.sleep(1000)
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(1000)"
FLOOD = "while True: print('x' * 1000)\n"
# many processes that write as fast as they can, and outlive their parent if they are let
BOMB = "import os\nfor _ in range(6): os.fork()\nwhile True: os.write(1, b'y' * 4096)\n"


@pytest.mark.exhaustive
async def test_trainers_that_crash_hang_flood_or_do_not_end(tmp_path):
    settings = ServiceSettings(**vars(QUICK) | {"hang_seconds": 0.5})
    async with Serving(tmp_path, "v100:8", settings) as service:
        scripts = [DEAF, FLOOD, BOMB, HANG, "import os; os.kill(os.getpid(), 11)"]
        jobs = submit(service, *((*PYTHON, script) for script in scripts), trainer(tmp_path / "fine"))
        deaf, flooding, bombing, hanging, crashing, _ = jobs
        folders = [service.watching.folder(job) for job in (flooding, bombing)]
        await until(lambda: all((folder / "log.1").exists() for folder in folders))
        await until(lambda: lines(service.watching.folder(deaf) / "log") and hanging.state == "failed")
        service.cancel([deaf, flooding, bombing])
        await through(service)
        assert all(sum((at / name).stat().st_size for name in ("log", "log.1")) <= QUICK.log_bytes for at in folders)
        assert [event["signal"] for event in service.journal.events(deaf.uuid) if event.kind == "ended"] == [9]
    assert states(service) == ["cancelled"] * 3 + ["failed", "failed", "completed"]
    assert "no step in 0.5 s" in hanging.reason
    assert "signal 11" in crashing.reason
    for job in jobs:
        assert not subprocess.run(["pgrep", "-f", job.uuid], capture_output=True, check=False).stdout
