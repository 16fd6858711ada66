"""Who may come in over TCP: who shows the token of the service, and a job, with a token of its own, for its progress.

All that is handed out is derived from the one token by HMAC-SHA256: what a browser keeps, and what jobs are given. So
nothing has to be remembered, a service that starts again knows them all, and none of them tells the token.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from allocator.runtime.records.ownership import check_parents
from throughputs import InputError

_SESSION_SECONDS = 12 * 3600
"""How long a browser stays logged in."""

_SHORTEST_TOKEN = 20
_LONGEST_TOKEN = 4096


class Access:
    """Knows the token, and what is derived from it.

    Parameters
    ----------
    token : of the service.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def is_token(self, shown: str) -> bool:
        """Whether something is the token of the service."""
        return hmac.compare_digest(shown.encode(errors="replace"), self._token)

    def in_header(self, authorization: str) -> bool:
        """Whether a header ``Authorization: Bearer ...`` has the token of the service."""
        return self.is_token(_bearer(authorization))

    def session(self, now: float) -> str:
        """What a browser keeps that has shown the token: good for reading, for some hours, `now` in seconds."""
        until = str(int(now) + _SESSION_SECONDS)
        return f"{until}.{self._derived('session', until)}"

    def is_session(self, shown: str, now: float) -> bool:
        """Whether a browser shows what it was given, and in time."""
        until, _, mark = shown.partition(".")
        good = hmac.compare_digest(mark.encode(errors="replace"), self._derived("session", until).encode())
        return good and now < int(until)

    def of_job(self, uuid: str, epoch: int | str) -> str:
        """What one start of a job shows when it posts its progress."""
        return self._derived("job", f"{uuid} {epoch}")

    def is_of_job(self, authorization: str, uuid: str, epoch: str) -> bool:
        """Whether a header is that of a start of a job."""
        return hmac.compare_digest(_bearer(authorization).encode(errors="replace"), self.of_job(uuid, epoch).encode())

    def _derived(self, purpose: str, what: str) -> str:
        return hmac.digest(self._token, f"{purpose} {what}".encode(errors="replace"), hashlib.sha256).hex()


def _bearer(authorization: str) -> str:
    kind, _, shown = authorization.partition(" ")
    return shown.strip() if kind.lower() == "bearer" else ""


def read_token(path: Path) -> str:
    """The token in a file; a new one, in a file private to the user, where there is none.

    Raises
    ------
    InputError
        Others can use the file or replace it, or what is in it is no token.
    """
    check_parents(path)
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    except FileExistsError:
        pass
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as kept:
        status = os.fstat(kept.fileno())
        if status.st_uid not in (0, os.geteuid()) or not stat.S_ISREG(status.st_mode):
            found = f"owner {status.st_uid}, mode {status.st_mode:o}"
            raise InputError(str(path), found=found, expected="a file of yours or of the administrator's")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise InputError(str(path), found="a file that others can use", expected=f"chmod 600 {path}")
        token = kept.read(_LONGEST_TOKEN).decode(errors="replace").strip()
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        expected = f"a token: one line of at least {_SHORTEST_TOKEN} characters without spaces"
        raise InputError(str(path), found=f"{len(token)} characters", expected=expected)
    return token
