"""The examples in docstrings are true: those of every module of the packages that has some."""

from __future__ import annotations

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def modules_with_examples() -> list[str]:
    """Dotted names, by package."""
    found = (
        path
        for package in ("throughputs", "formulations", "allocator")
        for path in sorted((ROOT / package).rglob("*.py"))
        if re.search(r"^ *>>> ", path.read_text(), re.MULTILINE)
    )
    return [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in found]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_of_a_module(name):
    assert doctest.testmod(import_module(name)).failed == 0


def test_most_rooms_have_examples():
    rooms = {".".join(name.split(".")[:2]) for name in modules_with_examples()}
    assert len(rooms) >= 15, rooms
