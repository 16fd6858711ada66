"""Checkpoint files: plain data and arrays in an ordinary zip archive, without pickle.

A file holds one tree of plain data (see `allocator.checkpoint.state_tree`) that changes from save to save, the *state*,
and trees that never change once recorded, the *parts*, each encoded only once however often the file is written::

    manifest.json                 format, header (text by name), size and check sums of every other member
    state/tree.json               the tree; an array is {"array": dtype, "at": first element, "shape": [...]}
    state/float64.npy             all arrays of this dtype in the tree
    part0/tree.json, part0/...    the first part, and so on

Nothing is compressed; ``unzip`` and ``numpy.load`` open the file. Reading trusts nothing in it: the manifest, whose
SHA-256 is the comment of the archive, fixes every byte. Headers and directory of the archive are computed again from it
and compared, contents are compared by SHA-256.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from allocator.checkpoint.state_tree import Member, Part, from_json, to_json
from throughputs import InputError

__all__ = ["Part"]

FORMAT = "allocator checkpoint 2"
_FORMAT_1 = "allocator checkpoint 1"  # a line of JSON and pickles

_MANIFEST = "manifest.json"
_MEMBER = re.compile(r"(state|part(0|[1-9][0-9]{0,8}))/[A-Za-z0-9]{1,16}\.(json|npy)")
_LARGEST = 2**48  # bytes of a member
_SHA256_DIGITS = 64

# Fields of zip archives: version 4.5 of the format, on Unix; an ordinary file; 1980-01-01; "see the zip64 field".
_ZIP64, _UNIX, _FILE_MODE, _NO_DATE, _IN_ZIP64_FIELD = 45, 3 << 8 | 45, 0o100644 << 16, 33, 0xFFFFFFFF


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

    def __init__(self, path: str | os.PathLike[str], mode: int = 0o666) -> None:
        self.path, self._mode = Path(path), mode

    def write(
        self, header: dict[str, str], state: object, parts: Sequence[Part] = (), *, text_arrays: bool = False
    ) -> None:
        """Replace the file; when this returns it is on the disk, and where it cannot be written it stays as it was.

        Raises
        ------
        TypeError
            The header is not text by name, or the state is not plain data (see `Part.of`).
        InputError
            The file cannot be written; names the file and the cause.
        """
        if not _is_header(header):
            raise TypeError("the header of a checkpoint is a dict of str by str")
        named = {"state": Part.of(state, text_arrays=text_arrays)} | {f"part{i}": part for i, part in enumerate(parts)}
        members = {f"{group}/{name}": m for group, part in named.items() for name, m in part.members.items()}
        described = {name: [len(m.data), m.crc32, m.sha256] for name, m in members.items()}
        manifest = Member.of(to_json({"format": FORMAT, "header": header, "members": described}))
        members = {_MANIFEST: manifest} | members
        entries = [_Entry(name, len(m.data), m.crc32) for name, m in members.items()]
        chunks = [c for e, m in zip(entries, members.values(), strict=True) for c in (e.local_header(), m.data)]
        self._replace([*chunks, _directory(entries, manifest.sha256)])

    def read_header(self) -> dict[str, str] | None:
        """The header alone, whatever the state of the rest; None if there is no file. Raises InputError."""
        with self._opened() as file:
            return None if file is None else self._manifest(file)[1]["header"]

    def read(self) -> Saved | None:
        """Everything in the file; None if there is no file. Raises InputError if any byte is not as it was written."""
        with self._opened() as file:
            if file is None:
                return None
            first, manifest = self._manifest(file)
            entries = [first, *(_Entry(name, size, crc) for name, (size, crc, _) in manifest["members"].items())]
            directory = _directory(entries, manifest["sha256"])
            # Before anything of a stated size is read, all sizes together are those of the file.
            if sum(len(e.local_header()) + e.size for e in entries) + len(directory) != os.fstat(file.fileno()).st_size:
                raise self._damaged("another size than its manifest states")
            groups: dict[str, dict[str, Member]] = {}
            for entry in entries[1:]:
                group, _, name = entry.name.partition("/")
                groups.setdefault(group, {})[name] = self._member(file, entry, manifest["members"][entry.name][2])
            if file.read() != directory or list(groups) != ["state", *(f"part{i}" for i in range(len(groups) - 1))]:
                raise self._damaged("another directory than its manifest states")
        state, *parts = (Part(members, str(self.path)) for members in groups.values())
        return Saved(manifest["header"], state.tree(), parts)

    def remove(self) -> None:
        """Take the file away, and with it the temporary files of killed writers."""
        self._remove_abandoned()
        self.path.unlink(missing_ok=True)

    def _damaged(self, found: str) -> InputError:
        return InputError(self.path, found=found, expected="a whole file")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[BinaryIO | None]:
        self._remove_abandoned()
        try:
            with contextlib.ExitStack() as stack:
                yield stack.enter_context(open(self.path, "rb")) if self.path.exists() else None
        except OSError as error:
            raise InputError(self.path, found=error.strerror, expected="a file that can be read") from error

    def _manifest(self, file: BinaryIO) -> tuple[_Entry, dict[str, Any]]:
        """Its entry in the archive, and the manifest with its check sum added, if form and sum are right."""
        start = len(_Entry(_MANIFEST, 0, 0).local_header())
        head = file.read(start)
        if len(head) < start or not head.startswith(b"PK"):
            found = _FORMAT_1 if _FORMAT_1.encode() in head else head
            raise InputError(self.path, field="format", found=found, expected=f"{FORMAT} (pickles are not read)")
        entry = _Entry(_MANIFEST, *struct.unpack_from("<Q", head, start - 8), *struct.unpack_from("<I", head, 14))
        if head != entry.local_header() or not entry.size < os.fstat(file.fileno()).st_size:
            raise self._damaged("an archive without a whole manifest at its start")
        data = file.read(entry.size)
        sha256 = hashlib.sha256(data).hexdigest()
        file.seek(-_SHA256_DIGITS, os.SEEK_END)
        if file.read() != sha256.encode() or zlib.crc32(data) != entry.crc32:
            raise self._damaged("a manifest that does not match its check sum")
        file.seek(start + entry.size)
        try:
            manifest = from_json(data)
        except ValueError as error:
            raise self._damaged(str(error)) from error
        stated = manifest.get("format") if isinstance(manifest, dict) else None
        if stated != FORMAT:
            raise InputError(self.path, field="format", found=stated if type(stated) is str else None, expected=FORMAT)
        if not _is_header(manifest.get("header")) or not _are_members(manifest.get("members")):
            raise self._damaged("a manifest of another form")
        return entry, manifest | {"sha256": sha256}

    def _member(self, file: BinaryIO, entry: _Entry, sha256: str) -> Member:
        head = entry.local_header()
        same = file.read(len(head)) == head
        data = file.read(entry.size)
        if not same or hashlib.sha256(data).hexdigest() != sha256:
            raise self._damaged(f"a member {entry.name} that does not match its check sum")
        return Member(memoryview(data), entry.crc32, sha256)

    def _replace(self, chunks: Iterable[bytes | memoryview]) -> None:
        self._remove_abandoned()
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

    def _remove_abandoned(self) -> None:
        """Remove temporary files of this checkpoint, unless another process that runs is writing them."""
        name = re.compile(rf"\.{re.escape(self.path.name)}\.([1-9][0-9]*)\.tmp")
        with contextlib.suppress(OSError):  # in a folder that cannot be changed they stay
            for match in filter(None, map(name.fullmatch, os.listdir(self.path.parent))):
                if not _is_another_process(int(match[1])):
                    (self.path.parent / match[0]).unlink(missing_ok=True)


class _Entry(NamedTuple):
    """A member as the archive lists it (APPNOTE.TXT 4.3): stored, without a date, its sizes in the zip64 field."""

    name: str
    size: int
    crc32: int

    def local_header(self) -> bytes:
        fields = (_ZIP64, 0, 0, 0, _NO_DATE, self.crc32, _IN_ZIP64_FIELD, _IN_ZIP64_FIELD, len(self.name), 20)
        zip64 = struct.pack("<HHQQ", 1, 16, self.size, self.size)
        return struct.pack("<4sHHHHHIIIHH", b"PK\3\4", *fields) + self.name.encode() + zip64

    def listed(self, at: int) -> bytes:
        fields = (_ZIP64, 0, 0, 0, _NO_DATE, self.crc32, _IN_ZIP64_FIELD, _IN_ZIP64_FIELD, len(self.name), 28, 0, 0, 0)
        start = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", _UNIX, *fields, _FILE_MODE, _IN_ZIP64_FIELD)
        return start + self.name.encode() + struct.pack("<HHQQQ", 1, 24, self.size, self.size, at)


def _directory(entries: list[_Entry], comment: str) -> bytes:
    """What an archive of these members ends with."""
    at, listed = 0, []
    for entry in entries:
        listed.append(entry.listed(at))
        at += len(entry.local_header()) + entry.size
    size, n = sum(map(len, listed)), len(entries)
    end = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, _UNIX, _ZIP64, 0, 0, n, n, size, at)
    end += struct.pack("<4sIQI", b"PK\6\7", 0, at + size, 1)
    end += struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, *[_IN_ZIP64_FIELD] * 2, len(comment))
    return b"".join(listed) + end + comment.encode()


def _is_header(header: Any) -> bool:
    return isinstance(header, dict) and all(type(k) is str and type(v) is str for k, v in header.items())


def _are_members(members: Any) -> bool:
    def described(line: Any) -> bool:
        if not isinstance(line, list) or [type(value) for value in line] != [int, int, str]:
            return False
        return line[0] in range(_LARGEST) and line[1] in range(2**32)

    return isinstance(members, dict) and all(_MEMBER.fullmatch(k) and described(v) for k, v in members.items())


def _is_another_process(pid: int) -> bool:
    """Whether it runs and is not this one. Where that cannot be asked without harm, any other is taken to run."""
    if pid == os.getpid() or os.name != "posix":
        return pid != os.getpid()
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it runs for another user
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Put the name of a new file on the disk, too."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
