"""Scenarios on the terminal: the rows beside the first, and what more GPUs change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from allocator.experiments.whatif.rows import Column, WhatIf

if TYPE_CHECKING:
    from rich.table import Table

_WIDE = 130
"""Columns of a terminal with room for every figure."""


def rows_table(result: WhatIf, *, title: str | None = None, width: int | None = None) -> Table:
    """The rows, each figure with its ratio to that of the first.

    Parameters
    ----------
    result : the rows.
    title : line above the table.
    width : columns of the terminal; on narrow ones details are left out. None: everything is shown.
    """
    narrow = width is not None and width < _WIDE
    columns = [column for column in result.columns() if not (column.figure.detail and narrow)]
    rows = result.side_by_side
    caption = f"×: times that of {rows[0].label}" if len(rows) > 1 else None
    return _table([[row.label] for row in rows], [""], columns, title, caption)


def next_gpus_table(result: WhatIf) -> Table:
    """What more GPUs of each type change in each row; of runs that have them."""
    pairs, columns = result.next_columns()
    title = f"Change by {result.more_gpus} more {'GPU' if result.more_gpus == 1 else 'GPUs'} of a type"
    labels = [[row.label, more.accelerator] for _, row, more in pairs]
    return _table(labels, ["", "type"], columns, title, None)


def _table(
    labels: Sequence[Sequence[str]],
    headings: Sequence[str],
    columns: Sequence[Column],
    title: str | None,
    caption: str | None,
) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold", vertical="bottom" if len(headings) > 1 else "top")
    for column in columns:
        figure = column.figure
        unit = f"\n({figure.unit})" if figure.unit else "\n "
        table.add_column(figure.heading.replace(" ", "\n", 1) + unit, justify="right", vertical="bottom", no_wrap=True)
    cells = [column.cells() for column in columns]
    for place, row in enumerate(labels):
        table.add_row(*map(Text, row), *(Text(column[place]) for column in cells))
    return table
