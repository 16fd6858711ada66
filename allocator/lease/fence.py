"""The fence between the epochs of a job: a checkpoint counts only if its epoch is that of the lease.

A trainer that was cut off from the scheduler, or that did not end when it was told, may still be writing when the next
start of its job reads the checkpoints. So two things exclude each other, by a lock on a file in the folder of the job:
that the scheduler raises the epoch, and that a trainer compares its epoch and puts a checkpoint in place. What was
committed before the epoch was raised is seen by the next start; what comes after is refused.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allocator.lease.files import LEASE_FILE, Grant, read_file, write_file

LOCK_FILE = "lease.lock"

LOCK_SECONDS = 10.0
"""What one waits for the lock. It is held for milliseconds, unless its holder is stopped or its disk hangs."""

_FIRST_WAIT, _LONGEST_WAIT = 0.0005, 0.02


class StaleLeaseError(RuntimeError):
    """The lease is not, or no longer, of this epoch: another start of the job has taken its place."""


class LeaseLockedError(TimeoutError):
    """The lease stayed locked: whoever holds the lock was stopped in the middle. It is free once that one is killed."""


@contextmanager
def locked_lease(folder: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock of a job's lease. The system lets go of it when its holder dies, however that happens.

    Parameters
    ----------
    folder : of the job.
    seconds : to wait at most.

    Raises
    ------
    LeaseLockedError
        Another process kept it for longer.
    """
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, folder, seconds)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path, seconds: float) -> None:
    until, wait = time.monotonic() + seconds, _FIRST_WAIT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise LeaseLockedError(f"{folder / LOCK_FILE} was held for more than {seconds:g} s") from None
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        else:
            return


def raise_epoch(folder: Path, grant: Grant, seconds: float = LOCK_SECONDS) -> None:
    """Give the lease of a job to a new start: from here on no earlier one commits a checkpoint.

    The scheduler's part; to be called before the start is ordered. Called again for the same epoch it replaces the
    grant, so that a scheduler that was killed in between may repeat it. It may wait for a checkpoint that is just being
    committed, which in an event loop is better done in a thread.

    Parameters
    ----------
    folder : of the job; exists.
    grant : of the new epoch.
    seconds : to wait at most.

    Raises
    ------
    StaleLeaseError
        The lease is of a later epoch already.
    LeaseLockedError
        A trainer that was stopped holds the lock; kill it first.
    """
    with locked_lease(folder, seconds):
        there = read_file(folder / LEASE_FILE, Grant)
        if there is not None and there.epoch > grant.epoch:
            raise StaleLeaseError(f"the lease of {folder} is of epoch {there.epoch}, later than {grant.epoch}")
        write_file(folder / LEASE_FILE, grant)
