"""What the service says, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["jobs_table", "service_lines", "span"]

_COLOURS = {"running": "green", "queued": "yellow", "failed": "red", "rejected": "red", "completed": "dim"}


def span(seconds: float | None) -> str:
    """A length of time, short."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"


def service_lines(service: dict[str, Any]) -> list[str]:
    """Policy, GPUs and counts; and what is wrong."""
    counts = ", ".join(f"{count} {state}" for state, count in service["counts"].items() if count)
    busy = sum(bool(jobs) for node in service["nodes"] for jobs in node["jobs"])
    total = sum(service["cluster"].values())
    lines = [f"{service['policy']}: {busy} of {total} GPUs busy; jobs: {counts or 'none'}"]
    lines += [
        f"[yellow]node {node['name']} is {node['state']}[/] {node['reason']}"
        for node in service["nodes"]
        if node["state"] != "up"
    ]
    if service["trouble"]:
        lines.append(f"[red]trouble:[/] {service['trouble']}")
    return lines


def jobs_table(jobs: Sequence[dict[str, Any]]) -> Table:
    """One row for each job."""
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for name in ("job", "name", "state", "GPUs", "on", "steps", "waited", "ran", "left", "why"):
        table.add_column(name, justify="right" if name in ("job", "GPUs", "steps", "waited", "ran", "left") else "left")
    for job in jobs:
        steps = f"{job['steps']:.0f}" + (f"/{job['total_steps']:.0f}" if job["total_steps"] else "")
        colour = _COLOURS.get(job["state"], "cyan")
        table.add_row(
            str(job["id"]),
            escape(job["name"][-24:]),
            f"[{colour}]{job['state']}[/]",
            str(job["gpus"]),
            job["accelerator"],
            steps,
            span(job["waited_seconds"]),
            span(job["run_seconds"]),
            span(job["seconds_left"]),
            escape(job["reason"]),
        )
    return table
