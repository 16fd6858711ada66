"""The README's Python examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("code", EXAMPLES, ids=[f"example {number}" for number in range(1, len(EXAMPLES) + 1)])
def test_example_runs(code, capsys, monkeypatch):
    from allocator import registry

    registry.list_policies()
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    assert ("print" not in code) or printed.strip()


def test_five_line_example_prints_allocation_and_prices(capsys):
    exec(EXAMPLES[0], {})
    printed = capsys.readouterr().out
    for word in ("resnet", "lstm", "bert", "v100", "k80", "optimal", "per GPU"):
        assert word in printed
