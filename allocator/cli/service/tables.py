"""What the service says, for a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from allocator.runtime.door.words import span

if TYPE_CHECKING:
    from rich.console import Group

_COLOURS = {"running": "green", "queued": "yellow", "failed": "red", "rejected": "red", "completed": "dim"}

_WIDE = 100
"""Characters of a terminal from which on there is room for every column."""

_LONGEST_REASON = 160
"""Characters of a reason in the table; `history` has all of it."""


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
    deadlines = service["deadlines"]
    if any(deadlines.values()):
        lines.append(f"deadlines of jobs that are through: {deadlines['met']} met, {deadlines['missed']} missed")
    if service["trouble"]:
        lines.append(f"[red]trouble:[/] {escape(service['trouble'])}")
    return lines


def due(job: dict[str, Any]) -> str:
    """When a job is due, by the clock on the wall, and whether it was met; "" without a deadline."""
    if job["deadline"] is None:
        return ""
    ahead = job["due_in"]
    at = time.localtime(time.time() + ahead)
    today = at[:3] == time.localtime()[:3]
    stamp = time.strftime("%H:%M:%S" if today else "%b %d %H:%M", at)
    if job["met"] is None:
        return f"{stamp}, in {span(ahead)}" if job["finished_at"] is None else stamp
    if job["met"]:
        return f"{stamp}, met"
    if job["state"] == "completed":
        return f"{stamp}, missed by {span(job['finished_at'] - job['deadline'])}"
    return f"{stamp}, missed{'' if job['finished_at'] is not None else f' {span(-ahead)} ago'}"


def jobs_table(jobs: Sequence[dict[str, Any]], width: int) -> Group:
    """One row for each job, in so many characters; where those are few, why jobs are where they are stands below."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    shown = _COLUMNS if any(job["deadline"] is not None for job in jobs) else [n for n in _COLUMNS if n != "due"]
    columns = [name for name in shown if width >= _WIDE or name not in ("waited", "due", "why")]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in columns:
        left = name in ("name", "state", "GPUs", "due", "why")
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
            "steps": _steps(job),
            "waited": span(job["waited_seconds"]),
            "ran": span(job["run_seconds"]),
            "left": span(job["seconds_left"]),
            "due": due(job),
            "why": escape(reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 1]}…"),
        }
        table.add_row(*(cells[name] for name in columns))
        if "why" not in columns and (reason or cells["due"]):
            told = [f"due {cells['due']}" * bool(cells["due"]), cells["why"]]
            below.append(f" job {job['id']}: {'; '.join(text for text in told if text)}")
    return Group(table, *below, *_footnotes(jobs))


def _steps(job: dict[str, Any]) -> str:
    """Steps so far and in all; "~" before those that nobody has told."""
    if job["reckoned"] and not job["steps"]:
        return ""
    of = f"/{job['total_steps']:.0f}" if job["total_steps"] else ""
    return f"{'~' * job['reckoned']}{job['steps']:.0f}{of}"


def _footnotes(jobs: Sequence[dict[str, Any]]) -> list[str]:
    """What is said of programs that tell no steps, as long as some of them wait or run."""
    there = [job for job in jobs if job["finished_at"] is None]
    notes = []
    if any(job["reckoned"] and job["steps"] for job in there):
        notes.append(
            " ~ estimated from the time that the job ran, at one step a second where no throughput is known: "
            "its program tells no steps."
        )
    losing = [str(job["id"]) for job in there if job["unsaved_stops"]]
    if losing:
        named = ", ".join(losing[:_MOST_NAMED]) + ", ..." * (len(losing) > _MOST_NAMED)
        notes.append(
            f" job {named} made room without having told a step: what it had not saved by itself is lost each time. "
            "`python -m pydoc allocator.lease` says how a script goes on where it was; under the policy fifo no job "
            "makes room for others."
        )
    return notes


_COLUMNS = ("job", "name", "state", "GPUs", "steps", "waited", "ran", "left", "due", "why")
_MOST_NAMED = 10
