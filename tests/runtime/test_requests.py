"""The door: good requests are answered, bad ones are told what is wrong with them, and none does harm."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import stat
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocator.runtime.door.client import Client, NoServiceError
from allocator.runtime.door.requests import Requests
from allocator.runtime.door.server import Server
from allocator.runtime.records.journal import Event
from allocator.runtime.settings import ServiceSettings
from tests.runtime.model_cluster import OPEN, end, service_on, two_types
from tests.runtime.worlds import PATIENCE
from throughputs import InputError

GOOD = {"command": ["train", "5"], "working_directory": "/", "gpus": 1}


@pytest.fixture
def requests(tmp_path):
    loop = asyncio.new_event_loop()
    cluster = two_types()
    cluster.clock = 5.0
    service = loop.run_until_complete(service_on(tmp_path, cluster, settings=ServiceSettings(max_jobs=50)))
    asked = Requests(service)
    asked.submit = lambda *jobs: asked.answer({"do": "submit", "jobs": list(jobs)})
    asked.fill = lambda count: service.submit((f"{len(service.book.by_id):032x}", GOOD) for _ in range(count))
    asked.service, asked.book = service, service.book
    yield asked
    loop.run_until_complete(end(service))
    loop.close()


BAD_JOBS = [
    ({}, "command"),
    ({"command": "train"}, "command.*list of arguments"),
    ({"command": [""]}, "command.*list of arguments"),
    ({"command": ["a\0b"]}, "command"),
    ({"command": ["a", "\ud800"]}, "command"),
    ({"command": ["a", "é" * 40_000]}, "command.*65536 bytes"),
    ({"working_directory": "/\ud800"}, "working_directory"),
    ({"working_directory": "here"}, "working_directory.*absolute"),
    ({"environment": {"\ud800": "1"}}, "environment"),
    ({"environment": {"A": "\ud800"}}, "environment A"),
    ({"environment": {"A=B": "c"}}, "environment"),
    ({"environment": {"A": 1}}, "environment A"),
    ({"name": "a\nb"}, "name"),
    ({"job_type": "\x1b[2J"}, "job_type"),
    ({"gpus": 0}, "'gpus': found 0.*at least 1"),
    ({"gpus": True}, "gpus"),
    ({"total_steps": -1}, "total_steps.*found -1"),
    ({"total_steps": float("nan")}, "total_steps"),
    ({"total_steps": 1e300}, "total_steps"),
    ({"weight": 1e300}, "weight"),
    ({"weight": 1e-300}, "weight"),
    ({"duration": 1e-12}, "duration"),
    ({"deadline": 1e-9}, "deadline"),
    ({"colour": "red"}, "colour"),
    ({"uuid": "x"}, "UUID"),
]
BAD = [
    ([], "do"),
    ({}, "'do': found nothing"),
    ({"do": "explode"}, "'explode'.*submit"),
    ({"do": "submit"}, "jobs"),
    ({"do": "submit", "jobs": [1]}, "objects"),
    ({"do": "submit", "jobs": [GOOD] * 51}, "jobs.*at most 50"),
    ({"do": "submit", "jobs": [GOOD] * 10_001}, "jobs.*10,000"),
    ({"do": "cancel", "jobs": [7]}, "no job was submitted"),
    ({"do": "cancel", "jobs": "7"}, "jobs.*numbers"),
    ({"do": "cancel", "jobs": [0] * 200_000}, "jobs"),
    ({"do": "status", "jobs": [0] * 200_000}, "jobs"),
    ({"do": "drain", "node": "nowhere"}, "node.*v, k"),
    ({"do": "policy", "name": "fifo"}, "policy"),
    ({"do": "history", "last": 0}, "last.*at least 1"),
]


def test_bad_requests_are_told_what_is_wrong(requests):
    # one bad job lets none in
    jobs = [({"do": "submit", "jobs": [GOOD, GOOD | wrong if wrong else {}]}, told) for wrong, told in BAD_JOBS]
    for asked, told in jobs + BAD:
        answer = requests.answer(asked)
        assert answer["ok"] is False
        assert re.search(told, answer["error"]), (told, answer["error"])
        assert len(answer["error"]) < 400
        assert not requests.book.jobs


def test_what_a_submission_says_is_kept(requests):
    said = {"name": "n", "user": "ann", "gpus": 2, "total_steps": 5.0, "weight": 2.0, "retries": 3, "time_limit": 60.0}
    assert requests.submit(GOOD | said | {"one_process_per_gpu": True, "after": [], "accelerators": ["k80"]})["ok"]
    (job,) = requests.book.by_id
    assert {name: getattr(job, name) for name in said} == said
    assert (job.one_process_per_gpu, job.after, job.accelerators) == (True, (), ("k80",))


def test_a_submission_that_is_sent_again_counts_once(requests):
    one, other = (GOOD | {"uuid": f"{number:032x}"} for number in (1, 2))
    first = requests.submit(one)
    assert requests.submit(one)["jobs"] == first["jobs"]
    # also within one request, and beside others, in the order that was asked
    assert [told["id"] for told in requests.submit(other, one, other)["jobs"]] == [1, 0, 1]
    assert len(requests.book.by_id) == 2


def test_nothing_is_let_in_that_cannot_be_written_down(requests):
    base = requests.service.journal._base
    base.execute("PRAGMA query_only = ON")
    answer = requests.submit(GOOD)
    assert (answer["ok"], answer["fault"]) == (False, True)
    base.execute("PRAGMA query_only = OFF")
    assert requests.submit(GOOD)["ok"]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(["submit", "status", "cancel", "drain", "resume", "history", "policy"])
fields = st.sampled_from(["jobs", "job", "node", "last", "evict", "name", "settings", "active"])
of_jobs = st.sampled_from([*GOOD, "total_steps", "deadline", "environment", "name", "uuid"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    asked=plain
    | st.builds(lambda what, more: {"do": what} | more, names, st.dictionaries(fields, plain, max_size=4))
    | st.builds(lambda changes: {"do": "submit", "jobs": [GOOD | changes]}, st.dictionaries(of_jobs, plain))
)
def test_no_request_breaks_the_service(requests, asked):
    before = len(requests.book.jobs)
    answer = requests.answer(asked)
    json.dumps(answer)
    assert len(requests.book.jobs) - before in ((0, 1) if answer["ok"] else (0,))
    if len(requests.book.active) > 40:
        requests.service.cancel(list(requests.book.active.values()))


class Serving:
    """A service with its socket, in a thread."""

    def __init__(self, folder):
        self._ready, self._folder = threading.Event(), folder
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self):
        self.service = await service_on(self._folder, two_types())
        OPEN.remove(self.service)
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


def connected(folder):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE)
    connection.connect(str(folder / "socket"))
    return connection


def talk(folder, sent):
    with connected(folder) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_the_socket_is_private_and_answers_line_by_line(tmp_path):
    # longer than the path of a socket may be
    folder = tmp_path / ("long" * 30) / ("longer" * 20)
    folder.mkdir(parents=True)
    with Serving(folder):
        mode = (folder / "socket").stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert mode & 0o077 == 0
        client = Client(folder)
        assert client.ask("submit", jobs=[GOOD])["jobs"][0]["id"] == 0
        assert client.ask("status")["jobs"][0]["gpus"] == 1
        with pytest.raises(InputError, match="submit"):
            client.ask("explode")
    with Serving(tmp_path):
        answers = talk(tmp_path, b'{"do": "status", "jobs": []}\nnot json\n[]\n' + b"[" * 100_000 + b"\n\xff\xfe\n")
        assert [json.loads(line)["ok"] for line in answers.splitlines()] == [True, *[False] * 4]
    with pytest.raises(NoServiceError, match="allocator serve --state"):
        Client(tmp_path).ask("status")


def test_long_answers_come_in_pieces_and_are_the_same(requests):
    for count in (0, 1, 45):
        requests.service.submit((f"{count:016x}{number:016x}", GOOD) for number in range(count))
        for asked in (
            {"do": "status"},
            {"do": "history"},
            {"do": "history", "job": 0},
            {"do": "cancel", "jobs": [99]},
            None,
        ):
            assert json.loads("".join(requests.pieces(requests.open(asked)))) == requests.answer(asked)


def test_which_jobs_are_told_of(requests):
    def numbers(**asked):
        return [one["id"] for one in requests.answer({"do": "status", **asked})["jobs"]]

    everything = list(range(45))
    requests.service.submit((f"{number:032x}", GOOD) for number in everything)
    assert numbers() == everything
    # one that is named again is told of once
    assert numbers(jobs=everything[::-1] * 2) == everything[::-1]

    async def cancel():
        requests.service.record(Event("cancelled", one.uuid) for one in requests.book.by_id[5:30])

    asyncio.run(cancel())
    active = [*range(5), *range(30, 45)]
    assert numbers(active=True) == active
    assert numbers(last=3) == [42, 43, 44]
    assert numbers(last=7, active=True) == active[-7:]
    assert numbers(last=0) == numbers(jobs=[]) == []
    assert numbers(last=99) == everything
