"""Asks an ASGI application without a network, and without a client's ideas of what may be asked."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)


class Asker:
    """Speaks with an application as ``https://localhost``."""

    def __init__(self, app):
        self.app = app

    def get(self, path, headers=None):
        return self.ask("GET", path, headers)

    def post(self, path, headers=None, *, content=b"", data=None):
        if data is not None:
            content, headers = json.dumps(data).encode(), {"content-type": "application/json"} | dict(headers or {})
        return self.ask("POST", path, headers, content)

    def ask(self, method, path, headers=None, content=b""):
        sent = {"host": b"localhost"} | dict(headers or {})
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "https",
            "path": path,
            "raw_path": path.encode(errors="replace"),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.encode(), _bytes(value)) for name, value in sent.items()],
            "server": ("localhost", 443),
            "client": ("127.0.0.1", 1),
        }
        pieces = [content[at : at + 65536] for at in range(0, len(content), 65536)] or [b""]
        told = []

        async def receive():
            if not pieces:
                # who has asked stays until it is answered
                await asyncio.Event().wait()
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        async def send(message):
            told.append(message)

        asyncio.run(self.app(scope, receive, send))
        headers_told = {name.decode("latin-1"): value.decode("latin-1") for name, value in told[0]["headers"]}
        return Answer(told[0]["status"], headers_told, b"".join(one.get("body", b"") for one in told[1:]))


def _bytes(value):
    return value if isinstance(value, bytes) else value.encode("latin-1")
