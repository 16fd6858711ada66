"""The door itself: TLS and tokens on TCP, a private socket, the page in a browser, and clients who mean no good."""

from __future__ import annotations

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
from allocator.runtime.page.door import Door
from allocator.runtime.records.journal import Event
from allocator.runtime.settings import DoorSettings
from allocator.runtime.watching import Told
from tests.runtime.page.chromium import CHROMIUM, opened
from tests.runtime.page.clusters import Made, certificate, live, submission
from tests.runtime.worlds import PATIENCE
from throughputs import InputError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def tcp(tmp_path, files):
    with live(tmp_path / "state", DoorSettings("127.0.0.1:0", *files)) as one:
        one.trusted = ssl.create_default_context(cafile=str(files[0]))
        yield one


@pytest.fixture
def hurried(monkeypatch):
    """A door that waits for nobody for more than a second: on a busy machine not even for who means well."""
    for place, name, value in ((door, "_TO_ASK", 1.0), (door, "_TO_READ", 1.0), (app, "_PATIENCE", 0.5)):
        monkeypatch.setattr(place, name, value)
    monkeypatch.setattr(door, "_MOST_CONNECTIONS", 20)


def fetch(one, path, token="", data=None):
    """Status and text of an answer; 0 where there was none."""
    asked = urllib.request.Request(one.door.url + path, data, {"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE, context=one.trusted) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except (urllib.error.URLError, ConnectionError):
        return 0, b""


def connected(one):
    return socket.create_connection(("127.0.0.1", one.port), timeout=PATIENCE)


def encrypted(one):
    return one.trusted.wrap_socket(connected(one), server_hostname="127.0.0.1")


def heard_to_the_end(connection):
    """What the other side says until it ends the connection, which it does in time."""
    heard = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while piece := connection.recv(1 << 16):
            heard += piece
    connection.close()
    return heard


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_tcp_is_tls_with_a_token(tcp, monkeypatch):
    assert fetch(tcp, "/metrics")[0] == fetch(tcp, "/metrics", "x" * 30)[0] == 401
    status, text = fetch(tcp, "/metrics", tcp.token)
    assert status == 200
    assert b"allocator_gpus" in text
    with connected(tcp) as plain:
        plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"allocator" not in plain.recv(1000)
    assert (tcp.service.folder / "token").stat().st_mode & 0o777 == 0o600
    # only so many pages are open, and a body that does not come is not waited for
    monkeypatch.setattr(app, "_MOST_READERS", 0)
    monkeypatch.setattr(app, "_PATIENCE", 0.5)
    assert fetch(tcp, "/events", tcp.token)[0] == 503
    with encrypted(tcp) as slow:
        slow.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntok")
        assert b" 408 " in slow.recv(1000)


def test_what_is_not_safe_is_refused(tmp_path, files):
    service = Made(tmp_path)
    absent = Path("absent.pem")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for settings, words in [
            (DoorSettings("127.0.0.1:0"), "TLS only"),
            (DoorSettings("127.0.0.1:0", Path("cert.pem")), "--tls-key"),
            *((DoorSettings(where), "HOST:PORT") for where in ("8080", "127.0.0.1:x", "127.0.0.1:99999", "unix:")),
            (DoorSettings("127.0.0.1:0", absent, absent), "a certificate and its key"),
            (DoorSettings(f"127.0.0.1:{taken.getsockname()[1]}", *files), "that is free"),
        ]:
            with pytest.raises(InputError, match=words):
                Door(service, Requests(service), settings)
    service.journal.close()


def test_a_socket_file_is_for_the_user_alone(tmp_path):
    path, other = tmp_path / "web", Made(tmp_path / "other")
    # a dead socket makes room and a living one does not
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with live(tmp_path / "state", DoorSettings(f"unix:{path}")) as one:
        with pytest.raises(InputError, match="a socket can be made"):
            Door(other, Requests(other), DoorSettings(f"unix:{path}"))
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
        connection = http.client.HTTPConnection("localhost", timeout=PATIENCE)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request("GET", "/metrics")
        assert b"allocator_gpus" in connection.getresponse().read()
        connection.request("POST", "/api", '{"do": "status"}', {"content-type": "application/json"})
        assert json.loads(connection.getresponse().read())["ok"]
        connection.close()
        assert one.service.dispatch.variables(one.submit(submission())[0]) == {}
    assert not path.exists()
    other.journal.close()


NO_HTTP = [
    b"",
    b"GET / HTTP/1.1\r\nHost:",
    b"G",
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
]


@pytest.mark.usefixtures("hurried")
def test_who_speaks_no_http_or_nothing_is_let_go(tcp):
    waiting = [connected(tcp)]
    for said in NO_HTTP:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            connection = encrypted(tcp)
            waiting.append(connection)
            connection.sendall(said)
    answers = list(map(heard_to_the_end, waiting))
    assert answers[:2] == [b"", b""]
    assert all(not answer or answer.split(b" ")[1][:1] == b"4" for answer in answers)
    wait_for(lambda: fetch(tcp, "/metrics")[0] == 401)


def test_events_come_and_end_with_the_service(tmp_path, files):
    seen, over = [], threading.Event()

    def listen(one):
        asked = urllib.request.Request(f"{one.door.url}/events", headers={"Authorization": f"Bearer {one.token}"})
        context = ssl.create_default_context(cafile=str(files[0]))
        with urllib.request.urlopen(asked, timeout=PATIENCE, context=context) as answer:
            seen.extend(json.loads(line[6:]) for line in answer if line.startswith(b"data: "))
        over.set()

    with live(tmp_path, DoorSettings("127.0.0.1:0", *files)) as one:
        threading.Thread(target=listen, args=(one,), daemon=True).start()
        wait_for(lambda: seen)
        one.submit(submission("a new job"))
        wait_for(lambda: any(job["name"] == "a new job" for job in seen[-1]["running"]))
    assert over.wait(PATIENCE)


def test_jobs_are_told_where_to_post(tcp):
    (job,) = tcp.submit(submission(environment={"KUBEFLOW_TRAINER_STATUS_URL": "mine"}))
    runs = tcp.service.adapter.runs
    wait_for(lambda: job.uuid in runs)
    told = runs[job.uuid].order.environment
    assert told["KUBEFLOW_TRAINER_STATUS_URL"] == "mine", "what the user wants comes first"
    for percentage, kind, url in ((25, "SERVER", "SERVER_URL"), (75, "STATUS", "SERVER_URL")):
        token = Path(told[f"KUBEFLOW_TRAINER_{kind}_TOKEN"])
        assert token.stat().st_mode & 0o777 == 0o600
        assert Path(told[f"KUBEFLOW_TRAINER_{kind}_CA_CERT"]).read_bytes()
        data = json.dumps({"trainerStatus": {"progressPercentage": percentage}}).encode()
        path = told[f"KUBEFLOW_TRAINER_{url}"].removeprefix(tcp.door.url)
        assert fetch(tcp, path, token.read_text(), data)[0] == 200
        assert tcp.do(lambda: tcp.service.steps_of(job)) == percentage


HOSTILE = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"


@pytest.mark.exhaustive
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_in_a_browser(tmp_path, files):
    with opened(tmp_path / "profile") as tab:

        def words(selector, *wanted):
            has = f"{json.dumps(wanted)}.every((word) => document.querySelector('{selector}').innerText.includes(word))"
            tab.until(has)

        with live(tmp_path / "state", DoorSettings("127.0.0.1:0", *files)) as one:
            tab.call("Page.navigate", url=f"{one.door.url}/")
            tab.until("document.querySelector('input[name=token]') !== null")
            assert tab.value("document.getElementById('queue')") is None
            tab.call("Page.navigate", url="about:blank")
            tab.call("Page.navigate", url=f"{one.door.url}/#token={one.token}")
            tab.until("document.getElementById('link')?.className === 'live'")
            assert tab.value("location.hash") == ""
            words("#running", "Nothing runs.")
            jobs = one.submit(*(submission(f"train {k}", gpus=2) for k in range(3)))
            words("#running", "train 0", "train 1", "2 × v100", "2 × k80")
            words("#queue", "train 2", "not its turn")
            words("#nodes", "one", "two", "v100")
            words("#tiles", "4 / 4")
            words("#decisions", "ms")
            assert tab.value("document.querySelectorAll('.gpu.busy').length") == 4
            told = Told(50.0, one.do(one.service.clock), metrics={"loss": "0.25"})
            one.do(lambda: one.service.watching.tell(jobs[0], told))
            words("#running", "50 % of 100", "loss 0.25")
            measured = {"pool": jobs[0].placed.pool, "gpus": 2, "rate": 12.5}
            one.do(lambda: one.service.record([Event("measured", jobs[0].uuid, data=measured)]))
            words("#speeds", "12.5")
            words("#running", "about 4 s")
            words("#queue", "in about 4 s")
            one.do(lambda: one.service.cancel(jobs[:2]))
            words("#running", "train 2")
            words("#finished", "train 0", "cancelled")
            words("#happenings", "cancelled")
            one.do(lambda: one.service.drain("two", True))
            words("#nodes", "k80, drained")
            # names are text and nothing else
            one.submit(submission(HOSTILE, gpus=9, user=HOSTILE))
            words("#queue", "<img src=x", "needs 9 GPUs")
            assert "broken" not in tab.value("document.title")
            assert tab.value("document.images.length + document.querySelectorAll('td script').length") == 0
            refused = [text for text in tab.complaints if "401" not in text and '"verbose"' not in text]
            assert not refused, refused
            # the policy of the page holds
            setting = "(() => { try { document.body.innerHTML = '<b>x</b>'; return 1; } catch { return 0; } })()"
            assert tab.value(setting) == 0
        tab.until("document.getElementById('link').className === 'lost'")
        words("#link", "no answer")
