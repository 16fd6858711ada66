"""Opening, reading and replacing files: plain or gzip, CSV or Parquet, never left half written."""

from __future__ import annotations

import gzip
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from throughputs.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TABLE_KINDS", "file_kind", "read_frame", "read_text", "write_frame", "write_text"]

TABLE_KINDS = ("csv", "parquet")
"""Kinds of file that `read_frame` and `write_frame` know."""


def file_kind(path: Path) -> str:
    """Lower-case extension without the dot and without ``.gz``: ``"csv"`` for ``jobs.csv.gz``."""
    name = path.name.lower().removesuffix(".gz")
    return name.rpartition(".")[2] if "." in name else ""


def read_text(path: Path) -> str:
    """Contents of a UTF-8 file, unpacked when its name ends in ``.gz``.

    Raises
    ------
    InputError
        The file is not UTF-8, or not the gzip file that its name promises.
    OSError
        The file cannot be opened.
    """
    raw = path.read_bytes()
    try:
        if path.suffix.lower() == ".gz":
            raw = gzip.decompress(raw)
        return raw.decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError) as error:
        raise InputError(path, found=raw[:8], expected=f"a gzip file ({error})") from error
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(path, line=line, found=raw[error.start : error.end], expected="UTF-8 text") from error


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` in one step, packed when its name ends in ``.gz``."""
    data = text.encode("utf-8")
    if path.suffix.lower() == ".gz":
        data = gzip.compress(data, mtime=0)  # no time stamp: equal contents give equal files
    with _replacing(path) as temporary:
        temporary.write_bytes(data)


def read_frame(path: Path) -> tuple[pd.DataFrame, int]:
    """Table in a CSV or Parquet file, and the line of the file that holds its first row.

    CSV cells are left as text, so that whoever knows the columns can say which line is wrong; lines that
    start with ``#`` above the header are skipped. Rows of a Parquet file count from 1.
    """
    import pandas as pd

    if file_kind(path) == "parquet":
        try:
            return pd.read_parquet(path), 1
        except (ValueError, OSError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise InputError(path, expected=f"a Parquet file ({error})") from error
    lines = read_text(path).rstrip("\r\n").split("\n")
    comments = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    if comments == len(lines) or not lines[comments].strip():
        raise InputError(path, line=comments + 1, expected="a header line")
    try:
        # header=None: below a header, pandas would cut a first row that is too long or take it for an index
        cells = pd.read_csv(
            io.StringIO("\n".join(lines) + "\n", newline=""),
            header=None,
            dtype=str,
            keep_default_na=False,
            skiprows=comments,
            skip_blank_lines=False,
        )
    except pd.errors.ParserError as error:
        raise _parser_error(path, str(error)) from error
    frame = cells.iloc[1:].set_axis(cells.iloc[0].to_list(), axis="columns").reset_index(drop=True)
    return frame, comments + 2


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """Replace `path` by the table, without its index, as CSV (floats in full) or Parquet."""
    if file_kind(path) == "parquet":
        with _replacing(path) as temporary:
            frame.to_parquet(temporary, index=False)
    else:
        write_text(path, frame.to_csv(index=False, lineterminator="\n"))


def _parser_error(path: Path, message: str) -> InputError:
    match = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", message)
    if match is None:
        return InputError(path, expected=f"a CSV file ({message})")
    expected, line, found = (int(g) for g in match.groups())
    return InputError(path, line=line, found=f"{found} values", expected=f"{expected} values, as in the header")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its place when the block ends well and vanishes otherwise."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
