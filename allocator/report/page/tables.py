"""The tables of figures: of the policies, and of parts of their runs.

Rows carry ``data-policy`` so that the legend can hide them, cells ``data-value`` so that the script can sort, relate
to a baseline and write CSV; headings say in ``data-better`` which end of their column is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.report.breakdowns import BREAKDOWNS, CALIBRATED, NEITHER, Breakdown, calibration_rows
from allocator.report.charts import policy_class
from allocator.report.figures import (
    MISSING,
    Figure,
    best_rows,
    format_column,
    format_count,
    format_number,
    value_of,
)
from allocator.report.page.markup import section
from allocator.report.page.seeds import Policies
from allocator.report.presentation import Presentation, exceeded_shares, free_restarts, true_lengths
from throughputs.shown import escape

if TYPE_CHECKING:
    from allocator.results.measures.calibration import Calibration


def comparison_section(policies: Policies) -> str:
    """The figures of all policies; a click on a heading sorts."""
    summaries = policies.summaries
    shown = Presentation.of(summaries)
    figures = shown.figures
    done = [_done(summary) for summary in summaries]
    heads = "".join(_head(figure.heading, figure) for figure in figures)
    heads = _head("policy") + heads + _head("jobs done", about="completed jobs of all jobs")
    columns = [_cells(figure, summaries, policies.half_widths) for figure in figures]
    rows = [
        _row(position, shown.names[position], [*(column[position] for column in columns), done[position]])
        for position in range(len(summaries))
    ]
    more_is_better = ", ".join(figure.heading for figure in figures if figure.better == "high")
    of_all = " and ".join(figure.heading for figure in figures if not figure.outcome)
    exempt = f" ({of_all}: among all)" if of_all else ""
    how = (
        "Each row is one policy. Green and bold marks the best value of a column, among the policies that "
        f"completed the most jobs{exempt}. Less is better, except for {more_is_better}. Click a heading to sort; "
        "choose a baseline above to see each figure as a ratio to that of the baseline, ▲ better or ▼ worse."
    )
    lines = [*true_lengths(shown.names, summaries), *free_restarts(summaries), *exceeded_shares(shown.names, summaries)]
    how += "".join(f" {line[0].upper()}{line[1:]}." for line in lines)
    if not shown.usual:
        how += f" Here rho is {shown.meaning}."
    if policies.most_runs > 1:
        how += (
            f" Figures are means over runs with different seeds, up to {policies.most_runs} of each policy, with the "
            "half-width of their 95 % interval (Student's t)."
        )
    return section("comparison", "Comparison", how, _table(heads, rows))


def calibration_section(calibration: Calibration) -> str:
    """How near a policy comes to what was recorded."""
    heads = "".join(_head(text, kind="" if place else "text") for place, text in enumerate(CALIBRATED))
    rows = [
        f'<tr><th scope="row">{escape(part)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for part, *cells in calibration_rows(calibration)
    ]
    how = (
        f"How long jobs waited as recorded, and under {calibration.policy}, which stands for what the cluster runs. "
        f"{calibration.starts_near:.0%} of the jobs start within ten minutes of when they did. Smaller differences "
        "between policies than those of this table say little."
    )
    return section("calibration", "Beside what was recorded", how, _table(heads, rows))


def breakdown_sections(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """What jobs of each size, user, partition and entity got; nothing where the jobs do not differ in it."""
    sections = (_breakdown(summaries, of) for of in BREAKDOWNS.values())
    return [text for text in sections if text]


def _breakdown(summaries: Sequence[Mapping[str, Any]], of: Breakdown) -> str:
    """A row per policy and part of its jobs."""
    names = Presentation.of(summaries).names
    parts = [(at, row) for at, summary in enumerate(summaries) for row in (summary.get(of.rows) or [])[: of.most]]
    if not parts:
        return ""
    found = [row for _, row in parts]
    figures = of.figures(found)
    counted = any("jobs" in row for row in found)
    heads = _head("policy") + _head(of.heading, kind="text") + (_head("jobs") if counted else "")
    heads += "".join(_head(figure.heading, figure) for figure in figures)
    columns = [_cells(figure, found, None) for figure in figures]
    rows = []
    for at, (position, row) in enumerate(parts):
        part = escape(row[of.key])
        name = f'<td class="text" data-value="{part}">{part or of.nameless}</td>'
        jobs = [f'<td data-value="{row["jobs"]}">{format_count(row["jobs"])}</td>'] if counted else []
        rows.append(
            _row(position, names[position], [name, *jobs, *(column[at] for column in columns)], part=row[of.key])
        )
    return section(of.rows.replace("_", "-"), of.title, of.about, _table(heads, rows, tall=len(rows) > 60))


def _table(heads: str, rows: Sequence[str], *, tall: bool = False) -> str:
    table = f'<table class="figures"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<div class="scroll{" tall" if tall else ""}" tabindex="0" role="region" aria-label="Table">{table}</div>'


def _head(text: str, figure: Figure | None = None, about: str = "", kind: str = "") -> str:
    if figure is not None:
        about = figure.about
    better = "" if figure is None or figure.key in NEITHER else f' data-better="{figure.better}"'
    unit = f" ({figure.unit})" if figure is not None and figure.unit else ""
    kind = f' class="{kind}"' if kind else ""
    sort = f'<button type="button" title="{escape(about)}">{escape(text + unit)}</button>'
    return f'<th scope="col"{kind}{better}>{sort}</th>'


def _row(position: int, name: str, cells: Sequence[str], part: str = "") -> str:
    swatch = f'<i class="swatch {policy_class(position)}" aria-hidden="true"></i>'
    breakable = escape(name).replace("_", "_<wbr>")
    head = f'<th scope="row" data-value="{escape(name)}">{swatch}{breakable}</th>'
    return f'<tr data-policy="{position}" data-part="{escape(part)}">{head}{"".join(cells)}</tr>'


def _cells(
    figure: Figure, rows: Sequence[Mapping[str, Any]], half_widths: Sequence[Mapping[str, float]] | None
) -> list[str]:
    """A column; the best are marked where the rows are the policies, which then come with their intervals."""
    texts, values = format_column(figure, rows), [value_of(figure, row) for row in rows]
    best = set() if half_widths is None else best_rows(figure, rows)
    cells = []
    for at, (text, value) in enumerate(zip(texts, values, strict=True)):
        mark = ' class="best"' if at in best else ""
        star = '<span class="sr"> (best)</span>' if at in best else ""
        interval, half = "", None if half_widths is None else half_widths[at].get(figure.key)
        if half is not None:
            shown = format_number(half / figure.scale, len(text.partition(".")[2]))
            interval = f' <small class="interval">±{shown}</small>'
        data = "" if np.isnan(value) else f"{value:.9g}"
        cells.append(f'<td{mark} data-value="{data}">{text}{interval}{star}</td>')
    return cells


def _done(summary: Mapping[str, Any]) -> str:
    done = summary.get("completed_jobs")
    if done is None:
        return f'<td data-value="">{MISSING}</td>'
    of = summary.get("jobs")
    return f'<td data-value="{done}">{format_count(done)} / {MISSING if of is None else format_count(of)}</td>'
