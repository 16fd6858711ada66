"""A recorded run beside its simulation: the error of each figure, as a table for terminals and a section of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from throughputs.shown import escape

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN = {
    "average_jct": "average completion time",
    "median_jct": "median completion time",
    "makespan": "makespan",
    "utilization": "GPUs busy",
    "preemptions": "preemptions",
}


def errors_table(comparison: Mapping[str, Any]) -> Table:
    """Figures of both runs with the error of the simulation."""
    from rich.table import Table

    table = Table(title=f"{comparison['policy']}: simulated beside real")
    for name in ("figure", "real", "simulated", "error"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for row in comparison["figures"]:
        name = row["figure"]
        table.add_row(_SHOWN[name], _text(name, row["real"]), _text(name, row["simulated"]), _error(row["error"]))
    return table


def errors_section(comparison: Mapping[str, Any]) -> str:
    """The same as markup, with completion times job by job."""
    figures = "".join(
        _row(_SHOWN[row["figure"]], row, lambda value, name=row["figure"]: _text(name, value))
        for row in comparison["figures"]
    )
    jobs = "".join(_row(f"job {row['job_id']}", row, lambda value: _text("jct", value)) for row in comparison["jobs"])
    restart = comparison["restart_seconds"] or 0.0
    return (
        '<section id="errors">\n<h2>Simulated beside real</h2>\n'
        f"<p>The simulation has the same jobs, cluster, policy, rounds, measured throughputs and {restart:.2f} s "
        "for each start, the average of the recorded run. Errors are relative to the real figure.</p>\n"
        + "".join(f"<p><strong>{escape(words)}</strong></p>\n" for words in comparison["caveats"])
        + f"{_table('figure', figures)}\n<details><summary>Completion times of all jobs</summary>{_table('job', jobs)}"
        "</details>\n</section>"
    )


def _table(first: str, rows: str) -> str:
    names = "".join(f'<th scope="col">{name}</th>' for name in (first, "real", "simulated", "error"))
    return f"<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>"


def _row(name: str, row: Mapping[str, Any], shown: Any) -> str:
    cells = (shown(row["real"]), shown(row["simulated"]), _error(row["error"]))
    return f'<tr><th scope="row">{escape(name)}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _text(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name == "utilization":
        return f"{100 * value:.1f} %"
    return str(value) if name == "preemptions" else f"{value:,.1f} s"


def _error(error: float | None) -> str:
    return "-" if error is None else f"{100 * error:+.1f} %"
