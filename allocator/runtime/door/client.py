"""Speaks with a running service, from another process."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from math import inf
from pathlib import Path
from typing import Any

from allocator.runtime.records.ownership import check_own_peer, own_folder
from throughputs import InputError

MOST_AT_ONCE = 10_000
"""Jobs that a request names: nobody else is held up for more than a second."""

_PATIENCE = 60.0
"""Seconds that an answer may take."""

_ABSENCE = 60.0
"""Seconds that a service may be away which has run, for whoever follows it."""

_PAUSE = 0.2
"""Seconds between two tries to find a service that is away."""


class RefusedError(InputError):
    """The service says what is wrong with a request."""

    def __init__(self, told: str) -> None:
        super().__init__("request", found=told, expected="another one")
        self.args = (told,)


class ServiceError(RuntimeError):
    """The service could not do what it was asked for."""


class NoServiceError(ServiceError):
    """No service answers there."""


class AbsentError(NoServiceError):
    """Nobody listens: it was stopped, or killed, or has never run."""


class Client:
    """A service by its state folder.

    Parameters
    ----------
    folder : of the state. until : when nobody waits for an answer any more, on the monotonic clock.
    """

    def __init__(self, folder: Path, until: float = inf) -> None:
        self._folder, self._until = folder, until
        self._met = self._told = False

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """The answer to a request.

        Raises
        ------
        NoServiceError
            Nobody answers; AbsentError where nobody is there.
        RefusedError
            Something is wrong with the request.
        ServiceError
            The service could not do it, as on a full disk.
        InputError
            The folder or the service is another user's, or could be: nothing was sent.
        """
        line = json.dumps({"do": what, **fields}).encode() + b"\n"
        patience = max(min(_PATIENCE, self._until - time.monotonic()), _PAUSE)
        try:
            with _connected(own_folder(self._folder) / "socket") as connection:
                connection.settimeout(patience)
                connection.sendall(line)
                with connection.makefile("rb") as answers:
                    answered = answers.readline()
        except TimeoutError:
            raise NoServiceError(f"the service on {self._folder} has not answered in {patience:.3g} s") from None
        except OSError as error:
            raise self._why_not(error) from None
        if not answered.endswith(b"\n"):
            raise AbsentError(f"the service on {self._folder} ended before it had answered")
        self._met = True
        return granted(json.loads(answered), self._folder)

    def follow(self, what: str, **fields: Any) -> dict[str, Any]:
        """The same for requests that may be sent twice, of a service that may be stopped and started again meanwhile.

        Raises
        ------
        NoServiceError
            Nobody answers for a minute, or `until` then, or none has ever run there.
        RefusedError, ServiceError
            See `ask`.
        """
        until = min(time.monotonic() + _ABSENCE, self._until)
        while True:
            try:
                return self.ask(what, **fields)
            except NoServiceError as error:
                away = isinstance(error, AbsentError) and (self._folder / "journal.sqlite").is_file()
                if not (self._met or away) or time.monotonic() >= until:
                    raise
                if not (self._met or self._told):
                    self._told = True
                    print(f"{error}; it is waited for, for {until - time.monotonic():.0f} s", file=sys.stderr)
            time.sleep(_PAUSE)

    def _why_not(self, error: OSError) -> NoServiceError:
        """Why nobody could be asked, and what to do about it."""
        folder = self._folder
        if isinstance(error, PermissionError):
            return NoServiceError(f"the service on {folder} is another user's: {error.strerror}")
        if not folder.is_dir():
            return AbsentError(f"no service runs on {folder}: there is no such folder; see --state")
        return AbsentError(f"no service runs on {folder}; start one with allocator serve --state {folder}")


def granted(answer: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What is told in an answer; raises RefusedError or ServiceError where it is a refusal."""
    if answer.pop("ok"):
        return answer
    if answer.get("fault"):
        raise ServiceError(f"service on {folder}: {answer['error']}")
    raise RefusedError(answer["error"])


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        check_own_peer(connection, path)
    except (OSError, InputError):
        connection.close()
        raise
    return connection
