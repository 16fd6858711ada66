"""Tables of parts of a run: its sizes of jobs, users, partitions, entities and accelerator types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from allocator.report.figures import FIGURES, MISSING, Figure, Row, Rows, format_column, format_count, heading_of
from allocator.results.shown import text_table

if TYPE_CHECKING:
    from rich.table import Table

    from allocator.results.measures.calibration import Calibration

MOST_USERS = 40
"""Users of each policy that are shown, those with the most GPU time."""

HOUR = 3600.0

NEITHER = ("weight", "gpus", "gpu_hours", "gpu_hours_per_job", "gpu_share", "throughput_share")
"""Figures of parts of which more is neither better nor worse."""

_COMPLETION = ("average_jct", "median_jct", "p99_jct", "average_queueing_time", "p99_queueing_time",
               "average_bounded_slowdown", "worst_rho")  # fmt: skip
_OF_PARTS = {
    figure.key: figure
    for figure in (
        *FIGURES,
        Figure("weight", "weight", "", "weight among the entities inside the same one", better="high"),
        Figure("gpus", "GPUs", "", "GPUs that there are", 0, better="high"),
        Figure("gpu_hours", "GPU hours", "", "GPU hours that the jobs had", 1, better="high"),
        Figure("gpu_hours_per_job", "GPU hours a job", "", "of all completed jobs, on average", 2, better="high"),
        Figure(
            "gang_blocked_fraction",
            "gang blocked",
            "%",
            "part of the time in which 8 GPUs were free, and a gang of 8 did not fit on the servers as they were",
            1,
        ),
        Figure("gpu_share", "GPU time", "%", "part of the busy GPU time", 1, better="high"),
        Figure("throughput_share", "work done", "%", "part of the work done", 1, better="high"),
    )
}


@dataclass(frozen=True)
class Breakdown:
    """A table of parts of each run.

    Attributes
    ----------
    rows : key of the rows in a summary.
    key, heading : key of what tells the parts apart, and its heading.
    title, about : heading of the section, and what it shows.
    keys : columns by key; those are shown that any of the rows has.
    nameless : what a part without a name is called.
    most : rows of a policy that are shown, the first ones.
    """

    rows: str
    key: str
    heading: str
    title: str
    about: str
    keys: tuple[str, ...]
    nameless: str = ""
    most: int | None = None

    def figures(self, parts: Rows) -> list[Figure]:
        """The columns of a table of these parts."""
        found = [_OF_PARTS[key] for key in self.keys if any(part.get(key) is not None for part in parts)]
        logged = any(figure.key == "average_bounded_slowdown" for figure in found)
        return [figure for figure in found if not (logged and figure.key == "worst_rho")]


_ALL = (
    Breakdown(
        "by_size",
        "gpus",
        "GPUs",
        "By size of job",
        "What jobs of each size got: how many GPUs a job needs decides how hard it is to place.",
        (*_COMPLETION, "restart_gpu_hours"),
    ),
    Breakdown(
        "by_user",
        "user",
        "user",
        "By user",
        f"What the jobs of each user got, most GPU time first: the first {MOST_USERS}; all are in summary.json.",
        ("gpu_hours", "gpu_share", *_COMPLETION),
        "(none)",
        MOST_USERS,
    ),
    Breakdown(
        "by_partition",
        "partition",
        "partition",
        "By partition",
        "What the jobs of each partition (virtual cluster) got, most GPU time first.",
        ("gpu_hours", "gpu_share", *_COMPLETION),
        "(none)",
    ),
    Breakdown(
        "by_accelerator",
        "accelerator",
        "type",
        "By accelerator type",
        "What the GPUs of each type, or of each partition that has its own, were used for, by all jobs.",
        (
            "gpus",
            "gpu_hours",
            "gpu_hours_per_job",
            "loaded_utilization",
            "utilization",
            "gpu_utilization",
            "fragmentation",
            "gang_blocked_fraction",
        ),
    ),
    Breakdown(
        "by_entity",
        "entity",
        "entity",
        "By entity",
        "What the jobs of each entity got, with those of all entities inside it.",
        ("weight", "gpu_share", "throughput_share", *_COMPLETION),
        "(outside)",
    ),
)

BREAKDOWNS = {of.rows: of for of in _ALL}
"""By the key of their rows in a summary."""


def parts_tables(summaries: Rows) -> list[Table]:
    """Those of partitions and of entities, for the terminal, where any run has them."""
    shown = (BREAKDOWNS[name] for name in ("by_partition", "by_entity"))
    return [parts_table(summaries, of) for of in shown if any(summary.get(of.rows) for summary in summaries)]


def parts_table(summaries: Rows, of: Breakdown) -> Table:
    """The parts of each run, for the terminal, run by run; entities stand below those that they are inside of.

    Parameters
    ----------
    summaries : as `SimulationResult.summary` returns them; some of them have the rows.
    of : which parts.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    runs = [_nested(list(summary.get(of.rows) or [])[: of.most], of.key) for summary in summaries]
    parts = [part for rows in runs for _, part in rows]
    figures = of.figures(parts)
    table = Table(title=of.title, box=box.SIMPLE_HEAD, padding=0)
    table.add_column(of.heading, overflow="fold", vertical="bottom")
    for heading in ("jobs\ndone\n ", *(f" {heading_of(figure)}" for figure in figures)):
        table.add_column(heading, justify="right", vertical="bottom", no_wrap=True)
    columns = [format_column(figure, parts) for figure in figures]
    at = 0
    for summary, rows in zip(summaries, runs, strict=True):
        if len(summaries) > 1:
            table.add_section()
            table.add_row(Text(str(summary.get("label", summary.get("policy", MISSING))), style="bold"))
        for depth, part in rows:
            done = f"{format_count(part['completed_jobs'])}/{format_count(part['jobs'])}"
            name = "  " * depth + (part[of.key] or of.nameless)
            table.add_row(Text(name), done, *(f" {column[at]}" for column in columns))
            at += 1
    return table


CALIBRATED = ("part", "jobs", "recorded (h)", "simulated (h)", "off (%)")


def calibration_rows(calibration: Calibration) -> list[tuple[str, ...]]:
    """How long jobs waited as recorded and as simulated, as text: one row per part, the columns of `CALIBRATED`."""
    found: list[tuple[str, ...]] = []
    for part, jobs, recorded, simulated, off in calibration.table.itertuples(index=False):
        apart = MISSING if off != off else f"{round(100 * off):+d}".replace("-", "−").replace("+0", "0")
        found.append((part, format_count(jobs), f"{recorded / HOUR:.2f}", f"{simulated / HOUR:.2f}", apart))
    return found


def calibration_table(calibration: Calibration) -> Table:
    """The same for the terminal."""
    title = f"{calibration.policy} beside what was recorded: waiting"
    return text_table(CALIBRATED, calibration_rows(calibration), title=title)


def _nested(rows: Rows, key: str) -> list[tuple[int, Row]]:
    """The rows, each below its parent where it has one, with how deep they are."""
    inside: dict[str, list[Row]] = {}
    for row in rows:
        inside.setdefault(row.get("parent") or "", []).append(row)

    def below(parent: str, depth: int) -> Iterator[tuple[int, Row]]:
        for row in inside.get(parent, ()):
            yield depth, row
            if row[key]:
                yield from below(row[key], depth + 1)

    return list(below("", 0))
