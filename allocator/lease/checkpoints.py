"""Checkpoints that are whole or absent: written aside, made durable, put in place behind the fence, the last two kept.

Each checkpoint is a folder, numbered in the order of their commits, with what the trainer saved and a manifest::

    checkpoint/00000007/model.pt        whatever the trainer writes
    checkpoint/00000007/manifest.json   steps, epoch, size and SHA-256 of every file, and of the manifest itself
    checkpoint/.partial-3-00000008/     being written by epoch 3; nobody reads it
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from allocator.lease.fence import StaleLeaseError, locked_lease
from allocator.lease.files import LEASE_FILE, Grant, read_file

MANIFEST_FILE = "manifest.json"

KEPT = 2
"""Checkpoints that stay: the last, and the one before should that be damaged."""

_PARTIAL = ".partial-"


class CheckpointError(RuntimeError):
    """A checkpoint could not be written, as on a full disk; those before it stay."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was committed.

    Attributes
    ----------
    folder : that holds it.
    job, epoch : who wrote it.
    steps : of the job that it holds.
    at : when it was written, seconds since 1970.
    files : by name relative to the folder: size in bytes, and SHA-256 in hexadecimal.
    """

    folder: Path
    job: str
    epoch: int
    steps: int
    at: float
    files: dict[str, tuple[int, str]]

    def is_whole(self) -> bool:
        """Whether the folder has the files that were committed, and no others, to the last bit."""
        try:
            return _digests(self.folder) == self.files
        except OSError:
            return False


def read_manifest(folder: Path) -> Checkpoint | None:
    """What the manifest of a checkpoint says; None where it is absent, damaged or not understood."""
    try:
        told: Any = json.loads((folder / MANIFEST_FILE).read_bytes())
        content = told["content"]
        if told["sha256"] != _digest_of(content):
            return None
        files = {str(name): (int(size), str(digest)) for name, (size, digest) in content["files"].items()}
        return Checkpoint(
            folder, str(content["job"]), int(content["epoch"]), int(content["steps"]), float(content["at"]), files
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


class CheckpointFolder:
    """The checkpoints of one job, as one epoch of it reads and writes them.

    Parameters
    ----------
    path : the folder of the checkpoints; its parent is the folder of the job, with the lease in it.
    job, epoch : who reads and writes.
    """

    def __init__(self, path: Path, job: str, epoch: int) -> None:
        self.path = path
        self.job = job
        self.epoch = epoch
        self._damaged: set[int] = set()

    def latest(self) -> Checkpoint | None:
        """The last checkpoint that is whole; what is damaged is passed over, and goes with the next commit."""
        for number, found in self._newest_first():
            if found is not None and found.is_whole():
                return found
            self._damaged.add(number)
        return None

    def partial(self) -> Path:
        """Where the next checkpoint is written before it is committed; the same on every rank."""
        return self.path / f"{_PARTIAL}{self.epoch}-{_name(max(self._numbers(), default=0) + 1)}"

    def begin(self) -> None:
        """Make that folder, empty."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.discard()
        self.partial().mkdir(mode=0o700)

    def commit(self, steps: int) -> Checkpoint:
        """Make what was written there durable and put it in place, if the lease still is of this epoch.

        Parameters
        ----------
        steps : of the job that it holds.

        Raises
        ------
        StaleLeaseError
            The lease is of another epoch; nothing was committed.
        OSError
            It could not be made durable, or has links to folders, pipes or the like; nothing was committed.
        """
        partial = self.partial()
        for path in _files(partial):
            _synchronize(path)
        files = _digests(partial)
        number = int(partial.name.rpartition("-")[2])
        checkpoint = Checkpoint(self.path / _name(number), self.job, self.epoch, steps, time.time(), files)
        _write_manifest(partial, checkpoint)
        for folder, _, _ in os.walk(partial, topdown=False):
            _synchronize(Path(folder))
        with locked_lease(self.path.parent):
            self.refuse_if_stale()
            os.rename(partial, checkpoint.folder)
            _synchronize(self.path)
        self._clear(number)
        return checkpoint

    def explain(self, error: BaseException, steps: int) -> None:
        """Say what it means that writing failed: a stale epoch, whose files may vanish under it, or a full disk.

        Raises
        ------
        StaleLeaseError, CheckpointError
            From `error`, unless that one says enough: it ends the process, or is one of these.
        """
        if isinstance(error, StaleLeaseError | CheckpointError) or not isinstance(error, Exception):
            return
        self.refuse_if_stale()
        last = next((found for _, found in self._newest_first() if found), None)
        stays = f"that of step {last.steps} stays" if last else "there is none before it"
        raise CheckpointError(f"the checkpoint of step {steps} was not written, {stays}: {error}") from error

    def discard(self) -> None:
        """Take away what was written but not committed."""
        shutil.rmtree(self.partial(), ignore_errors=True)

    def refuse_if_stale(self) -> None:
        """Check that the lease is of this epoch.

        Raises
        ------
        StaleLeaseError
            It is of another one, or cannot be read: in doubt nothing is committed.
        """
        grant = read_file(self.path.parent / LEASE_FILE, Grant)
        if grant is None:
            raise StaleLeaseError(f"no lease can be read in {self.path.parent}: epoch {self.epoch} commits nothing")
        if (grant.job, grant.epoch) != (self.job, self.epoch):
            raise StaleLeaseError(
                f"the lease is of epoch {grant.epoch} of job {grant.job}; "
                f"epoch {self.epoch} of job {self.job} commits nothing"
            )

    def _newest_first(self) -> Iterator[tuple[int, Checkpoint | None]]:
        for number in sorted(self._numbers(), reverse=True):
            yield number, read_manifest(self.path / _name(number))

    def _numbers(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self.path) if name.isdecimal()]
        except FileNotFoundError:
            return []

    def _clear(self, newest: int) -> None:
        """Take away what a commit has made superfluous. Only what is older than it: a later epoch may be writing."""
        older = sorted((number for number in self._numbers() if number < newest), reverse=True)
        whole = [number for number in older if number not in self._damaged]
        for number in set(older) - set(whole[: KEPT - 1]):
            shutil.rmtree(self.path / _name(number), ignore_errors=True)
        for name in os.listdir(self.path):
            epoch = name.removeprefix(_PARTIAL).partition("-")[0]
            if name.startswith(_PARTIAL) and epoch.isdecimal() and int(epoch) < self.epoch:
                shutil.rmtree(self.path / name, ignore_errors=True)


def _name(number: int) -> str:
    return f"{number:08d}"


def _files(folder: Path) -> list[Path]:
    """All files in a folder; raises OSError where something below is neither a file nor a folder of its own."""
    found = []
    for place, folders, names in os.walk(folder):
        files, links = [Path(place, name) for name in names], [Path(place, name) for name in folders]
        for path in (*filter(Path.is_symlink, links), *(path for path in files if not path.is_file())):
            raise OSError(errno.ENOTSUP, "neither a file nor a folder of its own", str(path))
        found += files
    return found


def _digests(folder: Path) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of all files but the manifest, by name relative to the folder."""
    digests = {}
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        if name != MANIFEST_FILE:
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                digests[name] = (os.fstat(file.fileno()).st_size, digest)
    return digests


def _digest_of(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _write_manifest(folder: Path, checkpoint: Checkpoint) -> None:
    content = asdict(checkpoint)
    del content["folder"]
    with open(folder / MANIFEST_FILE, "w") as file:
        file.write(json.dumps({"sha256": _digest_of(content), "content": content}))
        file.flush()
        os.fsync(file.fileno())


def _synchronize(path: Path) -> None:
    """Wait until a file, or the list of files in a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
