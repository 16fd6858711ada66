"""Every command and example of README and docs runs, page by page, in a folder that is empty at the start."""

from __future__ import annotations

import doctest
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from allocator import registry
from tests.site.pages import ROOT, Block, blocks, pages
from tests.site.prepared import prepare

_SECONDS = 600
_IN_THE_GATE = ("README.md", "docs/start.md")


def _shims(folder: Path) -> Path:
    """A folder with `allocator` and `python` of this interpreter."""
    folder.mkdir()
    for name, arguments in {"allocator": "-m allocator", "python": ""}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def run_shell(block: Block, folder: Path, shims: Path) -> None:
    """Run a block in bash, and end what it has started in the background."""
    environment = os.environ | {
        "PATH": f"{shims}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "160",
        "ALLOCATOR_IMPORT": "",
    }
    command = ["bash", "-euo", "pipefail", "-c", block.code]
    with (folder / "output.txt").open("w+") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        output.seek(0)
        assert code == 0, f"{block.page}:{block.line}\n{block.code}\n{output.read()}"


def run_session(block: Block, names: dict[str, object]) -> None:
    """What the page prints is what is printed."""
    test = doctest.DocTestParser().get_doctest(block.code, names, block.page, block.page, block.line)
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(
        test, out=said.append, clear_globs=False
    )
    names |= test.globs
    assert result.failed == 0, "".join(said)


def _runnable() -> Iterator[object]:
    """Pages with blocks that run here. A command starts an interpreter: pages with several are deep, but for two."""
    for page in pages():
        here = [block for block in blocks(page) if block.runs_here]
        commands = sum(block.code.count("allocator ") for block in here if block.language == "sh")
        if here:
            short = commands < 2 and page != "docs/simulator.md"
            rare = pytest.mark.exhaustive if short or page in _IN_THE_GATE else pytest.mark.deep
            yield pytest.param(page, marks=rare)


@pytest.mark.parametrize("page", list(_runnable()))
def test_commands_and_examples_run(page, tmp_path, monkeypatch):
    registry.list_policies()
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    folder = tmp_path / "work"
    folder.mkdir()
    shims = _shims(tmp_path / "bin")
    prepare(page, folder)
    monkeypatch.chdir(folder)
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    names = vars(module)
    for block in (block for block in blocks(page) if block.runs_here):
        if block.language == "sh":
            run_shell(block, folder, shims)
        elif block.language == "pycon":
            run_session(block, names)
        else:
            exec(compile(block.code, f"{page}:{block.line}", "exec"), names)


@pytest.mark.parametrize("page", pages())
def test_what_is_not_run_here_says_why_or_where(page):
    for block in blocks(page):
        if block.why_not is not None:
            assert len(block.why_not.split()) >= 3, f"{page}:{block.line}"
        if block.elsewhere is not None:
            assert (ROOT / block.elsewhere.partition(",")[0]).exists(), f"{page}:{block.line} names {block.elsewhere}"
