"""Docstrings of the house as mkdocstrings reads them.

Ours say ``name : what it is`` on one line, where NumPy's style has a type, and may end with a paragraph after the
lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from griffe import Extension

_ITEMS = ("Parameters", "Attributes")
_LISTS = (*_ITEMS, "Returns", "Raises")


def numpy_style(text: str) -> str:
    """The docstring with descriptions below names, paragraphs after a list as notes, and sessions as blocks of code."""
    return "\n".join(_lines(text.splitlines()))


def _lines(lines: list[str]) -> Iterator[str]:
    section, session = "", False
    for i, line in enumerate(lines):
        after = lines[i + 1] if i + 1 < len(lines) else ""
        if line.startswith(">>> ") and not session:
            session = True
            if section in _LISTS:
                section = ""
                yield from ("Notes", "-----")
            yield "```pycon"
        elif session and not line:
            session = False
            yield "```"
        if re.fullmatch(r"-{3,}", after):
            section = line.strip()
        if section in _LISTS and _begins_paragraph(lines, i):
            section = ""
            yield from ("Notes", "-----")
        name, colon, text = line.partition(" : ")
        if section in _ITEMS and colon and not line.startswith(" "):
            yield from (name, f"    {text}")
        else:
            yield line
    if session:
        yield "```"


def _begins_paragraph(lines: list[str], i: int) -> bool:
    """Whether a line of a list begins a paragraph of prose instead of an entry."""
    line, after = lines[i], lines[i + 1] if i + 1 < len(lines) else ""
    entry = " : " in line or after.startswith((" ", "---"))
    return bool(line) and not line.startswith((" ", "---")) and not lines[i - 1] and not entry


class HouseStyle(Extension):
    """Hands docstrings over in NumPy's style."""

    def on_package(self, *, pkg: Any, **_: Any) -> None:
        """Rewrite the docstring of a package, and those of all that it has."""
        self._rewrite(pkg)

    def _rewrite(self, obj: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = numpy_style(obj.docstring.value)
        for member in obj.members.values():
            if not member.is_alias:
                self._rewrite(member)
