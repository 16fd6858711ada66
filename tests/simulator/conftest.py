"""Worlds of these tests: by hand, and so with starts that cost nothing unless a test says what they cost."""

from __future__ import annotations

import pytest

from allocator import presets
from allocator.presets import Preset


@pytest.fixture(autouse=True)
def _starts_are_free(monkeypatch):
    monkeypatch.setitem(presets._PRESETS, "default", Preset())
