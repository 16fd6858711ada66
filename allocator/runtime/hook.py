"""A program of the user's that is told what happens to jobs and nodes, as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections import deque
from collections.abc import Sequence

from allocator.runtime.door.views import event_view
from allocator.runtime.records.book import Book
from allocator.runtime.records.journal import Event, Journal, JournalError

_MOST_KEPT = 10_000
"""Events that wait for the program; the oldest are given up first."""

_PATIENCE = 60.0
"""Seconds that the program has for what it is told at once."""

_AGAIN = 5.0
"""Seconds after which it is told again what it did not take."""

_TAKEN = "hook"
"""Name of the number in the journal."""

_SILENT = frozenset({"decision", "measured", "progress"})
"""Kinds of events of which it hears nothing: there are many, and nothing happens to a job."""


class Hook:
    """Runs the command with the events since it last ran on its standard input, a line of JSON each.

    One at a time, and in order. What it does not take - it cannot be run, ends with an error, or takes too long - it is
    told again: each event at least once. The journal has the number of the last event that it took, so that a service
    that begins anew tells what the one before had not.

    Parameters
    ----------
    book : of jobs, for their numbers and names. journal : of the events. command : a program and its arguments.

    Attributes
    ----------
    trouble : why it did not take what it was last told, "" if it did.
    """

    def __init__(self, book: Book, journal: Journal, command: Sequence[str]) -> None:
        self._book, self._journal, self._command = book, journal, tuple(command)
        self._waiting: deque[tuple[int, str]] = deque(maxlen=_MOST_KEPT)
        self._news = asyncio.Event()
        self.trouble = ""
        taken = journal.noted(_TAKEN)
        if taken is None:
            journal.note(_TAKEN, journal.newest)
        else:
            for event in journal.events(after=taken):
                self.hear(event)
        self._task = asyncio.get_running_loop().create_task(self._tell())

    def hear(self, event: Event) -> None:
        """Something was written into the journal."""
        if event.kind in _SILENT:
            return
        told = event_view(self._book, event)
        told["data"].pop("environment", None)
        self._waiting.append((event.number, json.dumps(told)))
        self._news.set()

    async def _tell(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            told = list(self._waiting)
            if not told:
                continue
            self.trouble = await self._run("".join(f"{line}\n" for _, line in told).encode())
            if self.trouble:
                await asyncio.sleep(_AGAIN)
                self._news.set()
            else:
                while self._waiting and self._waiting[0][0] <= told[-1][0]:
                    self._waiting.popleft()
                # where nothing can be written it is told again by the next service
                with contextlib.suppress(JournalError):
                    self._journal.note(_TAKEN, told[-1][0])

    async def _run(self, told: bytes) -> str:
        """Why the program did not take it, "" if it did."""
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = None
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=none, stderr=none, start_new_session=True
            )
            await asyncio.wait_for(process.communicate(told), _PATIENCE)
        except TimeoutError:
            return f"hook {self._command[0]} did not end within {_PATIENCE:g} s"
        except OSError as error:
            return f"hook {self._command[0]}: {error.strerror}"
        finally:
            if process is not None and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, 9)
        return f"hook {self._command[0]} ended with status {process.returncode}" if process.returncode else ""

    async def close(self) -> None:
        """Tell what is left, for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AGAIN):
                while self._waiting and not self.trouble:
                    await asyncio.sleep(0.01)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
