"""The server for the tests of this folder."""

from __future__ import annotations

import threading
from http.server import ThreadingHTTPServer

import pytest

from tests.data.local_server import Behaviour, Handler


@pytest.fixture
def server():
    """A server on this machine: its `behaviour` says what it does, `url` where it is."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    http.behaviour = Behaviour()
    http.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield http
    http.shutdown()
    http.server_close()
