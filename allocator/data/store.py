"""Fetching, verifying and finding the files of a data set in the cache directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

from allocator.data.cache import (
    DataError,
    FetchRecord,
    FileReport,
    FileState,
    cache_directory,
    folder_of,
    lock,
    read_records,
    sha256_of,
    write_record,
)
from allocator.data.download import download, is_address
from allocator.data.registry import DataFile, Dataset, find
from throughputs.errors import InputError

Progress = Callable[[DataFile, int, int | None], None]
"""Told of the file, of its bytes on disk and of all its bytes, None where that is not known."""


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
    wanted = find(dataset) if isinstance(dataset, str) else dataset
    directory = cache_directory(cache)
    chosen = select(wanted, files)
    _need_addresses(wanted, directory)
    with lock(wanted, directory, waiting):
        reports = []
        for file in chosen:
            report = _report(wanted, file, directory)
            if not report.state.usable:
                if report.state is FileState.WRONG:
                    os.replace(report.path, report.path.with_name(report.path.name + ".rejected"))
                report = _fetch_file(wanted, file, directory, url_base, progress)
            reports.append(report)
        return reports


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
    wanted = find(dataset) if isinstance(dataset, str) else dataset
    directory = cache_directory(cache)
    chosen = select(wanted, files)
    _need_addresses(wanted, directory)
    return [_report(wanted, file, directory) for file in chosen]


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
    dataset = find(name)
    directory = cache_directory(cache)
    folder = folder_of(dataset, directory)
    _need_addresses(dataset, directory)
    needed = (dataset.file(inside),) if inside else dataset.files
    for file in needed:
        if not (folder / file.path).is_file():
            raise DataError(f"{folder / file.path} is not there; run `allocator data fetch {dataset.name}`")
    return folder / needed[0].path if len(needed) == 1 else folder


def select(dataset: Dataset, patterns: Sequence[str]) -> tuple[DataFile, ...]:
    """Files of a set whose path matches one of the patterns; all if there are none."""
    for pattern in patterns:
        if not any(fnmatchcase(file.path, pattern) for file in dataset.files):
            dataset.file(pattern)  # says what was meant
    return tuple(
        file for file in dataset.files if not patterns or any(fnmatchcase(file.path, pattern) for pattern in patterns)
    )


def _need_addresses(dataset: Dataset, directory: Path) -> None:
    if not dataset.files:
        raise DataError(
            f"{dataset.name}: no public address of its files is known; get them from {dataset.page} "
            f"and put them where you like, for example in {folder_of(dataset, directory)}"
        )


def _fetch_file(
    dataset: Dataset, file: DataFile, directory: Path, url_base: str | None, progress: Progress | None
) -> FileReport:
    target = folder_of(dataset, directory) / file.path
    partial = target.with_name(target.name + ".part")
    url = file.url if url_base is None else f"{url_base.rstrip('/')}/{quote(f'{dataset.name}/{file.path}', safe='/,')}"
    if not is_address(url):
        where = f"{dataset.name}: {file.path}" if url_base is None else "--url-base"
        found = file.url if url_base is None else url_base
        raise InputError(where, found=found, expected="an address that begins with http:// or https://")
    found = download(
        url,
        partial,
        size=file.size,
        sha256=file.sha256,
        advance=None if progress is None else lambda done, total: progress(file, done, total),
    )
    # The record comes first: a file without one could not be told from one that was changed later.
    write_record(dataset, directory, file, FetchRecord(partial.stat().st_size, found, url))
    os.replace(partial, target)
    return FileReport(file, target, FileState.VERIFIED if file.sha256 else FileState.UNCHANGED, found)


def _report(dataset: Dataset, file: DataFile, directory: Path) -> FileReport:
    path = folder_of(dataset, directory) / file.path
    again = f"run `allocator data fetch {dataset.name}`"
    if not path.is_file():
        return FileReport(file, path, FileState.MISSING, detail=again)
    record = read_records(dataset, directory).get(file.path)
    size = file.size if file.size is not None or record is None else record.size
    sha256 = file.sha256 or (None if record is None else record.sha256)
    length = path.stat().st_size
    if size is not None and length != size:
        return FileReport(file, path, FileState.WRONG, detail=f"{length:,} bytes instead of {size:,}; {again}")
    found = sha256_of(path)
    if sha256 is not None and found != sha256:
        return FileReport(file, path, FileState.WRONG, found, f"SHA-256 {found} instead of {sha256}; {again}")
    if file.sha256 is not None:
        return FileReport(file, path, FileState.VERIFIED, found)
    return FileReport(file, path, FileState.UNVERIFIED if record is None else FileState.UNCHANGED, found)
