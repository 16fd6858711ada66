"""A job's folder without a scheduler: the tests write the lease themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from allocator.lease.checkpoints import CheckpointFolder
from allocator.lease.fence import raise_epoch
from allocator.lease.files import CHECKPOINTS, EPOCH, JOB, LEASE_FILE, REPORT_FILE, Grant, Report, read_file, write_file
from allocator.lease.lease import Lease
from allocator.lease.watch import LOOK_SECONDS

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0
"""Seconds until a test gives up: other programs may keep this machine busy."""


class Job:
    """The folder of a job, and the scheduler's part in it."""

    def __init__(self, folder: Path, name: str = "a-job") -> None:
        self.folder = folder
        self.grant = Grant(name, 0)
        self.next_epoch()

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the scheduler for the present epoch."""
        return {JOB: self.grant.job, EPOCH: str(self.grant.epoch), CHECKPOINTS: str(self.folder / "checkpoint")}

    @property
    def checkpoints(self) -> CheckpointFolder:
        """As the present epoch sees them."""
        return CheckpointFolder(self.folder / "checkpoint", self.grant.job, self.grant.epoch)

    @property
    def report(self) -> Report:
        """The last report, whoever wrote it."""
        report = read_file(self.folder / REPORT_FILE, Report)
        assert report is not None
        return report

    def next_epoch(self) -> None:
        """Grant the lease to the next start."""
        self.grant = Grant(self.grant.job, self.grant.epoch + 1)
        raise_epoch(self.folder, self.grant)

    def write(self, **changes: object) -> None:
        """Write the lease anew for the same epoch."""
        self.grant = replace(self.grant, **changes)
        write_file(self.folder / LEASE_FILE, self.grant)

    def start(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a trainer as the scheduler would."""
        variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | self.environment
        return subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=variables | dict(environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def reported(self, *, steps: float) -> bool:
        """Whether the present epoch has reported so many steps."""
        report = read_file(self.folder / REPORT_FILE, Report)
        return report is not None and report.epoch == self.grant.epoch and report.steps >= steps


def write_checkpoint(folder: CheckpointFolder, steps: int, save: Callable[[Path], object]) -> None:
    """What a lease does for a single process."""
    try:
        folder.begin()
        save(folder.partial())
        folder.commit(steps)
    except Exception as error:
        folder.discard()
        folder.explain(error, steps)
        raise


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for something that other processes do; fails with their output where they end before."""
    until = time.monotonic() + PATIENCE
    while not condition():
        if process is not None and process.poll() is not None and not condition():
            raise AssertionError(process.communicate()[0])
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.005)


def in_child(work: Callable[[], object]) -> int:
    """Do something in a fork of this process; the status by which it ends is negative if a signal ended it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_this_process() -> None:
    """End at once, as by kill -9."""
    os.kill(os.getpid(), signal.SIGKILL)


def save_steps(lease: Lease) -> Callable[[Path], object]:
    """A function that writes how far the lease is, as a checkpoint."""
    return lambda folder: (folder / "steps").write_text(str(lease.steps))


def fail(_: object) -> None:
    """A function that nobody is to call."""
    raise AssertionError("not to be called")


def notice() -> None:
    """Let so much time pass that the next boundary looks at the file."""
    time.sleep(1.2 * LOOK_SECONDS)
