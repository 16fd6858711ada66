"""The service's end of the pipes to the process that is connected to Ray, which is started anew where it has ended."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pickle
import struct
import sys
import time
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allocator.runtime.adapters.base import AdapterError, NoAnswerError

_AGAIN_SECONDS = 2.0
"""Between two attempts to connect."""


@dataclass(frozen=True)
class RaySettings:
    """How a Ray cluster is used.

    Attributes
    ----------
    address : as Ray takes it: ``auto``, or host and port of the head.
    types : our name of an accelerator type by Ray's, where it is not Ray's in small letters.
    patience_seconds : how long a start waits for its GPUs.
    answer_seconds : how long a supervisor may take to answer.
    lost_seconds : from when Ray calls a node lost to when what ran there is taken to have ended: for as long a raylet
        that is cut off, and so the jobs of its node, may run on (RAY_gcs_rpc_server_reconnect_timeout_s and a bit).
    """

    address: str = "auto"
    types: dict[str, str] = field(default_factory=dict)
    patience_seconds: float = 10.0
    answer_seconds: float = 30.0
    lost_seconds: float = 65.0


class Connection:
    """Requests to a `Bridge`.

    Parameters
    ----------
    service : as in `Supervisor`. address : of the cluster. log : file for what Ray prints.
    """

    def __init__(self, service: str, address: str, log: Path) -> None:
        self._words = [service, address]
        self._log = log
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._count, self._next_try = 0, 0.0

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
        with open(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=log, start_new_session=True
            )
        self._reading = asyncio.create_task(self._read(self._process))

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        if self._reading is not None:
            await self._reading

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
        process = self._process
        assert process is not None
        assert process.stdin is not None
        self._count += 1
        number, answer = self._count, asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        message = pickle.dumps((number, name, arguments))
        try:
            async with asyncio.timeout(seconds):
                process.stdin.write(struct.pack("!Q", len(message)) + message)
                await process.stdin.drain()
                return await answer
        except TimeoutError:
            raise NoAnswerError(f"Ray at {self._words[1]} has not answered within {seconds:g} s") from None
        except (ConnectionError, OSError):
            raise NoAnswerError(self._last_words()) from None
        finally:
            self._waiting.pop(number, None)

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        try:
            while True:
                (length,) = struct.unpack("!Q", await process.stdout.readexactly(8))
                number, good, told = pickle.loads(await process.stdout.readexactly(length))
                answer = self._waiting.get(number)
                if answer is None or answer.done():
                    continue
                if good:
                    answer.set_result(told)
                else:
                    refused, words = told
                    answer.set_exception((AdapterError if refused else NoAnswerError)(f"Ray: {words[0]}"))
        except asyncio.IncompleteReadError:
            await process.wait()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(NoAnswerError(self._last_words()))

    def _last_words(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"not connected to Ray at {self._words[1]}: {lines[-1].strip() if lines else 'its process has ended'}"
