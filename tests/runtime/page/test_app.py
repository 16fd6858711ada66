"""The application without a network: who may ask for what, and what hostile input does."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.runtime.door.requests import Requests
from allocator.runtime.page.access import Access, read_token
from allocator.runtime.page.app import Desk, make_app
from allocator.runtime.page.document import document
from allocator.runtime.page.picture import picture
from allocator.runtime.records.journal import Event
from tests.runtime.page.asking import Asker
from tests.runtime.page.clusters import make_service, settled, stop_clock, submission
from throughputs import InputError, default_table

TOKEN = "a-token-of-some-length"
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\ud800"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = make_service(tmp_path_factory.mktemp("state"))
    names = ["first", HOSTILE, "third", "fourth", "too large"]
    settled(made, *(submission(name, gpus=9 if name == "too large" else 2) for name in names))
    yield made
    made.journal.close()


def client_of(service, **more):
    desk = Desk(service, Requests(service), Access(TOKEN), **more)
    return desk, Asker(make_app(desk))


@pytest.fixture(scope="module")
def guarded(service):
    return client_of(service)[1]


@pytest.fixture(scope="module")
def changing(service):
    return client_of(service, changes=True)[1]


@pytest.mark.parametrize("path", ["/", "/events", "/metrics", "/nothing", "/api", "/docs", "//metrics", "/metrics/"])
@pytest.mark.parametrize("shown", ["", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer \xff\xfe"])
def test_nothing_is_told_without_the_token(guarded, path, shown):
    answer = guarded.get(path, {"authorization": shown} if shown else {})
    assert answer.status == 401
    assert "first" not in answer.text


def test_the_token_opens_page_and_metrics(guarded):
    page = guarded.get("/", headers=BEARER)
    assert page.status == 200
    assert 'id="queue"' in page.text
    metrics = guarded.get("/metrics", headers=BEARER)
    assert metrics.status == 200
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert guarded.post("/metrics", headers=BEARER).status == 405
    assert guarded.get("/nothing", headers=BEARER).status == 404


def test_a_browser_logs_in_and_may_read_only(service):
    client = client_of(service, changes=True)[1]
    for wrong in (b"token=wrong", b"", b"a=1&b=2&c=3&d=4&token=" + TOKEN.encode(), b"token=%ff\xff%00"):
        refused = client.post("/login", content=wrong)
        assert refused.status == 401
        assert "set-cookie" not in refused.headers
    answer = client.post("/login", content=f"token={TOKEN}".encode())
    assert (answer.status, answer.headers["location"]) == (303, "/")
    for flag in ("HttpOnly", "Secure", "SameSite=lax", "Path=/"):
        assert flag in answer.headers["set-cookie"]
    assert TOKEN not in answer.headers["set-cookie"]
    cookie = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    assert client.get("/", cookie).status == 200
    assert client.post("/api", cookie, data={"do": "status"}).status == 401


def test_a_session_ends_and_cannot_be_made_up():
    access = Access(TOKEN)
    session = access.session(1000.0)
    assert access.is_session(session, 1000.0 + 11 * 3600)
    assert not access.is_session(session, 1000.0 + 13 * 3600)
    until, _, mark = session.partition(".")
    assert not access.is_session(f"{int(until) + 1}.{mark}", 1000.0)
    assert not access.is_session("", 1000.0)
    assert not Access(TOKEN + "x").is_session(session, 1000.0)


def test_jobs_have_tokens_of_their_own():
    access = Access(TOKEN)
    own = access.of_job("a", 1)
    assert access.is_of_job(f"Bearer {own}", "a", "1")
    assert not access.is_of_job(f"Bearer {own}", "a", "2")
    assert not access.is_of_job(f"Bearer {own}", "b", "1")
    assert not access.is_of_job(f"Bearer {TOKEN}", "a", "1")
    assert not access.in_header(f"Bearer {own}")


def test_every_answer_has_its_headers_and_the_page_its_policy(guarded):
    for answer in (guarded.get("/"), guarded.get("/", headers=BEARER), guarded.get("/nothing", headers=BEARER)):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
    policy = guarded.get("/", headers=BEARER).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy.count("sha256-") == 2


@pytest.mark.parametrize("name", ["page.html", "login.html"])
def test_documents_ask_for_nothing_from_elsewhere(name):
    text = document(name).text
    assert not re.findall(r"(?:src|href)=(?![\"']?data:)", text)
    assert not re.findall(r"https?://|@import|url\(| style=| on[a-z]+=", text)
    assert "innerHTML" not in text


def test_requests_that_change_need_leave(service, guarded, changing):
    asked = {"do": "submit", "jobs": [{"command": ["true"]}]}
    refused = guarded.post("/api", data=asked, headers=BEARER)
    assert refused.status == 403
    assert "--web-api" in refused.json()["error"]
    assert guarded.post("/api", data={"do": "status"}, headers=BEARER).json()["ok"]
    before = len(service.book.by_id)
    uuid = "7b0a54b6-4c3c-4d3b-8f0e-6f5a9f3c6a11"
    body = {"do": "submit", "jobs": [{"command": ["true"], "working_directory": "/", "uuid": uuid}]}
    made = changing.post("/api", data=body, headers=BEARER)
    assert made.json()["ok"], made.text
    assert len(service.book.by_id) == before + 1
    again = changing.post("/api", data={"do": "cancel", "jobs": [before]}, headers=BEARER)
    assert again.json()["cancelled"] == [before]


def test_a_service_that_ends_answers_nothing(service):
    desk, asker = client_of(service)
    desk.close()
    assert asker.get("/metrics", BEARER).status == 503
    assert asker.post("/api", BEARER, data={"do": "history"}).status == 503


def test_scripts_of_other_sites_cannot_ask(service):
    client = client_of(service, guarded=False, changes=True)[1]
    body = json.dumps({"do": "status"}).encode()
    assert client.post("/api", content=body, headers={"content-type": "application/json"}).status == 200
    assert client.post("/api", content=body, headers={"content-type": "text/plain"}).status == 415
    origin = {"content-type": "application/json", "origin": "https://elsewhere"}
    assert client.post("/api", content=body, headers=origin).status == 403
    for host, status in {"elsewhere": 421, "localhost:80": 200, "[::1]:8080": 200, "127.0.0.1": 200}.items():
        assert client.get("/metrics", headers={"host": host}).status == status


def test_large_bodies_are_refused(guarded):
    assert guarded.post("/login", content=b"x" * (1 << 20)).status == 413
    headers = BEARER | {"content-type": "application/json"}
    assert guarded.post("/api", content=b" " * (9 << 20), headers=headers).status == 413


def test_the_picture_is_json_that_browsers_read(service):
    desk, _ = client_of(service)
    text = json.dumps(picture(service, desk.history), allow_nan=False)
    shown = json.loads(text)
    assert {job["name"] for job in shown["running"]} == {"first", HOSTILE}
    assert {job["name"] for job in shown["queue"]} >= {"third", "too large"}
    assert all(job["reason"] for job in shown["queue"])
    assert [(node["name"], node["state"], len(node["jobs"])) for node in shown["nodes"]] == [
        ("one", "up", 2),
        ("two", "up", 2),
    ]
    assert {job for node in shown["nodes"] for jobs in node["jobs"] for job in jobs} == {0, 1}
    assert all(set(one) >= {"at", "seconds", "status", "jobs"} for one in shown["decisions"])


def test_measured_speeds_are_shown_beside_those_of_the_table(tmp_path):
    service = make_service(tmp_path)
    service.table = default_table()
    kind = service.table.job_types[0]
    stop_clock(service)
    known, unknown = settled(service, submission(job_type=kind), submission())
    rates = {job.uuid: {"pool": job.pool, "gpus": 1, "rate": 2.5} for job in (known, unknown)}
    desk, _ = client_of(service)
    assert picture(service, desk.history)["running"][0]["left"] > 0, "the table knows how fast it is"
    assert picture(service, desk.history)["running"][1]["left"] is None
    service.record(Event("measured", uuid, data=data) for uuid, data in rates.items())
    speeds = picture(service, desk.history)["speeds"]
    expected = float(service.table.rates([kind], [1], [known.pool])[0, 0])
    assert [(one["measured"], one["believed"]) for one in speeds] == [(2.5, pytest.approx(expected)), (2.5, None)]
    assert picture(service, desk.history)["running"][1]["left"] == pytest.approx(40)
    service.journal.close()


def test_the_picture_is_bounded_and_quick_with_many_jobs(tmp_path):
    service = make_service(tmp_path)
    settled(service, *(submission(f"job {k} " + "x" * 1000) for k in range(10_000)))
    desk, _ = client_of(service)
    took = []
    for _ in range(5):
        began = time.process_time()
        text = json.dumps(picture(service, desk.history))
        took.append(time.process_time() - began)
    service.journal.close()
    assert len(text) < 250_000
    assert min(took) < 0.5


def test_tokens_are_private_and_long(tmp_path):
    path = tmp_path / "token"
    token = read_token(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token(path) == token
    path.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        read_token(path)
    path.chmod(0o600)
    for bad in ("", "short", "with a space in it " * 3, "é" * 30):
        path.write_text(bad)
        with pytest.raises(InputError, match="a token"):
            read_token(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KNOWN = ["submit", "status", "job", "cancel", "drain", "resume", "history", "policy", "nothing"]
FIELDS = ["do", "jobs", "job", "node", "last", "active", "name", "settings", "uuid", "command"]


@settings(max_examples=150, deadline=None)
@given(
    what=st.sampled_from(KNOWN) | json_values,
    more=st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=4),
    raw=st.none() | st.binary(max_size=60),
    depth=st.sampled_from([0, 0, 500, 100_000]),
)
def test_no_request_breaks_it(changing, what, more, raw, depth):
    body = json.dumps(more | {"do": what}).encode() if raw is None else raw
    if depth:
        body = b'{"do":"cancel","jobs":' + b"[" * depth + b"]" * depth + b"}"
    answer = changing.post("/api", content=body, headers=BEARER | {"content-type": "application/json"})
    assert answer.status in (200, 400, 403, 422)


@settings(max_examples=200, deadline=None)
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "X"]),
    path=st.text(max_size=30).map(lambda rest: f"/{rest}")
    | st.sampled_from(
        ["/jobs/x/1/status", f"/jobs/x/{'9' * 6000}/status", "/login", "/", "/api", "/metrics", "/metrics/"]
    ),
    headers=st.dictionaries(
        st.sampled_from(["authorization", "cookie", "host", "content-type", "origin"]),
        st.binary(max_size=40) | st.sampled_from([b"[", f"Bearer {TOKEN}".encode(), b"elsewhere:x"]),
    ),
    body=st.binary(max_size=80),
)
def test_no_path_or_header_breaks_it(guarded, method, path, headers, body):
    answer = guarded.ask(method, path, headers, body)
    may = headers.get("authorization") == BEARER["authorization"].encode()
    assert 400 <= answer.status < 500 or (may and answer.status == 200)
