"""The door of the service: a socket in its state folder, one line of JSON for each request and each answer.

Only the user who owns the folder can open the socket, and by the kernel's word no other is answered. What comes in is
bounded in size and time; whoever sends something else than a request is answered so, and let go.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

from allocator.runtime.door.requests import Requests
from allocator.runtime.records.ownership import check_own_peer
from throughputs import InputError

SOCKET = "socket"

_LONGEST_LINE = 32 << 20
_MOST_CONNECTIONS = 64
_PATIENCE = 30.0
"""Seconds that a connection may be silent in the middle of a request, or of an answer."""

_TO_CLOSE = 5.0
"""Seconds that answers under way have when the service ends."""


class Server:
    """Listens on the socket of a state folder.

    Parameters
    ----------
    folder : of the state. requests : answer them.
    """

    def __init__(self, folder: Path, requests: Requests) -> None:
        self._path = folder / SOCKET
        self._requests = requests
        # whether each connection is being answered
        self._open: dict[asyncio.Task[Any], bool] = {}
        self._closing = False
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        """Begin to listen. The caller owns the folder, so that a socket that is there is a dead service's.

        Raises
        ------
        InputError
            The path is too long for a socket.
        """
        listening = private_socket(self._path)
        listening.listen(128)
        self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=_LONGEST_LINE)

    async def close(self) -> None:
        """Let nobody in any more; answers under way are finished, who has not asked so far is let go.

        Nothing is answered once this returns.
        """
        self._closing = True
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        for connection in [one for one, answered in self._open.items() if not answered]:
            connection.cancel()
        if self._open:
            _, late = await asyncio.wait(self._open, timeout=_TO_CLOSE)
            for connection in late:
                connection.cancel()
            await asyncio.gather(*late)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None
        self._open[me] = False
        try:
            if len(self._open) > _MOST_CONNECTIONS and not self._make_room(me):
                writer.write(_refusal(f"more than {_MOST_CONNECTIONS} connections at once", fault=True))
                return
            check_own_peer(writer.get_extra_info("socket"), self._path)
            while not self._closing and (line := await self._line(reader)):
                self._open[me] = True
                await self._answer(line, writer)
                self._open[me] = False
        except InputError as error:
            writer.write(_refusal(str(error)))
        except (ConnectionError, TimeoutError):
            # who does not take its answer does not keep it, and the connection, for ever
            writer.transport.abort()
        except asyncio.CancelledError:
            # the service has ended, or another is let in; the event loop would take it for an error of ours
            if not self._closing:
                writer.write(_refusal(f"silent, with more than {_MOST_CONNECTIONS} connections at once", fault=True))
            return
        finally:
            del self._open[me]
            with contextlib.suppress(ConnectionError):
                writer.close()

    def _make_room(self, me: asyncio.Task[Any]) -> bool:
        """Let go whoever has been silent for longest; whether there was one."""
        for connection, answered in self._open.items():
            if connection is not me and not answered and not connection.cancelling():
                return connection.cancel()
        return False

    async def _line(self, reader: asyncio.StreamReader) -> bytes:
        """The next request; nothing at the end."""
        try:
            return await asyncio.wait_for(reader.readline(), _PATIENCE)
        except ValueError:
            raise ConnectionError("a longer line than any request") from None

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        """Answer a request, as fast as the answer is taken."""
        try:
            asked = json.loads(line)
        except (ValueError, RecursionError):
            writer.write(_refusal("request: not one line of JSON"))
            return
        async for piece in self._requests.stream(self._requests.open(asked)):
            writer.write(piece.encode())
            await asyncio.wait_for(writer.drain(), _PATIENCE)
        writer.write(b"\n")
        await asyncio.wait_for(writer.drain(), _PATIENCE)


def private_socket(path: Path) -> socket.socket:
    """A socket at a path, however long, that only the user can open; one that is there and dead makes room."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        # the kernel takes short paths only
        folder = os.open(path.parent, os.O_RDONLY)
        short = f"/proc/self/fd/{folder}/{path.name}"
        try:
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISSOCK(path.lstat().st_mode) and not _answers(short):
                    path.unlink()
            made.bind(short)
        finally:
            os.close(folder)
    except OSError as error:
        made.close()
        raise InputError(str(path), found=error.strerror, expected="a place where a socket can be made") from None
    finally:
        os.umask(before)
    return made


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial, contextlib.suppress(OSError):
        trial.connect(path)
        return True
    return False


def _refusal(why: str, *, fault: bool = False) -> bytes:
    return json.dumps({"ok": False, "error": why, "fault": fault}).encode() + b"\n"
