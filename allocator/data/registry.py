"""The data sets that are known: TOML files beside this module, read once.

An address, a licence or a SHA-256 that we do not know is ``unknown`` or absent there, never guessed.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from throughputs.errors import InputError, did_you_mean

UNKNOWN = "unknown"

# The name is that of a folder, too.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

HASH_ORIGINS = {
    "publisher": "published",
    "copy": "from a copy",
    "others": "quoted",
    "": UNKNOWN,
}
"""Where the SHA-256 of a set come from, in words.

Published with the files; computed by us from a copy; quoted alike by several independent projects; not known.
"""


class DataError(RuntimeError):
    """A data set cannot be had, or is not what it should be; the message is one line and says what to do."""


def sha256_of(path: Path) -> str:
    """SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True)
class DataFile:
    """One file of a data set.

    Parameters
    ----------
    path : place in the set's folder, with forward slashes; it does not lead out of it.
    url : public address.
    size : exact length in bytes; None where it is not known.
    sha256 : 64 hexadecimal digits; None where it is not known.
    approximate_size : length in bytes, roughly, to announce a download; never checked.
    """

    path: str
    url: str
    size: int | None = None
    sha256: str | None = None
    approximate_size: int | None = None

    def __post_init__(self) -> None:
        path = PurePosixPath(self.path)
        hidden = any(part.startswith(".") for part in path.parts)
        if not path.name or path.is_absolute() or hidden or not self.path.isprintable() or set(self.path) & set("\\:"):
            raise InputError("data set", field="path", found=self.path, expected="a path inside the folder of the set")

    @property
    def expected_size(self) -> int | None:
        """Length in bytes, exact if that is known, else roughly; None if neither is."""
        return self.size if self.size is not None else self.approximate_size


@dataclass(frozen=True)
class Dataset:
    """A public data set: one or several files that belong together.

    Parameters
    ----------
    name : short name, also the name of its folder: letters, digits, ``-`` and ``_`` only.
    title : contents in one line.
    licence : licence of the data, or ``unknown``.
    page : where a person finds the set.
    files : its files; empty where no address of a file is known.
    source : paper that describes it.
    read_by : options and functions of this package that read it.
    by_schema : whether these were written to the description that is published with the set, and tested on small files
        made to it: we hold none of its own.
    hash_from : a key of `HASH_ORIGINS`.
    note : what a user should know before using it.
    approximate_size : bytes of the whole set, roughly, where the sizes of its files are not known.
    """

    name: str
    title: str
    licence: str
    page: str
    files: tuple[DataFile, ...] = ()
    source: str = ""
    read_by: tuple[str, ...] = ()
    by_schema: bool = False
    hash_from: str = ""
    note: str = ""
    approximate_size: int | None = None

    def __post_init__(self) -> None:
        if not _PLAIN_NAME.fullmatch(self.name):
            expected = "a plain name: letters, digits, - and _, as in shockwave-traces"
            raise InputError("data set", field="name", found=self.name, expected=expected)

    @property
    def size(self) -> int | None:
        """Bytes of all files, exact or roughly; None where that is not known."""
        sizes = [file.expected_size for file in self.files]
        known = [size for size in sizes if size is not None]
        return sum(known) if known and len(known) == len(sizes) else self.approximate_size

    @property
    def size_is_exact(self) -> bool:
        """Whether `size` is known to the byte."""
        return bool(self.files) and all(file.size is not None for file in self.files)

    def file(self, path: str) -> DataFile:
        """The file at `path`; raises InputError where the set has none of that name."""
        for file in self.files:
            if file.path == path:
                return file
        hint = did_you_mean(path, [file.path for file in self.files])
        raise InputError(self.name, field="file", found=path, expected=f"a file of this data set{hint}")


@cache
def datasets() -> tuple[Dataset, ...]:
    """All known data sets, by name."""
    sets: list[Dataset] = []
    for entry in resources.files("allocator.data").joinpath("sets").iterdir():
        if entry.name.endswith(".toml"):
            sets += map(_dataset, tomllib.loads(entry.read_text(encoding="utf-8"))["dataset"])
    return tuple(sorted(sets, key=lambda dataset: dataset.name))


def find(name: str) -> Dataset:
    """Data set by name.

    Raises
    ------
    InputError
        There is none of that name.
    """
    for dataset in datasets():
        if dataset.name == name:
            return dataset
    hint = did_you_mean(name, [dataset.name for dataset in datasets()])
    raise InputError("data set", found=name, expected=f"a name that `allocator data list` shows{hint}")


def _dataset(entry: dict[str, Any]) -> Dataset:
    """A set of a TOML file: addresses of its files are below ``base`` where they are not said."""
    base = entry.pop("base", "")
    files = ({"url": base + quote(file["path"], safe="/,")} | file for file in entry.pop("files", ()))
    read_by = tuple(entry.pop("read_by", ()))
    return Dataset(**entry, files=tuple(DataFile(**file) for file in files), read_by=read_by)
