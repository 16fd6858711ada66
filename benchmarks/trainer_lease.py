"""What a lease costs a training process: each step, what it does now and then, and how soon its end is seen."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from allocator.lease import Grant, Lease, raise_epoch
from allocator.lease.files import CHECKPOINTS, EPOCH, JOB, LEASE_FILE, write_file
from benchmarks.timing import cpu_seconds

LOADED = 1 << 20
"""Bytes of the checkpoint that is timed: what is left of it is the commit."""


def measure(*, quick: bool, console: Console) -> list[dict[str, Any]]:
    """One row per operation: microseconds of CPU, or of waiting where the disk or the other side is waited for."""
    steps, repetitions = (20_000, 3) if quick else (200_000, 9)
    with tempfile.TemporaryDirectory() as name, console.status("leases of trainers"):
        folder = Path(name)
        raise_epoch(folder, Grant("job", 1))
        variables = {JOB: "job", EPOCH: "1", CHECKPOINTS: str(folder / "checkpoint")}
        outside, alone = Lease(environment={}), Lease(environment=variables)
        of_two = Lease(environment=variables | {"WORLD_SIZE": "2"})
        plain = _per_step(iter, steps, repetitions)
        rows = [
            {"what": f"a step {where}", "microseconds": _per_step(lease, steps, repetitions) - plain}
            for where, lease in (
                ("outside the scheduler", outside),
                ("of one process", alone),
                ("of one of two ranks that agree by a file", of_two),
            )
        ]
        rows += [
            {"what": "a look at an unchanged lease, at most every 50 ms", "microseconds": _look(alone, repetitions)},
            {"what": "giving a report to be written, at most every 500 ms", "microseconds": _give(alone, repetitions)},
            {"what": "writing one", "microseconds": _calls(alone.report_now, 200, repetitions)},
            {
                "what": "a checkpoint of 1 MiB, the disk's time included",
                "microseconds": _checkpoint(alone, repetitions),
            },
            {"what": "from the end of the lease to that of the loop", "microseconds": _notice(alone, folder)},
        ]
        of_two.close()
        alone.close()
    return rows


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
            write_file(folder / LEASE_FILE, Grant("job", 1, serial=1, ends=True))
            began = time.monotonic()
    return 1e6 * (time.monotonic() - began)


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    shown = Table(title="What a lease costs a training process")
    shown.add_column("what")
    shown.add_column("microseconds", justify="right")
    for row in rows:
        shown.add_row(row["what"], f"{row['microseconds']:,.2f}")
    return shown
