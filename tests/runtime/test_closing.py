"""The end of a service, in order: nobody comes in, answers under way are finished, then the journal is closed."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest

from allocator.runtime.door import server as door
from allocator.runtime.door.requests import Requests
from allocator.runtime.door.server import Server
from tests.runtime.model_cluster import service_on, two_types

JOB = {"command": ["train", "5"], "working_directory": "/", "environment": {"LONG": "x" * 60_000}}


async def serving(folder, jobs=0):
    """A service that answers, and what the event loop has taken for errors since."""
    errors = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: errors.append(told))
    service = await service_on(folder, two_types())
    service.submit((uuid.uuid4().hex, JOB) for _ in range(jobs))
    server = Server(folder, Requests(service))
    await server.start()
    service.doors = [server]
    return service, errors


async def connected(folder):
    return await asyncio.open_unix_connection(folder / "socket", limit=1 << 30)


async def test_connections_that_ask_nothing_are_let_go_before_the_journal_closes(tmp_path):

    service, errors = await serving(tmp_path)
    connections = [await connected(tmp_path) for _ in range(3)]
    reader, writer = connections[0]
    writer.write(b'{"do": "status"}\n')
    assert json.loads(await reader.readline())["ok"]
    connections[1][1].write(b'{"do": "sta')
    await asyncio.sleep(0.05)
    closed_with = []
    close = service.journal.close
    service.journal.close = lambda: (closed_with.append(len(service.doors[0]._open)), close())[1]
    await asyncio.wait_for(service._finish(), 60.0)
    assert closed_with == [0]
    for reader, writer in connections:
        writer.write(b'{"do": "history"}\n')
        assert await reader.read() == b""
    with pytest.raises(FileNotFoundError, match="No such file"):
        await connected(tmp_path)
    assert errors == []


async def test_an_answer_under_way_is_finished(tmp_path):

    service, errors = await serving(tmp_path, jobs=200)
    reader, writer = await connected(tmp_path)
    writer.write(b'{"do": "history", "last": 1000}\n')
    while not service.doors[0]._open or not any(service.doors[0]._open.values()):
        await asyncio.sleep(0)
    ending = asyncio.ensure_future(service._finish())
    answer = json.loads(await reader.readline())
    assert len(answer["events"]) == 201
    await ending
    assert errors == []


async def test_who_does_not_take_an_answer_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(door, "_TO_CLOSE", 0.2)

    service, errors = await serving(tmp_path, jobs=200)
    _, writer = await asyncio.open_unix_connection(tmp_path / "socket", limit=1024)
    writer.write(b'{"do": "history", "last": 1000}\n')
    await asyncio.sleep(0.1)
    await asyncio.wait_for(service._finish(), 60.0)
    assert errors == []
