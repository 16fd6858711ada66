"""A service on a cluster that is only imagined, and its web door on a loop in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import threading
import uuid

import pytest

from allocator.mechanism.settings import MechanismSettings
from allocator.registry import get_policy
from allocator.runtime.adapters.base import Adapter, Node, Seen
from allocator.runtime.decisions.world import World
from allocator.runtime.door.requests import Requests
from allocator.runtime.page.door import Door
from allocator.runtime.service import Service
from allocator.runtime.settings import ServiceSettings
from tests.runtime.model_cluster import settle
from throughputs import ThroughputTable

PATIENCE = 120.0


class Imagined(Adapter):
    """Jobs run until they are told to end."""

    name = "imagined"

    def __init__(self, nodes):
        self._nodes = tuple(nodes)
        self.seen = {}
        self.orders = {}

    async def open(self):
        return

    async def close(self):
        return

    async def nodes(self):
        return self._nodes

    async def observe(self):
        return list(self.seen.values())

    async def start(self, order):
        self.orders[order.job] = order
        self.seen[order.job] = Seen(order.job, order.epoch, "running")

    async def stop(self, job, epoch):
        self.seen[job] = Seen(job, epoch, "ended", 0)

    async def kill(self, job, epoch):
        self.seen[job] = Seen(job, epoch, "ended", None, 9)

    async def forget(self, job):
        self.seen.pop(job, None)


NODES = (Node("one", "v100", 2), Node("two", "k80", 2))


class Made(Service):
    """A service with the worlds that it is opened with."""

    policy = "fifo_perf"
    table: ThroughputTable | None = None

    def world(self, hardware):
        return World(hardware.cluster, get_policy(self.policy), MechanismSettings(), self.table, None, 0)


def make_service(folder, policy="fifo_perf", **settings):
    made = Made(folder, Imagined(NODES), ServiceSettings(**settings))
    made.policy = policy
    return made


def submission(name="train", steps=100.0, gpus=1, **more):
    data = {"command": ["train"], "name": name, "gpus": gpus, "total_steps": steps, "user": "ada"} | more
    return str(uuid.uuid4()), data


def stop_clock(service):
    """From now on no time passes for a service; returns what its clock shows."""
    now = service.clock()
    service.clock = lambda: now
    return now


def settled(service, *jobs):
    """A service with jobs that it has decided on."""

    async def go():
        await service.open(service.world)
        made = service.submit(jobs)
        await settle(service)
        return made

    return asyncio.run(go())


class Live:
    """A service with its door, on a loop in a thread of its own."""

    def __init__(self, service, settings):
        self.service = service
        self.door = Door(service, Requests(service), settings)
        self.loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self.loop.run_until_complete, args=(self._main(),))

    async def _main(self):
        await self.service.open(self.service.world)
        await self.door.open()
        self._ready.set()
        try:
            await self.service.run()
        finally:
            await self.door.close()

    def start(self):
        self._thread.start()
        assert self._ready.wait(PATIENCE)

    def close(self):
        self.loop.call_soon_threadsafe(self.service.close)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self.loop.close()

    def do(self, work):
        """Something on the loop."""

        async def go():
            return work()

        return self.wait(go())

    def wait(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    @property
    def token(self):
        return (self.service.folder / "token").read_text().strip()

    @property
    def port(self):
        return int(self.door.url.rpartition(":")[2])


@contextlib.contextmanager
def live(service, settings):
    one = Live(service, settings)
    one.start()
    try:
        yield one
    finally:
        one.close()


def certificate(folder):
    """A certificate for this machine, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    files = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, "-out", str(files[0]), "-keyout", str(files[1])], check=True, capture_output=True)
    return files
