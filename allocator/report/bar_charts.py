"""Figures as bars, one panel each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from allocator.report.charts import policy_class
from allocator.report.figures import Figure, Rows, best_rows, format_column, title_of, value_of
from allocator.report.presentation import Presentation
from allocator.report.svg import element, picture
from throughputs.shown import escape

_WIDTH, _ROW, _TOP, _LABEL, _VALUE = 460, 26, 6, 118, 104
"""Pixels of a panel: its width, the height of a row, the space above, room for labels and for values."""

_LONGEST_LABEL = 17


def bar_panels(summaries: Rows) -> list[str]:
    """What the preset of the runs shows as bars, as SVG, one for each figure; empty where it shows none.

    Bars carry ``data-policy`` so that the legend can hide them.
    """
    if not summaries:
        return []
    shown = Presentation.of(summaries)
    return figure_panels(shown.bars, summaries, shown.labels, "bars")


def figure_panels(figures: Sequence[Figure], summaries: Rows, labels: Sequence[str], name: str = "figure") -> list[str]:
    """Any figures of any runs as such SVG; `labels` are the names of the rows."""
    return [_panel(f"{name}-{number}", figure, summaries, labels) for number, figure in enumerate(figures)]


def _panel(name: str, figure: Figure, summaries: Rows, labels: Sequence[str]) -> str:
    values, texts = [value_of(figure, summary) for summary in summaries], format_column(figure, summaries)
    best, first = best_rows(figure, summaries), values[0]
    longest = max((value for value in values if math.isfinite(value)), default=0.0)
    height = _TOP + _ROW * len(labels) + 2
    parts = []
    for row, (label, value, text) in enumerate(zip(labels, values, texts, strict=True)):
        middle = _TOP + _ROW * row + _ROW / 2
        known = math.isfinite(value)
        length = (_WIDTH - _LABEL - _VALUE) * value / longest if known and longest > 0 else 0.0
        shown = escape(text)
        if row and known and math.isfinite(first) and first > 0:
            shown += element("tspan", f"×{value / first:.2f}", class_="ratio", dx=7)
        parts += [
            f'<g class="row {policy_class(row)}" data-policy="{row}">',
            element("text", escape(_short(label)), x=_LABEL - 8, y=middle + 4, text_anchor="end", class_="name"),
            element("rect", x=_LABEL, y=middle - 9, width=round(length, 1), height=18, class_="bar"),
            element(
                "text", shown, x=_LABEL + length + 6, y=middle + 4, class_="value best" if row in best else "value"
            ),
            "</g>",
        ]
    parts.append(element("path", d=f"M{_LABEL} {_TOP}V{height - 2}", class_="axis"))
    title = title_of(figure)
    described = "; ".join(f"{label}: {text}" for label, text in zip(labels, texts, strict=True))
    svg = picture(name, _WIDTH, height, title, described, "".join(parts), class_="chart panel")
    return element("figure", element("figcaption", escape(title)) + svg)


def _short(label: str) -> str:
    """The label in so many characters; what is left out is in its middle, as settings at its end tell runs apart."""
    if len(label) <= _LONGEST_LABEL:
        return label
    end = (_LONGEST_LABEL - 1) // 2
    return f"{label[: _LONGEST_LABEL - 1 - end]}…{label[-end:]}"
