"""The examples in docs/configurations.md and in the docstrings of the programs over configurations run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import formulations.columns

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configurations.md"


def test_examples_of_the_page(capsys):
    """One after the other, as they build on each other."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {"__name__": "page"}
    for code in blocks:
        exec(compile(code, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    assert "at least 1 GPU" in printed
    assert "optimal" in printed
    assert "no shares keep all rows" in printed


def test_docstring_examples():
    found = doctest.testmod(formulations.columns)
    assert found.attempted
    assert not found.failed
