"""Opening, reading and replacing files: plain or gzip, CSV, Parquet, JSON or TOML, never left half written.

Where a file is to be read, the name ``-`` stands for the standard input; what it holds is told by its contents then.
Whatever a file holds, a reader raises `InputError` with its name, or `OSError` where it cannot be opened.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import math
import os
import re
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, TypeAlias, TypeVar

import numpy as np

from throughputs import limits
from throughputs.arrays import Flags
from throughputs.errors import InputError, one_of
from throughputs.limits import Range

if TYPE_CHECKING:
    import pandas as pd

JsonObject: TypeAlias = dict[str, Any]
"""Values by name, of the kinds that JSON has."""

StrPath: TypeAlias = str | os.PathLike[str]
"""The name of a file or folder."""

Made = TypeVar("Made")


class HasFrame(Protocol):
    """Anything that can be written as a table."""

    def to_frame(self) -> pd.DataFrame:
        """The table."""


TABLE_KINDS = ("csv", "parquet")
"""Kinds of file that `read_frame` and `write_frame` know."""

_CELL = 8
"""Bytes that a cell takes in memory at least."""

_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
"""How JSON may write one; two that belong together are a character."""


def file_kind(path: Path) -> str:
    """Lower-case extension without the dot and without ``.gz``: ``"csv"`` for ``jobs.csv.gz``.

    Of the standard input: ``"json"``, ``"parquet"`` or ``"csv"``; empty where columns are between tabs.
    """
    if _is_standard_input(path):
        return _kind_of(_contents(path))
    name = path.name.lower().removesuffix(".gz")
    return name.rpartition(".")[2] if "." in name else ""


def source_of(path: Path) -> str:
    """What a file is called in messages."""
    return "standard input" if _is_standard_input(path) else str(path)


def _is_standard_input(path: Path) -> bool:
    return str(path) == "-"


def _contents(path: Path) -> bytes:
    return _whole(sys.stdin) if _is_standard_input(path) else path.read_bytes()


@lru_cache(maxsize=1)
def _whole(stream: TextIO) -> bytes:
    """All that comes; kept, as some files are looked at before they are read."""
    return stream.buffer.read()


def _kind_of(contents: bytes) -> str:
    if contents.startswith(b"PAR1"):
        return "parquet"
    if contents[:100].lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        return "json"
    first = next((line for line in contents.splitlines() if not line.startswith(b"#")), b"")
    return "" if b"\t" in first else "csv"


def read_text(path: Path) -> str:
    """Contents of a UTF-8 file, unpacked when its name ends in ``.gz``; lines that end with CR alone end with LF.

    Raises
    ------
    InputError
        The file is not UTF-8, or not the gzip file that its name promises, or larger unpacked than
        `limits.LARGEST_UNPACKED`.
    OSError
        The file cannot be opened.
    """
    packed = path.suffix.lower() == ".gz"
    raw = _beginning(path, limits.LARGEST_UNPACKED + 1 if packed else -1)
    if packed:
        _check_unpacked(path, len(raw))
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return _with_line_feeds(raw.decode())
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(
            path, line=line, found=raw[error.start : error.end], expected="UTF-8 text; save it as UTF-8"
        ) from error


def _beginning(path: Path, most: int) -> bytes:
    """So many bytes of a file, unpacked when its name ends in ``.gz``; all of them if `most` is negative."""
    try:
        with io.BytesIO(_contents(path)) if _is_standard_input(path) else path.open("rb") as file:
            if path.suffix.lower() != ".gz":
                return file.read(most)
            with gzip.GzipFile(fileobj=file) as packed:
                return packed.read(most)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(path, expected=f"a whole gzip file ({error})") from error


def _with_line_feeds(text: str) -> str:
    """The text with LF where all its lines, but for the last, end with CR."""
    body = text.removesuffix("\n")
    return text.replace("\r", "\n") if "\r" in body.rstrip("\r") and "\n" not in body else text


def _check_unpacked(path: Path, size: int) -> None:
    """Raise `InputError` for a compressed file of which more than `limits.LARGEST_UNPACKED` bytes come out."""
    most = limits.LARGEST_UNPACKED
    if size > most:
        expected = f"at most {most:,} bytes; unpack it, or divide it"
        raise InputError(path, found=f"more than {most:,} bytes unpacked", expected=expected)


def read_head(path: Path, characters: int = 65_536) -> str:
    """The beginning of a text file, unpacked when its name ends in ``.gz``, to tell what it holds.

    Raises as `read_text` does; characters that are no UTF-8 are replaced.
    """
    return _with_line_feeds(_beginning(path, characters).decode("utf-8-sig", errors="replace"))


def read_json(path: Path, unique_keys: bool = False) -> Any:
    """Contents of a JSON file, unpacked when its name ends in ``.gz``.

    Raises
    ------
    InputError
        As `read_text` and `parse_json`.
    OSError
        The file cannot be opened.
    """
    return parse_json(read_text(path), path, unique_keys)


def parse_json(text: str, source: object, unique_keys: bool = False) -> Any:
    """What a JSON text says.

    Raises
    ------
    InputError
        It is not JSON (with the line), is nested too deeply, has a number with too many digits or text with half a
        character (a lone surrogate, which no file can hold), or, with `unique_keys`, an object with the same key twice.
    """

    def unique(items: list[tuple[str, Any]]) -> JsonObject:
        found = dict(items)
        if len(found) < len(items):
            names = [name for name, _ in items]
            repeated = next(name for name in found if names.count(name) > 1)
            raise InputError(source, field=repeated, found="the key twice", expected="each key once")
        return found

    found = _parsed(lambda: json.loads(text, object_pairs_hook=unique if unique_keys else None), source, "JSON")
    if _HALF_CHARACTER.search(text):
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start : error.end]
            raise InputError(source, found=half, expected="text of whole characters") from None
    return found


def read_toml(path: Path) -> JsonObject:
    """Contents of a TOML file; raises as `read_text` and `parse_toml` do."""
    return parse_toml(read_text(path), path)


def parse_toml(text: str, source: object) -> JsonObject:
    """What a TOML text says.

    Raises
    ------
    InputError
        It is not TOML (with the line), is nested too deeply, or has a number with too many digits.
    """
    content: JsonObject = _parsed(lambda: tomllib.loads(text), source, "TOML", text.count("\n") + 1)
    return content


def _parsed(parse: Callable[[], Any], source: object, kind: str, last_line: int | None = None) -> Any:
    try:
        return parse()
    except InputError:
        raise
    except json.JSONDecodeError as error:
        raise InputError(source, line=error.lineno, found=error.msg, expected=kind) from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))  # otherwise "at end of document"
        raise InputError(source, line=int(line[1]) if line else last_line, found=str(error), expected=kind) from None
    except RecursionError:
        raise InputError(source, found="too deep a nesting", expected=f"{kind} of fewer levels") from None
    except ValueError as error:  # whole numbers of thousands of digits, dates that do not exist
        raise InputError(source, found=str(error), expected=f"{kind} with values that can be read") from None


@dataclass(frozen=True)
class Document:
    """Checks values of a JSON or TOML file; errors name the file and the path of a key, as ``models.LM.types.t4``."""

    source: object

    def error(self, where: str, found: object, expected: str) -> InputError:
        """What is wrong with a value."""
        return InputError(self.source, field=where or None, found=found, expected=expected)

    def table(self, value: Any, where: str, known: Sequence[str] = (), may_lack: Sequence[str] | None = None) -> Any:
        """A table; with the `known` keys alone, if some are named, and all of these but those that it `may_lack`."""
        if not isinstance(value, dict):
            raise self.error(where, value, "a table")
        for key in value if known else ():
            if key not in known:
                raise self.error(where or "top level", key, one_of(key, known))
        for key in known if may_lack is not None else ():
            if key not in value and key not in (may_lack or ()):
                raise self.error(f"{where}.{key}".lstrip("."), None, "this key to be present")
        return value

    def items(self, value: Any, where: str) -> list[Any]:
        """A list."""
        if not isinstance(value, list):
            raise self.error(where, value, "a list")
        return value

    def whole(self, value: Any, where: str, least: int = 1) -> int:
        """A whole number."""
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= limits.LARGEST_WHOLE_NUMBER:
            raise self.error(where, value, f"a whole number of at least {least}")
        return value

    def number(self, value: Any, where: str, within: Range, expected: str = "") -> float:
        """A finite number."""
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not good or value not in within:
            raise self.error(where, value, expected or f"a number of {within}")
        return float(value)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` in one step, packed when its name ends in ``.gz``."""
    data = text.encode("utf-8")
    if path.suffix.lower() == ".gz":
        data = gzip.compress(data, mtime=0)  # no time stamp: equal contents give equal files
    with _replacing(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, data: Any, *, indent: int = 2, default: Callable[[Any], Any] | None = None) -> None:
    """Replace `path` by plain data as JSON for people; `default` makes plain what is not."""
    write_text(path, json.dumps(data, indent=indent, allow_nan=False, default=default) + "\n")


def read_frame(path: Path) -> tuple[pd.DataFrame, int]:
    """Table in a CSV or Parquet file, and the line of the file that holds its first row.

    CSV cells are left as text, so that whoever knows the columns can say which line is wrong; lines that
    start with ``#`` above the header are skipped. Rows of a Parquet file count from 1.
    """
    if file_kind(path) == "parquet":
        return _read_parquet(path), 1
    above, line, rest = divided(read_text(path).rstrip("\r\n"))
    header, frame, too_long = parse_rows(line, rest, ",", path, above + 1)
    if too_long.any():
        row, expected = int(too_long.argmax()), f"{len(header)} values, as in the header"
        raise InputError(path, line=above + 2 + row, found="more values", expected=expected)
    return frame.set_axis(header, axis="columns"), above + 2


_COMMENTS = re.compile(r"(?:#.*(?:\n|\Z)|\s*\n)*")
"""What may stand above the header of a table."""


def divided(text: str) -> tuple[int, str, str]:
    """How many lines stand above the first one that says something and is no comment; that line, and what follows."""
    head = _COMMENTS.match(text)
    assert head is not None
    line, _, rest = text[head.end() :].partition("\n")
    return head[0].count("\n"), line.rstrip("\r"), rest


def parse_rows(
    header: str, rows: str, separator: str, source: object, line: int
) -> tuple[list[str], pd.DataFrame, Flags]:
    """Names of the columns in a header, a table of the text in the rows below it, and which of these have more cells.

    Parameters
    ----------
    header, rows : text; rows that are too short have empty cells in place of those that they lack.
    separator : between cells; between bars text is never quoted, as names of jobs may have quotes in them.
    source, line : of the header, for messages.

    Raises
    ------
    InputError
        No header, or text that is no table.
    """
    import pandas as pd

    quoting: Literal[0, 3] = csv.QUOTE_NONE if separator == "|" else csv.QUOTE_MINIMAL
    try:
        names = [name.strip() for name in next(csv.reader([header], delimiter=separator, quoting=quoting), [])]
    except csv.Error as error:
        raise InputError(source, line=line, expected=f"a header line ({error})") from error
    while names and not names[-1]:  # sacct -p ends every line with a bar
        names.pop()
    if not names:
        raise InputError(source, line=line, expected="a header line")
    # one more column than the header, so that a row that is too long shows
    places = [str(place) for place in range(len(names) + 1)]
    try:
        frame = pd.read_csv(
            io.StringIO(f"{separator.join(places)}\n{rows}", newline=""),
            sep=separator,
            usecols=places,
            index_col=False,
            dtype=object,
            na_filter=False,
            skip_blank_lines=False,
            quoting=quoting,
        )
        too_long = np.asarray(frame.pop(places[-1]).to_numpy(dtype=object) != "", dtype=bool)
        # of still more cells pandas says nothing
        if any(text.count(separator) > len(names) for text in rows.split("\n")):
            cells = csv.reader(io.StringIO(rows, newline=""), delimiter=separator, quoting=quoting)
            too_long |= [any(row[len(names) :]) for row in islice(cells, len(frame))]
    except (ValueError, OverflowError, csv.Error) as error:  # those of pandas are among them
        raise InputError(source, expected=f"a table of text ({error})") from error
    return names, frame, too_long


def read_columns(path: Path) -> list[str]:
    """Names of the columns of a Parquet file, without its rows; empty where it is none, which `read_frame` tells."""
    raw = _contents(path)
    try:
        from pyarrow.parquet import read_schema

        return list(read_schema(io.BytesIO(raw)).names)
    except Exception:  # as in `_read_parquet`, which says what is wrong
        return []


def _read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    raw = _contents(path)  # what the system has against the file is an OSError; the rest is about its contents
    try:
        from pyarrow.parquet import read_metadata

        about = read_metadata(io.BytesIO(raw))
        pages = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
        # values that repeat are written once, but each cell takes its place in memory
        _check_unpacked(path, max(pages, about.num_rows * about.num_columns * _CELL))
        return pd.read_parquet(io.BytesIO(raw))
    except InputError:
        raise
    except Exception as error:
        # Damage can show anywhere in pyarrow and pandas: types, keys, encodings, sizes that no memory has.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(path, found=raw[:4], expected=f"a whole Parquet file ({reason})") from error


def write_frame(path: Path, frame: pd.DataFrame, comment: str = "") -> None:
    """Replace `path` by the table, without its index, as CSV (floats in full) or Parquet.

    A CSV file begins with the `comment`, of one line, if there is one.
    """
    if file_kind(path) == "parquet":
        with _replacing(path) as temporary:
            frame.to_parquet(temporary, index=False)
    else:
        head = f"# {comment}\n" if comment else ""
        write_text(path, head + frame.to_csv(index=False, lineterminator="\n"))


def check_table_name(path: Path) -> None:
    """Raise `InputError` for a file whose name is not that of a table."""
    if file_kind(path) not in TABLE_KINDS:
        raise InputError(path, found=path.name, expected="a name ending in .csv, .csv.gz or .parquet")


def read_rows(path: StrPath, make: Callable[..., Made]) -> Made:
    """What `make` makes of the table in a CSV or Parquet file, told its `source` and the `first_line` of its rows."""
    path = Path(path)
    check_table_name(path)
    frame, first_line = read_frame(path)
    return make(frame, source=source_of(path), first_line=first_line)


def write_rows(path: StrPath, made: HasFrame) -> None:
    """Replace a CSV or Parquet file by the table of something; raises as `check_table_name` does."""
    path = Path(path)
    check_table_name(path)
    write_frame(path, made.to_frame())


def remove_abandoned(path: Path) -> None:
    """Remove temporary files beside `path` of writes that were killed, unless another process that runs is at it."""
    name = re.compile(rf"\.{re.escape(path.name)}\.([1-9][0-9]*)\.tmp")
    with suppress(OSError):  # in a folder that cannot be changed they stay
        for match in filter(None, map(name.fullmatch, os.listdir(path.parent))):
            if not _is_another_process(int(match[1])):
                (path.parent / match[0]).unlink(missing_ok=True)


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


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its place when the block ends well and vanishes otherwise.

    A device or a pipe is written to, never replaced.
    """
    device = path.exists() and not (path.is_file() or path.is_dir())
    temporary = path if device else path.with_name(f".{path.name}.{os.getpid()}.tmp")
    remove_abandoned(path)
    try:
        yield temporary
        if not device:
            os.replace(temporary, path)
    except OSError as error:
        # A full disk is told without a file name by those who write; the temporary name would not help anybody.
        if error.filename is None or Path(error.filename) == temporary:
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise
    finally:
        if not device:
            temporary.unlink(missing_ok=True)
