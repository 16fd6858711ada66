"""Services on a cluster in memory, from their start to what looks like a kill."""

from __future__ import annotations

import uuid
from pathlib import Path

from allocator.runtime.service import Service
from allocator.runtime.settings import ServiceSettings
from tests.runtime.model_cluster import ModelCluster, run_on, service_on, settle

QUICK = ServiceSettings(grace_seconds=5.0, notice_seconds=2.0, retries=4, max_fruitless=4)


def submit(service: Service, *jobs: dict[str, object]) -> None:
    service.submit((uuid.uuid4().hex, one) for one in jobs)


def states(service: Service) -> list[str]:
    return [one.state for one in service.book.by_id]


async def started(
    folder: Path, cluster: ModelCluster, *jobs: dict[str, object], policy: str = "fifo_perf", until: float = 5.0
) -> Service:
    """A service whose jobs have run for some seconds."""
    service = await service_on(folder, cluster, policy, QUICK)
    submit(service, *jobs)
    await settle(service)
    await run_on(service, cluster, cluster.clock + until)
    return service


async def leave(service: Service) -> None:
    """The service ends as if killed."""
    for task in service._dispatch.tasks.values():
        task.cancel()
    service.deciding.abandon()
    service.journal.close()
