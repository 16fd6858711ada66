"""The figures as tables for people."""

from __future__ import annotations

import re
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table


def tables(figures: dict[str, Any]) -> RenderableType:
    """All rows by decision, what was not measured and why, and the targets."""
    rows = figures["rows"]
    decisions = list(dict.fromkeys(row["decision"] for row in rows))
    shown = [rows_table(name, [row for row in rows if row["decision"] == name]) for name in decisions]
    if any(row["outcome"] != "measured" for row in rows):
        shown.append(not_measured_table(rows))
    return Group(*shown, targets_table(figures["targets"]))


def rows_table(decision: str, rows: list[dict[str, Any]]) -> Table:
    """One line per measured point of a decision, under its family and size."""
    shown = Table(title=f"{decision}: median CPU time, wall time of its phases", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("problem", no_wrap=True)
    for name in ("CPU", "build", "solve", "recover", "gap", "to plain"):
        shown.add_column(name, justify="right", no_wrap=True)
    last = ""
    for row in (row for row in rows if row["outcome"] == "measured"):
        here = f"{row['family']}, {row['jobs']:,} x {row['types']}"
        if here != last:
            shown.add_row(f"[bold]{here}[/bold]" + (" *" if row["held_by_one_job"] else ""))
        last = here
        phases = row["phases"]
        shown.add_row(
            f"  {row['path']}" + (f" ({row['solver']})" if row["path"] == "auto" else ""),
            duration(row["cpu_seconds"]),
            *(duration(phases[name]) for name in ("build", "solve", "recover")),
            "-" if row["gap"] is None else f"{row['gap']:.0e}",
            "-" if row["ratio"] is None else f"{row['ratio']:.3g}x",
        )
    shown.caption = "gap: to the best bound proven; to plain: CPU time of cvxpy_ecos over this"
    if any(row["held_by_one_job"] for row in rows):
        shown.caption += "\n* one job, which could do no better alone, holds the optimum"
    return shown


def not_measured_table(rows: list[dict[str, Any]]) -> Table:
    """Each path and reason once, whatever the figures in it, with the problems it holds for."""
    where: dict[tuple[str, str, str], list[str]] = {}
    said: dict[tuple[str, str, str], str] = {}
    for row in rows:
        if row["outcome"] != "measured":
            reason = (row["reason"].splitlines() or [""])[0][:90]
            key = (row["path"], row["outcome"], re.sub(r"\d[\d.,e+]*", "#", reason))
            said.setdefault(key, reason)
            where.setdefault(key, []).append(f"{row['decision']}/{row['family']}/{row['jobs']:,}x{row['types']}")
    shown = Table(title="Not measured", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("path", no_wrap=True)
    shown.add_column("reason", overflow="fold", max_width=44)
    shown.add_column("problems", overflow="fold")
    for key, problems in where.items():
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        shown.add_row(key[0], f"{key[1]}: {said[key]}", problems[0] + more)
    return shown


def targets_table(targets: list[dict[str, Any]]) -> Table:
    """Target, measured, met or by what factor missed."""
    shown = Table(title="Targets for auto", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("problem", no_wrap=True)
    for name in ("target", "measured", ""):
        shown.add_column(name, justify="right", no_wrap=True)
    for row in targets:
        seconds = row["quantity"] == "seconds"
        aim = duration(row["limit"]) if seconds else f"{row['limit']:g} x input"
        if seconds:
            aim += " CPU" if row["cores"] == 1 else " wall"
        if row["measured"] is None:
            found = "[dim]not measured[/dim]"
        else:
            found = duration(row["measured"]) if seconds else f"{row['measured']:.3g} x"
        problem = f"{row['decision']}, {row['family']}, {_count(row['jobs'])} x {row['types']}"
        shown.add_row(problem, aim, found, _verdict(row))
    return shown


def _verdict(row: dict[str, Any]) -> str:
    if row["met"] is None:
        return ""
    if not row["proven"]:
        return "[red]not proven[/red]"
    return "[green]met[/green]" if row["met"] else f"[red]{row['factor']:.3g}x over[/red]"


def _count(number: int) -> str:
    """2,048; 100k; 1M."""
    for unit, factor in (("M", 10**6), ("k", 1000)):
        if number % factor == 0:
            return f"{number // factor}{unit}"
    return f"{number:,}"


def duration(seconds: float) -> str:
    """Three digits with a fitting unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * factor:
            return f"{seconds / factor:.3g} {unit}" if seconds < 999.5 * factor else f"{seconds / factor:,.0f} {unit}"
    return f"{seconds * 1e6:.0f} us"
