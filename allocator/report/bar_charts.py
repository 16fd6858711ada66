"""Figures as bars, one panel each, on the terminal and on the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allocator.report.charts import policy_class
from allocator.report.figures import Figure, best_rows, format_column, value_of
from allocator.report.presentation import Presentation
from allocator.report.svg import element
from throughputs.shown import escape

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_TERMINAL_PANEL = 56
"""Columns of a panel on the terminal; two stand side by side where there is room."""

_TERMINAL_LABEL = 25
"""Columns of a label there."""

_WIDTH, _ROW, _TOP, _LABEL, _VALUE = 460, 26, 6, 118, 104
"""Pixels of a panel: its width, the height of a row, the space above, room for labels and for values."""


@dataclass(frozen=True)
class _Panel:
    """One figure of all policies.

    Attributes
    ----------
    title : the figure with its unit.
    labels, texts, ratios : of each row; ratios to the first row.
    lengths : of the bars, the longest 1; nan where there is no value.
    best : rows with the best value.
    """

    title: str
    labels: tuple[str, ...]
    texts: tuple[str, ...]
    ratios: tuple[str, ...]
    lengths: tuple[float, ...]
    best: frozenset[int]

    @classmethod
    def of(cls, figure: Figure, summaries: Sequence[Mapping[str, Any]], labels: tuple[str, ...]) -> _Panel:
        values = [value_of(figure, summary) for summary in summaries]
        longest = max((value for value in values if math.isfinite(value)), default=0.0)
        first = values[0]
        return cls(
            title=f"{figure.heading} ({figure.unit})" if figure.unit else figure.heading,
            labels=labels,
            texts=tuple(format_column(figure, summaries)),
            ratios=tuple(
                f"x{value / first:.2f}" if math.isfinite(value) and math.isfinite(first) and first > 0 else ""
                for value in values
            ),
            lengths=tuple(
                value / longest if math.isfinite(value) and longest > 0 else (0.0 if value == 0 else math.nan)
                for value in values
            ),
            best=frozenset(best_rows(figure, summaries)),
        )


def _panels(summaries: Sequence[Mapping[str, Any]]) -> list[_Panel]:
    if not summaries:
        return []
    shown = Presentation.of(summaries)
    return [_Panel.of(figure, summaries, shown.labels) for figure in shown.bars]


def terminal_bars(summaries: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """What the preset of the runs shows as bars, ready to be printed; empty where it shows none.

    Parameters
    ----------
    summaries : one mapping per policy, as `SimulationResult.summary` returns it, with its settings under "settings".
    """
    panels = _panels(summaries)
    return [_Bars(panels)] if panels else []


@dataclass(frozen=True)
class _Bars:
    """Panels of bars, two side by side where there is room."""

    panels: Sequence[_Panel]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table
        from rich.text import Text

        beside = 2 if options.max_width >= 2 * _TERMINAL_PANEL + 3 else 1
        width = min(_TERMINAL_PANEL, options.max_width)
        grid = Table.grid(padding=(0, 3, 0, 0))
        for _ in range(beside):
            grid.add_column(width=width, no_wrap=True)
        cells: list[Text] = [_panel_text(panel, width, plain=options.ascii_only) for panel in self.panels]
        for start in range(0, len(cells), beside):
            grid.add_row(*cells[start : start + beside])
            grid.add_row()
        yield grid
        yield Text(f"* best; x: times that of {self.panels[0].labels[0]}\n", style="dim italic")


def _panel_text(panel: _Panel, width: int, *, plain: bool) -> Any:
    from rich.text import Text

    names = [_short(name, _TERMINAL_LABEL) for name in panel.labels]
    label, text = (max(map(len, column)) for column in (names, panel.texts))
    room = max(width - label - text - max(map(len, panel.ratios)) - 5, 4)
    lines = Text(panel.title, style="bold")
    for row, name in enumerate(names):
        best = row in panel.best
        lines.append(f"\n{name:<{label}} ", style="")
        lines.append(_bar(panel.lengths[row], room, plain), style="green" if best else "blue")
        lines.append(f" {panel.texts[row]:>{text}}{'*' if best else ' '} ", style="bold green" if best else "")
        lines.append(panel.ratios[row], style="dim")
    return lines


def _bar(length: float, room: int, plain: bool) -> str:
    """A bar of that share of the room, padded to all of it."""
    if math.isnan(length):
        return " " * room
    if plain:
        return ("#" * round(length * room)).ljust(room)
    eighths = round(length * room * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()).ljust(room)


def bar_panels(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same as SVG, one for each figure; bars carry ``data-policy`` so that the legend can hide them."""
    return [_panel_svg(f"bars-{number}", panel) for number, panel in enumerate(_panels(summaries))]


def figure_panels(
    figures: Sequence[Figure], summaries: Sequence[Mapping[str, Any]], labels: Sequence[str]
) -> list[str]:
    """Any figures of any runs as such SVG; `labels` are the names of the rows."""
    panels = (_Panel.of(figure, summaries, tuple(labels)) for figure in figures)
    return [_panel_svg(f"figure-{number}", panel) for number, panel in enumerate(panels)]


def _panel_svg(name: str, panel: _Panel) -> str:
    height = _TOP + _ROW * len(panel.labels) + 2
    room = _WIDTH - _LABEL - _VALUE
    described = "; ".join(f"{label}: {text}" for label, text in zip(panel.labels, panel.texts, strict=True))
    parts = [
        element("title", escape(panel.title), id=f"{name}-title"),
        element("desc", escape(described), id=f"{name}-desc"),
    ]
    for row, label in enumerate(panel.labels):
        middle = _TOP + _ROW * row + _ROW / 2
        length = 0.0 if math.isnan(panel.lengths[row]) else panel.lengths[row] * room
        inside = element(
            "text", escape(_short(label, _LONGEST_LABEL)), x=_LABEL - 8, y=middle + 4, text_anchor="end", class_="name"
        )
        inside += element("rect", x=_LABEL, y=middle - 9, width=round(length, 1), height=18, class_="bar")
        kind = "value best" if row in panel.best else "value"
        value = escape(panel.texts[row])
        if panel.ratios[row] and row:
            value += element("tspan", escape(panel.ratios[row].replace("x", "×")), class_="ratio", dx=7)
        inside += element("text", value, x=_LABEL + length + 6, y=middle + 4, class_=kind)
        parts.append(element("g", inside, class_=f"row {policy_class(row)}", data_policy=row))
    parts.append(element("path", d=f"M{_LABEL} {_TOP}V{height - 2}", class_="axis"))
    svg = element(
        "svg",
        "".join(parts),
        class_="chart panel",
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )
    return element("figure", element("figcaption", escape(panel.title)) + svg)


def _short(label: str, longest: int) -> str:
    """The label in so many characters; what is left out is in its middle, as settings at its end tell runs apart."""
    if len(label) <= longest:
        return label
    end = (longest - 1) // 2
    return f"{label[: longest - 1 - end]}…{label[-end:]}"


_LONGEST_LABEL = 17
