"""Where the tests find public data and reference results, and what they do without them (docs/contributing.md)."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

import throughputs
from throughputs import default_table, write_table, write_trace

pytest_plugins = ["tests.cpu_seconds"]

# Shared machines stall for seconds; a slow example is not a failing one. Examples are the same in every run, so that
# one commit passes or fails and not both; others are drawn by pytest --hypothesis-profile=search.
_STALLS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", _STALLS)
settings.register_profile("same-examples", _STALLS, derandomize=True)
settings.load_profile("same-examples")

# Hypothesis also draws constants from the source of whatever modules are loaded, so that examples would depend on what
# is tested beside them. No setting turns this off; `test_examples_are_the_same_whatever_is_loaded` guards it.
providers._get_local_constants = Constants

# A shell has what it starts in the background ignore SIGINT, and so would all that the tests start.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

HERE = Path(__file__).resolve().parent
COMMITTED = HERE / "reference" / "recorded"
"""Reference results that come with the repository; see the README there."""

GAVEL_TABLE = "gavel/simulation_throughputs.json.gz"
_GAVEL_TRACE = re.compile(r"gavel/traces/n(\d+)_lam(\d+)_multi([01])_prio([01])_seed(\d+)\.trace")

Data = Callable[[str], Path]


def _data_root() -> Path:
    return Path(os.environ.get("ALLOCATOR_DATA") or HERE.parent.parent / "shared" / "data")


def _reference_root() -> Path:
    return Path(os.environ.get("ALLOCATOR_REFERENCE") or _data_root().parent / "reference")


def _data_are_expected() -> bool:
    return os.environ.get("ALLOCATOR_EXPECT_DATA", "0") not in ("", "0")


def _absent(path: Path, variable: str) -> NoReturn:
    message = f"{path} is absent; set {variable} to the folder that holds it (docs/contributing.md)"
    if _data_are_expected():
        pytest.fail(f"ALLOCATOR_EXPECT_DATA is set, but {message}", pytrace=False)

    pytest.skip(message)


def _public_path(relative: str) -> Path:
    path = _data_root() / relative
    return path if path.exists() else _absent(path, "ALLOCATOR_DATA")


@pytest.fixture(scope="session")
def public_data() -> Data:
    """Path of a file of public input data (folder ALLOCATOR_DATA); skips the test where it is absent."""
    return _public_path


@pytest.fixture(scope="session")
def reference_data() -> Data:
    """Path of a file of reference results: in the folder ALLOCATOR_REFERENCE, else the one that is committed.

    Skips the test where there is neither. Where data are expected, those that are committed do not do.
    """

    def path_of(relative: str) -> Path:
        path, committed = _reference_root() / relative, COMMITTED / relative
        if path.exists():
            return path
        return committed if committed.exists() and not _data_are_expected() else _absent(path, "ALLOCATOR_REFERENCE")

    return path_of


@pytest.fixture(scope="session")
def gavel_inputs(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """As `public_data`, but traces of Gavel and the table of its simulations are made anew where they are absent.

    The generator draws the very same traces and the embedded table has the same throughputs, pairs of jobs aside
    (`test_published_traces_byte_for_byte`, `test_public_tables_are_read_in_full`).
    """
    folder = tmp_path_factory.mktemp("gavel")

    def path_of(relative: str) -> Path:
        drawn = _GAVEL_TRACE.fullmatch(relative)
        if (_data_root() / relative).exists() or _data_are_expected() or not (drawn or relative == GAVEL_TABLE):
            return _public_path(relative)
        path = folder / (Path(relative).name if drawn else "simulation_throughputs.csv")
        if path.exists():
            return path
        if drawn:
            n, mean, multi_gpu, priorities, seed = map(int, drawn.groups())
            trace = throughputs.gavel_trace(n, mean, multi_gpu=bool(multi_gpu), priorities=bool(priorities), seed=seed)
            write_trace(trace, path)
        else:
            write_table(default_table(), path)
        return path

    return path_of


def other_releases(constraints: str) -> list[str]:
    """Packages that are installed in another release than the one that constraints ask for."""
    found = []
    for line in constraints.splitlines():
        name, _, release = line.partition("==")
        with suppress(PackageNotFoundError):
            if release and version(name) != release:
                found.append(f"{name} {version(name)} (not {release})")
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is deep is exhaustive too, before any are chosen by marker."""
    for item in items:
        if item.get_closest_marker("deep"):
            item.add_marker("exhaustive")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was left out for want of data, and which releases may be why a test failed."""
    others = other_releases((HERE / "constraints.txt").read_text()) if terminalreporter.stats.get("failed") else []
    if others:
        terminalreporter.write_line(f"Not the releases of tests/constraints.txt: {', '.join(others)}")
    reports = terminalreporter.stats.get("skipped", [])
    skipped = sum("is absent; set ALLOCATOR_" in str(report.longrepr) for report in reports)
    if skipped:
        tests = "1 test" if skipped == 1 else f"{skipped} tests"
        terminalreporter.write_line(f"{tests} skipped without public data: see docs/contributing.md")
