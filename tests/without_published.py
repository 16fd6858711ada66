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


MOST_LEFT_OUT = 1 / 6
"""Part of all that may be left out: what needs no published system must not begin to ask for one in silence."""


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where too much was left out."""
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # a worker
        return
    passed, skipped = (len(reporter.stats.get(outcome, [])) for outcome in ("passed", "skipped"))
    if skipped > MOST_LEFT_OUT * (passed + skipped):
        session.exitstatus = 1
        reporter.write_line(f"{skipped} left out, {passed} passed: too many ask for a published system")


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
