"""Studies of what the runtime costs, measured.

- `RUNTIME`: starting many jobs at once, a long queue, and slow decisions;
- `TRAINER_LEASE`: what a lease costs a training process, each step and now and then, and how soon its end is seen.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from allocator.lease import Grant, Lease, raise_epoch
from allocator.lease.files import CHECKPOINTS, EPOCH, JOB, LEASE_FILE, read_file, write_file
from allocator.presets import preset
from allocator.registry import get_policy
from allocator.runtime.adapters.base import Adapter
from allocator.runtime.adapters.local import LocalAdapter, virtual_accelerators
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.world import News, Verdict, World
from allocator.runtime.door.requests import Requests
from allocator.runtime.records.journal import Event
from allocator.runtime.service import Service
from allocator.studies.study import Options, Row, Run, Study, cpu_seconds
from allocator.studies.tables import Shown, duration

_SLOW_SECONDS = 3.0


class SlowWorld(World):
    """Its decisions take seconds, as those of a large program may."""

    def decide(self, news: News) -> Verdict:
        """Wait, then decide."""
        time.sleep(_SLOW_SECONDS)
        return super().decide(news)


def _runtime(options: Options) -> Iterator[Run]:
    jobs, queued, watched = (20, 1_000, 5.0) if options.quick else (100, 10_000, 20.0)
    yield {"part": f"{jobs} jobs at once"}, partial(_awaited, dispatch, jobs, f"v100:{jobs}")
    for policy in ("fifo_perf", "max_min_fairness_perf"):
        yield {"part": f"{queued} queued jobs"}, partial(_awaited, _queue, queued, policy, watched)
    yield {"part": "a slow decision"}, lambda: asyncio.run(_slow_decision())


def _awaited(call: Callable[..., Any], *arguments: Any) -> list[Row]:
    rows: list[Row] = asyncio.run(call(*arguments))
    return rows


async def serving(
    cluster: str | Callable[[Path], Adapter],
    policy: str,
    round_seconds: float,
    use: Callable[[Service], Awaitable[list[Row]]],
    kind: type[World] = World,
) -> list[Row]:
    """Open a service on virtual accelerators, or by an adapter for its folder, use it, and end it with its jobs."""
    settings = preset("default").replace(round_seconds=round_seconds).mechanism
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        virtual = isinstance(cluster, str)
        service = Service(state, LocalAdapter(state, virtual_accelerators(cluster)) if virtual else cluster(state))

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


def submit(service: Service, count: int, *command: str, **more: Any) -> None:
    told = {"command": list(command), "working_directory": "/", **more}
    service.submit([(uuid.uuid4().hex, told) for _ in range(count)])


async def dispatch(jobs: int, cluster: str | Callable[[Path], Adapter]) -> list[Row]:
    """From submission and from the decision until all jobs run, as many as there are GPUs."""

    async def use(service: Service) -> list[Row]:
        began = time.perf_counter()
        submit(service, jobs, "sleep", "60")
        while sum(job.state == "running" for job in service.book.by_id) < jobs:
            await asyncio.sleep(0.01)
        passed = time.perf_counter() - began
        at: Mapping[str, list[float]] = {
            kind: [event.at for event in service.journal.events() if event.kind == kind]
            for kind in ("decision", "running")
        }
        decided = max(at["running"]) - min(at["decision"])
        told = {"submission": passed, "the decision": decided}
        return [row for name, s in told.items() for row in _rows(f"jobs started, from {name} until all run", jobs, [s])]

    return await serving(cluster, "fifo_perf", 60.0, use)


async def _queue(jobs: int, policy: str, seconds: float) -> list[Row]:
    """Decisions and answers while a long queue waits for eight GPUs."""

    async def use(service: Service) -> list[Row]:
        for _ in range(0, jobs, 1000):
            submit(service, 1000, "sleep", "3", total_steps=3)
        requests = Requests(service)
        answers, late = [], []
        decisions: list[float] = []
        until = time.perf_counter() + seconds

        def decided(event: Event) -> None:
            if event.kind == "decision":
                decisions.append(service.deciding.last_seconds)

        service.listeners.append(decided)
        while time.perf_counter() < until:
            began = time.perf_counter()
            await asyncio.sleep(0.05)
            late.append(time.perf_counter() - began - 0.05)
            if len(answers) < 10:
                began = time.perf_counter()
                requests.answer({"do": "status", "active": True})
                answers.append(time.perf_counter() - began)
        queued = f"{jobs:,} queued under {policy}"
        told = {"status of all jobs": answers, "decision": decisions, "event loop late": late}
        return [row for name, each in told.items() for row in _rows(f"{name}, {queued}", jobs, each)]

    return await serving("v100:4,k80:4", policy, 5.0, use, World)


async def _slow_decision() -> list[Row]:
    """How late a job that ends is noticed while a decision takes seconds: nothing waits for a solver."""

    async def use(service: Service) -> list[Row]:
        submit(service, 4, "sleep", "60")
        while sum(job.state == "running" for job in service.book.by_id) < 4:
            await asyncio.sleep(0.01)
        late = []
        submit(service, 1, "sleep", "60")
        for job in service.book.by_id[:4]:
            lease = service.watching.folder(job) / LEASE_FILE
            began = time.perf_counter()
            service.cancel([job])
            while not (grant := read_file(lease, Grant)) or not grant.ends:
                await asyncio.sleep(0.001)
            late.append(time.perf_counter() - began)
            await asyncio.sleep(0.3)
        return _rows(f"lease written while a decision takes {_SLOW_SECONDS:g} s", 4, late)

    return await serving("v100:4", "fifo_perf", 60.0, use, SlowWorld)


def _rows(what: str, size: int, seconds: Sequence[float]) -> list[Row]:
    return [{"what": what, "size": size, "seconds": each} for each in seconds]


RUNTIME = Study(
    "What the runtime costs, wall time",
    _runtime,
    by=("what",),
    shown={name: Shown("seconds", duration, over=over) for name, over in (("median", "median"), ("most", "max"))},
)


# A lease in a training process

LOADED = 1 << 20
"""Bytes of the checkpoint that is timed: what is left of it is the commit."""


def _trainer_lease(options: Options) -> Iterator[Run]:
    yield {"part": "leases of trainers"}, partial(_costs, *((20_000, 3) if options.quick else (200_000, 9)))


def _costs(steps: int, repetitions: int) -> list[Row]:
    """Microseconds of CPU, or of waiting where the disk or the other side is waited for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        raise_epoch(folder, Grant("job", 1))
        variables = {JOB: "job", EPOCH: "1", CHECKPOINTS: str(folder / "checkpoint")}
        outside, alone = Lease(environment={}), Lease(environment=variables)
        of_two = Lease(environment=variables | {"WORLD_SIZE": "2"})
        plain = _per_step(iter, steps, repetitions)
        costs = {
            "a step outside the scheduler": _per_step(outside, steps, repetitions) - plain,
            "a step of one process": _per_step(alone, steps, repetitions) - plain,
            "a step of one of two ranks that agree by a file": _per_step(of_two, steps, repetitions) - plain,
            "a look at an unchanged lease, at most every 50 ms": _look(alone, repetitions),
            "giving a report to be written, at most every 500 ms": _give(alone, repetitions),
            "writing one": _calls(alone.report_now, 200, repetitions),
            "a checkpoint of 1 MiB, the disk's time included": _checkpoint(alone, repetitions),
            "from the end of the lease to that of the loop": _notice(alone, folder),
        }
        of_two.close()
        alone.close()
    return [{"what": what, "microseconds": cost} for what, cost in costs.items()]


def _per_step(wrap: Callable[[Iterable[int]], Iterable[int]], steps: int, repetitions: int) -> float:
    def loop() -> None:
        for _ in wrap(range(steps)):
            pass

    return 1e6 * cpu_seconds(loop, repetitions) / steps


def _calls(call: Callable[[], object], times: int, repetitions: int) -> float:
    return 1e6 * cpu_seconds(lambda: [call() for _ in range(times)], repetitions) / times


def _look(lease: Lease, repetitions: int) -> float:
    """Looks at times of which each is due, and none is so late that the file would be read anew."""
    now = time.monotonic()
    lease._watch._look(now)
    return _calls(lambda: lease._watch._look(now), 2000, repetitions)


def _give(lease: Lease, repetitions: int) -> float:
    """Time of the clock and not of the processor, which is the writing thread's as well; most are left unwritten."""
    times = []
    for _ in range(100 * repetitions):
        time.sleep(0.001)
        began = time.perf_counter()
        lease._reporter.write_soon(lease._take_stock())
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times)


def _checkpoint(lease: Lease, repetitions: int) -> float:
    content = os.urandom(LOADED)
    times = []
    for _ in range(repetitions):
        began = time.monotonic()
        lease.checkpoint(lambda folder: (folder / "model").write_bytes(content))
        times.append(time.monotonic() - began)
    return 1e6 * statistics.median(times)


def _notice(lease: Lease, folder: Path) -> float:
    """In the middle of steps of a millisecond."""
    began = float("nan")
    for batch in lease(range(10**6)):
        time.sleep(0.001)
        if batch == 100:
            write_file(folder / LEASE_FILE, Grant("job", 1, ends=True))
            began = time.monotonic()
    return 1e6 * (time.monotonic() - began)


TRAINER_LEASE = Study(
    "What a lease costs a training process",
    _trainer_lease,
    by=("what",),
    shown={"microseconds": Shown("microseconds", ",.2f")},
)
