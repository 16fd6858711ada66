"""Text as it is shown: names from outside without what steers a terminal or a page, and tables of notebooks."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

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


def counted(number: float, what: str) -> str:
    """A number of things in words.

    >>> counted(1, "job"), counted(1200, "job")
    ('1 job', '1,200 jobs')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


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
