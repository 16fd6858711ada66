"""Jobs as a scheduler orders them, and what became of them."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from pathlib import Path

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.runtime.adapters.base import StartOrder
from allocator.runtime.adapters.slurm import SlurmAdapter, SlurmSettings
from tests.runtime.slurm.cluster import LIMIT

TRAINER = Path(__file__).with_name("trainer.py")


class Jobs:
    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder
        folder.mkdir(parents=True)

    def adapter(self, **settings):
        """As a scheduler makes it when it starts."""
        chosen = SlurmSettings(configuration=str(self.cluster.configuration), **settings)
        return SlurmAdapter(self.folder, chosen)

    def order(
        self,
        epoch=1,
        nodes=("v1",),
        *,
        job="",
        gpus=1,
        command=(),
        steps=100_000,
        ending="save",
        lease=None,
        **others,
    ):
        """An order, with the lease that goes with it: of the same epoch unless another is given."""
        job = job or str(uuid.uuid4())
        folder = self.folder / job
        folder.mkdir(mode=0o700, exist_ok=True)
        write_file(folder / LEASE_FILE, Grant(job, epoch if lease is None else lease))
        places = {node: tuple(range(gpus)) for node in nodes}
        words = tuple(command) or (sys.executable, str(TRAINER), str(steps), ending)
        kind = self.cluster.nodes[nodes[0]][0]
        return StartOrder(job, epoch, words, places, kind, folder, self.folder, **others)

    def trace(self, job, rank=0):
        """(Epoch, node, step, time) of each step."""
        path = self.folder / job / f"trace.{rank}"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(int(epoch), node, int(step), float(at)) for epoch, node, step, at in lines]

    def steps_of(self, job, epoch):
        return sum(line[0] == epoch for line in self.trace(job))

    def slurm_jobs(self, job):
        """What Slurm has of a job, told by its name."""
        rows = json.loads(self.cluster.run("squeue", "--json"))["jobs"]
        return [row for row in rows if row["name"] == f"allocator-{job}"]

    def log(self, job):
        return (self.folder / job / "log").read_text()


async def seen(adapter, job):
    return {one.job: one for one in await adapter.observe()}.get(job)


async def until(adapter, order, phase):
    """Wait for a phase of this epoch."""
    one = None
    begun = time.monotonic()
    while time.monotonic() < begun + LIMIT:
        one = await seen(adapter, order.job)
        if one is not None and (one.epoch, one.phase) == (order.epoch, phase):
            return one
        await asyncio.sleep(0.03)
    log = order.folder / "log"
    raise AssertionError(f"{phase}: not seen, but {one}; {log.read_text()[-2000:] if log.exists() else 'no output'}")


async def holds(condition, what):
    """Wait for anything else."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + LIMIT, what
        await asyncio.sleep(0.03)


def run(work):
    asyncio.run(asyncio.wait_for(work, 3 * LIMIT))
