"""A recorded run beside its simulation: the error of each figure, as a table for terminals and a section of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.report.figures import MISSING, Row
from throughputs.files import JsonObject
from throughputs.shown import escape, html_table, text_table

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN = {
    "average_jct": "average completion time",
    "median_jct": "median completion time",
    "makespan": "makespan",
    "utilization": "GPUs busy",
    "preemptions": "preemptions",
}


_COLUMNS = ("real", "simulated", "error")


def errors_table(comparison: JsonObject) -> Table:
    """Figures of both runs with the error of the simulation."""
    title = f"{comparison['policy']}: simulated beside real"
    return text_table(("figure", *_COLUMNS), _figures(comparison), title=title)


def errors_section(comparison: JsonObject) -> str:
    """The same as markup, with completion times job by job."""
    jobs = [(f"job {row['job_id']}", *_cells("jct", row)) for row in comparison["jobs"]]
    restart = comparison["restart_seconds"] or 0.0
    return (
        '<section id="errors">\n<h2>Simulated beside real</h2>\n'
        f"<p>The simulation has the same jobs, cluster, policy, rounds, measured throughputs and {restart:.2f} s "
        "for each start, the average of the recorded run. Errors are relative to the real figure.</p>\n"
        + "".join(f"<p><strong>{escape(words)}</strong></p>\n" for words in comparison["caveats"])
        + html_table(("figure", *_COLUMNS), _figures(comparison))
        + "\n<details><summary>Completion times of all jobs</summary>"
        + html_table(("job", *_COLUMNS), jobs)
        + "</details>\n</section>"
    )


def _figures(comparison: JsonObject) -> list[tuple[str, ...]]:
    return [(_SHOWN[row["figure"]], *_cells(row["figure"], row)) for row in comparison["figures"]]


def _cells(name: str, row: Row) -> tuple[str, ...]:
    """Both values and the error as text."""
    error = MISSING if row["error"] is None else f"{100 * row['error']:+.1f} %"
    return _text(name, row["real"]), _text(name, row["simulated"]), error


def _text(name: str, value: float | None) -> str:
    if value is None:
        return MISSING
    if name == "utilization":
        return f"{100 * value:.1f} %"
    return str(value) if name == "preemptions" else f"{value:,.1f} s"
