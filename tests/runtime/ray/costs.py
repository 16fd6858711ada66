"""What the service costs on a Ray cluster on this machine: ``python -m benchmarks tests/runtime/ray/costs.py``."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from allocator.runtime.adapters.ray import RayAdapter
from allocator.runtime.service import Service
from allocator.studies.study import Options, Row, Run, Study
from allocator.studies.tables import Shown, duration
from benchmarks.runtime.overheads import dispatch, serving, submit


@contextmanager
def ray_cluster(nodes: int, gpus: int) -> Iterator[str]:
    """The address of a cluster of nodes with so many logical GPUs each, as long as it is used."""
    from ray.cluster_utils import Cluster

    told: dict[str, Any] = {"num_cpus": 2, "num_gpus": gpus, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=told)
    try:
        for _ in range(nodes - 1):
            cluster.add_node(num_cpus=2, num_gpus=gpus)
        yield cluster.address
    finally:
        cluster.shutdown()


def _ray(options: Options) -> Iterator[Run]:
    jobs, queued, seconds = (10, 100, 5.0) if options.quick else (100, 1_000, 30.0)
    yield {"part": f"{jobs} jobs at once"}, partial(_measured, jobs, queued, seconds)


def _measured(jobs: int, queued: int, seconds: float) -> list[Row]:
    with ray_cluster(2, (jobs + 1) // 2) as address:

        def adapter(state: Path) -> RayAdapter:
            return RayAdapter(state, address)

        # the first time Ray starts processes that stay
        again = [row for _ in range(3) for row in asyncio.run(dispatch(jobs, adapter))]
        return again + asyncio.run(_load(jobs, queued, seconds, adapter))


async def _load(jobs: int, queued: int, seconds: float, adapter: Any) -> list[Row]:
    """Parts of a core that the service takes, and the process that is connected to Ray, while jobs run and wait."""

    async def use(service: Service) -> list[Row]:
        submit(service, jobs + queued, "sleep", "600")
        while sum(job.state == "running" for job in service.book.by_id) < jobs:
            await asyncio.sleep(0.1)
        await asyncio.sleep(5.0)
        bridge = service.adapter._connection._process.pid
        names = {"service": os.getpid(), "process that is connected to Ray": bridge}
        before = {name: _cpu_seconds(pid) for name, pid in names.items()}
        began = time.perf_counter()
        await asyncio.sleep(seconds)
        passed = time.perf_counter() - began
        return [
            {"what": f"CPU of the {name} in a second, {queued:,} queued", "size": jobs, "seconds": used / passed}
            for name, pid in names.items()
            for used in [_cpu_seconds(pid) - before[name]]
        ]

    return await serving(adapter, "fifo", 60.0, use)


def _cpu_seconds(pid: int) -> float:
    told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


STUDY = Study(
    "What the service costs on Ray, wall time",
    _ray,
    by=("what",),
    shown={name: Shown("seconds", duration, over=over) for name, over in (("median", "median"), ("most", "max"))},
)
