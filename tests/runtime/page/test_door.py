"""The door itself: TLS and tokens on TCP, a private socket, and clients who mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import stat
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from allocator.runtime.door.requests import Requests
from allocator.runtime.page import app, door
from allocator.runtime.page.door import Door, DoorSettings
from tests.runtime.page.clusters import PATIENCE, certificate, live, make_service, submission
from throughputs import InputError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def tcp(tmp_path, files):
    with live(make_service(tmp_path / "state"), DoorSettings("127.0.0.1:0", *files)) as one:
        yield one


@pytest.fixture
def hurried(tmp_path, files, monkeypatch):
    """A door that waits for nobody for more than a second: on a busy machine not even for who means well."""
    monkeypatch.setattr(door, "_TO_ASK", 1.0)
    monkeypatch.setattr(door, "_TO_READ", 1.0)
    monkeypatch.setattr(door, "_MOST_CONNECTIONS", 20)
    monkeypatch.setattr(app, "_PATIENCE", 0.5)
    with live(make_service(tmp_path / "state"), DoorSettings("127.0.0.1:0", *files)) as one:
        yield one


def trusting(files):
    return ssl.create_default_context(cafile=str(files[0]))


def fetch(one, files, path, **headers):
    asked = urllib.request.Request(one.door.url + path, headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE, context=trusting(files)) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def connected(one):
    return socket.create_connection(("127.0.0.1", one.port), timeout=PATIENCE)


def encrypted(one, files):
    return trusting(files).wrap_socket(connected(one), server_hostname="127.0.0.1")


def heard_to_the_end(connection):
    """What the other side says until it ends the connection, which it does in time."""
    connection.settimeout(PATIENCE)
    heard = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while piece := connection.recv(1 << 16):
            heard += piece
    connection.close()
    return heard


def test_tcp_is_tls_with_a_token(tcp, files):
    assert fetch(tcp, files, "/metrics")[0] == 401
    assert fetch(tcp, files, "/metrics", Authorization="Bearer x" * 9)[0] == 401
    status, text = fetch(tcp, files, "/metrics", Authorization=f"Bearer {tcp.token}")
    assert status == 200
    assert b"allocator_gpus" in text
    with connected(tcp) as plain:
        plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"allocator" not in plain.recv(1000)
    assert (tcp.service.folder / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (DoorSettings("127.0.0.1:0"), "TLS only"),
        (DoorSettings("127.0.0.1:0", Path("cert.pem")), "--tls-key"),
        (DoorSettings("8080"), "HOST:PORT"),
        (DoorSettings("127.0.0.1:x"), "HOST:PORT"),
        (DoorSettings("127.0.0.1:99999"), "HOST:PORT"),
        (DoorSettings("unix:"), "HOST:PORT"),
        (DoorSettings("127.0.0.1:0", Path("absent.pem"), Path("absent.pem")), "a certificate and its key"),
    ],
)
def test_what_is_not_safe_is_refused(tmp_path, settings, words):
    service = make_service(tmp_path)
    with pytest.raises(InputError, match=words):
        Door(service, Requests(service), settings)
    service.journal.close()


def test_an_address_that_is_taken_is_told(tmp_path, files):
    service = make_service(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="that is free"):
            Door(service, Requests(service), DoorSettings(f"127.0.0.1:{taken.getsockname()[1]}", *files))
    service.journal.close()


def test_a_socket_file_is_for_the_user_alone(tmp_path):
    path = tmp_path / "web"
    with live(make_service(tmp_path / "state"), DoorSettings(f"unix:{path}")) as one:
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
        connection = http.client.HTTPConnection("localhost", timeout=PATIENCE)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.status == 200
        assert b"allocator_gpus" in answer.read()
        body = json.dumps({"do": "status"})
        connection.request("POST", "/api", body, {"content-type": "application/json"})
        assert json.loads(connection.getresponse().read())["ok"]
        connection.close()
        assert one.service.variables(one.do(lambda: one.service.submit([submission()]))[0]) == {}
    assert not path.exists()


def test_a_dead_socket_makes_room_and_a_living_one_does_not(tmp_path):
    path = tmp_path / "web"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with live(make_service(tmp_path / "one"), DoorSettings(f"unix:{path}")):
        other = make_service(tmp_path / "other")
        with pytest.raises(InputError, match=r"a place where a socket can be made"):
            Door(other, Requests(other), DoorSettings(f"unix:{path}"))
        other.journal.close()


def say(one, files, *pieces):
    """Say something piece by piece; what comes of it until one is let go, perhaps before all is said."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        connection = encrypted(one, files)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(0.1)
        return heard_to_the_end(connection)
    return b""


@pytest.mark.parametrize("pieces", [[], [b"GET / HTTP/1.1\r\nHost:"], [b"G"] * 3])
def test_who_asks_for_nothing_is_let_go(hurried, files, pieces):
    assert heard_to_the_end(connected(hurried)) == b""
    assert say(hurried, files, *pieces) == b""


def test_a_body_that_does_not_come_is_not_waited_for(tcp, files, monkeypatch):
    monkeypatch.setattr(app, "_PATIENCE", 0.5)
    with encrypted(tcp, files) as slow:
        slow.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntok")
        assert b" 408 " in slow.recv(1000)


@pytest.mark.parametrize(
    "said",
    [
        b"\0" * 5000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /%ff%00\xff HTTP/1.1\r\nHost: l\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5000,
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: l\r\nContent-Length: -1\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: l\r\nContent-Length: 99999999999999999999\r\n\r\nx",
        b"POST /login HTTP/1.1\r\nHost: l\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n",
        b"GET / HTTP/1.1\r\nHost: l\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: l\r\n\r\n",
        b"CONNECT elsewhere:1 HTTP/1.1\r\nHost: l\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_and_let_go(hurried, files, said):
    answer = say(hurried, files, said)
    assert not answer or answer.split(b" ")[1][:1] == b"4", answer
    wait_for(lambda: fetch_or_none(hurried, files) == 401)


def test_many_connections_cost_neither_files_nor_the_scheduler(hurried, files):
    crowd = [connected(hurried) for _ in range(100)]
    made = hurried.do(lambda: hurried.service.submit([submission()]))
    wait_for(lambda: made[0].state == "running")
    accepted = hurried.do(lambda: sum(one.fileno() >= 0 for one in hurried.door._socket._accepted))
    assert accepted <= 20
    for one in crowd:
        one.close()
    wait_for(lambda: fetch_or_none(hurried, files) == 401)


def fetch_or_none(one, files):
    try:
        return fetch(one, files, "/metrics")[0]
    except (urllib.error.URLError, ConnectionError):
        return None


def test_events_come_and_end_with_the_service(tmp_path, files):
    seen = []
    over = threading.Event()

    def listen(one):
        asked = urllib.request.Request(f"{one.door.url}/events", headers={"Authorization": f"Bearer {one.token}"})
        with urllib.request.urlopen(asked, timeout=PATIENCE, context=trusting(files)) as answer:
            seen.extend(json.loads(line[6:]) for line in answer if line.startswith(b"data: "))
        over.set()

    with live(make_service(tmp_path), DoorSettings("127.0.0.1:0", *files)) as one:
        listener = threading.Thread(target=listen, args=(one,))
        listener.start()
        wait_for(lambda: seen)
        one.do(lambda: one.service.submit([submission("a new job")]))
        wait_for(lambda: any(job["name"] == "a new job" for job in seen[-1]["running"]))
    assert over.wait(PATIENCE)
    listener.join()


def test_who_does_not_read_events_is_let_go_and_holds_nobody_up(tcp, files, monkeypatch):
    monkeypatch.setattr(door, "_TO_READ", 1.0)
    tcp.do(lambda: tcp.service.submit([submission("x" * 250) for _ in range(400)]))
    deaf = encrypted(tcp, files)
    deaf.sendall(f"GET /events HTTP/1.1\r\nHost: l\r\nAuthorization: Bearer {tcp.token}\r\n\r\n".encode())
    feed = tcp.door._desk.feed
    wait_for(lambda: feed._readers == 1)
    # pictures one after the other fill what the kernel keeps for the deaf
    tcp.wait(flood(tcp))
    wait_for(lambda: feed._readers == 0)
    assert fetch(tcp, files, "/metrics", Authorization=f"Bearer {tcp.token}")[0] == 200
    deaf.close()


async def flood(one):
    feed = one.door._desk.feed
    for _ in range(2000):
        if not feed._readers:
            return
        feed._newest = b"data: " + b"x" * 100_000 + b"\n\n"
        feed._number += 1
        fresh, feed._fresh = feed._fresh, asyncio.Event()
        fresh.set()
        await asyncio.sleep(0.002)


def test_only_so_many_pages_are_open(tcp, files, monkeypatch):
    monkeypatch.setattr(app, "_MOST_READERS", 0)
    assert fetch(tcp, files, "/events", Authorization=f"Bearer {tcp.token}")[0] == 503


def test_jobs_are_told_where_to_post(tcp):
    (job,) = tcp.do(lambda: tcp.service.submit([submission(environment={"KUBEFLOW_TRAINER_STATUS_URL": "mine"})]))
    wait_for(lambda: job.uuid in tcp.service.adapter.orders)
    told = tcp.service.adapter.orders[job.uuid].environment
    assert told["KUBEFLOW_TRAINER_STATUS_URL"] == "mine", "what the user wants comes first"
    token = Path(told["KUBEFLOW_TRAINER_SERVER_TOKEN"])
    assert token.stat().st_mode & 0o777 == 0o600
    data = json.dumps({"trainerStatus": {"progressPercentage": 50}}).encode()
    headers = {"Authorization": f"Bearer {token.read_text()}", "Content-Type": "application/json"}
    asked = urllib.request.Request(told["KUBEFLOW_TRAINER_SERVER_URL"], data, headers, method="POST")
    context = ssl.create_default_context(cafile=told["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
    with urllib.request.urlopen(asked, timeout=PATIENCE, context=context) as answer:
        assert answer.status == 200
    assert tcp.do(lambda: tcp.service.steps_of(job)) == 50


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
