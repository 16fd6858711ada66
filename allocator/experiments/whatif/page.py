"""Scenarios as files: tables, and one HTML page that opens without a network; nothing in it is a script.

Charts are of figures against what varies: the number of GPUs, the load, a penalty, any setting that is a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from allocator.conversion import is_number
from allocator.experiments.whatif.rows import Column, Row, WhatIf
from allocator.report.charts import policy_class
from allocator.report.colours import style_rules
from allocator.report.figures import Figure, format_column, title_of, value_of
from allocator.report.page.markup import distinct, document, header, line_sample, plain_heads, section, table
from allocator.report.page.tables import calibration_section
from allocator.report.svg import Axis, Frame, axes, dotted_curve, element, picture
from allocator.variants import folder_of
from throughputs.files import write_frame, write_json, write_text
from throughputs.shown import escape

PAGE, TITLE = "whatif.html", "What if"

_FRAME = Frame(width=460, height=250, left=56, right=14, top=12, bottom=46)
_ROOM_ABOVE = 1.08

FEWEST_POINTS = 3
"""Points of a curve that says more than the table."""

_STYLE = """
.figures { width: auto; min-width: 50% }
.figures thead th { padding-left: 1.6em }
.figures .ratio { color: var(--soft); display: inline-block; min-width: 3.6em; text-align: left; padding-left: .5em }
.lines { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 10px; padding: 0; list-style: none }
.lines { font-size: .86rem }
.lines svg { margin-right: 7px }
.panel { overflow: visible }
h3 { font-size: 1rem; font-weight: 620; margin: 22px 0 6px }
"""

_DRAWN_KEYS = ("average_jct", "average_queueing_time", "p99_jct", "loaded_utilization", "owned_cost", "deadline_ratio")

Line = Sequence[tuple[float, Row]]
"""Rows that differ in one number alone, with that number, ascending."""


def lines_along(rows: Sequence[Row]) -> dict[str, dict[str, Line]]:
    """By number that varies, and by what rows have in common beside it, at least one line of `FEWEST_POINTS`."""
    several = len({name for row in rows for name in row.cluster.accelerators}) > 1
    places = [(_place(row, several=several), row) for row in rows]
    names = dict.fromkeys(name for place, _ in places for name in place)
    found = {name: _lines(name, places) for name in names if all(is_number(place.get(name, 0)) for place, _ in places)}
    return {name: lines for name, lines in found.items() if max(map(len, lines.values())) >= FEWEST_POINTS}


def _place(row: Row, *, several: bool) -> dict[str, Any]:
    """Where a row stands; `several`: whether there are GPUs of several types."""
    gpus = {f"{name} GPUs" if several else "GPUs": count for name, count in row.cluster.gpus.items()}
    others = {name: value for name, value in row.changes.items() if name not in ("cluster", "gpus")}
    return gpus | others


def _lines(name: str, places: Sequence[tuple[Mapping[str, Any], Row]]) -> dict[str, Line]:
    groups: dict[tuple[tuple[str, str], ...], list[tuple[float, Row]]] = {}
    for place, row in places:
        if name in place:
            beside = tuple((other, _told(other, value)) for other, value in place.items() if other != name)
            groups.setdefault(beside, []).append((float(place[name]), row))
    common = set.intersection(*map(set, groups))
    return {
        ", ".join(text for other, text in beside if (other, text) not in common): sorted(line, key=lambda each: each[0])
        for beside, line in groups.items()
    }


def _told(name: str, value: Any) -> str:
    if name == "policy":
        return str(value)
    return f"{name.partition(' (')[0]} {value:g}" if is_number(value) else f"{name} {value}"


def line_chart(name: str, figure: Figure, along: str, lines: Mapping[str, Line]) -> str:
    """One figure against one number, a curve for each line; empty where no row has the figure."""
    curves: list[tuple[str, list[tuple[float, float, str]]]] = []
    for label, line in lines.items():
        texts = format_column(figure, [row.figures for _, row in line])
        points = [(at, value_of(figure, row.figures), text) for (at, row), text in zip(line, texts, strict=True)]
        curves.append((label, [point for point in points if math.isfinite(point[1])]))
    every = [point for _, points in curves for point in points]
    if not every:
        return ""
    low, high = min(at for at, *_ in every), max(at for at, *_ in every)
    margin = 0.05 * (high - low) or 1.0
    x = Axis(low - margin, high + margin, *_FRAME.x)
    y = Axis(0.0, max(value for _, value, _ in every) * _ROOM_ABOVE or 1.0, *_FRAME.y)
    parts, described = [axes(_FRAME, x, y, along, "")], []
    for place, (label, points) in enumerate(curves):
        if not points:
            continue
        said = f"{label}: " if label else ""
        hints = [f"{said}{along} {at:g}: {text} {figure.unit}".rstrip() for at, _, text in points]
        across, up = (np.array([point[k] for point in points], dtype=np.float64) for k in (0, 1))
        curve = dotted_curve(x.pixels(across).tolist(), y.pixels(up).tolist(), hints)
        parts.append(element("g", curve, class_=policy_class(place)))
        described.append(said + ", ".join(f"{at:g}: {text}" for at, _, text in points))
    title, size = f"{title_of(figure)} against {along}", (_FRAME.width, _FRAME.height)
    svg = picture(name, *size, title, "; ".join(described), "".join(parts), class_="chart panel")
    return element("figure", element("figcaption", escape(title_of(figure))) + svg)


def render_page(result: WhatIf) -> str:
    """The text of the page."""
    lines = lines_along(result.rows)
    near = "" if result.calibration is None else calibration_section(result.calibration)
    parts = [_rows(result), near, _charts(result, lines), _next_gpus(result)]
    body = "\n".join([_heading(result), "<main>", *parts, "</main>"])
    # curves have the colours of their policies
    curves = max(lines.values(), key=len, default={})
    return document(TITLE, body, style_rules(line[0][1].policy for line in curves.values()) + _STYLE)


def _heading(result: WhatIf) -> str:
    rows = result.rows
    facts = [
        ("jobs", f"{result.counted}, of {result.trace}"),
        ("clusters", distinct(row.cluster.in_words for row in rows)),
        ("policies", distinct(row.policy for row in rows)),
    ]
    if any(row.load != 1 for row in rows):
        facts.append(("load", distinct(f"{row.load:g}" for row in rows)))
    lead = "The same jobs in other circumstances: every row is a simulation of all of them."
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in (*result.notes, *result.failed))
    return header(TITLE, lead, facts, filter(None, [result.answer]), notes)


def _rows(result: WhatIf) -> str:
    """The table of figures with their ratios."""
    rows, columns = result.side_by_side, result.columns()
    how = (
        "Times are of completed jobs, waiting is the part of the average JCT without GPUs, and utilisation that up to "
        "the last arrival."
    )
    if any(column.figure.key == "owned_cost" for column in columns):
        how += " Owned cost is the price of all GPUs from the first arrival to the makespan, busy or not."
    if len(rows) > 1:
        how += f" Behind each value its ratio (×) to that of the first row, {rows[0].label}."
    if result.recorded is not None:
        how += f" {result.recorded.label}: the schedule that the trace records, not simulated."
    return section("rows", "Side by side", how, _table([("", "")], [_name(row) for row in rows], columns))


def _charts(result: WhatIf, along: Mapping[str, Mapping[str, Line]]) -> str:
    """Each figure against each number that varies; nothing where none does."""
    if not along:
        return ""
    figures, body = [figure for figure in result.figures if figure.key in _DRAWN_KEYS], ""
    for place, (name, lines) in enumerate(along.items()):
        keys = [f'<li class="{policy_class(k)}">{line_sample(label)}</li>' for k, label in enumerate(lines)]
        legend = f'<ul class="lines">{"".join(keys)}</ul>' if len(lines) > 1 else ""
        charts = [line_chart(f"chart-{place}-{figure.key}", figure, name, lines) for figure in figures]
        body += f'<h3>{escape(name)}</h3>{legend}<div class="panels">{"".join(charts)}</div>'
    how = "A point is a row of the table. Axes of figures begin at 0."
    return section("charts", f"Against {' and '.join(along)}", how, body)


def _next_gpus(result: WhatIf) -> str:
    """What more GPUs of each type change, and their price."""
    if not result.larger:
        return ""
    columns = result.next_columns()
    labels = [f"{_name(row)}<td>{escape(name)}</td>" for row, name, _ in result.larger]
    gpus = "one more GPU" if result.more_gpus == 1 else f"{result.more_gpus} more GPUs"
    how = (
        f"Measured: each row simulated again with {gpus} of a type, and the change of its figures. It is what these "
        "very jobs would have seen: a single GPU more can also make gangs fit worse, so a small change may have any "
        "sign."
    )
    if columns and columns[-1].figure.key == "price":
        how += (
            " The price is the policy's own answer, in the unit of its objective: the gain of the objective by one "
            "more GPU at a moment, averaged over time; it knows nothing of queues to come."
        )
    return section("next", f"What {gpus} would change", how, _table([("", ""), ("type", "")], labels, columns))


def _name(row: Row) -> str:
    return f'<th scope="row">{escape(row.label)}</th>'


def _table(heads: Sequence[tuple[str, str]], labels: Sequence[str], columns: Sequence[Column]) -> str:
    """A table of rows, of each of which the first cells are there, and columns of figures behind them."""
    said = [*heads, *((title_of(column.figure), column.figure.about) for column in columns)]
    lines = []
    for place, label in enumerate(labels):
        cells = ""
        for column in columns:
            ratio = column.ratios and len(column.texts) > 1 and f'<span class="ratio">{column.ratios[place]}</span>'
            cells += f"<td>{escape(column.texts[place])}{ratio or ''}</td>"
        lines.append(f"<tr>{label}{cells}</tr>")
    return table(plain_heads(said), lines)


def write_scenarios(result: WhatIf, folder: Path) -> Path:
    """Write rows.csv, whatif.json, whatif.html and a folder with jobs.csv for each row; returns the page.

    With more GPUs there is next_gpus.csv too. Each file is replaced in one step, the page last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for place, row in enumerate(result.side_by_side):
        if row.jobs is not None:
            own = folder / f"{place + 1}-{folder_of(row.label)}"[:100]
            own.mkdir(exist_ok=True)
            write_frame(own / "jobs.csv", row.jobs)
    write_frame(folder / "rows.csv", result.table)
    if result.more_gpus:
        write_frame(folder / "next_gpus.csv", result.next_gpus)
    else:
        (folder / "next_gpus.csv").unlink(missing_ok=True)
    write_json(folder / "whatif.json", result.as_dict())
    write_text(folder / PAGE, render_page(result))
    return folder / PAGE
