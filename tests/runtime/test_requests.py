"""Requests: good ones are answered, bad ones are told what is wrong with them, and none does harm."""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import stat
import threading
import time
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocator.presets import preset
from allocator.protocol.entities import Entities
from allocator.registry import get_policy
from allocator.runtime.decisions.world import World
from allocator.runtime.door.client import Client, NoServiceError, whole_status
from allocator.runtime.door.requests import Requests
from allocator.runtime.door.server import Server
from allocator.runtime.records.journal import Event
from allocator.runtime.settings import ServiceSettings
from tests.runtime.model_cluster import service_on, settle, two_types
from throughputs import InputError

PATIENCE = 120.0
GOOD = {"command": ["train", "5"], "working_directory": "/", "gpus": 1}


@pytest.fixture
def requests(tmp_path):
    loop = asyncio.new_event_loop()
    cluster = two_types()
    cluster.clock = 5.0
    service = loop.run_until_complete(service_on(tmp_path, cluster, settings=ServiceSettings(max_jobs=50)))
    yield Requests(service)
    loop.run_until_complete(service._finish())
    loop.close()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ([], "an object with a field do"),
        ({}, "field 'do': found nothing"),
        ({"do": "explode"}, "found 'explode', expected one of submit"),
        ({"do": "submit"}, "field 'jobs'"),
        ({"do": "submit", "jobs": [1]}, "expected objects"),
        ({"do": "submit", "jobs": [{}]}, "a command with its arguments"),
        ({"do": "submit", "jobs": [GOOD | {"command": "train"}]}, "a list of arguments"),
        ({"do": "submit", "jobs": [GOOD | {"command": [""]}]}, "a list of arguments"),
        ({"do": "submit", "jobs": [GOOD | {"command": ["a\0b"]}]}, "field 'command'"),
        ({"do": "submit", "jobs": [GOOD | {"command": ["a", "\ud800"]}]}, "field 'command'"),
        ({"do": "submit", "jobs": [GOOD | {"command": ["a", "é" * 40_000]}]}, "at most 65536 bytes"),
        ({"do": "submit", "jobs": [GOOD | {"working_directory": "/\ud800"}]}, "field 'working_directory'"),
        ({"do": "submit", "jobs": [GOOD | {"environment": {"\ud800": "1"}}]}, "field 'environment'"),
        ({"do": "submit", "jobs": [GOOD | {"environment": {"A": "\ud800"}}]}, "environment A"),
        ({"do": "submit", "jobs": [GOOD | {"name": "a\nb"}]}, "one line, without control characters"),
        ({"do": "submit", "jobs": [GOOD | {"job_type": "\x1b[2J"}]}, "one line, without control characters"),
        ({"do": "submit", "jobs": [GOOD | {"gpus": 0}]}, "field 'gpus': found 0, expected a whole number from 1"),
        ({"do": "submit", "jobs": [GOOD | {"gpus": True}]}, "field 'gpus'"),
        ({"do": "submit", "jobs": [GOOD | {"total_steps": -1}]}, "a number above 0"),
        ({"do": "submit", "jobs": [GOOD | {"total_steps": float("nan")}]}, "a number above 0"),
        ({"do": "submit", "jobs": [GOOD | {"deadline": 1e-9}]}, "field 'deadline'"),
        ({"do": "submit", "jobs": [GOOD | {"working_directory": "here"}]}, "an absolute path"),
        ({"do": "submit", "jobs": [GOOD | {"environment": {"A=B": "c"}}]}, "names of variables"),
        ({"do": "submit", "jobs": [GOOD | {"environment": {"A": 1}}]}, "environment A"),
        ({"do": "submit", "jobs": [GOOD | {"colour": "red"}]}, "field 'colour'"),
        ({"do": "submit", "jobs": [GOOD | {"uuid": "x"}]}, "a UUID"),
        ({"do": "submit", "jobs": [GOOD] * 51}, "at most 50 at once"),
        ({"do": "cancel", "jobs": [7]}, "no job was submitted"),
        ({"do": "cancel", "jobs": "7"}, "a list of numbers"),
        ({"do": "drain", "node": "nowhere"}, "one of v, k"),
        ({"do": "policy", "name": "fifo"}, "a service whose policy may be changed"),
        ({"do": "history", "last": 0}, "a whole number from 1"),
    ],
)
def test_bad_requests_are_told_what_is_wrong(requests, asked, told):
    answer = requests.answer(asked)
    assert answer["ok"] is False
    assert told in answer["error"]
    assert not requests._service.book.jobs


def test_arguments_need_not_be_utf_8(requests):
    given = json.dumps(GOOD | {"command": [os.fsdecode(b"caf\xe9.py"), "a\nb"], "name": "Größe <b>"})
    assert requests.answer({"do": "submit", "jobs": [json.loads(given)]})["ok"]
    (job,) = requests._service.book.by_id
    assert [os.fsencode(part) for part in job.command] == [b"caf\xe9.py", b"a\nb"]
    assert job.name == "Größe <b>"


def test_one_bad_job_lets_none_in(requests):
    assert not requests.answer({"do": "submit", "jobs": [GOOD, GOOD | {"gpus": -1}]})["ok"]
    assert not requests._service.book.jobs


def test_a_submission_that_is_sent_again_counts_once(requests):
    job = GOOD | {"uuid": "0" * 31 + "1"}
    first = requests.answer({"do": "submit", "jobs": [job]})
    assert requests.answer({"do": "submit", "jobs": [job]})["jobs"] == first["jobs"]
    assert len(requests._service.book.jobs) == 1
    # also within one request, and beside others, in the order that was asked
    other = GOOD | {"uuid": "0" * 31 + "2"}
    again = requests.answer({"do": "submit", "jobs": [other, job, other]})["jobs"]
    assert [one["id"] for one in again] == [1, 0, 1]
    assert len(requests._service.book.by_id) == 2


def test_nothing_is_let_in_that_cannot_be_written_down(requests):
    requests._service.journal._base.execute("PRAGMA query_only = ON")
    answer = requests.answer({"do": "submit", "jobs": [GOOD]})
    assert not answer["ok"]
    assert "nothing can be written down" in answer["error"]
    requests._service.journal._base.execute("PRAGMA query_only = OFF")
    assert requests.answer({"do": "submit", "jobs": [GOOD]})["ok"]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(["submit", "status", "job", "cancel", "drain", "resume", "history", "policy"])
fields = st.sampled_from(["jobs", "job", "node", "last", "after", "evict", "name", "settings", "active"])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    asked=plain | st.builds(lambda what, more: {"do": what} | more, names, st.dictionaries(fields, plain, max_size=4))
)
def test_no_request_breaks_the_service(requests, asked):
    answer = requests.answer(asked)
    assert answer["ok"] in (True, False)
    json.dumps(answer)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.dictionaries(st.sampled_from([*GOOD, "total_steps", "deadline", "environment", "name", "uuid"]), plain)
)
def test_jobs_of_any_form_are_taken_or_refused(requests, changes):
    before = len(requests._service.book.jobs)
    answer = requests.answer({"do": "submit", "jobs": [GOOD | changes]})
    assert len(requests._service.book.jobs) - before in ((0, 1) if answer["ok"] else (0,))
    if len(requests._service.book.active) > 40:
        requests._service.cancel(list(requests._service.book.active.values()))


class Serving:
    """A service with its socket, in a thread."""

    def __init__(self, folder):
        self._ready, self._folder = threading.Event(), folder
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self):
        self.service = await service_on(self._folder, two_types())
        self._loop = asyncio.get_running_loop()
        server = Server(self._folder, Requests(self.service))
        await server.start()
        self._ready.set()
        await self.service.run()
        await server.close()

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self.service.close)
        self._thread.join(PATIENCE)


def talk(folder, sent):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(folder / "socket"))
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_the_socket_is_private_and_answers_line_by_line(tmp_path):
    with Serving(tmp_path):
        mode = (tmp_path / "socket").stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert mode & 0o077 == 0
        client = Client(tmp_path)
        assert client.ask("submit", jobs=[GOOD])["jobs"][0]["id"] == 0
        assert client.ask("status")["jobs"][0]["gpus"] == 1
        with pytest.raises(InputError, match="one of submit"):
            client.ask("explode")
        answers = talk(tmp_path, b'{"do": "status", "jobs": []}\nnot json\n[]\n' + b"[" * 100_000 + b"\n")
        assert [json.loads(line)["ok"] for line in answers.splitlines()] == [True, False, False, False]
        assert talk(tmp_path, b"\xff\xfe\n").count(b"not one line of JSON") == 1
    with pytest.raises(NoServiceError, match="allocator serve --state"):
        Client(tmp_path).ask("status")


def test_silent_and_endless_clients_do_not_hold_up_others(tmp_path):
    with Serving(tmp_path):
        silent = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(20)]
        for connection in silent:
            connection.connect(str(tmp_path / "socket"))
            connection.sendall(b'{"do": "status"')
        assert Client(tmp_path).ask("status")["jobs"] == []
        for connection in silent:
            connection.close()


def test_who_does_not_take_its_answer_is_let_go(tmp_path, monkeypatch):
    monkeypatch.setattr("allocator.runtime.door.server._PATIENCE", 0.3)
    with Serving(tmp_path) as serving:
        serving.service.submit([(f"{number:032x}", GOOD | {"name": "n" * 1000}) for number in range(200)])
        before = len(os.listdir("/proc/self/fd"))
        greedy = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        greedy.settimeout(PATIENCE)
        greedy.connect(str(tmp_path / "socket"))
        greedy.sendall(b'{"do": "history"}\n' * 20)
        hung_up = select.poll()
        hung_up.register(greedy, 0)
        assert hung_up.poll(1000 * PATIENCE), "the service keeps the connection"
        until = time.monotonic() + PATIENCE
        while len(os.listdir("/proc/self/fd")) > before + 1:
            assert time.monotonic() < until, "the service keeps the file of the connection"
            time.sleep(0.05)
        # what the kernel had taken is there, and then the end: no answer is kept for who does not read
        with suppress(ConnectionResetError):
            assert len(b"".join(iter(lambda: greedy.recv(1 << 16), b""))) < 20 * 200 * 1000
        greedy.close()


def test_a_service_ends_in_peace_while_it_is_spoken_with(tmp_path, caplog):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, Serving(tmp_path):
        connection.connect(str(tmp_path / "socket"))
        connection.sendall(b'{"do": "status"}\n{')
        assert connection.recv(1 << 16)
    assert not caplog.records


def test_a_path_longer_than_sockets_take(tmp_path):
    folder = tmp_path / ("long" * 30) / ("longer" * 20)
    folder.mkdir(parents=True)
    with Serving(folder):
        assert Client(folder).ask("status")["jobs"] == []


@pytest.mark.parametrize(
    "wrong", [{"weight": 1e300}, {"weight": 1e-300}, {"total_steps": 1e300}, {"duration": 1e-12}, {"entity": "nobody"}]
)
async def test_no_job_is_let_in_that_stops_decisions_about_all_others(tmp_path, wrong):
    entities = Entities.parse({"team": {"weight": 2}})

    service = await service_on(tmp_path, two_types())
    policy = get_policy("max_min_fairness_water_filling_perf")
    mechanism = preset("default").mechanism
    service.use_policy(lambda hardware: World(hardware.cluster, policy, mechanism, entities=entities))
    requests = Requests(service)
    assert not requests.answer({"do": "submit", "jobs": [GOOD | wrong]})["ok"]
    jobs = [GOOD, GOOD | {"entity": "team"}, GOOD | {"weight": 1e-6}, GOOD | {"weight": 1e15}]
    assert requests.answer({"do": "submit", "jobs": jobs})["ok"]
    await settle(service)
    assert service.deciding.trouble == ""
    assert service.book.holding
    await service._finish()


def test_long_answers_come_in_pieces_and_are_the_same(requests):
    for count in (0, 1, 45):
        if count:
            requests._service.submit((f"{count:016x}{number:016x}", GOOD) for number in range(count))
        for asked in ({"do": "status"}, {"do": "history"}, {"do": "cancel", "jobs": [99]}, None):
            assert json.loads("".join(requests.pieces(requests.open(asked)))) == requests.answer(asked)


def test_a_job_that_is_named_again_and_again_is_told_of_once_and_names_are_counted(requests):
    requests._service.submit((f"{number:032x}", GOOD) for number in range(3))
    some = requests.answer({"do": "status", "jobs": [2, 0, f"{2:032x}", 0] * 200})
    assert [one["id"] for one in some["jobs"]] == [2, 0]
    for what in ("status", "cancel"):
        refused = requests.answer({"do": what, "jobs": [0] * 200_000})
        assert not refused["ok"]
        assert "'jobs'" in refused["error"]
        assert len(refused["error"]) < 300
    assert len(requests.answer({"do": "submit", "jobs": [GOOD] * 1001})["error"]) < 300


def test_answers_come_page_by_page_and_none_is_long(requests, monkeypatch):
    for place in ("requests", "client"):
        monkeypatch.setattr(f"allocator.runtime.door.{place}.MOST_AT_ONCE", 10)
    service, asked = requests._service, []

    def ask(what, **fields):
        asked.append(fields)
        answer = requests.answer({"do": what, **fields})
        assert answer["ok"], answer
        assert len(answer["jobs"]) <= 10
        return answer

    for count in (0, 1, 10, 11, 20, 45):
        service.submit((f"{number:032x}", GOOD) for number in range(len(service.book.by_id), count))
        everything = list(range(count))
        assert [one["id"] for one in whole_status(ask)["jobs"]] == everything
        assert [one["id"] for one in whole_status(ask, everything[::-1] * 2)["jobs"]] == everything[::-1]
    service.record(Event("cancelled", one.uuid) for one in service.book.by_id[5:30])
    active = [*range(5), *range(30, 45)]
    assert [one["id"] for one in whole_status(ask, active=True)["jobs"]] == active
    assert [one["id"] for one in whole_status(ask, last=3)["jobs"]] == [42, 43, 44]
    assert [one["id"] for one in whole_status(ask, last=7, active=True)["jobs"]] == active[-7:]
    assert whole_status(ask, last=0)["jobs"] == whole_status(ask, [])["jobs"] == []
    assert not requests.answer({"do": "status", "last": 11})["ok"]


async def test_others_have_their_turn_between_the_pieces_of_long_answers(requests):
    requests._service.submit((f"{number:032x}", GOOD) for number in range(45))

    turns, told = 0, []

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def reader():
        async for piece in requests.stream(requests.open({"do": "status"})):
            assert piece.count('"uuid"') <= 25
            told.append(turns)

    busy = asyncio.ensure_future(others())
    await asyncio.gather(*(reader() for _ in range(8)))
    busy.cancel()
    # of all who ask no two are told something in the same turn
    assert len(told) == len(set(told)) > 8 * 3
