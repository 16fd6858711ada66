"""Data sets in words: sizes, hashes and readers."""

from __future__ import annotations

from allocator.data.registry import HASH_ORIGINS, UNKNOWN, DataFile, Dataset

_BY_SCHEMA = " (by its schema)"

UNITS = ("B", "kB", "MB", "GB", "TB")


def size_text(dataset: Dataset) -> str:
    """Number of files and bytes: ``5 files, 414 kB``; a size that is not exact has ``about``."""
    if not dataset.files:
        return UNKNOWN if dataset.size is None else f"about {_bytes(dataset.size)}"
    count = f"{len(dataset.files)} file{'s' if len(dataset.files) > 1 else ''}"
    if dataset.size is None:
        return f"{count}, size {UNKNOWN}"
    return f"{count}, {'' if dataset.size_is_exact else 'about '}{_bytes(dataset.size)}"


def bytes_text(file: DataFile) -> str:
    """Bytes of a file, exactly where that is known."""
    if file.size is not None:
        return f"{file.size:,} bytes"
    return f"size {UNKNOWN}" if file.approximate_size is None else f"about {_bytes(file.approximate_size)}"


def hash_text(dataset: Dataset) -> str:
    """Where the SHA-256 of the files come from."""
    return HASH_ORIGINS[dataset.hash_from]


def reader_text(dataset: Dataset) -> str:
    """What of this package reads the set."""
    return (", ".join(dataset.read_by) or "nothing yet") + _BY_SCHEMA * dataset.by_schema


def _bytes(number: int) -> str:
    size = float(number)
    for unit in UNITS:
        if size < 999.5 or unit == UNITS[-1]:
            break
        size /= 1000
    return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
