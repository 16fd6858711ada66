"""Scenarios as files: tables, and one HTML page that opens without a network; nothing in it is a script.

Charts are of figures against what varies: the number of GPUs, the load, a penalty, any setting that is a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from allocator.conversion import is_number
from allocator.experiments.whatif.rows import Column, Row, WhatIf
from allocator.report.bar_charts import figure_panels
from allocator.report.charts import policy_class
from allocator.report.colours import style_rules
from allocator.report.figures import Figure, format_column, title_of, value_of
from allocator.report.page.markup import distinct, document, header, line_sample, plain_heads, section, table
from allocator.report.page.tables import calibration_section
from allocator.report.svg import Axis, Frame, axes, dotted_curve, element, picture
from allocator.variants import folder_of as folder_of_label
from throughputs.files import write_frame, write_json, write_text
from throughputs.shown import escape

PAGE, TITLE = "whatif.html", "What if"

_FRAME = Frame(width=460, height=250, left=56, right=14, top=12, bottom=46)
_ROOM_ABOVE = 1.08

FEWEST_POINTS = 3
"""Points of a curve that says more than the table."""

_NAMES = {"load": "load", "restart_penalty_seconds": "restart penalty (s)"}
_NO_NUMBERS = ("cluster", "gpus", "policy")


@dataclass(frozen=True)
class Dimension:
    """What varies and is a number.

    Attributes
    ----------
    key : in `Row.changes`, or the accelerator type of which there are more or fewer.
    title : what it is called.
    of_gpus : whether it is the number of GPUs of a type.
    """

    key: str
    title: str
    of_gpus: bool = False

    def value(self, row: Row) -> float:
        """Where a row stands."""
        return float(row.cluster.gpus[self.key] if self.of_gpus else row.changes[self.key])

    def has(self, row: Row) -> bool:
        """Whether a row stands anywhere."""
        return not self.of_gpus or self.key in row.cluster.gpus


@dataclass(frozen=True)
class Line:
    """Rows that differ in one dimension alone: what they have in common, and they in its order."""

    label: str
    rows: tuple[Row, ...]


def dimensions(rows: Sequence[Row]) -> list[Dimension]:
    """The dimensions along which at least `FEWEST_POINTS` rows that are else alike differ."""
    types = list(dict.fromkeys(name for row in rows for name in row.cluster.accelerators))
    found = [Dimension(name, f"{name} GPUs" if len(types) > 1 else "GPUs", of_gpus=True) for name in types]
    found += [
        Dimension(key, _NAMES.get(key, key))
        for key in rows[0].changes
        if key not in _NO_NUMBERS and all(is_number(row.changes[key]) for row in rows)
    ]
    return [each for each in found if any(len(line.rows) >= FEWEST_POINTS for line in lines_of(each, rows))]


def lines_of(dimension: Dimension, rows: Sequence[Row]) -> list[Line]:
    """The rows as lines along a dimension, in the order of their first rows."""
    groups: dict[tuple[tuple[str, str], ...], list[Row]] = {}
    for row in filter(dimension.has, rows):
        groups.setdefault(tuple(_elsewhere(dimension, row).items()), []).append(row)
    differing = {key for key in dict(next(iter(groups))) if len({dict(group)[key] for group in groups}) > 1}
    return [
        Line(
            ", ".join(text for key, text in place if key in differing and text),
            tuple(sorted(group, key=dimension.value)),
        )
        for place, group in groups.items()
    ]


def _elsewhere(dimension: Dimension, row: Row) -> dict[str, str]:
    """Where a row stands in all dimensions but one, as text."""
    others = [
        f"{name}:{n}" for name, n in row.cluster.gpus.items() if not (dimension.of_gpus and name == dimension.key)
    ]
    texts = {"cluster": ",".join(others)}
    for key, value in row.changes.items():
        if key not in _NO_NUMBERS and (dimension.of_gpus or key != dimension.key):
            texts[key] = f"{_NAMES.get(key, key).partition(' (')[0]} {_plain(value)}"
    return texts | {"policy": row.policy}


def line_chart(name: str, figure: Figure, dimension: Dimension, lines: Sequence[Line]) -> str:
    """One figure against one dimension, a curve for each line; empty where no row has the figure."""
    drawn = [(place, line, _points(figure, dimension, line)) for place, line in enumerate(lines)]
    every = np.array([point for *_, points in drawn for point in points], dtype=np.float64).reshape(-1, 2)
    if not len(every):
        return ""
    low, high = float(every[:, 0].min()), float(every[:, 0].max())
    margin = 0.05 * (high - low) or 1.0
    x = Axis(low - margin, high + margin, *_FRAME.x)
    y = Axis(0.0, float(every[:, 1].max()) * _ROOM_ABOVE or 1.0, *_FRAME.y)
    parts = [axes(_FRAME, x, y, dimension.title, "")]
    for place, line, points in drawn:
        if not points:
            continue
        across, up = (np.array(values, dtype=np.float64) for values in zip(*points, strict=True))
        texts = format_column(figure, [row.figures for row in line.rows])
        shown = [text for row, text in zip(line.rows, texts, strict=True) if np.isfinite(value_of(figure, row.figures))]
        said = f"{line.label}: " if line.label else ""
        hints = [
            f"{said}{dimension.title} {value:g}: {text} {figure.unit}".rstrip()
            for value, text in zip(across.tolist(), shown, strict=True)
        ]
        curve = dotted_curve(x.pixels(across).tolist(), y.pixels(up).tolist(), hints)
        parts.append(element("g", curve, class_=policy_class(place)))
    title, described = f"{title_of(figure)} against {dimension.title}", _described(figure, dimension, lines)
    svg = picture(name, _FRAME.width, _FRAME.height, title, described, "".join(parts), class_="chart panel")
    return element("figure", element("figcaption", escape(title_of(figure))) + svg)


def _points(figure: Figure, dimension: Dimension, line: Line) -> list[tuple[float, float]]:
    found = [(dimension.value(row), value_of(figure, row.figures)) for row in line.rows]
    return [(at, value) for at, value in found if np.isfinite(value)]


def _described(figure: Figure, dimension: Dimension, lines: Sequence[Line]) -> str:
    parts = []
    for line in lines:
        texts = format_column(figure, [row.figures for row in line.rows])
        values = ", ".join(f"{dimension.value(row):g}: {text}" for row, text in zip(line.rows, texts, strict=True))
        parts.append(f"{line.label}: {values}" if line.label else values)
    return "; ".join(parts)


def _plain(value: Any) -> str:
    return f"{value:g}" if is_number(value) else str(value)


# The page

_STYLE = """
.figures { width: auto; min-width: 50% }
.figures .ratio { color: var(--soft); display: inline-block; min-width: 3.6em; text-align: left; padding-left: .5em }
.lines { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 10px; padding: 0; list-style: none }
.lines { font-size: .86rem }
.lines svg { margin-right: 7px }
.panel { overflow: visible }
h3 { font-size: 1rem; font-weight: 620; margin: 22px 0 6px }
"""

_BARS_KEYS = ("average_jct", "average_queueing_time", "p99_jct", "loaded_utilization", "owned_cost", "deadline_ratio")


def render_page(result: WhatIf) -> str:
    """The text of the page."""
    near = "" if result.calibration is None else calibration_section(result.calibration)
    parts = [_rows(result), near, _charts(result), _next_gpus(result)]
    body = "\n".join([_heading(result), "<main>", *parts, "</main>"])
    return document(TITLE, body, style_rules(_drawn(result)) + _STYLE)


def _drawn(result: WhatIf) -> list[str]:
    """The policy of each curve, or of each bar, by its position: the page gives it the colour of that policy."""
    curves = [lines_of(each, result.rows) for each in dimensions(result.rows)]
    if not curves:
        return [row.policy for row in result.side_by_side]
    return [line.rows[0].policy for line in max(curves, key=len)]


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
    labels = [_name(row.label, place, result) for place, row in enumerate(rows)]
    how = (
        "Times are of completed jobs, waiting is the part of the average JCT without GPUs, and utilisation that up to "
        "the last arrival."
    )
    if any(column.key == "owned_cost" for column in columns):
        how += " Owned cost is the price of all GPUs from the first arrival to the makespan, busy or not."
    if len(rows) > 1:
        how += f" Behind each value its ratio (×) to that of the first row, {rows[0].label}."
    if result.recorded is not None:
        how += f" {result.recorded.label}: the schedule that the trace records, not simulated."
    return section("rows", "Side by side", how, _table([("", "")], labels, columns))


def _charts(result: WhatIf) -> str:
    """Each figure against each number that varies; bars where none does."""
    figures = [figure for figure in result.figures if figure.key in _BARS_KEYS]
    along = dimensions(result.rows)
    if along:
        body = "".join(_along(f"chart-{place}", dimension, figures, result) for place, dimension in enumerate(along))
        how = "A point is a row of the table. Axes of figures begin at 0."
        return section("charts", f"Against {' and '.join(each.title for each in along)}", how, body)
    if len(result.side_by_side) < 2:
        return ""
    labels, summaries = [row.label for row in result.side_by_side], [row.figures for row in result.side_by_side]
    shown = [f for f in figures if any(math.isfinite(value_of(f, summary)) for summary in summaries)]
    panels = "".join(figure_panels(shown, summaries, labels))
    how = f"Behind each value its ratio to that of {labels[0]}."
    return section("charts", "Figure by figure", how, f'<div class="panels">{panels}</div>')


def _along(name: str, dimension: Dimension, figures: Sequence[Figure], result: WhatIf) -> str:
    lines = lines_of(dimension, result.rows)
    legend = ""
    if len(lines) > 1:
        keys = "".join(
            f'<li class="{policy_class(place)}">{line_sample(line.label)}</li>' for place, line in enumerate(lines)
        )
        legend = f'<ul class="lines">{keys}</ul>'
    charts = [line_chart(f"{name}-{figure.key}", figure, dimension, lines) for figure in figures]
    return f'<h3>{escape(dimension.title)}</h3>{legend}<div class="panels">{"".join(charts)}</div>'


def _next_gpus(result: WhatIf) -> str:
    """What more GPUs of each type change, and their price."""
    pairs, columns = result.next_columns()
    if not pairs:
        return ""
    labels = [f"{_name(row.label, place, result)}<td>{escape(more.accelerator)}</td>" for place, row, more in pairs]
    gpus = "one more GPU" if result.more_gpus == 1 else f"{result.more_gpus} more GPUs"
    how = (
        f"Measured: each row simulated again with {gpus} of a type, and the change of its figures. It is what these "
        "very jobs would have seen: a single GPU more can also make gangs fit worse, so a small change may have any "
        "sign."
    )
    if columns and columns[-1].key == "price":
        how += (
            " The price is the policy's own answer, in the unit of its objective: the gain of the objective by one "
            "more GPU at a moment, averaged over time; it knows nothing of queues to come."
        )
    return section("next", f"What {gpus} would change", how, _table([("", ""), ("type", "")], labels, columns))


def _name(label: str, place: int, result: WhatIf) -> str:
    """The heading of a row, with its colour where bars have it: curves have colours of their own."""
    bars = len(result.side_by_side) > 1 and not dimensions(result.rows)
    swatch = f'<i class="swatch {policy_class(place)}" aria-hidden="true"></i>' if bars else ""
    return f'<th scope="row">{swatch}{escape(label)}</th>'


def _table(heads: Sequence[tuple[str, str]], labels: Sequence[str], columns: Sequence[Column]) -> str:
    """A table of rows, of each of which the first cells are there, and columns of figures behind them."""
    said = [*heads, *((column.title, column.figure.about) for column in columns)]
    lines = []
    for place, label in enumerate(labels):
        cells = ""
        for column in columns:
            ratio = column.ratios and len(column.texts) > 1 and f'<span class="ratio">{column.ratios[place]}</span>'
            cells += f"<td>{escape(column.texts[place])}{ratio or ''}</td>"
        lines.append(f"<tr>{label}{cells}</tr>")
    return table(plain_heads(said), lines)


# Files


def write_scenarios(result: WhatIf, folder: Path) -> Path:
    """Write rows.csv, whatif.json, whatif.html and a folder with jobs.csv for each row; returns the page.

    With more GPUs there is next_gpus.csv too. Each file is replaced in one step, the page last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for place, row in enumerate(result.side_by_side):
        if row.jobs is not None:
            own = folder / folder_of(place, row.label)
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


def folder_of(place: int, label: str) -> str:
    """Name of the folder of a row: its number, and its label as far as it can stand in a name."""
    return f"{place + 1}-{folder_of_label(label)}"[:100]
