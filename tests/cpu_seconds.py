"""CPU seconds of the tests by folder, with the processes that they start; printed after a run of several folders."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

PROPERTY = "cpu_seconds"


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, None, None]:
    """Note when a test began; its report carries what it took, also from the workers of xdist."""
    item.user_properties.append((PROPERTY, -_cpu_seconds()))
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, None, None]:
    """The report of the last phase tells what the three phases took together."""
    if call.when == "teardown":
        ((position, (_, begun)),) = [entry for entry in enumerate(item.user_properties) if entry[1][0] == PROPERTY]
        item.user_properties[position] = (PROPERTY, _cpu_seconds() + begun)
    yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The dearest folder first."""
    by_folder: Counter[str] = Counter()
    for report in terminalreporter.stats.get("", []):
        if getattr(report, "when", "") == "teardown":
            folder = Path(report.nodeid.split("::")[0]).parent
            by_folder[str(folder)] += dict(report.user_properties).get(PROPERTY, 0.0)
    if len(by_folder) > 1:
        rows = [f"{folder} {seconds:.0f}" for folder, seconds in by_folder.most_common()]
        terminalreporter.write_line(f"CPU seconds: {sum(by_folder.values()):.0f} in all; {', '.join(rows)}")
    if path := os.environ.get("ALLOCATOR_TEST_SECONDS"):
        lines = [
            f"{dict(report.user_properties).get(PROPERTY, 0.0):.3f}\t{report.nodeid}\n"
            for report in terminalreporter.stats.get("", [])
            if getattr(report, "when", "") == "teardown"
        ]
        Path(path).write_text("".join(lines))
