"""The application without a network: who may ask for what, what trainers post, and what hostile input does."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.runtime.page.access import Access, read_token
from allocator.runtime.records.journal import Event
from tests.runtime.model_cluster import settle
from tests.runtime.page.clusters import ACCESS, BEARER, Asker, Made, submission
from throughputs import InputError

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = Made(tmp_path_factory.mktemp("state"))
    made.settled(submission("first", gpus=2), submission("too large", gpus=9))
    yield made
    made.journal.close()


@pytest.fixture(scope="module")
def guarded(service):
    return Asker(service)


@pytest.fixture(scope="module")
def changing(service):
    return Asker(service, changes=True)


@pytest.mark.parametrize("path", ["/", "/events", "/metrics", "/nothing", "/api", "//metrics", "/metrics/"])
def test_nothing_is_told_without_the_token(guarded, path):
    for shown in ("", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer \xff\xfe"):
        answer = guarded.get(path, {"authorization": shown} if shown else {})
        assert answer.status == 401
        assert "first" not in answer.text


def test_the_token_opens_page_and_metrics(guarded):
    page, nothing = guarded.get("/", BEARER), guarded.get("/nothing", BEARER)
    assert (page.status, nothing.status) == (200, 404)
    assert 'id="queue"' in page.text
    metrics = guarded.get("/metrics", BEARER)
    assert metrics.status == 200
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert guarded.post("/metrics", BEARER).status == 405
    for answer in (page, nothing, guarded.get("/")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy.count("sha256-") == 2


def test_a_browser_logs_in_and_may_read_only(changing):
    for wrong in (b"token=wrong", b"", b"a=1&b=2&c=3&d=4&token=" + TOKEN.encode(), b"token=%ff\xff%00"):
        refused = changing.post("/login", content=wrong)
        assert refused.status == 401
        assert "set-cookie" not in refused.headers
    answer = changing.post("/login", content=f"token={TOKEN}".encode())
    assert (answer.status, answer.headers["location"]) == (303, "/")
    said = answer.headers["set-cookie"]
    assert {"HttpOnly", "Secure", "SameSite=lax", "Path=/"} <= set(said.split("; "))
    assert TOKEN not in said
    cookie = {"cookie": said.partition(";")[0]}
    assert changing.get("/", cookie).status == 200
    assert changing.post("/api", cookie, data={"do": "status"}).status == 401


def test_sessions_end_and_tokens_of_jobs_are_their_own():
    session = ACCESS.session(1000.0)
    assert ACCESS.is_session(session, 1000.0 + 11 * 3600)
    until, _, mark = session.partition(".")
    assert not ACCESS.is_session(session, 1000.0 + 13 * 3600)
    assert not ACCESS.is_session(f"{int(until) + 1}.{mark}", 1000.0)
    assert not ACCESS.is_session("", 1000.0)
    assert not Access(TOKEN + "x").is_session(session, 1000.0)
    own = f"Bearer {ACCESS.of_job('a', 1)}"
    assert ACCESS.is_of_job(own, "a", "1")
    for shown, job, epoch in ((own, "a", "2"), (own, "b", "1"), (BEARER["authorization"], "a", "1")):
        assert not ACCESS.is_of_job(shown, job, epoch)
    assert not ACCESS.in_header(own)


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


def test_requests_that_change_need_leave(service, guarded, changing):
    body = {"do": "submit", "jobs": [{"command": ["true"], "working_directory": "/"}]}
    refused = guarded.post("/api", BEARER, data=body)
    assert refused.status == 403
    assert "--web-api" in refused.json()["error"]
    assert guarded.post("/api", BEARER, data={"do": "status"}).json()["ok"]
    before = len(service.book.by_id)
    assert changing.post("/api", BEARER, data=body).json()["ok"]
    assert len(service.book.by_id) == before + 1
    assert changing.post("/api", BEARER, data={"do": "cancel", "jobs": [before]}).json()["cancelled"] == [before]
    ending = Asker(service)
    ending.desk.close()
    assert ending.get("/metrics", BEARER).status == ending.post("/api", BEARER, data={"do": "history"}).status == 503


def test_scripts_of_other_sites_cannot_ask_and_large_bodies_are_refused(service, guarded):
    asker, body = Asker(service, guarded=False, changes=True), b'{"do": "status"}'
    kind = {"content-type": "application/json"}
    for headers, status in ((kind, 200), ({"content-type": "text/plain"}, 415), (kind | {"origin": "https://x"}, 403)):
        assert asker.post("/api", headers, content=body).status == status
    for host, status in {"elsewhere": 421, "localhost:80": 200, "[::1]:8080": 200, "127.0.0.1": 200}.items():
        assert asker.get("/metrics", {"host": host}).status == status
    assert guarded.post("/login", content=b"x" * (1 << 20)).status == 413
    assert guarded.post("/api", BEARER | kind, content=b" " * (9 << 20)).status == 413


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KNOWN = ["submit", "status", "job", "cancel", "drain", "resume", "history", "policy", "nothing"]
FIELDS = ["do", "jobs", "job", "node", "last", "active", "name", "settings", "uuid", "command"]


@settings(max_examples=25)
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
    answer = changing.post("/api", BEARER | {"content-type": "application/json"}, content=body)
    assert answer.status in (200, 400, 403, 422)


LONG = f"/jobs/x/{'9' * 6000}/status"
PATHS = ["/jobs/x/1/status", LONG, "/login", "/", "/api", "/metrics", "/metrics/"]


@settings(max_examples=40)
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "X"]),
    path=st.text(max_size=30).map(lambda rest: f"/{rest}") | st.sampled_from(PATHS),
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


class Posting:
    """A service with one job of 1,000 steps and one of an unknown number, and what their trainers post."""

    def __init__(self, folder):
        self.service = Made(folder)
        self.known, self.unknown = self.service.settled(submission(steps=1000), submission(steps=0))
        self.asker = Asker(self.service)

    def post(self, status, job=None, epoch=None, token=None, content=None):
        """The status of the answer."""
        job = job or self.known
        number = job.epoch if epoch is None else epoch
        shown = ACCESS.of_job(job.uuid, number) if token is None else token
        headers = {"authorization": f"Bearer {shown}"}
        body = {"data": {"trainerStatus": status}} if content is None else {"content": content}
        return self.asker.post(f"/jobs/{job.uuid}/{number}/status", headers, **body).status

    def steps(self, status, job=None):
        """Of a job, once that was posted."""
        assert self.post(status, job) == 200
        return self.service.steps_of(job or self.known)


BEGINS = {"progressPercentage": 0, "metrics": [{"name": "total_steps", "value": "1000"}]}


def counted(current, total=None):
    metrics = [{"name": "current_step", "value": current}, {"name": "total_steps", "value": total}]
    return {"metrics": metrics[: 1 + (total is not None)]}


@pytest.fixture
def posting(tmp_path):
    made = Posting(tmp_path)
    yield made
    made.service.journal.close()


def test_percentages_are_steps_and_metrics_with_steps_are_finer(posting):
    assert posting.steps({"progressPercentage": 45, "lastUpdatedTime": "2026-01-01T00:00:00+00:00"}) == 450
    assert posting.steps(BEGINS) == 450, "a trainer that begins may go on from the middle"
    told = {"progressPercentage": 24} | counted("123", "500")
    assert posting.steps(told) == pytest.approx(246), "it counts otherwise: its share of the way counts"
    assert posting.steps(told, posting.unknown) == 123
    assert posting.service.watching.of(posting.known).told.metrics["current_step"] == "123"
    for total in ("0", "1e-320", "1e-5", "-3", "nan", "inf", "1e400"):
        for current in ("0", "5"):
            assert posting.steps(counted(current, total)) == float(current)


def test_speed_is_measured_from_posts(posting):
    service = posting.service
    for step, clock in ((0, 5.0), (100, 10.0), (200, 20.0), (150, 21.0), (350, 41.0)):
        service.clock = lambda clock=clock: clock
        posting.post(counted(step) if step else BEGINS)
    (measured,) = service.watching.measure()
    assert (measured.kind, measured["rate"]) == ("measured", 10.0)
    assert service.watching.measure() == []


def test_what_was_posted_is_kept_when_a_start_ends(posting):
    service, job = posting.service, posting.known
    posting.post({"progressPercentage": 70})

    async def end():
        service.stop([job], "its lease ended")
        await service.adapter.kill(job.uuid, job.epoch)
        await settle(service)

    asyncio.run(end())
    assert (job.epoch, job.steps) == (2, 700)


def test_only_a_start_that_runs_may_post_and_only_what_makes_sense(posting):
    job = posting.known
    for token in ("", "wrong", TOKEN, ACCESS.of_job("another", 1)):
        assert posting.post({"progressPercentage": 99}, token=token) == 401
    assert posting.post({"progressPercentage": 99}, epoch=job.epoch + 1) == 409
    percent = [{"progressPercentage": value} for value in (-1, 101, "45", True, float("nan"))]
    metrics = [{"metrics": value} for value in ("x", [1], [{"value": "1"}])]
    for status in (None, [], "x", *percent, {"estimatedRemainingSeconds": -5}, *metrics):
        assert posting.post(status) == 422
    for body in (b"", b"{", b"\xff", b"[" * 50_000, b"9" * 5000):
        assert posting.post(None, content=body) in (400, 422)
    assert posting.service.watching.of(job).told is None
    many = [{"name": f"m{k}" * 50, "value": "9" * 1000} for k in range(40)]
    assert posting.post({"progressPercentage": 1, "metrics": many}) == 200
    kept = posting.service.watching.of(job).told.metrics
    assert len(kept) <= 32
    assert all(len(name) + len(value) <= 128 for name, value in kept.items())
    assert posting.post({"metrics": [{"name": "x", "value": "y" * 100_000}]}) == 413

    async def cancel():
        posting.service.record([Event("cancelled", job.uuid, data={"reason": "x"})])

    asyncio.run(cancel())
    assert posting.post({"progressPercentage": 99}) == 409
