"""A server on this machine that misbehaves on demand, and a data set of one file on it."""

from __future__ import annotations

import hashlib
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from unittest import mock
from urllib.parse import unquote, urlsplit

from allocator.data import DataFile, Dataset, download, fetch

PATIENCE = 120.0
"""Seconds until a test gives up: other programs may keep this machine busy."""

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Behaviour:
    """What the server has and how it serves it."""

    files: dict[str, bytes] = field(default_factory=lambda: {"/set/file.bin": CONTENT})
    ranges: bool = True
    cut_after: list[int] = field(default_factory=list)  # bytes sent before the connection breaks, request by request
    content_type: str = "application/octet-stream"
    statuses: list[int] = field(default_factory=list)  # answered before anything else
    pause: threading.Event | None = None
    says_length: bool = True
    more: int = 0  # bytes after the end of the file
    sent: int = 0  # bytes of bodies that went out
    locations: list[str] = field(default_factory=list)  # redirected to, request by request
    requests: list[dict[str, str]] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        server: Behaviour = self.server.behaviour
        server.requests.append({"path": self.path, **{k.lower(): v for k, v in self.headers.items()}})
        if server.statuses:
            return self.send_error(server.statuses.pop(0))
        if server.locations:
            self.send_response(302)
            self.send_header("Location", server.locations.pop(0))
            self.send_header("Content-Length", "0")
            return self.end_headers()
        body = server.files.get(unquote(urlsplit(self.path).path))
        if body is None:
            return self.send_error(404)
        start = 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and server.ranges:
            start = int(asked.group(1))
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Type", server.content_type)
        if server.says_length:
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        sent = body[start:]
        if server.pause is not None:
            self.wfile.write(sent[:1000])
            self.wfile.flush()
            server.pause.wait(PATIENCE)
            sent = sent[1000:]
        if server.cut_after:
            sent = sent[: server.cut_after.pop(0)]
        self.wfile.write(sent)
        server.sent += len(sent)
        self._send_more(server)
        self.close_connection = True
        return None

    def _send_more(self, server: Behaviour) -> None:
        piece = bytes(1 << 16)
        try:
            for _ in range(-(-server.more // len(piece))):
                self.wfile.write(piece)
                server.sent += len(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the other side has had enough


def one_file(server, **changes) -> Dataset:
    """A data set of one file on the server, with known length and hash unless `changes` say otherwise."""
    known = {"size": len(CONTENT), "sha256": SHA256} | changes
    return Dataset(
        "set", "A test", "MIT", "https://example.org", (DataFile("file.bin", f"{server.url}/set/file.bin", **known),)
    )


def get(dataset, cache, attempts=download.ATTEMPTS, **settings):
    """Fetch without pauses."""
    limits = {"ATTEMPTS": attempts, "PAUSE_SECONDS": 0.0, "TIMEOUT_SECONDS": PATIENCE}
    with mock.patch.multiple(download, **limits):
        return fetch(dataset, cache=cache, **settings)
