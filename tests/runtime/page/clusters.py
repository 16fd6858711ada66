"""A service on a cluster in memory, its application without a network, and its web door on a loop in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import threading
import uuid
from dataclasses import dataclass

import pytest

from allocator.mechanism.settings import MechanismSettings
from allocator.registry import get_policy
from allocator.runtime.adapters.base import Node
from allocator.runtime.decisions.world import World
from allocator.runtime.door.requests import Requests
from allocator.runtime.page.access import Access
from allocator.runtime.page.app import Desk
from allocator.runtime.page.door import Door
from allocator.runtime.service import Service
from tests.runtime.model_cluster import ModelCluster, settle
from tests.runtime.worlds import PATIENCE

ACCESS = Access("a-token-of-some-length")
BEARER = {"authorization": "Bearer a-token-of-some-length"}


class Made(Service):
    """A service with the worlds that it is opened with."""

    table = None

    def __init__(self, folder, policy="fifo_perf"):
        super().__init__(folder, ModelCluster([Node("one", "v100", 2), Node("two", "k80", 2)], {}))
        self.policy = policy

    def world(self, hardware):
        return World(hardware, get_policy(self.policy), MechanismSettings(), self.table, None, 0)

    def settled(self, *jobs):
        """Open it, with jobs that it has decided on; they run until they are told to end."""

        async def go():
            await self.open(self.world)
            made = self.submit(jobs)
            await settle(self)
            return made

        return asyncio.run(go())

    def stop_clock(self):
        """From now on no time passes; what the clock shows."""
        now = self.clock()
        self.clock = lambda: now
        return now


def submission(name="train", steps=100.0, gpus=1, **more):
    data = {"command": ["train", "1", "deaf"], "name": name, "gpus": gpus, "total_steps": steps, "user": "ada"} | more
    return str(uuid.uuid4()), data


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)


class Asker:
    """Speaks with the application of a service as ``https://localhost``, and has no ideas of what may be asked."""

    def __init__(self, service, **more):
        self.desk = Desk(service, Requests(service), ACCESS, **more)
        self.app = self.desk

    def get(self, path, headers=None):
        return self.ask("GET", path, headers)

    def post(self, path, headers=None, *, content=b"", data=None):
        if data is not None:
            content, headers = json.dumps(data).encode(), {"content-type": "application/json"} | (headers or {})
        return self.ask("POST", path, headers, content)

    def ask(self, method, path, headers=None, content=b""):
        sent = {"host": "localhost"} | (headers or {})
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "https"}
        scope |= {"path": path, "raw_path": path.encode(errors="replace"), "root_path": "", "query_string": b""}
        scope |= {"server": ("localhost", 443), "client": ("127.0.0.1", 1)}
        coded = (value if isinstance(value, bytes) else value.encode("latin-1") for value in sent.values())
        scope["headers"] = list(zip((name.encode() for name in sent), coded, strict=True))
        pieces, told = [content[at : at + 65536] for at in range(0, len(content), 65536)] or [b""], []

        async def receive():
            if not pieces:
                # who has asked stays until it is answered
                await asyncio.Event().wait()
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        async def send(message):
            told.append(message)

        asyncio.run(self.app(scope, receive, send))
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in told[0]["headers"]}
        return Answer(told[0]["status"], named, b"".join(one.get("body", b"") for one in told[1:]))


class Live:
    """A service with its door, on a loop in a thread of its own."""

    def __init__(self, service, settings):
        self.service = service
        self.door = Door(service, Requests(service), settings)
        self.loop, self.ready = asyncio.new_event_loop(), threading.Event()

    async def main(self):
        await self.service.open(self.service.world)
        await self.door.open()
        self.ready.set()
        try:
            await self.service.run()
        finally:
            await self.door.close()

    def do(self, work):
        """Something on the loop."""

        async def go():
            return work()

        return self.wait(go())

    def submit(self, *jobs):
        return self.do(lambda: self.service.submit(jobs))

    def wait(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    @property
    def token(self):
        return (self.service.folder / "token").read_text().strip()

    @property
    def port(self):
        return int(self.door.url.rpartition(":")[2])


@contextlib.contextmanager
def live(folder, settings):
    one = Live(Made(folder), settings)
    thread = threading.Thread(target=one.loop.run_until_complete, args=(one.main(),))
    thread.start()
    assert one.ready.wait(PATIENCE)
    try:
        yield one
    finally:
        one.loop.call_soon_threadsafe(one.service.close)
        thread.join(PATIENCE)
        assert not thread.is_alive()
        one.loop.close()


def certificate(folder):
    """A certificate for this machine, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    files = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, "-out", str(files[0]), "-keyout", str(files[1])], check=True, capture_output=True)
    return files
