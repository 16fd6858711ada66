"""Tables for notebooks: what `_repr_html_` of our objects is made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

__all__ = ["html_table"]


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
