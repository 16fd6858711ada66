"""The reference results that come with the repository are part of the whole ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

COMMITTED = Path(__file__).resolve().parent / "recorded"
FILES = sorted(path.relative_to(COMMITTED).as_posix() for path in COMMITTED.rglob("*.*") if path.suffix != ".md")


def contents(path: Path) -> Any:
    """Parsed JSON, one value a line for JSON lines; the bytes of anything else."""
    if path.suffix != ".gz":
        return path.read_bytes()
    text = gzip.decompress(path.read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()] if ".jsonl" in path.name else json.loads(text)


def assert_part(part: Any, whole: Any, where: str) -> None:
    """Lists are as long and values the same; of mappings some entries may be left out."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert_part(value, whole[key], f"{where}/{key}")
    elif isinstance(part, list):
        assert len(part) == len(whole), where
        for i, (one, other) in enumerate(zip(part, whole, strict=True)):
            assert_part(one, other, f"{where}/{i}")
    else:
        # As texts, so that nan is equal to nan.
        assert repr(part) == repr(whole), where


@pytest.mark.exhaustive
def test_what_is_committed_is_what_was_recorded(reference_data):
    for name in FILES:
        path = reference_data(name)
        if path.is_relative_to(COMMITTED):
            pytest.skip(f"{name} is absent; set ALLOCATOR_REFERENCE to the folder of the whole reference results")
        assert_part(contents(COMMITTED / name), contents(path), name)


def test_there_is_something_committed_and_little():
    assert len(FILES) == 12
    assert sum((COMMITTED / name).stat().st_size for name in FILES) < 500_000
