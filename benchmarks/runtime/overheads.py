"""What the runtime costs: starting many jobs at once, a long queue, slow decisions, and the lease in a step."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from allocator.lease import Lease
from allocator.lease.files import CHECKPOINTS, EPOCH, JOB, LEASE_FILE, Grant, read_file, write_file
from allocator.presets import preset
from allocator.registry import get_policy
from allocator.runtime.adapters.local import LocalAdapter, virtual_accelerators
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.world import News, Verdict, World
from allocator.runtime.door.client import whole_status
from allocator.runtime.door.requests import Requests
from allocator.runtime.service import Service

Row = dict[str, Any]

_SLOW_SECONDS = 3.0
_WATCHED_SECONDS = 20.0


class SlowWorld(World):
    """Its decisions take seconds, as those of a large program may."""

    def decide(self, news: News) -> Verdict:
        """Wait, then decide."""
        time.sleep(_SLOW_SECONDS)
        return super().decide(news)


def measure(*, quick: bool, console: Console) -> list[Row]:
    """One row per figure: what, at which size, and seconds."""
    jobs, queued, steps = (20, 1_000, 20_000) if quick else (100, 10_000, 200_000)
    rows: list[Row] = []
    with console.status(f"{jobs} jobs at once"):
        rows += asyncio.run(_dispatch(jobs))
    for policy in ("fifo_perf", "max_min_fairness_perf"):
        with console.status(f"{queued} queued jobs under {policy}"):
            rows += asyncio.run(_queue(queued, policy, 5.0 if quick else _WATCHED_SECONDS))
    with console.status("a slow decision"):
        rows += asyncio.run(_slow_decision())
    with console.status("steps under a lease"):
        rows += _steps(steps)
    return rows


async def _serving(
    cluster: str, policy: str, round_seconds: float, use: Callable[[Service], Awaitable[list[Row]]], kind: type[World]
) -> list[Row]:
    """Open a service on virtual accelerators, use it, and end it with its jobs."""
    settings = preset("default").replace(round_seconds=round_seconds).mechanism
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        service = Service(state, LocalAdapter(state, virtual_accelerators(cluster)))

        def world(hardware: Hardware) -> World:
            return kind(hardware, get_policy(policy), settings)

        await service.open(world)
        running = asyncio.ensure_future(service.run())
        try:
            rows = await use(service)
        finally:
            service.cancel(list(service.book.active.values()))
            while service.book.holding:
                await asyncio.sleep(0.05)
            service.close()
            with suppress(asyncio.CancelledError):
                await running
        return rows


def _submit(service: Service, count: int, *command: str, **more: Any) -> None:
    told = {"command": list(command), "working_directory": "/", **more}
    service.submit([(uuid.uuid4().hex, told) for _ in range(count)])


async def _dispatch(jobs: int) -> list[Row]:
    """From submission and from the decision until all jobs run, as many as there are GPUs."""

    async def use(service: Service) -> list[Row]:
        began = time.perf_counter()
        _submit(service, jobs, "sleep", "60")
        while sum(job.state == "running" for job in service.book.by_id) < jobs:
            await asyncio.sleep(0.01)
        passed = time.perf_counter() - began
        at: Mapping[str, list[float]] = {
            kind: [event.at for event in service.journal.events() if event.kind == kind]
            for kind in ("decision", "running")
        }
        return [
            _row("jobs started, from submission until all run", jobs, [passed]),
            _row("jobs started, from the decision until all run", jobs, [max(at["running"]) - min(at["decision"])]),
        ]

    return await _serving(f"v100:{jobs}", "fifo_perf", 60.0, use, World)


async def _queue(jobs: int, policy: str, seconds: float) -> list[Row]:
    """Decisions and answers while a long queue waits for eight GPUs."""

    async def use(service: Service) -> list[Row]:
        for _ in range(0, jobs, 1000):
            _submit(service, 1000, "sleep", "3", total_steps=3)
        requests = Requests(service)
        answers, decisions, late = [], [], []
        until = time.perf_counter() + seconds
        serial = service.deciding.serial
        while time.perf_counter() < until:
            began = time.perf_counter()
            await asyncio.sleep(0.05)
            late.append(time.perf_counter() - began - 0.05)
            if service.deciding.serial != serial:
                serial = service.deciding.serial
                decisions.append(service.deciding.last_seconds)
            if len(answers) < 10:
                began = time.perf_counter()
                whole_status(lambda what, **more: requests.answer({"do": what, **more}), active=True)
                answers.append(time.perf_counter() - began)
        queued = f"{jobs:,} queued under {policy}"
        return [
            _row(f"status of all jobs, {queued}", jobs, answers),
            _row(f"decision, {queued}", jobs, decisions),
            _row(f"event loop late, {queued}", jobs, late),
        ]

    return await _serving("v100:4,k80:4", policy, 5.0, use, World)


async def _slow_decision() -> list[Row]:
    """How late a job that ends is noticed while a decision takes seconds: nothing waits for a solver."""

    async def use(service: Service) -> list[Row]:
        _submit(service, 4, "sleep", "60")
        while sum(job.state == "running" for job in service.book.by_id) < 4:
            await asyncio.sleep(0.01)
        late = []
        _submit(service, 1, "sleep", "60")
        for job in service.book.by_id[:4]:
            lease = service.watching.folder(job) / LEASE_FILE
            began = time.perf_counter()
            service.cancel([job])
            while not (grant := read_file(lease, Grant)) or not grant.ends:
                await asyncio.sleep(0.001)
            late.append(time.perf_counter() - began)
            await asyncio.sleep(0.3)
        return [_row(f"lease written while a decision takes {_SLOW_SECONDS:g} s", 4, late)]

    return await _serving("v100:4", "fifo_perf", 60.0, use, SlowWorld)


def _steps(count: int) -> list[Row]:
    """An empty training loop with a lease, less the same without a scheduler; CPU seconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        job = uuid.uuid4().hex
        (Path(folder) / "checkpoint").mkdir()
        write_file(Path(folder) / LEASE_FILE, Grant(job, 1))
        told = {JOB: job, EPOCH: "1", CHECKPOINTS: os.path.join(folder, "checkpoint")}
        each = []
        for _ in range(5):
            seconds = []
            for environment in (told, {}):
                lease = Lease(environment=environment)
                began = time.process_time()
                for _ in lease(range(count)):
                    lease.checkpoint_if_ending(Path.touch)
                seconds.append((time.process_time() - began) / count)
                lease.close()
            each.append(seconds[0] - seconds[1])
    return [_row("lease in a step, CPU time", count, each)]


def _row(what: str, size: int, seconds: Sequence[float]) -> Row:
    known = list(seconds) or [float("nan")]
    return {"what": what, "size": size, "median_seconds": statistics.median(known), "most_seconds": max(known)}


def table(rows: list[Row]) -> Table:
    """The rows for people."""
    shown = Table(title="What the runtime costs, wall time")
    for name in ("what", "median", "most"):
        shown.add_column(name, justify="left" if name == "what" else "right")
    for row in rows:
        shown.add_row(row["what"], _text(row["median_seconds"]), _text(row["most_seconds"]))
    return shown


def _text(seconds: float) -> str:
    return f"{1e6 * seconds:.1f} us" if seconds < 1e-3 else f"{1e3 * seconds:.0f} ms"
