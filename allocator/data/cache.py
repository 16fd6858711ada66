"""The directory that holds the downloaded files, what is recorded there, and the lock of a data set.

<cache>/<data set>/<path of the file>            a file that was verified, or whose hash nobody knows
<cache>/<data set>/<path of the file>.part       a download that was cut off; the next call continues it
<cache>/<data set>/<path of the file>.rejected   what came instead of the file; kept to be looked at
<cache>/.state/<data set>.json                   length, SHA-256 and address of every file as it was fetched
<cache>/.state/<data set>.lock                   held by the process that fetches
"""

from __future__ import annotations

import enum
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from allocator.data.registry import DataFile, Dataset
from throughputs.files import write_text

CACHE_VARIABLE = "ALLOCATOR_DATA_CACHE"
"""Environment variable that names the cache directory."""

CHUNK = 1 << 18
POLL_SECONDS = 0.1


class DataError(RuntimeError):
    """A data set cannot be had, or is not what it should be; the message is one line and says what to do."""


class FileState(enum.Enum):
    """What is known of a file in the cache."""

    VERIFIED = "verified"
    """Its SHA-256 is the known one."""
    UNCHANGED = "unchanged since it was fetched; the right SHA-256 is unknown"
    UNVERIFIED = "present; the right SHA-256 is unknown"
    MISSING = "missing"
    WRONG = "wrong"

    @property
    def usable(self) -> bool:
        """Whether a reader may open the file."""
        return self not in (FileState.MISSING, FileState.WRONG)


@dataclass(frozen=True)
class FileReport:
    """A file of a data set as it is in the cache; `detail` says what is wrong, and what to do."""

    file: DataFile
    path: Path
    state: FileState
    sha256: str | None = None
    detail: str = ""


@dataclass(frozen=True)
class FetchRecord:
    """What was fetched: length in bytes, SHA-256 and address."""

    size: int
    sha256: str
    url: str


def cache_directory(directory: Path | str | None = None) -> Path:
    """`directory` if given, else the one of `CACHE_VARIABLE`, else where the platform keeps its caches."""
    chosen = directory or os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    home = Path.home()
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = home / "Library" / "Caches"
    else:
        named = os.environ.get("XDG_CACHE_HOME", "")
        root = Path(named) if Path(named).is_absolute() else home / ".cache"  # the standard ignores a relative one
    return root / "cluster-allocator" / "data"


def folder_of(dataset: Dataset, directory: Path) -> Path:
    """Folder of a data set in the cache directory."""
    return directory / dataset.name


def read_records(dataset: Dataset, directory: Path) -> dict[str, FetchRecord]:
    """Records of a data set by the path of the file; a record that cannot be read counts as none."""
    try:
        found = json.loads(_state_file(dataset, directory, "json").read_text(encoding="utf-8"))
        return {path: FetchRecord(**record) for path, record in found.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def write_record(dataset: Dataset, directory: Path, file: DataFile, record: FetchRecord) -> None:
    """Add or replace the record of one file; the caller holds the lock."""
    records = read_records(dataset, directory) | {file.path: record}
    text = json.dumps({path: asdict(entry) for path, entry in sorted(records.items())}, indent=2)
    write_text(_state_file(dataset, directory, "json"), text + "\n")


def sha256_of(path: Path) -> str:
    """SHA-256 of a file in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def lock(dataset: Dataset, directory: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Keep other processes from fetching the same data set; `waiting` is called once if another one is at it.

    The system releases the lock when its process ends, however that happens. The empty lock file stays.
    """
    path = _state_file(dataset, directory, "lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as stream:
        told = False
        while not _try_lock(stream):
            if waiting is not None and not told:
                waiting()
            told = True
            time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            _unlock(stream)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(stream: IO[bytes]) -> bool:
        stream.seek(0)
        try:
            msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(stream: IO[bytes]) -> None:
        stream.seek(0)
        msvcrt.locking(stream.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(stream: IO[bytes]) -> bool:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(stream: IO[bytes]) -> None:
        fcntl.flock(stream, fcntl.LOCK_UN)


def _state_file(dataset: Dataset, directory: Path, kind: str) -> Path:
    return directory / ".state" / f"{dataset.name}.{kind}"
