"""Jobs as the scheduler would order them, for tests of the local adapter."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.runtime.adapters.base import Seen, StartOrder
from allocator.runtime.adapters.local import LocalAdapter, virtual_accelerators
from allocator.runtime.adapters.local.folder import RUN_FILE, number_in
from allocator.runtime.adapters.local.processes import carriers

PYTHON = (sys.executable, "-I", "-S", "-c")
PATIENCE = 120.0


def new_job(state: Path) -> str:
    """The folder of a job, as the scheduler makes it."""
    job = str(uuid.uuid4())
    (state / "jobs" / job).mkdir(mode=0o700, parents=True)
    return job


def order(state: Path, job: str, *command: str, epoch: int = 1, gpus: int = 1, **more: Any) -> StartOrder:
    """A start, with the lease that goes with it."""
    folder = state / "jobs" / job
    write_file(folder / LEASE_FILE, Grant(job, epoch))
    return StartOrder(
        job=job,
        epoch=epoch,
        command=command or ("sleep", "600"),
        gpus={"local-v100": tuple(range(gpus))},
        accelerator="v100",
        folder=folder,
        working_directory=more.pop("working_directory", state),
        **more,
    )


async def opened(state: Path, virtual: str = "v100:4,k80:2", **more: Any) -> LocalAdapter:
    adapter = LocalAdapter(state, virtual_accelerators(virtual), **more)
    await adapter.open()
    return adapter


async def seen_of(adapter: LocalAdapter, job: str) -> Seen | None:
    return next((seen for seen in await adapter.observe() if seen.job == job), None)


async def ended(adapter: LocalAdapter, job: str, epoch: int | None = None) -> Seen:
    """Wait for the end of the last start of a job; of the one in this `epoch`, where that of another is still told."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        seen = await seen_of(adapter, job)
        if seen and seen.phase == "ended" and epoch in (None, seen.epoch):
            return seen
        await asyncio.sleep(0.01)
    raise AssertionError(f"not ended: {seen}")


async def until(condition: Callable[[], Any]) -> Any:
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)
    return found


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def processes_of(job: str) -> list[int]:
    return carriers("ALLOCATOR_JOB_ID").get(job, [])


def shim_of(state: Path, job: str) -> int:
    return number_in(str(records_of(state, job) / RUN_FILE), "pid") or 0


def records_of(state: Path, job: str) -> Path:
    """The folder of what the adapter keeps of a job."""
    return state / "local" / job
