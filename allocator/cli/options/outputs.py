"""Outputs never destroy inputs: one rule for all commands, applied before anything is read or run.

What a command writes stands in ``commands.toml``; whatever else on its command line may name a file is read. Refused
are an output that is the same file as an input or as another output (by link, other spelling or hard link), an
existing file that is not what the command writes, and a place where nothing can be written.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from allocator.cli.app import FOLDERS
from allocator.cli.screen import shown_as_text
from throughputs import InputError

_LOOKED_AT = 1 << 16
_READ = re.compile(r"FILE|FOLDER|DIR|INSTANCE|RUN|FROM")
_TABS = (6, 9, 11)

Look = Callable[[bytes], bool]
"""Whether the bytes at the beginning and the end of a file are those of what a command writes."""


def _words(*words: str) -> Look:
    return lambda contents: all(word.encode() in contents for word in words)


_TABLE_OF_JOBS = _words("job_type", "scale_factor", "arrival_time")


def _jobs(contents: bytes) -> bool:
    return _TABLE_OF_JOBS(contents) and b"jct" not in contents.split(b"\n", 1)[0]


def _trace(contents: bytes) -> bool:
    """The same, or one of Pollux, a text of Gavel or Shockwave, or a workload in the standard format."""
    first = contents.split(b"\n", 1)[0]
    texts = first.count(b"\t") in _TABS or first.startswith(b"; Version") or _words("application", "replicas")(first)
    return texts or _jobs(contents)


def _picture(contents: bytes) -> bool:
    return contents.startswith((b"\x89PNG", b"%PDF")) or b"<svg" in contents


_KINDS = {
    "jobs": _jobs, "trace": _trace, "picture": _picture, "page": _words("<!doctype html>", "Content-Security-Policy"),
}  # fmt: skip


def _look(declared: Any) -> Look:
    """What a file looks like that stands in ``commands.toml``: its kind, words, or several lists of words."""
    if isinstance(declared, str):
        return _KINDS[declared]
    looks = [_words(*words) for words in declared] if any(isinstance(word, list) for word in declared) else []
    return (lambda contents: any(look(contents) for look in looks)) if looks else _words(*declared)


@dataclass(frozen=True)
class File:
    """A file that a command writes, and what one that it may replace looks like."""

    looks: Look

    def check(self, option: str, path: Path) -> None:
        """Raise InputError where it cannot be written, or something else is there."""
        if path.is_dir():
            raise InputError(option, found=str(path), expected="a file, not a folder")
        _check_place(option, path, path.parent)
        if not path.parent.is_dir():
            raise InputError(option, found=str(path), expected="a file in a folder that exists")
        self.check_contents(option, path)

    def check_contents(self, option: str, path: Path) -> None:
        """Raise InputError where something else is there."""
        if path.is_file() and path.stat().st_size and not self.looks(_ends_of(path)):
            expected = "a new file, or one as it is written there: this one is something else, and would be lost"
            raise InputError(option, found=str(path), expected=expected)

    def replaced(self, path: Path) -> Iterator[Path]:
        """What would no longer be what it is."""
        yield path


@dataclass(frozen=True)
class Folder:
    """A folder that a command makes: what its files look like, by name or pattern."""

    files: Mapping[str, Look]

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> Folder:
        """As it stands in ``commands.toml``."""
        files: dict[str, Look] = {}
        for name, each in declared.items():
            inner = FOLDERS.get(each) if isinstance(each, str) else None
            below = {"": _look(each)} if inner is None else cls.of(inner).files
            files |= {str(PurePosixPath(name, place)): look for place, look in below.items()}
        return cls(files)

    def check(self, option: str, path: Path) -> None:
        """Raise InputError where it cannot be made, or what it would replace is something else."""
        _check_place(option, path, path)
        for name, looks in self.files.items():
            if "*" not in name:
                File(looks).check_contents(option, path / name)

    def replaced(self, path: Path) -> Iterator[Path]:
        """What would no longer be what it is: files, and the folder as a whole."""
        yield path
        for pattern in self.files:
            yield from path.glob(pattern)


RUN, SWEPT, SPREAD = Folder.of(FOLDERS["run"]), Folder.of(FOLDERS["sweep"]), File(_words("lower_quartile"))
"""The files of a run and of a sweep, and the file beside measured throughputs."""


def written_by(declared: Mapping[str, Any]) -> dict[str, File | Folder]:
    """What a command writes, by the option (or the argument, by its metavar) that names it."""
    return {
        option: Folder.of(each) if isinstance(each, Mapping) else File(_look(each))
        for option, each in declared.get("writes", {}).items()
    }


def guard(command: Any, declared: Mapping[str, Any]) -> None:
    """Make a command look at what it would write before it does anything, its options included, and print text."""
    parse, run, written = command.parse_args, command.invoke, written_by(declared)

    def parse_args(context: Any, args: list[str]) -> Any:
        with _arguments_as_options(command):
            if args and not context.resilient_parsing:
                _check(command, written, context, args, declared.get("bytes", ()))
            return parse(context, args)

    def invoke(context: Any) -> Any:
        with shown_as_text(), _arguments_as_options(command):
            return run(context)

    command.parse_args, command.invoke = parse_args, invoke


@contextmanager
def _arguments_as_options(command: Any) -> Iterator[None]:
    """Call an argument that a function in Python found wrong by the option that it was given by."""
    options = {option for parameter in command.params for option in parameter.opts}
    try:
        yield
    except InputError as error:
        option = f"--{error.source.replace('_', '-')}"
        if option not in options:
            raise
        raise InputError(
            option, expected=error.expected, found=error.found, line=error.line, field=error.field
        ) from error


def option_of(parameter: Any) -> str:
    """What a parameter of a command is called: its option, or the metavar of an argument."""
    option = str(max(parameter.opts, key=len))
    return option if option.startswith("-") else str(parameter.metavar or option)


def may_name_input(parameter: Any) -> bool:
    """Whether the value of a parameter that names no output may name a file or folder: its metavar says so."""
    return bool(_READ.search(str(parameter.metavar)))


def _check(
    command: Any, written: Mapping[str, File | Folder], context: Any, args: Sequence[str], of_bytes: Sequence[str]
) -> None:
    """Raise InputError where the rule is broken, or a value is no text."""
    given, _, _ = command.make_parser(context).parse_args(args=list(args))
    if given.get("help"):
        return
    outputs: list[tuple[str, File | Folder, Path]] = []
    inputs: list[tuple[str, Path]] = []
    for parameter in command.get_params(context):
        option = option_of(parameter)
        for text in _texts(parameter.consume_value(context, given)[0]):
            if option not in of_bytes:
                _check_text(option, text)
            if option in written:
                if not text:
                    raise InputError(option, found=text, expected="a name, such as '.' for this folder")
                outputs.append((option, written[option], Path(text)))
            elif may_name_input(parameter) and text != "-":
                # a value too long for a name is none; `Path.exists` would raise
                inputs += [(option, path) for path in _paths(text) if os.path.exists(path)]
    for option, what, path in outputs:
        replaced = list(what.replaced(path))
        others = [(other, file) for other, _, file in outputs if other != option]
        for other, file in inputs + others:
            if any(_same(file, each) for each in replaced):
                place = "file than" if isinstance(what, File) else "folder, as this would replace"
                does = "is read" if (other, file) in inputs else "is written"
                expected = f"another {place} {file}, which {does} ({other})"
                raise InputError(option, found=str(path), expected=expected)
        what.check(option, path)


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list | tuple) else [value]
    return [str(each) for each in values if isinstance(each, str | os.PathLike)]


def _check_text(option: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(option, found=os.fsencode(text), expected="text in UTF-8") from None


def _paths(text: str) -> Iterator[Path]:
    """The files that a value may name: behind one there may be a day (FILE@DAY) or a class (FILE.py:CLASS)."""
    for name in dict.fromkeys((text, text.partition("@")[0], text.rpartition(":")[0])):
        if name and "\0" not in name:
            yield Path(name)


def _same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


def _check_place(option: str, path: Path, folder: Path) -> None:
    """Raise InputError where `folder` cannot be one that is written to: its nearest that exists says so."""
    nearest = next(each for each in (folder, *folder.absolute().parents) if each.exists() or each.is_symlink())
    if not nearest.is_dir():
        raise InputError(option, found=str(path), expected=f"a place in a folder: {nearest} is none")
    if not os.access(nearest, os.W_OK | os.X_OK) and not path.exists():
        raise InputError(option, found=str(path), expected=f"a place that can be written to, which {nearest} is not")


def _ends_of(path: Path) -> bytes:
    """The first and last bytes of a file, unpacked where its name says that it is packed."""
    with path.open("rb") as file:
        first = file.read(_LOOKED_AT)
        file.seek(max(path.stat().st_size - _LOOKED_AT, 0))
        last = file.read(_LOOKED_AT)
    if path.suffix.lower() != ".gz":
        return first + last
    try:
        return zlib.decompressobj(wbits=31).decompress(first, _LOOKED_AT)
    except zlib.error:
        return first
