"""Jobs as a scheduler orders them, and what became of them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import uuid
from pathlib import Path
from unittest import mock

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.runtime.adapters.base import Placed, StartOrder
from allocator.runtime.adapters.slurm import SlurmAdapter
from tests.runtime.slurm.cluster import LIMIT

TRAINER = Path(__file__).with_name("trainer.py")


class Jobs:
    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder
        folder.mkdir(parents=True)

    async def open(self):
        """As a scheduler that is started."""
        with mock.patch.dict(os.environ, {"SLURM_CONF": str(self.cluster.configuration)}):
            self.adapter = SlurmAdapter(self.folder)
        await self.adapter.open()
        return self.adapter

    def order(
        self, epoch=1, nodes=("v1",), *, job="", gpus=1, command=(), ending="save", steps=100_000, lease=None, **others
    ):
        """An order, with the lease that goes with it: of the same epoch unless another is given."""
        job = job or str(uuid.uuid4())
        folder = self.folder / job
        folder.mkdir(mode=0o700, exist_ok=True)
        write_file(folder / LEASE_FILE, Grant(job, epoch if lease is None else lease))
        places = {node: tuple(range(gpus)) for node in nodes}
        words = tuple(command) or (sys.executable, str(TRAINER), str(steps), ending)
        kind = self.cluster.nodes[nodes[0]][0]
        return StartOrder(job, epoch, words, Placed(kind, places), folder, self.folder, **others)

    async def start(self, epoch=1, nodes=("v1",), *, trains=True, **others):
        """Start a job, and unless it is no trainer wait until it makes steps."""
        order = self.order(epoch, nodes, **others)
        await self.adapter.start(order)
        if trains:
            await holds(lambda: self.steps_of(order.job, epoch) > 3, "it makes steps")
        return order

    def trace(self, job, rank=0):
        """(Epoch, node, step) of each step."""
        path = self.folder / job / f"trace.{rank}"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(int(epoch), node, int(step)) for epoch, node, step, _ in lines]

    def steps_of(self, job, epoch):
        return sum(line[0] == epoch for line in self.trace(job))

    def never_two(self, job):
        """Whether no earlier copy made a step after a later one."""
        epochs = [line[0] for line in self.trace(job)]
        return epochs == sorted(epochs)

    def slurm_jobs(self, job):
        """What Slurm has of a job, told by its name."""
        rows = json.loads(self.cluster.run("squeue", "--json"))["jobs"]
        return [row for row in rows if row["name"].startswith(f"allocator-{job}-")]

    def log(self, job):
        return (self.folder / job / "log").read_text()


async def holds(condition, what):
    """Wait for something."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + LIMIT, what
        await asyncio.sleep(0.05)
