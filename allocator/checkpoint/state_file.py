"""Checkpoint files: plain data and arrays, without pickle.

A *tree* is plain data: None, bool, int, float, str, list, tuple, set, dict, NumPy arrays of numbers, booleans or
fixed-width text, and objects of the classes that `allocator.checkpoint.kept` knows. A file holds one tree that changes
from save to save, the *state*, and trees that never change once recorded, the *parts*, each encoded only once however
often the file is written::

    allocator checkpoint 4 SHA-256     of the next line
    {"header": ..., "parts": [...]}    text by name; size and SHA-256 of the state and of each part, in their order
    {"dict": ...}                      the state: a line of JSON, then the bytes of its arrays, end to end
    ...                                the parts alike

In JSON a tuple is {"tuple": items}, a set {"set": items}, a dict {"dict": [keys, values]}, an array
{"array": [dtype, first byte, shape]} and an object {"its class": values of its fields}. What a tree has in several
places is written once; {"same": k} is the tuple, array or object that ends as the k-th, and is the same object again
when the tree is read. The first line fixes the second, and that every byte behind it; nothing in a file is executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from allocator.checkpoint.kept import VALUES, hold
from allocator.protocol.allocation import Allocation
from allocator.protocol.assignment import Assignment
from allocator.results.observers import StretchOutcome
from formulations import Pairs
from throughputs import InputError, ThroughputMatrix
from throughputs.errors import expect
from throughputs.files import StrPath, remove_abandoned

FORMAT = "allocator checkpoint 4"

_LONGEST_MANIFEST = 1 << 28
_KINDS = "biufU"  # of dtypes of plain arrays and scalars
_DTYPE = re.compile(rf"[<>|][{_KINDS}][0-9]{{1,8}}")
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)

hold(Allocation, Assignment, Pairs, StretchOutcome, ThroughputMatrix)


@dataclass(frozen=True, eq=False)
class Part:
    """An encoded tree; it shares no memory with the tree that it was made of."""

    data: bytes
    source: str = "checkpoint"

    @classmethod
    def of(cls, tree: object) -> Part:
        """Encode a tree. NumPy scalars come back as Python's; all else comes back with its type and bits.

        Raises
        ------
        TypeError
            Something in the tree is not plain data; the message names its place.
        """
        encoder = _Encoder()
        text = _line(encoder.encoded(tree, ""))
        return cls(text + bytes(encoder.arrays))

    @cached_property
    def sha256(self) -> str:
        """The check sum."""
        return hashlib.sha256(self.data).hexdigest()

    def tree(self) -> Any:
        """The tree, newly made at each call. Raises InputError where a file holds something else."""
        begin, made = self.data.find(b"\n") + 1, list[Any]()

        def decoded(node: dict[str, Any]) -> Any:
            ((kind, value),) = node.items()
            if kind == "dict":
                return dict(zip(*value, strict=True))
            if kind == "set":
                return set(value)
            if kind == "same":
                return made[value]
            if kind == "tuple":
                made.append(tuple(value))
            elif kind == "array":
                name, at, shape = value
                if not _DTYPE.fullmatch(name):
                    raise ValueError("an array of another kind of data")
                made.append(np.ndarray(shape, name, self.data, begin + at).copy())
            else:
                made.append(_remade(VALUES[kind], value))
            return made[-1]

        try:
            return json.loads(self.data[:begin], object_hook=decoded)
        except _UNREADABLE as error:
            raise InputError(self.source, found=str(error), expected="a whole file") from error


class _Encoder:
    """Says what stands for a tree in JSON, and gathers the bytes of its arrays."""

    def __init__(self) -> None:
        self.arrays = bytearray()
        self.seen: dict[int, tuple[int, Any]] = {}  # by id, which is nobody else's while the value is kept

    def encoded(self, value: Any, path: str) -> Any:
        if isinstance(value, np.generic) and value.dtype.kind in _KINDS:
            value = value.item()
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if id(value) in self.seen:
            return {"same": self.seen[id(value)][0]}
        if kind is list:
            return self._items(value, path)
        if kind is dict:
            keys = self._items(value, path)
            return {"dict": [keys, [self.encoded(item, f"{path}.{key}") for key, item in value.items()]]}
        if kind is set:
            return {"set": self._items(sorted(value, key=str), path)}
        if kind in (tuple, range):
            node = {"tuple": self._items(value, path)}
        elif (name := f"{kind.__module__}.{kind.__qualname__}") in VALUES:
            node = {name: [self.encoded(getattr(value, each), f"{path}.{each}") for each in _names(kind)]}
        elif kind is not np.ndarray:
            raise _not_plain(path, name)
        elif value.dtype.kind not in _KINDS or not value.dtype.isnative:
            raise _not_plain(path, f"array of {value.dtype}")
        else:
            node = {"array": [value.dtype.str, len(self.arrays), value.shape]}
            self.arrays += value.tobytes()
        self.seen[id(value)] = len(self.seen), value
        return node

    def _items(self, values: Iterable[Any], path: str) -> list[Any]:
        return [self.encoded(item, f"{path}[{i}]") for i, item in enumerate(values)]


def _names(kind: Any) -> list[str]:
    """The fields of objects of a class: of a named tuple, of a dataclass, or slots."""
    named = [each.name for each in fields(kind)] if is_dataclass(kind) else kind.__slots__
    return list(getattr(kind, "_fields", named))


def _remade(kind: Any, values: Sequence[Any]) -> Any:
    """An object of its fields, which were checked when it was made first."""
    if issubclass(kind, tuple):
        return kind(*values)
    made = object.__new__(kind)
    for name, value in zip(_names(kind), values, strict=True):
        object.__setattr__(made, name, value)
    return made


def _not_plain(path: str, what: str) -> TypeError:
    return TypeError(f"{path.lstrip('.') or 'the tree'}: a checkpoint holds plain data and no {what}")


def _line(node: Any) -> bytes:
    return json.dumps(node, separators=(",", ":")).encode() + b"\n"


class Saved(NamedTuple):
    """What a file holds: the header, the tree of the state, and the parts, which `Part.tree` decodes."""

    header: dict[str, str]
    state: Any
    parts: list[Part]


class StateFile:
    """The checkpoint at `path`, written in one step and read without trust, by processes of one machine.

    Parameters
    ----------
    path : of the file. mode : its permissions, less those that the process withholds (umask).
    """

    def __init__(self, path: StrPath, mode: int = 0o666) -> None:
        self.path, self._mode = Path(path), mode

    def write(self, header: dict[str, str], state: object, parts: Sequence[Part] = ()) -> None:
        """Replace the file; when this returns it is on the disk, and where it cannot be written it stays as it was.

        Raises
        ------
        TypeError
            The state is not plain data (see `Part.of`).
        InputError
            The file cannot be written; names the file and the cause.
        """
        every = [Part.of(state), *parts]
        manifest = _line({"header": header, "parts": [[len(part.data), part.sha256] for part in every]})
        head = f"{FORMAT} {hashlib.sha256(manifest).hexdigest()}\n".encode()
        self._replace([head, manifest, *(part.data for part in every)])

    def read_header(self) -> dict[str, str] | None:
        """The header alone, whatever the state of the rest; None if there is no file. Raises InputError."""
        with self._opened() as file:
            return None if file is None else self._manifest(file)[0]

    def read(self) -> Saved | None:
        """Everything in the file; None if there is no file. Raises InputError if any byte is not as it was written."""
        with self._opened() as file:
            if file is None:
                return None
            header, stated = self._manifest(file)
            # Before anything of a stated size is read, all sizes together are those of the file.
            if file.tell() + sum(size for size, _ in stated) != os.fstat(file.fileno()).st_size:
                raise self._damaged("another size than its manifest states")
            state, *parts = (Part(file.read(size), str(self.path)) for size, _ in stated)
            if [part.sha256 for part in (state, *parts)] != [sha256 for _, sha256 in stated]:
                raise self._damaged("contents that do not match their check sums")
            return Saved(header, state.tree(), parts)

    def remove(self) -> None:
        """Take the file away, and with it the temporary files of killed writers."""
        remove_abandoned(self.path)
        self.path.unlink(missing_ok=True)

    def _damaged(self, found: str) -> InputError:
        return InputError(self.path, found=found, expected="a whole file")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[BinaryIO | None]:
        remove_abandoned(self.path)
        try:
            with contextlib.ExitStack() as stack:
                yield stack.enter_context(open(self.path, "rb")) if self.path.exists() else None
        except OSError as error:
            raise InputError(self.path, found=error.strerror, expected="a file that can be read") from error
        except InputError:
            raise
        except _UNREADABLE as error:
            raise self._damaged(str(error)) from error

    def _manifest(self, file: BinaryIO) -> tuple[dict[str, str], list[tuple[int, str]]]:
        """The header, and size and check sum of state and parts, which follow; if the sum of all this is right."""
        head = file.readline(200)
        kind, _, sha256 = head.decode(errors="replace").rpartition(" ")
        expect(kind == FORMAT, self.path, "format", head, f"{FORMAT} (pickles are not read)")
        data = file.readline(_LONGEST_MANIFEST)
        if f"{hashlib.sha256(data).hexdigest()}\n" != sha256:
            raise self._damaged("a manifest that does not match its check sum")
        manifest = json.loads(data)
        return dict(manifest["header"]), [(size, sha256) for size, sha256 in manifest["parts"]]

    def _replace(self, chunks: Iterable[bytes]) -> None:
        remove_abandoned(self.path)
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        try:
            with open(temporary, "wb", opener=lambda path, flags: os.open(path, flags, self._mode)) as file:
                file.writelines(chunks)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            raise InputError(self.path, found=error.strerror, expected="a file that can be written") from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Put the name of a new file on the disk, too."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
