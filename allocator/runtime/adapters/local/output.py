"""The output of a job, of which no more is kept than was agreed."""

from __future__ import annotations

import errno
import os

__all__ = ["LOG_FILES", "Log"]

LOG_FILES = ("log", "log.1")


class Log:
    """Output of a job: the last `limit` bytes or less, in two files; the older one is dropped for a new one."""

    def __init__(self, limit: int) -> None:
        self.lost = 0
        self._unsaid = 0
        self._most = limit // 2
        self._open()

    def _open(self) -> None:
        # a pipe that the job has put there is not waited for
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        self._file = os.open(LOG_FILES[0], flags, 0o600)
        self._size = os.fstat(self._file).st_size

    def write(self, data: bytes) -> None:
        """Never fails: what the disk does not take is lost, and counted."""
        try:
            if self._unsaid:
                note = f"\n[{self._unsaid} bytes of output were lost: the disk was full]\n".encode()
                self._put(note)
                self._unsaid = 0
            while data:
                data = data[self._put(data) :]
        except OSError:
            self.lost += len(data)
            self._unsaid += len(data)

    def _put(self, data: bytes) -> int:
        if self._size >= self._most:
            if not self._most:
                raise OSError(errno.EFBIG, "no output is kept")
            os.replace(*LOG_FILES)
            os.close(self._file)
            self._open()
        written = os.write(self._file, data[: self._most - self._size])
        self._size += written
        return written
