"""Small files of JSON, read without trust and replaced as a whole; light enough for what runs beside every job."""

from __future__ import annotations

import json
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LEASE_FILE, REPORT_FILE = "lease.json", "report.json"

MOST_BYTES = 64 << 10
"""A longer file is not read: it is none of ours."""


def write_bytes(path: str | os.PathLike[str], content: bytes, mode: int = 0o600) -> None:
    """Replace a file as a whole: nobody ever reads half of it.

    Raises
    ------
    OSError
        It could not be written, as on a full disk; the file is what it was.
    """
    folder, name = os.path.split(path)
    # several machines may write to a shared file system
    partial = os.path.join(folder, f".{name}.{os.uname().nodename}.{os.getpid()}")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb", 0) as file:
            file.write(content)
        os.replace(partial, path)
    except OSError:
        if os.path.lexists(partial):
            os.unlink(partial)
        raise


def read_bytes(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """What is in a file that is not too long; b"" where something else stands in its place: nobody waits for it."""
    try:
        # to open a pipe would wait for its other end
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
                return b""
            return file.read(most_bytes)
    except OSError:
        return b""


def read_object(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The object in a file, of which nothing else is known; empty where there is none."""
    return parse_object(read_bytes(path, most_bytes)) or {}


def epoch_in(path: str | os.PathLike[str]) -> int:
    """The epoch in a file; -1 where there is none."""
    epoch = read_object(path).get("epoch")
    return epoch if isinstance(epoch, int) else -1


def parse_object(told: bytes) -> dict[str, Any] | None:
    """An object of JSON, or None."""
    try:
        values: Any = json.loads(told)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
