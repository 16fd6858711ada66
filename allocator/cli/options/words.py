"""Options and arguments in a few words: what they are called, what they do, and what stands for their value."""

from __future__ import annotations

from typing import Any

import typer


def option(*words: str, **more: Any) -> Any:
    """An option: its names, what it does and what stands for its value; `more` as for `typer.Option`."""
    names = [word for word in words if word.startswith("-")]
    made: Any = typer.Option
    return made(*names, **_said(*words[len(names) :]), **more)


def argument(*words: str, **more: Any) -> Any:
    """The same of an argument, which has no name."""
    return typer.Argument(**_said(*words), **more)


def _said(about: str, word: str | None = None) -> dict[str, Any]:
    return {"help": about, "metavar": word}
