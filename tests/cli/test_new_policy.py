"""``allocator policies new``: what it writes runs, conforms, and is known by its entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from allocator.testing.template import KINDS, write_package
from throughputs import InputError

ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path, line: str, *more: str, path: str = "") -> str:
    """Output of a module in a process of its own, as it imports policies."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), path]), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", *line.split(), *more]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=KINDS)
def package(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path_factory.mktemp("work")
    assert "wrote fair_parts/fair_parts.py" in run(folder, f"allocator policies new fair_parts --kind {request.param}")
    return folder / "fair_parts"


@pytest.mark.exhaustive
def test_it_is_short_and_in_good_style_and_its_own_test_passes(package: Path) -> None:
    files = {path.name: len(path.read_text().splitlines()) for path in package.iterdir()}
    assert files.keys() == {"pyproject.toml", "README.md", "fair_parts.py", "test_fair_parts.py"}
    assert files["fair_parts.py"] <= 45
    run(package, "pytest -q -p no:cacheprovider .")
    pytest.importorskip("ruff")
    run(package, "ruff check --isolated --line-length 120 --select E,F,W,I,B,UP .")


@pytest.mark.exhaustive
def test_it_runs_by_import(package: Path) -> None:
    named = "--import ./fair_parts.py --policies fair_parts"
    run(package, f"allocator compare --jobs 2 --cluster v100:4,k80:4 --out out {named}")
    assert (package / "out" / "fair_parts" / "jobs.csv").exists()


@pytest.mark.exhaustive
def test_pip_installs_it(tmp_path: Path) -> None:
    pytest.importorskip("wheel")
    package = tmp_path / "package"
    write_package("fair_parts", package)
    run(package, f"pip install --quiet --no-deps --no-build-isolation --target {tmp_path} .")
    assert "fair_parts" in run(tmp_path, "allocator policies", path=str(tmp_path))


@pytest.mark.parametrize("name", ["Mine", "my-policy", "1st", "a__b", "", "isolated", "json"])
def test_a_name_that_is_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name"):
        write_package(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_kind_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--kind.*'orders'"):
        write_package("fair_parts", tmp_path, "orders")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    with pytest.raises(InputError, match="empty folder"):
        write_package("fair_parts", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
