"""One picture for all who look: made while somebody does, at most once a second, and never more than a share of time.

Nobody has a queue: who reads slowly gets the newest picture when it is ready for one, and misses those in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

_SECONDS = 1.0
_MOST_SHARE = 0.05
"""Of the time of the service that pictures may take."""

_HEARTBEAT = 15.0


class Feed:
    """Pictures as server-sent events.

    Parameters
    ----------
    make : the picture of now.
    """

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        self._make = make
        self._number = 0
        self._newest = b""
        self._fresh = asyncio.Event()
        self._readers = 0
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def close(self) -> None:
        """No more pictures: all who look are let go."""
        self._closed = True
        self._fresh.set()
        if self._task is not None:
            self._task.cancel()

    async def events(self) -> AsyncIterator[bytes]:
        """Pictures for one who looks, and a sign of life where nothing changes."""
        self._readers += 1
        # what was made for those who looked before is old
        seen = self._number if self._task is None or self._task.done() else 0
        try:
            while not self._closed:
                if self._number > seen:
                    seen = self._number
                    yield self._newest
                    continue
                if self._task is None or self._task.done():
                    self._task = asyncio.get_running_loop().create_task(self._go_on())
                fresh = self._fresh
                try:
                    await asyncio.wait_for(fresh.wait(), _HEARTBEAT)
                except TimeoutError:
                    yield b": \n\n"
        finally:
            self._readers -= 1

    async def _go_on(self) -> None:
        """Make pictures as long as somebody looks."""
        with contextlib.suppress(asyncio.CancelledError):
            while self._readers:
                began = time.monotonic()
                text = json.dumps(self._make(), separators=(",", ":"), allow_nan=False)
                self._newest = f"data: {text}\n\n".encode()
                self._number += 1
                fresh, self._fresh = self._fresh, asyncio.Event()
                fresh.set()
                took = time.monotonic() - began
                await asyncio.sleep(max(_SECONDS, took / _MOST_SHARE))
