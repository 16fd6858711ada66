"""The output of a job, of which no more is kept than was agreed."""

from __future__ import annotations

import errno
import os

LOG_FILES = ("log", "log.1")


class Log:
    """Output of a job: the last `limit` bytes or less, in two files; the older one is dropped for a new one.

    Parameters
    ----------
    folder : a descriptor of the one for the files; None: where the process is.
    """

    def __init__(self, limit: int, folder: int | None = None) -> None:
        self.lost = 0
        self._folder = folder
        self._unsaid = 0
        self._most = limit // 2
        self._open()

    def _open(self) -> None:
        # a pipe that the job has put there is not waited for
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        self._file = os.open(LOG_FILES[0], flags, 0o600, dir_fd=self._folder)
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
            os.replace(*LOG_FILES, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            os.close(self._file)
            self._open()
        written = os.write(self._file, data[: self._most - self._size])
        self._size += written
        return written


class RankOutput:
    """Output of one of several processes: whole lines, each with the rank before it.

    Lines end as terminals have it, so that bars of progress, which return to the beginning of theirs, count as lines.
    """

    def __init__(self, log: Log, rank: int) -> None:
        self._log, self._label = log, f"rank {rank}: ".encode()
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Lines that are whole go to the log; what comes after the last is kept for the next time."""
        lines = (self._rest + data).splitlines(keepends=True)
        # a return may be half of the end of a line
        whole = not lines or lines[-1].endswith(b"\n")
        self._rest = b"" if whole else lines.pop()
        if len(self._rest) >= _LONGEST_LINE:
            lines.append(self._rest + b"\n")
            self._rest = b""
        if lines:
            self._log.write(b"".join(self._label + line for line in lines))

    def close(self) -> None:
        """The process has ended, perhaps in the middle of a line."""
        if self._rest:
            self.write(b"\n")


_LONGEST_LINE = 1 << 16
"""Bytes; a longer one is cut into several."""
