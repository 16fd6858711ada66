"""The notices of others travel with the package, and name every file that needs them."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("allocator", "formulations", "throughputs")
NOTICES = (ROOT / "THIRD_PARTY.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_wheel_and_the_source_archive_take_them_along():
    listed = PROJECT["project"]["license-files"]
    assert {"LICENSE", "THIRD_PARTY.md"} <= set(listed)
    assert all((ROOT / name).is_file() for name in listed)
    assert {"LICENSE", "THIRD_PARTY.md"} <= set(PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])


def test_a_wheel_has_them(tmp_path):
    """Built for real where the build backend is installed; .ci/run looks into an installed wheel in any case."""
    wheels = pytest.importorskip("hatchling.builders.wheel", reason="hatchling builds wheels: pip install hatchling")
    import zipfile

    (built,) = wheels.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(built).namelist()
    for notice in ("LICENSE", "THIRD_PARTY.md"):
        assert any(fnmatch(name, f"*.dist-info/licenses/{notice}") for name in names), notice


@pytest.mark.parametrize(
    "holder",
    [
        "Copyright (c) 2020 Stanford Future Data Systems",
        "Copyright (c) 2022 Data and Systems Hub at UW-Madison",
        "Copyright (c) 2021 S-Lab System Group",
    ],
)
def test_each_notice_is_whole(holder):
    """Copyright line, permission and disclaimer, as the licence asks."""
    plain = re.sub(r"\s+", " ", NOTICES.replace("\n>", "\n"))
    start = plain.index(holder)
    notice = plain[start : plain.index("## ", start)]
    for part in (
        "Permission is hereby granted, free of charge",
        "The above copyright notice and this permission notice shall be included in all copies",
        'THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND',
        "OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.",
    ):
        assert part in notice


def test_every_file_with_figures_of_others_is_named():
    """A file of the packages that gives a public artifact and its licence as its source."""
    files = [
        path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.suffix in (".py", ".csv", ".toml")
    ]
    named = re.compile(r"\((MIT|Apache-2\.0)\)")
    sources = [path for path in files if named.search(path.read_text()) and path.parent.name != "sets"]
    assert len(sources) >= 5
    for path in sources:
        assert path.name in NOTICES, f"{path.relative_to(ROOT)} is not in THIRD_PARTY.md"


def test_the_files_named_are_there():
    named = re.findall(r"`((?:allocator|throughputs|formulations|docs|tests)/[^`]*)`", NOTICES)
    assert len(named) >= 12
    for name in named:
        assert (ROOT / name).exists(), name


def test_the_constants_named_are_those_of_the_code():
    from formulations.published import ecos_path as homogeneous
    from formulations.published import ecos_system as homogeneous_system

    section = re.sub(r"\s+", " ", NOTICES[NOTICES.index("## ECOS") :])
    for words, value in (
        ("least centring 1e-4", homogeneous._LEAST_CENTRING),
        ("longest step 0.999", homogeneous._LONGEST_STEP),
        ("step fraction 0.99,", homogeneous._STEP_FRACTION),
        ("tolerance 1e-8", homogeneous._TOLERANCE),
        ("below 1e-6", homogeneous_system.NO_ENTRY),
        ("regularisation 7e-8", homogeneous_system.REGULARISATION),
    ):
        assert words in section
        assert float(re.findall(r"[\d.]+(?:e-\d+)?", words)[-1]) == value
    assert (homogeneous._MOST_ITERATIONS, homogeneous_system.EQUILIBRATIONS) == (100, 3)


def test_the_docs_do_not_say_otherwise():
    text = (ROOT / "docs" / "data.md").read_text()
    assert "None is part of this package" not in text
    assert "THIRD_PARTY.md" in text
