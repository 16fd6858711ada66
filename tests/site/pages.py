"""The commands and examples of README and docs, page by page, and what is not run here with the reason why.

A block of code is run where it stands, after those before it, unless the line before it says otherwise:

    <!-- not run: it needs a Slurm cluster -->
    <!-- run by .ci/run -->
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LANGUAGES = ("sh", "python", "pycon")
_BLOCK = re.compile(
    r"(?:<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """One block of code.

    Attributes
    ----------
    page, line : where it begins.
    language : of `LANGUAGES`.
    code : its text.
    why_not : reason why it is not run; None: it is, here or elsewhere.
    elsewhere : path of what runs it instead; None: it is run here.
    """

    page: str
    line: int
    language: str
    code: str
    why_not: str | None
    elsewhere: str | None

    @property
    def runs_here(self) -> bool:
        return self.why_not is None and self.elsewhere is None


def pages() -> list[str]:
    """README and the pages of docs/, as paths from the root."""
    return ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


def blocks(page: str) -> list[Block]:
    """The blocks of a page in order, of the languages that can be run."""
    text = (ROOT / page).read_text()
    return [
        Block(
            page,
            text.count("\n", 0, found.start("code")),
            found["language"],
            found["code"],
            _after("not run: ", found["mark"]),
            _after("run by ", found["mark"]),
        )
        for found in _BLOCK.finditer(text)
        if found["language"] in LANGUAGES
    ]


def _after(beginning: str, mark: str | None) -> str | None:
    return mark.removeprefix(beginning) if mark is not None and mark.startswith(beginning) else None
