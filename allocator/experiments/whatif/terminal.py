"""Scenarios on the terminal: the rows beside the first, and what more GPUs change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from allocator.experiments.whatif.rows import CHANGES, WhatIf, change_of, format_change, format_ratio, ratio_of
from allocator.report.figures import MISSING, Figure, format_column

if TYPE_CHECKING:
    from rich.table import Table

_WIDE = 130
"""Columns of a terminal with room for every figure."""

_PRICE_DIGITS = 3


def rows_table(result: WhatIf, *, title: str | None = None, width: int | None = None) -> Table:
    """The rows, each figure with its ratio to that of the first.

    Parameters
    ----------
    result : the rows.
    title : line above the table.
    width : columns of the terminal; on narrow ones details are left out. None: everything is shown.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", overflow="fold")
    rows, summaries = result.side_by_side, [row.figures for row in result.side_by_side]
    columns = []
    for figure in result.figures:
        if figure.detail and width is not None and width < _WIDE:
            continue
        unit = f"\n({figure.unit})" if figure.unit else "\n "
        table.add_column(figure.heading.replace(" ", "\n", 1) + unit, justify="right", vertical="bottom", no_wrap=True)
        columns.append(_cells(figure, result))
    counts = [(summary.get("completed_jobs"), summary.get("jobs")) for summary in summaries]
    if any(done is None or done < jobs for done, jobs in counts):
        table.add_column("jobs\ndone\n ", justify="right", vertical="bottom", no_wrap=True)
        ended = zip(rows, counts, strict=True)
        columns.append([row.status if done is None else f"{done}/{jobs}" for row, (done, jobs) in ended])
    for place, row in enumerate(rows):
        table.add_row(Text(row.label), *(Text(column[place]) for column in columns))
    if len(rows) > 1:
        table.caption = f"×: times that of {rows[0].label}"
    return table


def _cells(figure: Figure, result: WhatIf) -> list[str]:
    """Value and ratio of each row, aligned."""
    summaries = [row.figures for row in result.side_by_side]
    ratios = [format_ratio(ratio_of(figure, row, summaries[0])) for row in summaries]
    widest = max(map(len, ratios[1:]), default=0)
    texts = format_column(figure, summaries)
    if not widest:
        return texts
    shown = ["", *ratios[1:]]
    return [f"{text} {ratio:<{widest}}" for text, ratio in zip(texts, shown, strict=True)]


def next_gpus_table(result: WhatIf) -> Table:
    """What more GPUs of each type change in each row; of runs that have them."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    pairs = [(row, more) for row in result.rows for more in row.next_gpus]
    table = Table(title=next_title(result), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("", "type"):
        table.add_column(heading, overflow="fold", vertical="bottom")
    columns = []
    for figure in CHANGES:
        changes = [change_of(figure, more.figures, row.figures) for row, more in pairs]
        if not any(map(math.isfinite, changes)):
            continue
        unit = f"\n({figure.unit})" if figure.unit else "\n "
        table.add_column(figure.heading.replace(" ", "\n", 1) + unit, justify="right", vertical="bottom", no_wrap=True)
        columns.append([format_change(change) for change in changes])
    units = {more.price_unit for _, more in pairs if more.price is not None}
    if units:
        table.add_column("price\nper\nGPU", justify="right", vertical="bottom", no_wrap=True)
        columns.append([MISSING if more.price is None else f"{more.price:.{_PRICE_DIGITS}g}" for _, more in pairs])
    for place, (row, more) in enumerate(pairs):
        table.add_row(Text(row.label), Text(more.accelerator), *(Text(column[place]) for column in columns))
    if units:
        table.caption = (
            f"price: gain of the policy's objective ({', '.join(sorted(units))}) by one more GPU, time average"
        )
    return table


def next_title(result: WhatIf) -> str:
    """What the table of more GPUs is."""
    return f"Change by {result.more_gpus} more {'GPU' if result.more_gpus == 1 else 'GPUs'} of a type"
