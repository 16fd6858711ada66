"""The tables of figures: of the policies, and of parts of their runs.

Rows carry ``data-policy`` so that the legend can hide them, cells ``data-value`` so that the script can sort, relate
to a baseline and write CSV; headings say in ``data-better`` which end of their column is better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from allocator.report.breakdowns import BREAKDOWNS, CALIBRATED, NEITHER, Breakdown, calibration_rows
from allocator.report.charts import policy_class
from allocator.report.figures import (
    MISSING,
    Figure,
    HalfWidths,
    Row,
    Rows,
    best_rows,
    differing_rows,
    format_column,
    format_count,
    format_differences,
    format_number,
    ties,
    title_of,
    value_of,
)
from allocator.report.page.markup import section, table
from allocator.report.page.seeds import Policies
from allocator.report.presentation import Presentation, exceeded_shares, free_restarts, true_lengths
from throughputs.shown import escape

if TYPE_CHECKING:
    from allocator.results.measures.calibration import Calibration


WAITING = "average_queueing_time"
"""The figure of parts that is shown first, where there is a choice."""


def comparison_section(policies: Policies) -> str:
    """The figures of all policies; a click on a heading sorts."""
    summaries = policies.summaries
    shown = Presentation.of(summaries)
    figures = shown.figures
    done = [_done(summary) for summary in summaries]
    heads = "".join(_head(figure.heading, figure) for figure in figures)
    heads = _head("policy") + heads + _head("jobs done", about="completed jobs of all jobs")
    halves = policies.half_widths
    columns = [
        _cells(figure, summaries, halves, dict.fromkeys(best_rows(figure, summaries, halves), "best"))
        for figure in figures
    ]
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
    lines = [*ties(summaries, policies.half_widths), *true_lengths(shown.names, summaries)]
    lines += [*free_restarts(summaries), *exceeded_shares(shown.names, summaries)]
    how += "".join(f" {line[0].upper()}{line[1:]}." for line in lines)
    if not shown.usual:
        how += f" Here rho is {shown.meaning}."
    if policies.most_runs > 1:
        how += (
            f" Figures are means over runs with different seeds, up to {policies.most_runs} of each policy, with the "
            "half-width of their 95 % interval (Student's t)."
        )
    return section("comparison", "Comparison", how, table(heads, rows))


def differences_section(policies: Policies, differences: Rows) -> str:
    """Paired differences of the policies from the first; nothing where there are none."""
    if not differences:
        return ""
    shown = Presentation.of(policies.summaries)
    heads = [_head("policy"), *(_head(title_of(figure), about=figure.about) for figure in shown.figures)]
    means, halves = ([row[name] for row in differences] for name in ("mean", "half_width"))
    columns = [
        _cells(figure, means, halves, differing_rows(figure, means, halves), format_differences)
        for figure in shown.figures
    ]
    rows = [
        _row(at + 1, shown.names[at + 1], [column[at] for column in columns], str(row["pairs"]))
        for at, row in enumerate(differences)
    ]
    how = (
        f"What each policy has more than {shown.names[0]} with the same seeds, which are the same jobs: means of "
        "paired differences, with the half-width of their 95 % interval (Student's t). An interval without 0 is a "
        "difference at that confidence."
    )
    return section("differences", f"Differences from {shown.names[0]}", how, table("".join(heads), rows))


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
    return section("calibration", "Beside what was recorded", how, table(heads, rows))


def breakdown_sections(summaries: Rows) -> list[str]:
    """What jobs of each size, user, partition and entity got; nothing where the jobs do not differ in it."""
    sections = (_breakdown(summaries, of) for of in BREAKDOWNS.values())
    return [text for text in sections if text]


def _breakdown(summaries: Rows, of: Breakdown) -> str:
    """A row per part of the jobs: with the figures of the one policy, or with one figure, chosen, of each policy."""
    shown = [(at, summary[of.rows][: of.most]) for at, summary in enumerate(summaries) if summary.get(of.rows)]
    if not shown:
        return ""
    names, title = Presentation.of(summaries).names, of.rows.replace("_", "-")
    parts = {row[of.key]: row for _, rows in reversed(shown) for row in reversed(rows)}
    order = [*dict.fromkeys(row[of.key] for _, rows in shown for row in rows)]
    figures = of.figures([row for _, rows in shown for row in rows])
    counted = any("jobs" in row for row in parts.values())
    heads = [_head(of.heading, kind="text")] + [_head("jobs")] * counted
    columns, several = [], len(shown) > 1
    for figure in figures:
        for at, rows in shown:
            own = {row[of.key]: row for row in rows}
            cells = _cells(figure, [own.get(part, {}) for part in order])
            where = f' data-figure="{figure.key}" data-policy="{at}"' if several else ""
            columns.append([cell.replace("<td", f"<td{where}", 1) for cell in cells])
            swatch = f'<i class="swatch {policy_class(at)}" aria-hidden="true"></i>' if several else ""
            head = _head(names[at] if several else figure.heading, figure, unit=not several)
            heads.append(head.replace("<th", f"<th{where}", 1).replace('">', f'">{swatch}', 1) if several else head)
    lines = []
    for place, part in enumerate(order):
        name = escape(part)
        count = f'<td data-value="{parts[part]["jobs"]}">{format_count(parts[part]["jobs"])}</td>' if counted else ""
        figures_of = "".join(column[place] for column in columns)
        lines.append(f'<tr><th scope="row" data-value="{name}">{name or of.nameless}</th>{count}{figures_of}</tr>')
    choice = ""
    if several:
        keys = [each.key for each in figures if each.key not in NEITHER]
        first = WAITING if WAITING in keys else next(iter(keys), "")
        options = "".join(
            f'<option value="{each.key}"{" selected" * (each.key == first)}>{escape(title_of(each))}</option>'
            for each in figures
        )
        choice = f'<div class="controls"><label>Figure <select data-figures="{title}">{options}</select></label></div>'
    return section(title, of.title, of.about, choice + table("".join(heads), lines, tall=len(lines) > 60))


def _head(text: str, figure: Figure | None = None, about: str = "", kind: str = "", *, unit: bool = True) -> str:
    if figure is not None:
        about = figure.about
        text = title_of(figure) if unit else text
    better = "" if figure is None or figure.key in NEITHER else f' data-better="{figure.better}"'
    kind = f' class="{kind}"' if kind else ""
    sort = f'<button type="button" title="{escape(about)}">{escape(text)}</button>'
    return f'<th scope="col"{kind}{better}>{sort}</th>'


def _row(position: int, name: str, cells: Sequence[str], part: str = "") -> str:
    swatch = f'<i class="swatch {policy_class(position)}" aria-hidden="true"></i>'
    breakable = escape(name).replace("_", "_<wbr>")
    head = f'<th scope="row" data-value="{escape(name)}">{swatch}{breakable}</th>'
    return f'<tr data-policy="{position}" data-part="{escape(part)}">{head}{"".join(cells)}</tr>'


def _cells(
    figure: Figure,
    rows: Rows,
    half_widths: HalfWidths | None = None,
    marks: Mapping[int, str] = MappingProxyType({}),
    write: Callable[..., list[str]] = format_column,
) -> list[str]:
    """A column, with the intervals of means, and rows that are marked as best, better or worse."""
    texts, values = write(figure, rows), [value_of(figure, row) for row in rows]
    cells = []
    for at, (text, value) in enumerate(zip(texts, values, strict=True)):
        mark = f' class="{marks[at]}"' if at in marks else ""
        star = f'<span class="sr"> ({marks[at]})</span>' if at in marks else ""
        interval, half = "", None if half_widths is None else half_widths[at].get(figure.key)
        if half is not None:
            shown = format_number(half / figure.scale, len(text.partition(".")[2]))
            interval = f' <small class="interval">±{shown}</small>'
        data = "" if np.isnan(value) else f"{value:.9g}"
        cells.append(f'<td{mark} data-value="{data}">{text}{interval}{star}</td>')
    return cells


def _done(summary: Row) -> str:
    done = summary.get("completed_jobs")
    if done is None:
        return f'<td data-value="">{MISSING}</td>'
    of = summary.get("jobs")
    return f'<td data-value="{done}">{format_count(done)} / {MISSING if of is None else format_count(of)}</td>'
