"""What `throughputs.describe_trace` says, on the terminal: figures, tables by size, type and pool, demand over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allocator.cli.options.shared import console
from allocator.report.figures import MISSING
from allocator.results.shown import text_table
from throughputs.traces.logs.rows import UNNAMED

if TYPE_CHECKING:
    from rich.table import Table

_VALUES = 30
"""Values of a column of a trace that are counted one by one."""

_POOLS = 20
"""Pools that are shown one by one."""

_TABLES = ("sizes", "types", "pools", "demand_over_time")
"""What is shown apart from the figures."""

_PLAIN: tuple[Any, ...] = ({}, 0)
_USUAL = {"job_types": UNNAMED, "priority_weights": 1.0, "modes": "static", "first_arrival_s": 0.0}

_ROWS = 8
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_UNITS = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}


def print_description(described: Mapping[str, Any], *, title: str) -> None:
    """Print all of a description, of many values the most frequent."""
    screen = console()
    screen.print(_figures_table(described, title))
    if len(described["sizes"]) > 1:
        screen.print(rows_table((row.values() for row in described["sizes"]), ("GPUs", "jobs", "GPU hours"), "by size"))
    if described["types"]:
        types = ((row | {"gpu_type": row["gpu_type"] or "(any)"}).values() for row in described["types"])
        screen.print(rows_table(types, ("GPU type", "jobs", "GPU hours"), "by type of GPU that they ask for"))
    if len(described["pools"]) > 1:
        screen.print(
            rows_table((row.values() for row in _named(described["pools"])), _pool_headings(described), "by partition")
        )
    if described["demand_over_time"] is not None:
        for line in _chart(described["demand_over_time"], described.get("cluster_gpus")):
            screen.print(line, markup=False, highlight=False)


def _figures_table(described: Mapping[str, Any], title: str) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    apart = {*_TABLES} | ({"partitions"} if len(described["pools"]) > 1 else set())
    for name, value in described.items():
        if name not in apart and not _says_nothing(name, value):
            table.add_row(name.replace("_", " "), escape(_readable(value)))
    return table


def _says_nothing(name: str, value: Any) -> bool:
    """Whether it is how a plain trace has it: nothing, or all jobs alike as they are where nothing is said."""
    return value is None or value in _PLAIN or (isinstance(value, dict) and [*value] == [_USUAL.get(name)])


def _readable(value: Any) -> str:
    if isinstance(value, dict):
        lines = [f"{key}: {_readable(item)}" for key, item in list(value.items())[:_VALUES]]
        return "\n".join(lines + ([f"and {len(value) - _VALUES:,} more"] if len(value) > _VALUES else []))
    if isinstance(value, float):
        return f"{value:,.2f}".rstrip("0").rstrip(".")
    return MISSING if value is None else str(value)


def rows_table(rows: Iterable[Iterable[Any]], headings: Sequence[str], title: str) -> Table:
    """A table of rows, numbers to the right."""
    return text_table(headings, (map(_cell, row) for row in rows), title=title, title_justify="left")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"
    if value is None:
        return MISSING
    return f"{value:,}" if isinstance(value, int) else str(value)


def _pool_headings(described: Mapping[str, Any]) -> Sequence[str]:
    headings = ("partition", "jobs", "GPU hours", "largest gang")
    return (*headings, "GPUs", "demand", "impossible jobs") if "cluster_gpus" in described else headings


def _named(pools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The pools with the most GPU hours, and one row for what the others add up to."""
    rows: list[Mapping[str, Any]] = [
        row | {"partition": row["partition"] or "(none)"} for row in map(dict, pools[:_POOLS])
    ]
    others = pools[_POOLS:]
    if others:
        summed = {
            "partition": f"{len(others)} more",
            "jobs": sum(row["jobs"] for row in others),
            "gpu_hours": sum(row["gpu_hours"] for row in others),
            "largest_gang": max(row["largest_gang"] for row in others),
        }
        if "n_jobs_impossible" in others[0]:
            impossible = sum(row["n_jobs_impossible"] for row in others)
            summed |= {"cluster_gpus": None, "demand": None, "n_jobs_impossible": impossible}
        rows.append(summed)
    return rows


def _chart(over_time: Mapping[str, Any], capacity: int | None) -> list[str]:
    """The GPUs that jobs ask for as columns of blocks, with a line where the capacity is; below it those recorded."""
    asked: list[float] = over_time["gpus_asked"]
    most = max(*asked, capacity or 0, 1e-9)
    seconds = over_time["interval_s"] * len(asked)
    unit = next((unit for unit in _UNITS if seconds > 3 * _UNITS[unit]), "seconds")
    of_cluster = f"; ─ the {capacity:,} of the cluster" if capacity else ""
    lines = [f"GPUs that jobs ask for, each from its arrival on{of_cluster}"]
    line_row = None if not capacity else min(math.ceil(capacity / most * _ROWS), _ROWS) - 1
    width = len(f"{math.ceil(most):,}")
    for row in reversed(range(_ROWS)):
        blank = "─" if row == line_row else " "
        blocks = [_EIGHTHS[min(max(round((value / most * _ROWS - row) * 8), 0), 8)] for value in asked]
        label = f"{math.ceil(most):,}" if row == _ROWS - 1 else ""
        lines.append(f"{label:>{width}} │" + "".join(blank if block == " " else block for block in blocks))
    axis = f"{seconds / _UNITS[unit]:,.0f} {unit}"
    lines.append(f"{'0':>{width}} └" + "─" * len(asked))
    lines.append(f"{'':>{width}}  0{axis:>{len(asked) - 1}}")
    if over_time["gpus_recorded"] is not None:
        top = over_time["most_gpus_recorded"]
        blocks = [_EIGHTHS[round(value / top * 8)] for value in over_time["gpus_recorded"]]
        lines.append(f"{'':>{width}}  {''.join(blocks)} in use as recorded, a full block is {top:,.4g}")
    return lines
