"""The table of views in docs/policies.md, from their declarations; ``python -m docs.site.views`` writes it there."""

from __future__ import annotations

import re
from typing import Any

from allocator.protocol.views import VIEWS, View, Views, need_of
from docs.site.links import ROOT

PAGE = ROOT / "docs" / "policies.md"


def _line(view: View[Any]) -> str:
    """How it is read, what it is, what it is where nobody says so, its names in files, and what a policy must say."""
    shape = "" if view.kind == "object" else {"job": "(N,) ", "pool": "(M,) ", "state": ""}[view.per]
    default = (
        ""
        if callable(view.default) or view.name == "throughputs"
        else "empty"
        if view.default == ""
        else f"{view.default}"
    )
    files = ", ".join(f"`{name}`" for name in view.files)
    need = f"`{need_of(view if view.needed is True else view.needed)}`" if view.needed else ""
    return f"| `{view.name}` | {shape}{view.meaning} | {default} | {files} | {need} |"


def table() -> str:
    """The views of every state in the order of their declarations."""
    head = "| view | meaning | default | in files also | for policies with |\n|---|---|---|---|---|"
    return "\n".join([head, *(_line(view) for name, view in VIEWS.items() if name in vars(Views))])


def page(text: str) -> str:
    """The page with the table between its marks."""
    marks = re.compile(r"(<!-- views -->\n).*?(<!-- /views -->)", re.DOTALL)
    return marks.sub(lambda found: f"{found[1]}{table()}\n{found[2]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
