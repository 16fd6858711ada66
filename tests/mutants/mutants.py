"""The list of mutants: small wrong changes of the product, each with the tests that have to notice it.

One TOML file per room. ``old`` occurs exactly once in ``file``; ``equivalent`` says why no test can tell a mutant.
"""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutant:
    """Paths are relative to the root of the tree; `noticed_by` is a folder of tests."""

    room: str
    id: str
    file: str
    old: str
    new: str
    kind: str
    noticed_by: str
    equivalent: str = ""

    def mutated(self, root: Path) -> str:
        """The text of the file with the change."""
        text = (root / self.file).read_text()
        if (count := text.count(self.old)) != 1:
            raise ValueError(
                f"mutant {self.id}: old text {self.old!r} found {count} times in {self.file}, expected once"
            )
        return text.replace(self.old, self.new)

    def check(self, root: Path) -> None:
        """Raise ValueError unless the mutant applies, is Python, differs in more than layout, and has its tests."""
        self.mutated(root)
        part = _statement_around((root / self.file).read_text(), self.old)
        if ast.dump(ast.parse(part)) == ast.dump(ast.parse(part.replace(self.old.strip("\n "), self.new.strip("\n ")))):
            raise ValueError(f"mutant {self.id}: the program in {self.file} is the same")
        if not (root / self.noticed_by).is_dir():
            raise ValueError(f"mutant {self.id}: noticed_by is no folder: {self.noticed_by}")

    def lines(self, root: Path) -> range:
        """Numbers of the lines that change, from 1."""
        before = self.mutated(root) and (root / self.file).read_text().partition(self.old)[0]
        first = before.count("\n") + 1
        return range(first, first + self.old.count("\n") + 1)


@cache
def _statements(text: str) -> list[tuple[int, int]]:
    """First and last lines of those of a module and of its classes."""
    body = ast.parse(text).body
    inner = [node for of in body if isinstance(of, ast.ClassDef) for node in of.body]
    return [(node.lineno - 1, node.end_lineno or node.lineno) for node in (*inner, *body)]


def _statement_around(text: str, old: str) -> str:
    """The smallest of these that has all of the old text."""
    lines, old = text.splitlines(keepends=True), old.strip("\n ")
    parts = (dedent("".join(lines[first:end])) for first, end in _statements(text))
    return next(part for part in parts if old in part)


def read_mutants(folder: Path = Path(__file__).parent) -> list[Mutant]:
    """All of them, room by room."""
    rooms = {path.stem: tomllib.loads(path.read_text())["mutant"] for path in sorted(folder.glob("*.toml"))}
    return [Mutant(room, **entry) for room, entries in rooms.items() for entry in entries]
