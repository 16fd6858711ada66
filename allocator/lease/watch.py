"""What a trainer sees of its lease: a file that is looked at now and then, and SIGTERM as the backstop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from allocator.lease.fence import StaleLeaseError
from allocator.lease.files import LEASE_FILE, Grant, read_file

LOOK_SECONDS = 0.05
"""Between two looks at the file; a look at an unchanged file takes about two microseconds."""

READ_SECONDS = 1.0
"""The file is read this often even if it looks unchanged: on a network file system looks may be remembered."""


class LeaseWatch:
    """Whether the lease goes on.

    Parameters
    ----------
    folder : of the job.
    job, epoch : whose lease it should be.
    """

    def __init__(self, folder: Path, job: str, epoch: int) -> None:
        self.job = job
        self.epoch = epoch
        self.ends = False
        self._path = folder / LEASE_FILE
        self._looked: tuple[int, int, int] | None = None
        self._next_look = self._next_read = float("-inf")
        self._process = os.getpid()
        self._before: Callable[[int, FrameType | None], Any] | int | None = None
        self._listens = threading.current_thread() is threading.main_thread()
        if self._listens:
            self._before = signal.signal(signal.SIGTERM, self._on_signal)

    def close(self) -> None:
        """Give SIGTERM back to whom it belonged."""
        if self._listens and signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, self._before)
        self._listens = False

    def look(self, now: float) -> bool:
        """Whether the lease ends; looks at the file if the last look is long enough ago.

        Parameters
        ----------
        now : seconds of the monotonic clock.

        Raises
        ------
        StaleLeaseError
            The lease is of a later epoch: this process must stop at once.
        """
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            self._look(now)
        return self.ends

    def _look(self, now: float) -> None:
        try:
            status = os.stat(self._path)
        except OSError:
            return
        looked = (status.st_ino, status.st_mtime_ns, status.st_size)
        if looked != self._looked or now >= self._next_read:
            self._looked, self._next_read = looked, now + READ_SECONDS
            self._read(now)

    def _read(self, now: float) -> None:
        grant = read_file(self._path, Grant)
        if grant is None or grant.job != self.job or grant.epoch < self.epoch:
            return
        if grant.epoch > self.epoch:
            self._looked, self._next_look = None, now
            raise StaleLeaseError(f"the lease of job {self.job} is of epoch {grant.epoch}; epoch {self.epoch} stops")
        self.ends |= grant.ends

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # Forked from the trainer, as the workers of data loaders are: for them SIGTERM means what it always does.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.ends = True
        if callable(self._before):
            self._before(number, frame)
