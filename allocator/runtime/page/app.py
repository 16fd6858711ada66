"""The web door as an ASGI application: what can be asked for, and who may.

    GET  /                            the page                            the token, or a browser that showed it
    GET  /events                      what it shows, as it changes        the same
    GET  /metrics                     for Prometheus                      the same
    POST /login                       the token, for a browser            -
    POST /api                         requests, as on the Unix socket     the token
    POST /jobs/<uuid>/<epoch>/status  progress of a job                   the token of that start of that job

On a Unix socket, which only the user can open, tokens are not asked for, except of jobs.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from allocator.runtime.door.requests import READING, Requests
from allocator.runtime.page.access import Access, Posts
from allocator.runtime.page.metrics import CONTENT_TYPE, Metrics
from allocator.runtime.page.picture import History, picture
from throughputs import InputError

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from allocator.runtime.service import Service


# ----------------------------------------------------------------------------------------------------------------------
# HTML files of ours: one file each, and a policy by which a browser runs what is in it and nothing else.
# ----------------------------------------------------------------------------------------------------------------------


_POLICY = (
    "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'; connect-src 'self'; "
    "img-src data:; require-trusted-types-for 'script'; trusted-types 'none'"
)


@dataclass(frozen=True)
class Document:
    """A file, and its Content-Security-Policy: scripts and styles are allowed by their SHA-256."""

    text: str
    policy: str


def document(name: str) -> Document:
    """A file of this folder."""
    text = files("allocator.runtime.page").joinpath(name).read_text(encoding="utf-8")
    allowed = (f"{tag}-src {' '.join(_hashes(tag, text))}" for tag in ("script", "style"))
    return Document(text, "; ".join([_POLICY, *allowed]))


def _hashes(tag: str, text: str) -> list[str]:
    inside = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return [f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in inside]


# ----------------------------------------------------------------------------------------------------------------------
# One picture for all who look: made while somebody does, at most once a second, and never more than a share of time.
#
# Nobody has a queue: who reads slowly gets the newest picture when it is ready for one, and misses those in between.
# ----------------------------------------------------------------------------------------------------------------------


_SECONDS = 1.0
_MOST_SHARE = 0.05
"""Of the time of the service that pictures may take."""


class Feed:
    """Pictures as server-sent events.

    Parameters
    ----------
    make : the picture of now.

    Attributes
    ----------
    readers : how many look.
    """

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        self._make = make
        self._newest, self._next = b"", 0.0
        self._closed = asyncio.Event()
        self.readers = 0

    def close(self) -> None:
        """No more pictures: all who look are let go."""
        self._closed.set()

    async def events(self) -> AsyncIterator[bytes]:
        """Pictures for one who looks."""
        self.readers += 1
        try:
            while not self._closed.is_set():
                yield self._picture()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), max(self._next - time.monotonic(), 0.0))
        finally:
            self.readers -= 1

    def _picture(self) -> bytes:
        """The newest one; another where that is old enough."""
        began = time.monotonic()
        if began >= self._next:
            text = json.dumps(self._make(), separators=(",", ":"), allow_nan=False)
            self._newest, now = f"data: {text}\n\n".encode(), time.monotonic()
            self._next = now + max(_SECONDS, (now - began) / _MOST_SHARE)
        return self._newest


_COOKIE = "__Host-allocator"
_PATIENCE = 15.0
"""Seconds that the body of a request may take."""

_LONGEST_REQUEST, _LONGEST_POST, _LONGEST_LOGIN = 8 << 20, 64 << 10, 8 << 10
_MOST_READERS = 32
"""Pages that are open at once."""

_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class Desk:
    """The application: lets nobody in who may not, before anything else is looked at.

    Parameters
    ----------
    service, requests : whom it speaks for. access : knows the token.
    guarded : whether it is asked for; else whoever is here is the user.
    changes : whether requests that change something are answered.
    """

    def __init__(
        self, service: Service, requests: Requests, access: Access, guarded: bool = True, changes: bool = False
    ) -> None:
        self._service, self._requests, self._access = service, requests, access
        self._guarded, self._changes = guarded, changes
        self.history, self.posts = History(service), Posts(service, access)
        self._counts = Metrics(service)
        self._feed = Feed(lambda: picture(service, self.history))
        self._shown, self._asking = document("page.html"), document("login.html")
        self._closed = False
        self._app = Starlette(
            routes=[
                Route("/", self._page),
                Route("/events", self._events),
                Route("/metrics", self._metrics),
                Route("/login", self._login, methods=["POST"]),
                Route("/api", self._api, methods=["POST"]),
                Route("/jobs/{uuid}/{epoch}/status", self._status, methods=["POST"]),
            ],
            exception_handlers={HTTPException: _refused},
        )
        # a redirection would be made of what the request says of its host
        self._app.router.redirect_slashes = False

    def close(self) -> None:
        """The service ends: nothing more is answered."""
        self._closed = True
        self._feed.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it; all answers get our headers."""
        if scope["type"] != "http":
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, answer)

    def _refusal(self, request: Request) -> Response | None:
        headers, path = request.headers, request.scope["path"]
        if self._closed:
            return _text("the service ends", 503)
        if not self._guarded:
            # a page elsewhere must not reach a port that a user has led to this socket
            host = re.sub(r":\d+$", "", headers.get("host", ""))
            return None if host in _HERE else _text("only as localhost", 421)
        if path == "/login" or path.startswith("/jobs/"):
            return None
        if self._access.in_header(headers.get("authorization", "")):
            return None
        session = request.cookies.get(_COOKIE, "")
        if path in ("/", "/events", "/metrics") and self._access.is_session(session, time.time()):
            return None
        return _shown(self._asking, 401) if path == "/" else _text("token missing or wrong", 401, _ASK)

    async def _page(self, _: Request) -> Response:
        return _shown(self._shown)

    async def _events(self, _: Request) -> Response:
        if self._feed.readers >= _MOST_READERS:
            return _text(f"more than {_MOST_READERS} pages are open", 503)
        return StreamingResponse(self._feed.events(), media_type="text/event-stream")

    async def _metrics(self, _: Request) -> Response:
        return Response(self._counts.text(), media_type=CONTENT_TYPE)

    async def _login(self, request: Request) -> Response:
        body = await _body(request, _LONGEST_LOGIN)
        try:
            shown = parse_qs(body.decode(errors="replace"), max_num_fields=4).get("token", [""])[0].strip()
        except ValueError:
            shown = ""
        if not self._access.is_token(shown):
            return _shown(self._asking, 401)
        answer = Response(status_code=303, headers={"location": "/"})
        session = self._access.session(time.time())
        answer.set_cookie(_COOKIE, session, httponly=True, secure=True, samesite="lax")
        return answer

    async def _api(self, request: Request) -> Response:
        # what a form or a script of another site can send without asking is no request
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return JSONResponse({"ok": False, "error": "content type: application/json"}, 415)
        if "origin" in request.headers:
            return JSONResponse({"ok": False, "error": "requests are not for browsers"}, 403)
        try:
            asked = json.loads(await _body(request, _LONGEST_REQUEST))
            if isinstance(asked, dict) and asked.get("do") not in READING and not self._changes:
                error = f"only {', '.join(READING)} here: serve was started without --web-api"
                return JSONResponse({"ok": False, "error": error}, 403)
            answer = self._requests.open(asked)
        except (ValueError, RecursionError):
            return JSONResponse({"ok": False, "error": "request: not JSON"}, 400)
        pieces, code = self._requests.stream(answer), 200 if answer["ok"] else 422
        return StreamingResponse(pieces, code, media_type="application/json")

    async def _status(self, request: Request) -> Response:
        start = request.path_params["uuid"], request.path_params["epoch"]
        if not self._access.is_of_job(request.headers.get("authorization", ""), *start):
            return JSONResponse({"message": "token missing or wrong"}, 401, _ASK)
        job = self.posts.job(*start)
        if job is None:
            return JSONResponse({"message": "this start of the job is over"}, 409)
        try:
            self.posts.take(job, json.loads(await _body(request, _LONGEST_POST)))
        except InputError as error:
            return JSONResponse({"message": str(error)}, 422)
        except (ValueError, RecursionError):
            return JSONResponse({"message": "not JSON"}, 400)
        return JSONResponse({})


_HERE = frozenset({"localhost", "127.0.0.1", "[::1]"})
_ASK = {"www-authenticate": "Bearer"}


# -- in and out -------------------------------------------------------------------------------------------------------


async def _body(request: Request, longest: int) -> bytes:
    """The body of a request that is short enough and comes in time."""
    pieces, length = [], 0
    try:
        async with asyncio.timeout(_PATIENCE):
            async for piece in request.stream():
                pieces.append(piece)
                length += len(piece)
                if length > longest:
                    raise HTTPException(413, f"more than {longest:,} bytes", _CLOSE)
    except TimeoutError:
        raise HTTPException(408, "the request did not come to its end", _CLOSE) from None
    except ClientDisconnect:
        raise HTTPException(400, "disconnected", _CLOSE) from None
    return b"".join(pieces)


_CLOSE = {"connection": "close"}


async def _refused(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return _text("error", 500)
    return _text(error.detail, error.status_code, error.headers)


def _text(text: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{text}\n", status, headers)


def _shown(shown: Document, status: int = 200) -> Response:
    return HTMLResponse(shown.text, status, {"content-security-policy": shown.policy})
