"""Text as it is shown: names from outside on terminals, in pages, and in the tables of notebooks."""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rich.table import Table

UNSHOWN = (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F),
           *range(0x2066, 0x206A))  # fmt: skip
"""Characters that steer a terminal or turn text around: all controls but tab and line feed, marks of direction."""

_UNSHOWN = re.compile("[" + "".join(map(chr, UNSHOWN)) + "]")


def visible(text: str) -> str:
    r"""The text with such characters as escapes, so that what stands there is what one sees.

    >>> print(visible("job\u202e \x1b[2J"))
    job\u202e \x1b[2J
    """
    return _UNSHOWN.sub(lambda found: _escaped(ord(found[0])), text)


def _escaped(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def escape(text: str) -> str:
    """The same for a page: without markup, too."""
    return html.escape(visible(text))


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


def html_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "") -> str:
    """An HTML table; numbers to four digits, text escaped, None and nan as a dash.

    Parameters
    ----------
    columns : headings.
    rows : of as many cells each.
    caption : line above the table.
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "<td>-</td>"
    if isinstance(value, float):
        value = f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    elif isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:,}"
    return f"<td>{escape(str(value))}</td>"
