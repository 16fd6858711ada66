"""Jobs on this machine as the scheduler would order them."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.lease.whole import read_object
from allocator.runtime.adapters.base import Placed, StartOrder
from allocator.runtime.adapters.local import LocalAdapter, virtual_accelerators
from allocator.runtime.adapters.node import RUN_FILE, carriers

PYTHON = (sys.executable, "-I", "-S", "-c")
PATIENCE = 300.0


class Local:
    """A state folder, and the adapter of the moment."""

    def __init__(self, state):
        self.state, self.adapter = state, None

    async def open(self, virtual="v100:4,k80:2", **more):
        """As a scheduler that is started."""
        self.adapter = LocalAdapter(self.state, virtual_accelerators(virtual), **more)
        await self.adapter.open()
        return self.adapter

    def new_job(self):
        job = str(uuid.uuid4())
        self.folder(job).mkdir(mode=0o700, parents=True)
        return job

    def order(self, job, *command, epoch=1, gpus=1, **more):
        """A start, with the lease that goes with it."""
        folder = self.folder(job)
        write_file(folder / LEASE_FILE, Grant(job, epoch))
        placed = Placed("v100", {"local-v100": tuple(range(gpus))})
        more = {"working_directory": self.state} | more
        return StartOrder(job, epoch, command or ("sleep", "600"), placed, folder, **more)

    async def start(self, *command, job="", **more):
        """Order a start; the name of the job."""
        job = job or self.new_job()
        adapter = self.adapter or await self.open()
        await adapter.start(self.order(job, *command, **more))
        return job

    async def seen(self, job):
        return next((seen for seen in await self.adapter.observe() if seen.job == job), None)

    async def ended(self, job, epoch=None):
        """Wait for the end of the last start of a job; of the one in this `epoch`, if one is given."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            seen = await self.seen(job)
            if seen and seen.phase == "ended" and epoch in (None, seen.epoch):
                return seen
            await asyncio.sleep(0.02)
        raise AssertionError(f"not ended: {seen}")

    def folder(self, job):
        return self.state / "jobs" / job

    def records(self, job):
        """Where the adapter keeps what it knows of a job."""
        return self.state / "local" / job

    def shim(self, job):
        """The process that watches over a job, once it is known."""
        return read_object(self.records(job) / RUN_FILE).get("pid")

    def log(self, job):
        return lines(self.folder(job) / "log")


async def until(condition):
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)
    return found


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def processes_of(job):
    return carriers("ALLOCATOR_JOB_ID").get(job, [])
