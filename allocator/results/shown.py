"""What objects print of themselves: tables of a terminal, as text and in notebooks."""

from __future__ import annotations

import io
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from throughputs.shown import escape, visible

if TYPE_CHECKING:
    from rich.table import Table


def as_text(parts: Iterable[Any], width: int = 100) -> str:
    """What rich would print of these on a terminal without colours."""
    from rich.console import Console

    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str), highlight=False)
    return visible("\n".join(line.rstrip() for line in file.getvalue().splitlines()))


def text_table(
    headings: Iterable[str],
    rows: Iterable[Iterable[Any]],
    *,
    words: Container[int] = (0,),
    padding: Any = (0, 1, 0, 0),
    **about: Any,
) -> Table:
    """A table for a terminal: numbers to the right, columns of words to the left and wrapped where they are long.

    Parameters
    ----------
    headings : of the columns.
    rows : of as many cells each, texts of rich or what has a text; nothing in them is markup.
    words : positions of the columns of words.
    padding, about : title, caption and other arguments of `rich.table.Table`.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(**about, box=box.SIMPLE_HEAD, padding=padding)
    heads, cells = list(headings), [[c if isinstance(c, Text) else Text(str(c)) for c in row] for row in rows]
    most = max(heading.count("\n") for heading in heads)
    for place, heading in enumerate(heads):
        left, lower = place in words, "\n" * (most - heading.count("\n"))
        # breaks between words
        longest = max((len(word) for row in cells for word in row[place].plain.split()), default=0) if left else None
        how: Any = {"justify": "left" if left else "right", "no_wrap": not left, "min_width": longest}
        table.add_column(Text(lower + heading), overflow="fold", **how)
    for row in cells:
        table.add_row(*row)
    return table


def html_lines(text: str) -> str:
    """Lines as a notebook shows them, the first one bold."""
    first, _, others = escape(text).partition("\n")
    return f"<b>{first}</b><pre>{others}</pre>"
