"""Checkpoint files: plain data and arrays, without pickle.

A file holds one tree of plain data (see `allocator.checkpoint.state_tree`) that changes from save to save, the *state*,
and trees that never change once recorded, the *parts*, each encoded only once however often the file is written::

    allocator checkpoint 3 SHA-256       of the next line
    {"header": ..., "members": {...}}    text by name; by name size and SHA-256 of each member, in their order
    state/tree.json                      the tree; an array is {"array": dtype, "at": first element, "shape": [...]}
    state/float64                        all arrays of this dtype in the tree, end to end
    part0/tree.json, part0/...           the first part, and so on

Reading trusts nothing in it: the first line fixes the second, and that every byte behind it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from allocator.checkpoint.state_tree import Member, Part, from_json, to_json
from throughputs import InputError

__all__ = ["Part"]

FORMAT = "allocator checkpoint 3"

_LONGEST_MANIFEST = 1 << 28


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
        described = {name: [len(m.data), m.sha256] for name, m in members.items()}
        manifest = Member.of(to_json({"header": header, "members": described}) + b"\n")
        self._replace([f"{FORMAT} {manifest.sha256}\n".encode(), manifest.data, *(m.data for m in members.values())])

    def read_header(self) -> dict[str, str] | None:
        """The header alone, whatever the state of the rest; None if there is no file. Raises InputError."""
        with self._opened() as file:
            return None if file is None else self._manifest(file)["header"]

    def read(self) -> Saved | None:
        """Everything in the file; None if there is no file. Raises InputError if any byte is not as it was written."""
        with self._opened() as file:
            if file is None:
                return None
            manifest = self._manifest(file)
            stated = manifest["members"]
            # Before anything of a stated size is read, all sizes together are those of the file.
            if file.tell() + sum(size for size, _ in stated.values()) != os.fstat(file.fileno()).st_size:
                raise self._damaged("another size than its manifest states")
            groups: dict[str, dict[str, Member]] = {}
            for path, (size, sha256) in stated.items():
                group, _, name = path.partition("/")
                groups.setdefault(group, {})[name] = member = Member.of(file.read(size))
                if member.sha256 != sha256:
                    raise self._damaged(f"a member {path} that does not match its check sum")
        if list(groups) != ["state", *(f"part{i}" for i in range(len(groups) - 1))]:
            raise self._damaged("other members than a state and its parts")
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

    def _manifest(self, file: BinaryIO) -> dict[str, Any]:
        """The manifest, if form and sum are right; the members follow."""
        head = file.readline(200)
        kind, _, sha256 = head.decode(errors="replace").rpartition(" ")
        if kind != FORMAT:
            raise InputError(self.path, field="format", found=head, expected=f"{FORMAT} (pickles are not read)")
        data = file.readline(_LONGEST_MANIFEST)
        if f"{hashlib.sha256(data).hexdigest()}\n" != sha256:
            raise self._damaged("a manifest that does not match its check sum")
        try:
            manifest = from_json(data)
        except ValueError as error:
            raise self._damaged(str(error)) from error
        good = isinstance(manifest, dict) and _is_header(manifest.get("header"))
        if not good or not _are_members(manifest.get("members")):
            raise self._damaged("a manifest of another form")
        return dict(manifest)

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


def _is_header(header: Any) -> bool:
    return isinstance(header, dict) and all(type(k) is str and type(v) is str for k, v in header.items())


def _are_members(members: Any) -> bool:
    def described(line: Any) -> bool:
        return isinstance(line, list) and [type(value) for value in line] == [int, str] and line[0] >= 0

    return isinstance(members, dict) and all(map(described, members.values()))


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
