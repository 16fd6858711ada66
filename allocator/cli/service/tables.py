"""What the service says, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Group

__all__ = ["jobs_table", "service_lines", "span"]

_COLOURS = {"running": "green", "queued": "yellow", "failed": "red", "rejected": "red", "completed": "dim"}

_WIDE = 100
"""Characters of a terminal from which on there is room for every column."""

_LONGEST_REASON = 160
"""Characters of a reason in the table; `history` has all of it."""


def span(seconds: float | None) -> str:
    """A length of time, short."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.0f}s"
    if seconds < 3600:
        return f"{seconds / 60:.1f}m"
    return f"{seconds / 3600:.1f}h" if seconds < 172_800 else f"{seconds / 86_400:.1f}d"


def service_lines(service: dict[str, Any]) -> list[str]:
    """Policy, GPUs and counts; and what is wrong."""
    from rich.markup import escape

    counts = ", ".join(f"{count} {state}" for state, count in service["counts"].items() if count)
    in_use = [node for node in service["nodes"] if node["state"] == "up"]
    busy = sum(bool(jobs) for node in in_use for jobs in node["jobs"])
    total = sum(node["gpus"] for node in in_use)
    lines = [f"{service['policy']}: {busy} of {total} GPUs busy; jobs: {counts or 'none'}"]
    for node in service["nodes"]:
        if node["state"] != "up":
            left = sum(bool(jobs) for jobs in node["jobs"])
            still = f"; {left} of its GPUs are still busy" if left else ""
            why = f": {escape(node['reason'])}" if node["reason"] else ""
            lines.append(f"[yellow]node {escape(node['name'])} is {node['state']}[/]{why}{still}")
    if service["trouble"]:
        lines.append(f"[red]trouble:[/] {escape(service['trouble'])}")
    return lines


def jobs_table(jobs: Sequence[dict[str, Any]], width: int) -> Group:
    """One row for each job, in so many characters; where those are few, why jobs are where they are stands below."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    columns = [name for name in _COLUMNS if width >= _WIDE or name not in ("waited", "why")]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in columns:
        left = name in ("name", "state", "GPUs", "why")
        longest = 24 if name == "name" else None
        table.add_column(name, justify="left" if left else "right", no_wrap=name != "why", max_width=longest)
    below = []
    for job in jobs:
        colour, reason = _COLOURS.get(job["state"], "cyan"), job["reason"]
        cells = {
            "job": str(job["id"]),
            "name": escape(job["name"]),
            "state": f"[{colour}]{job['state']}[/]",
            "GPUs": f"{job['gpus']} {escape(job['accelerator'])}".rstrip(),
            "steps": f"{job['steps']:.0f}" + (f"/{job['total_steps']:.0f}" if job["total_steps"] else ""),
            "waited": span(job["waited_seconds"]),
            "ran": span(job["run_seconds"]),
            "left": span(job["seconds_left"]),
            "why": escape(reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 1]}…"),
        }
        table.add_row(*(cells[name] for name in columns))
        if reason and "why" not in columns:
            below.append(f" job {job['id']}: {cells['why']}")
    return Group(table, *below)


_COLUMNS = ("job", "name", "state", "GPUs", "steps", "waited", "ran", "left", "why")
