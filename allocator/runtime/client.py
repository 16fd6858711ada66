"""Speaks with a running service, from another process."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

from throughputs import InputError

__all__ = ["Client", "NoServiceError"]

_PATIENCE = 60.0
"""Seconds that an answer may take."""


class NoServiceError(RuntimeError):
    """No service answers there."""


class Client:
    """A service by its state folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """The answer to a request.

        Raises
        ------
        NoServiceError
            Nobody listens.
        InputError
            The service refused the request.
        """
        line = json.dumps({"do": what, **fields}).encode() + b"\n"
        try:
            with _connected(self._folder / "socket") as connection:
                connection.settimeout(_PATIENCE)
                connection.sendall(line)
                with connection.makefile("rb") as answers:
                    answered = answers.readline()
        except TimeoutError:
            raise NoServiceError(f"the service on {self._folder} has not answered in {_PATIENCE:g} s") from None
        except OSError:
            hint = f"start one with allocator serve --state {self._folder}"
            raise NoServiceError(f"no service runs on {self._folder}; {hint}") from None
        if not answered:
            raise NoServiceError(f"the service on {self._folder} ended before it answered")
        answer: dict[str, Any] = json.loads(answered)
        if not answer.pop("ok"):
            raise InputError(f"service on {self._folder}", found=answer["error"], expected="another request")
        return answer


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except OSError:
        connection.close()
        raise
    return connection
