"""Tests without their data are skipped and counted; where data are expected, they and the gate fail."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
GATE = ROOT / ".ci" / "run"
CONSTRAINTS = ROOT / "tests" / "constraints.txt"
PAGE = (ROOT / "docs" / "contributing.md").read_text()

WITH_PUBLIC_DATA = "tests/throughputs/test_training_rules.py::test_switches_of_the_published_table"
WITH_REFERENCE = "tests/sweep/test_studies.py::test_the_points_of_the_published_curves"


def run_tests(empty: Path, *tests: str, expected: str) -> subprocess.CompletedProcess[str]:
    """Some tests of this folder, with folders of data in which there are none."""
    environment = os.environ | {
        "ALLOCATOR_DATA": str(empty),
        "ALLOCATOR_REFERENCE": str(empty),
        "ALLOCATOR_EXPECT_DATA": expected,
    }
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("expected", "code", "marks", "told"),
    [
        ("0", 0, "s.", ["1 test skipped without public data: see docs/contributing.md"]),
        ("1", 1, "FE", [f"is absent; set ALLOCATOR_{name} to the folder" for name in ("DATA", "REFERENCE")]),
    ],
)
def test_what_is_absent_is_skipped_and_counted_or_fails_where_it_is_expected(tmp_path, expected, code, marks, told):
    done = run_tests(tmp_path, WITH_PUBLIC_DATA, WITH_REFERENCE, expected=expected)
    assert done.returncode == code, done.stdout
    assert set(done.stdout.split()[0]) <= set(marks)
    assert all(each in done.stdout for each in told)


def test_releases_of_recorded_figures_are_ones_that_the_package_takes():
    """Each is named once, by a package that pyproject.toml asks for, and within its bounds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    asked = {need.name: need for need in map(Requirement, lines)}
    pinned = [Requirement(line) for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    assert len({pin.name for pin in pinned}) == len(pinned)
    for pin in pinned:
        (release,) = pin.specifier
        assert release.operator == "=="
        assert asked[pin.name].specifier.contains(release.version), pin


@pytest.mark.exhaustive
def test_a_failure_with_other_releases_says_which(tmp_path):
    (tmp_path / "test_one.py").write_text("def test_one():\n    assert False\n")
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "constraints.txt").write_text("# comment\nnumpy==0.1\nnot-installed==1\n")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert f"Not the releases of tests/constraints.txt: numpy {np.__version__} (not 0.1)" in done.stdout


DRAWING = """
import importlib, sys
from tests import conftest
from hypothesis import given, strategies
for name in sys.argv[1:]:
    importlib.import_module(name)
drawn = []
@given(strategies.integers(), strategies.floats(), strategies.text())
def draw(whole, real, text):
    drawn.append((whole, real, text))
draw()
assert len(drawn) == 100
print(ascii(drawn))
"""


@pytest.mark.exhaustive
def test_examples_are_the_same_whatever_is_loaded():
    loads: list[list[str]] = [
        [],
        ["allocator.cli.app", "allocator.runtime", "formulations.solving", "allocator.studies.tables"],
    ]
    drawn = [subprocess.check_output([sys.executable, "-c", DRAWING, *names], cwd=ROOT) for names in loads]
    assert drawn[0] == drawn[1]


needs_gate = pytest.mark.skipif(not GATE.exists(), reason="the gate is no part of a source distribution")


@needs_gate
@pytest.mark.parametrize("missing", ["ALLOCATOR_DATA", "ALLOCATOR_REFERENCE"])
def test_the_gate_ends_at_once_where_data_are_absent(missing, tmp_path):
    folders = {name: str(tmp_path) for name in ("ALLOCATOR_DATA", "ALLOCATOR_REFERENCE")}
    environment = os.environ | folders | {missing: str(tmp_path / "nowhere")}
    environment.pop("ALLOCATOR_EXPECT_DATA", None)
    done = subprocess.run([GATE], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{tmp_path / 'nowhere'} is absent" in done.stderr
    assert "lint" not in done.stdout


@needs_gate
def test_the_page_names_the_commands_and_the_gate_runs_all_tests():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {"test", "test-all", "lint"} <= targets
    assert set(re.findall(r"^make ([a-z-]+)", PAGE, flags=re.MULTILINE)) <= targets
    gate = GATE.read_text()
    assert re.search(r"\bmake test-all$", gate, flags=re.MULTILINE)
    for variable in ("ALLOCATOR_DATA", "ALLOCATOR_REFERENCE", "ALLOCATOR_EXPECT_DATA"):
        assert f"`{variable}`" in PAGE
        assert variable in gate
