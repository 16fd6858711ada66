"""Requests to the process that is connected to Ray, which is started anew where it has ended."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pickle
import socket
import sys
import time
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

from allocator.runtime.adapters.base import AdapterError, NoAnswerError

_AGAIN_SECONDS = 2.0
"""Between two attempts to connect."""


class Connection:
    """Requests to a `Bridge`, each by a socket of its own, of which it is handed the other end.

    Parameters
    ----------
    service : as in `Supervisor`. address : of the cluster. log : file for what Ray prints.
    """

    def __init__(self, service: str, address: str, log: Path) -> None:
        self._words, self._log = [service, address], log
        # of a process that was not started: nothing can be sent
        self._control = socket.socket()
        self._process: Process | None = None
        self._next_try = 0.0

    async def open(self) -> None:
        """Start the process, unless it runs.

        Raises
        ------
        NoAnswerError
            It was started a moment ago, and has ended.
        AdapterError
            Ray is not installed.
        """
        if self._process is not None and self._process.returncode is None:
            return
        if importlib.util.find_spec("ray") is None:
            raise AdapterError("Ray is not installed: pip install 'cluster-allocator[ray]'")
        if time.monotonic() < self._next_try:
            raise NoAnswerError(self._last_words())
        self._next_try = time.monotonic() + _AGAIN_SECONDS
        command = [sys.executable, "-P", "-m", "allocator.runtime.adapters.ray.bridge", *self._words]
        self._control.close()
        self._control, theirs = socket.socketpair()
        with theirs, open(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=theirs.fileno(), stdout=log, stderr=log, start_new_session=True
            )

    async def close(self) -> None:
        """End the process."""
        self._control.close()
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def ask(self, name: str, *arguments: object, seconds: float = 30.0) -> Any:
        """What the bridge answers.

        Raises
        ------
        NoAnswerError
            There was none in time, or Ray has refused for reasons of its own.
        AdapterError
            It was not done, and will not be.
        """
        await self.open()
        try:
            async with asyncio.timeout(seconds):
                ours, theirs = socket.socketpair()
                with theirs:
                    socket.send_fds(self._control, [b"\0"], [theirs.fileno()])
                reader, writer = await asyncio.open_connection(sock=ours)
                try:
                    writer.write(pickle.dumps((name, arguments)))
                    writer.write_eof()
                    good, told = pickle.loads(await reader.read())
                finally:
                    writer.close()
        except TimeoutError:
            raise NoAnswerError(f"Ray at {self._words[1]} has not answered within {seconds:g} s") from None
        except (EOFError, OSError):
            # it has ended in the middle
            raise NoAnswerError(self._last_words()) from None
        if not good:
            refused, words = told
            raise (AdapterError if refused else NoAnswerError)(f"Ray: {words}")
        return told

    def _last_words(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"not connected to Ray at {self._words[1]}: {lines[-1].strip() if lines else 'its process has ended'}"
