"""Standard output and standard error, on which names from outside stand as they are and do nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from throughputs.shown import visible

if TYPE_CHECKING:
    from rich.console import Console


class _Shown:
    """A stream on which characters that would steer a terminal are shown instead (`throughputs.shown.visible`)."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def shown_as_text() -> Iterator[None]:
    """What a command prints meanwhile is text; colours are those of `rich_console` alone."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (each if isinstance(each, _Shown) else _Shown(each) for each in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def rich_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """A console for tables and bars, whose cells are text."""
    stream = sys.stderr if stderr else sys.stdout
    made: Console = _kind()(file=stream.stream if isinstance(stream, _Shown) else stream, width=width)
    return made


@cache
def _kind() -> Any:
    from rich.console import Console
    from rich.segment import Segment

    class Shown(Console):
        def render_str(self, text: str, **how: Any) -> Any:
            return super().render_str(visible(text), **how)

        def render(self, renderable: Any, options: Any = None) -> Any:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

    return Shown


def open_streams() -> None:
    """Put nothing in the place of standard streams that are closed.

    The next file that is opened would take their number, and what is printed would go into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
