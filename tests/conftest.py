"""Where the tests find public data and reference results, which are not part of the repository."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# Shared machines stall for seconds; a slow example is not a failing one.
settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")

_DEFAULT_DATA = Path(__file__).resolve().parent.parent / ".." / "shared" / "data"


def _data_root() -> Path:
    return Path(os.environ.get("ALLOCATOR_DATA", _DEFAULT_DATA))


def _reference_root() -> Path:
    return Path(os.environ.get("ALLOCATOR_REFERENCE", _data_root().parent / "reference"))


def _existing(path: Path, variable: str) -> Path:
    if not path.exists():
        pytest.skip(f"{path} is absent; set {variable} to the folder that holds it")
    return path


@pytest.fixture(scope="session")
def public_data() -> Callable[[str], Path]:
    """Path of a file of public input data (folder ALLOCATOR_DATA); skips the test where it is absent."""
    return lambda relative: _existing(_data_root() / relative, "ALLOCATOR_DATA")


@pytest.fixture(scope="session")
def reference_data() -> Callable[[str], Path]:
    """Path of a file of reference results (folder ALLOCATOR_REFERENCE); skips where it is absent."""
    return lambda relative: _existing(_reference_root() / relative, "ALLOCATOR_REFERENCE")
