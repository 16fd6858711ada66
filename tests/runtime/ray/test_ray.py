"""Jobs on a real Ray cluster of several nodes on this machine."""

from __future__ import annotations

import asyncio
import os
import uuid

import pytest

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.runtime.adapters.base import Placed, StartOrder
from allocator.runtime.adapters.ray import RayAdapter, RaySettings
from tests.runtime.contract import AdapterContract
from tests.runtime.test_contract import WithCommands


class OnRay(WithCommands):
    """A state folder, and adapters of one scheduler after the other."""

    def __init__(self, address, folder, **settings):
        self.settings = RaySettings(address, **settings)
        self.state, self.adapters = folder, []

    async def open(self):
        adapter = RayAdapter(self.state, self.settings)
        await adapter.open()
        self.adapters.append(adapter)
        return adapter

    async def leave(self):
        last = self.adapters[-1]
        while left := [one for one in await last.observe() if one.phase != "ended"]:
            for one in left:
                await last.kill(one.job, one.epoch)
            await asyncio.sleep(0.2)
        await asyncio.gather(*(last.forget(one.job) for one in await last.observe()))
        for adapter in self.adapters:
            await adapter.close()

    def folder_of(self, job):
        return self.state / "jobs" / job

    def order(self, kind, job="", epoch=1, places=None, **more):
        job = job or str(uuid.uuid4())
        folder = self.folder_of(job)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(folder / LEASE_FILE, Grant(job, epoch))
        node = min(self.adapters[-1]._rows.values(), key=lambda row: row["type"] != "V100")["name"]
        command = self.command(kind, folder) if isinstance(kind, str) else kind
        return StartOrder(job, epoch, command, Placed("v100", places or {node: (0,)}), folder, self.state, **more)


class TestRay(AdapterContract):
    @pytest.fixture
    def stage(self, tmp_path):
        yield OnRay(os.environ["RAYADDR"], tmp_path)
