"""Opens the web door: a Unix socket, or TCP with TLS, served within the event loop of the service.

Nobody outside may hold the scheduler up. Connections are counted as they are accepted, before TLS has begun, so that
they cannot use up the files of the process; each has to say in time what it wants, and to take in time what it is
given; none lasts for ever. What is served is bounded in time by `allocator.runtime.page.app`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from allocator.runtime.door.requests import Requests
from allocator.runtime.door.server import private_socket
from allocator.runtime.page.access import Access, read_token
from allocator.runtime.page.app import Desk
from allocator.runtime.records.ownership import check_parents
from allocator.runtime.settings import DoorSettings
from throughputs import InputError

if TYPE_CHECKING:
    from allocator.runtime.service import Service

_MOST_CONNECTIONS = 128
_LONGEST_HEAD = 16 << 10
_TO_ASK, _TO_READ, _AT_ALL = 10.0, 20.0, 3600.0
"""Seconds that a connection has to ask (TLS included), to take what it was sent, and at all."""

_TO_CLOSE = 2.0


class Door:
    """The web door of a service; listens from the start, answers once `open`.

    Parameters
    ----------
    service, requests : that it is the door of. settings : where.

    Attributes
    ----------
    url : by which it is reached.
    notice : the same for people, with what they need to come in.
    """

    def __init__(self, service: Service, requests: Requests, settings: DoorSettings) -> None:
        self._settings = settings
        address, path = address_of(settings), settings.web.removeprefix("unix:")
        self._path = None if address else Path(path)
        # who comes through a file needs no token
        token_file = settings.token_file or service.folder / "token"
        access = Access(read_token(token_file) if address else secrets.token_hex())
        desk = Desk(service, requests, access, self._path is None, settings.web_api)
        self._desk = desk
        config = uvicorn.Config(
            desk,
            http=_Bounded,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
            timeout_keep_alive=int(_TO_ASK),
            timeout_graceful_shutdown=int(_TO_CLOSE),
            ssl_certfile=settings.tls_cert if address else None,
            ssl_keyfile=settings.tls_key if address else None,
        )
        try:
            config.load()
        except (ssl.SSLError, OSError) as error:
            found = f"{settings.tls_cert}, {settings.tls_key}: {error}"
            raise InputError(
                "--tls-cert, --tls-key", found=found, expected="a certificate and its key, as PEM"
            ) from None
        self._socket = _listening(address) if address else _listening_at(Path(path))
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None
        port = self._socket.getsockname()[1] if address else 0
        self.url = settings.web_url or (_url(address[0], port) if address else settings.web)
        self.notice = f"{self.url}; the token is in {token_file}" if address else self.url
        if address:
            authority = (settings.tls_ca or settings.tls_cert or Path()).absolute()
            service.dispatch.variables = lambda job: desk.posts.variables(job, self.url, authority)

    async def open(self) -> None:
        """Begin to answer."""
        self._task = asyncio.get_running_loop().create_task(self._server.serve([self._socket]))
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.01)
        if self._task.done():
            self._task.result()

    async def close(self) -> None:
        """Let all go."""
        self._desk.close()
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.wait([self._task], timeout=2 * _TO_CLOSE)
        self._socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def address_of(settings: DoorSettings) -> tuple[str, int] | None:
    """Host and port, None of a file; InputError where something is missing that TCP needs."""
    if settings.web.startswith("unix:") and settings.web != "unix:":
        return None
    host, colon, port = settings.web.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise InputError("--web", found=settings.web, expected="HOST:PORT, as in 127.0.0.1:8080, or unix:PATH")
    if settings.tls_cert is None or settings.tls_key is None:
        expected = "--tls-cert FILE and --tls-key FILE with it (TCP is served with TLS only), or unix:PATH"
        raise InputError("--web", found=settings.web, expected=expected)
    if settings.web_url is not None and urlsplit(settings.web_url).scheme != "https":
        raise InputError("--web-url", found=settings.web_url, expected="an address such as https://host:8080")
    return host, int(port)


def _url(host: str, port: int) -> str:
    name = socket.getfqdn() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"https://{name}:{port}"


def _listening(address: tuple[str, int]) -> _Listener:
    try:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        made = _Listener(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        expected = "an address of this machine that is free"
        raise InputError("--web", found=f"{address[0]}:{address[1]}: {error.strerror}", expected=expected) from None
    return made


def _listening_at(path: Path) -> _Listener:
    """A Unix socket that only the user can open; one that is there and dead makes room."""
    check_parents(path)
    made = private_socket(path)
    return _Listener(made.family, made.type, fileno=made.detach())


class _Listener(socket.socket):
    """Accepts so many connections at once, and lets go at once of more; and of those that do not get through TLS."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._accepted: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection."""
        connection, address = super().accept()
        self._accepted = [one for one in self._accepted if one.fileno() >= 0]
        if len(self._accepted) >= _MOST_CONNECTIONS:
            connection.close()
            raise ConnectionAbortedError
        self._accepted.append(connection)
        asyncio.get_running_loop().call_later(_TO_ASK, self._look, connection)
        return connection, address

    @staticmethod
    def _look(connection: socket.socket) -> None:
        """Cut a connection that has not become one of the protocol's."""
        number = connection.fileno()
        if number >= 0 and number not in _Bounded.through:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Bounded(H11Protocol):
    """HTTP with limits of time.

    Attributes
    ----------
    through : file numbers of the connections that got through TLS.
    """

    through: ClassVar[set[int]] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It stands."""
        super().connection_made(transport)
        self._number = transport.get_extra_info("socket").fileno()
        self.through.add(self._number)
        self._stuck: asyncio.TimerHandle | None = None
        self._at_all = self.loop.call_later(_AT_ALL, transport.abort)
        self._to_ask = self.loop.call_later(_TO_ASK, self._overdue)

    def _overdue(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()

    def on_response_complete(self) -> None:
        """The next request has its own time."""
        self._to_ask.cancel()
        self._to_ask = self.loop.call_later(_TO_ASK, self._overdue)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The other side does not read."""
        super().pause_writing()
        self._stuck = self.loop.call_later(_TO_READ, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        for timer in (self._to_ask, self._at_all, self._stuck):
            if timer is not None:
                timer.cancel()
        self.through.discard(self._number)
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """Leaves signals to the service."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None."""
        yield
