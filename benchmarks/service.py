"""A service with many jobs that wait: what a decision takes, and what holds its event loop up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from allocator.presets import preset
from allocator.registry import get_policy
from allocator.runtime.adapters.base import Adapter, Node, Seen, StartOrder
from allocator.runtime.requests import Requests
from allocator.runtime.service import Service
from allocator.runtime.world import World

JOBS = (1_000, 10_000)
POLICIES = ("fifo_perf", "max_min_fairness_perf")
GPUS = 64
"""Of each of two types."""

Made = TypeVar("Made")


class StillCluster(Adapter):
    """Starts jobs that never end, at once."""

    name = "still"

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to leave."""

    async def nodes(self) -> Sequence[Node]:
        """Two servers."""
        return [Node("v", "v100", GPUS), Node("k", "k80", GPUS)]

    async def observe(self) -> Sequence[Seen]:
        """All that was started."""
        return list(self._seen.values())

    async def start(self, order: StartOrder) -> None:
        """It runs."""
        self._seen[order.job] = Seen(order.job, order.epoch, "running")

    async def stop(self, job: str, epoch: int) -> None:
        """It has ended."""
        self._seen[job] = Seen(job, epoch, "ended", 0)

    async def kill(self, job: str, epoch: int) -> None:
        """It has ended."""
        await self.stop(job, epoch)

    async def forget(self, job: str) -> None:
        """It is not seen any more."""
        self._seen.pop(job, None)


def measure(*, quick: bool, console: Console) -> list[dict[str, Any]]:
    """One row per number of jobs and policy."""
    rows = []
    for jobs in JOBS[:1] if quick else JOBS:
        for policy in POLICIES:
            with console.status(f"{jobs} jobs, {policy}"), TemporaryDirectory() as folder:
                rows.append(asyncio.run(measure_one(Path(folder), jobs, policy)))
    return rows


async def measure_one(folder: Path, jobs: int, policy: str) -> dict[str, Any]:
    """Submit jobs, let them be decided about and some of them start, and ask for the status of all."""
    mechanism = preset("default").replace(round_seconds=3600.0).mechanism
    service = Service(folder, StillCluster())
    await service.open(lambda hardware: World(hardware.cluster, get_policy(policy), mechanism))
    job = {"command": ["train"], "working_directory": "/", "total_steps": 1000.0}
    row: dict[str, Any] = {"jobs": jobs, "policy": policy}
    _, row["submit_seconds"] = timed(lambda: service.submit((uuid4().hex, job) for _ in range(jobs)))
    while len(service.book.holding) < 2 * GPUS or any(one.state == "starting" for one in service.book.holding.values()):
        await service.look()
        await asyncio.sleep(0.01)
    row["decision_seconds"] = service.deciding.last_seconds
    looks = []
    for _ in range(5):
        began = time.process_time()
        await service.look()
        looks.append(time.process_time() - began)
    row["look_seconds"] = min(looks)
    row["status_seconds"], row["status_longest"] = min(status_pieces(Requests(service)) for _ in range(5))
    service.close()
    await service.run()
    return row


def status_pieces(requests: Requests) -> tuple[float, float]:
    """CPU seconds of the status of all jobs, and of its longest piece, after which others have their turn."""
    pieces: Iterator[str] = requests.pieces({"do": "status"})
    taken = []
    while True:
        piece, seconds = timed(lambda: next(pieces, None))
        taken.append(seconds)
        if piece is None:
            return sum(taken), max(taken)


def timed(make: Callable[[], Made]) -> tuple[Made, float]:
    """What is made, and the CPU seconds that it took."""
    began = time.process_time()
    made = make()
    return made, time.process_time() - began


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """For a terminal."""
    shown = Table(title=f"A service with {2 * GPUS} GPUs; milliseconds of CPU time, of decisions as they pass")
    for name in ("jobs", "policy", "submit", "decision", "look", "status", "its longest piece"):
        shown.add_column(name, justify="left" if name == "policy" else "right")
    for row in rows:
        times = [f"{1000 * row[name]:.1f}" for name in _TIMES]
        shown.add_row(f"{row['jobs']:,}", row["policy"], *times)
    return shown


_TIMES = ("submit_seconds", "decision_seconds", "look_seconds", "status_seconds", "status_longest")
