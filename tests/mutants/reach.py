"""Which tests run a line: a plugin of pytest that keeps, for each test, the lines of the product that it runs.

``pytest -p tests.mutants.reach`` writes the file that the variable ``REACH`` names. What other processes run for a test
is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

PRODUCT = ["throughputs", "formulations", "allocator", "benchmarks"]

_coverage = Coverage(data_file=os.environ.get("REACH", os.devnull), source_pkgs=PRODUCT, config_file=False)


def pytest_sessionstart() -> None:
    """Begin before the first test is read."""
    _coverage.start()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, None, None]:
    """What is run from now on is run for this test."""
    _coverage.switch_context(item.nodeid)
    yield


def pytest_sessionfinish() -> None:
    """Keep what was seen."""
    _coverage.stop()
    _coverage.save()


class Reach:
    """What the plugin has seen of several folders of tests."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.seen: list[tuple[CoverageData, str]] = []
        self.seconds: dict[str, float] = {}
        for file in files:
            data = CoverageData(str(file))
            data.read()
            roots = {
                file.partition(f"/{name}/")[0]
                for file in data.measured_files()
                for name in PRODUCT
                if f"/{name}/" in file
            }
            root = min(roots, key=len, default="")
            self.seen.append((data, root))
            for line in file.with_suffix(".seconds").read_text().splitlines():
                seconds, test = line.split("\t")
                self.seconds[test] = float(seconds)

    def tests_of(self, file: str, lines: Iterable[int], folder: str) -> list[str]:
        """Tests of a folder that run one of these lines, else those that run any of the file; the quickest first."""
        of_lines, of_file, wanted = set[str](), set[str](), set(lines)
        for data, root in self.seen:
            for line, tests in data.contexts_by_lineno(f"{root}/{file}").items():
                of_file.update(tests)
                if line in wanted:
                    of_lines.update(tests)
        of_lines, of_file = ({test for test in some if test.startswith(f"{folder}/")} for some in (of_lines, of_file))
        return sorted(of_lines or of_file, key=lambda test: (self.seconds.get(test, 0.0), test))
