"""Fetching, verifying and finding the files of a data set in the cache directory.

<cache>/<data set>/<path of the file>            a file that was verified, or whose hash nobody knows
<cache>/<data set>/<path of the file>.part       a download that was cut off; the next call continues it
<cache>/<data set>/<path of the file>.rejected   what came instead of the file; kept to be looked at
<cache>/.state/<data set>.json                   SHA-256 of every file as it was fetched
<cache>/.state/<data set>.lock                   held by the process that fetches
"""

from __future__ import annotations

import enum
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

from allocator.data.download import Download, is_address
from allocator.data.registry import DataError, DataFile, Dataset, find, sha256_of
from throughputs.errors import InputError
from throughputs.files import write_text

CACHE_VARIABLE = "ALLOCATOR_DATA_CACHE"
"""Environment variable that names the cache directory."""

Progress = Callable[[DataFile, int, int | None], None]
"""Told of the file, of its bytes on disk and of all its bytes, None where that is not known."""

_LOCKS: Any = import_module("fcntl") if os.name == "posix" else None


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


def fetch(
    dataset: str | Dataset,
    *,
    files: Sequence[str] = (),
    cache: Path | str | None = None,
    url_base: str | None = None,
    progress: Progress | None = None,
    waiting: Callable[[], None] | None = None,
) -> list[FileReport]:
    """Bring the files of a data set into the cache; what is there and right is not fetched again.

    Parameters
    ----------
    dataset : its name, or the set itself.
    files : patterns of file names (``*``, ``?``); all files if empty.
    cache : cache directory; the usual one if omitted, see `cache_directory`.
    url_base : address of a mirror that has the files under ``<data set>/<path>``, as a cache directory has.
    progress : told of every piece that arrives.
    waiting : called once if another process is fetching the same set.

    Returns
    -------
    list of FileReport
        One for each file, verified or, where the right SHA-256 is unknown, with the one it has.

    Raises
    ------
    InputError
        No data set, or no file in it, of that name.
    DataError
        A file cannot be had, or is not what it should be.
    """
    cached = _Cached.of(dataset, cache)
    chosen = cached.select(files)
    with cached.lock(waiting):
        return [cached.fetched(file, url_base, progress) for file in chosen]


def verify(dataset: str | Dataset, *, files: Sequence[str] = (), cache: Path | str | None = None) -> list[FileReport]:
    """Compare the files in the cache with the known lengths and SHA-256; fetches nothing.

    Where no SHA-256 is known, a file is compared with what was fetched.

    Raises
    ------
    InputError
        No data set, or no file in it, of that name.
    DataError
        Nothing is known of the files of this set.
    """
    cached = _Cached.of(dataset, cache)
    return [cached.report(file) for file in cached.select(files)]


def path_of(reference: str, *, cache: Path | str | None = None) -> Path:
    """Where a file or a whole set is in the cache.

    Parameters
    ----------
    reference : ``name`` (the file if the set has but one, else the folder) or ``name/path``.

    Raises
    ------
    InputError
        No data set, or no file in it, of that name.
    DataError
        It has not been fetched, or not completely.
    """
    name, _, inside = reference.partition("/")
    cached = _Cached.of(name, cache)
    needed = (cached.dataset.file(inside),) if inside else cached.dataset.files
    for file in needed:
        if not (cached.folder / file.path).is_file():
            raise DataError(f"{cached.folder / file.path} is not there; {cached.again}")
    return cached.folder / needed[0].path if len(needed) == 1 else cached.folder


@dataclass(frozen=True)
class _Cached:
    """A data set in a cache directory."""

    dataset: Dataset
    directory: Path

    @classmethod
    def of(cls, dataset: str | Dataset, cache: Path | str | None) -> _Cached:
        cached = cls(find(dataset) if isinstance(dataset, str) else dataset, cache_directory(cache))
        if not cached.dataset.files:
            raise DataError(
                f"{cached.dataset.name}: no public address of its files is known; get them from {cached.dataset.page} "
                f"and put them where you like, for example in {cached.folder}"
            )
        return cached

    @property
    def folder(self) -> Path:
        return self.directory / self.dataset.name

    @property
    def again(self) -> str:
        return f"run `allocator data fetch {self.dataset.name}`"

    def _state(self, kind: str) -> Path:
        return self.directory / ".state" / f"{self.dataset.name}.{kind}"

    def select(self, patterns: Sequence[str]) -> list[DataFile]:
        """Files whose path matches one of the patterns; all if there are none."""
        for pattern in patterns:
            if not any(fnmatchcase(file.path, pattern) for file in self.dataset.files):
                self.dataset.file(pattern)  # says what was meant
        wanted = patterns or ("*",)
        return [file for file in self.dataset.files if any(fnmatchcase(file.path, pattern) for pattern in wanted)]

    @contextmanager
    def lock(self, waiting: Callable[[], None] | None) -> Iterator[None]:
        """Keep other processes from fetching the same set; `waiting` is called once if another one is at it.

        The system releases the lock when its process ends, however that happens. The empty lock file stays.
        """
        self._state("lock").parent.mkdir(parents=True, exist_ok=True)
        with self._state("lock").open("a") as stream:
            if _LOCKS is not None:
                try:
                    _LOCKS.flock(stream, _LOCKS.LOCK_EX | _LOCKS.LOCK_NB)
                except BlockingIOError:
                    if waiting is not None:
                        waiting()
                    _LOCKS.flock(stream, _LOCKS.LOCK_EX)
            yield

    def _records(self) -> dict[str, str]:
        """SHA-256 of the files as they were fetched, by path; a record that cannot be read counts as none."""
        try:
            found = json.loads(self._state("json").read_text(encoding="utf-8"))
            return {path: sha256 for path, sha256 in found.items() if isinstance(sha256, str)}
        except (FileNotFoundError, ValueError, AttributeError, RecursionError):
            return {}

    def report(self, file: DataFile) -> FileReport:
        """A file as it is."""
        path = self.folder / file.path
        if not path.is_file():
            return FileReport(file, path, FileState.MISSING, detail=self.again)
        length, fetched = path.stat().st_size, self._records().get(file.path)
        if file.size not in (None, length):
            detail = f"{length:,} bytes instead of {file.size:,}; {self.again}"
            return FileReport(file, path, FileState.WRONG, detail=detail)
        found, right = sha256_of(path), file.sha256 or fetched
        if right not in (None, found):
            return FileReport(file, path, FileState.WRONG, found, f"SHA-256 {found} instead of {right}; {self.again}")
        state = FileState.VERIFIED if file.sha256 else FileState.UNCHANGED if fetched else FileState.UNVERIFIED
        return FileReport(file, path, state, found)

    def fetched(self, file: DataFile, url_base: str | None, progress: Progress | None) -> FileReport:
        """A file as it is once it is here; the caller holds the lock."""
        report = self.report(file)
        if report.state.usable:
            return report
        path, name = report.path, quote(f"{self.dataset.name}/{file.path}", safe="/,")
        url = file.url if url_base is None else f"{url_base.rstrip('/')}/{name}"
        if not is_address(url):
            where = f"{self.dataset.name}: {file.path}" if url_base is None else "--url-base"
            expected = "an address that begins with http:// or https://"
            raise InputError(where, found=url if url_base is None else url_base, expected=expected)
        if report.state is FileState.WRONG:
            os.replace(path, path.with_name(f"{path.name}.rejected"))

        def advance(done: int, total: int | None) -> None:
            if progress is not None:
                progress(file, done, total)

        partial = path.with_name(f"{path.name}.part")
        found = Download(url, partial, file.size, file.sha256, advance).run()
        # The record comes first: a file without one could not be told from one that was changed later.
        write_text(self._state("json"), json.dumps(self._records() | {file.path: found}, indent=2) + "\n")
        os.replace(partial, path)
        return self.report(file)
