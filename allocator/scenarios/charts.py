"""Figures of scenarios against what varies: the number of GPUs, the load, a penalty, any setting that is a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.report.charts import policy_class
from allocator.report.figures import Figure, format_column, value_of
from allocator.report.svg import Axis, Frame, axes, element
from allocator.scenarios.figures import title_of
from allocator.scenarios.result import Row
from throughputs.shown import escape

_FRAME = Frame(width=460, height=250, left=56, right=14, top=12, bottom=46)
_ROOM_ABOVE = 1.08
_POINT = 3.5

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
    """The dimensions along which at least two rows that are else alike differ."""
    types = list(dict.fromkeys(name for row in rows for name in row.cluster.accelerators))
    found = [Dimension(name, f"{name} GPUs" if len(types) > 1 else "GPUs", of_gpus=True) for name in types]
    found += [
        Dimension(key, _NAMES.get(key, key))
        for key in rows[0].changes
        if key not in _NO_NUMBERS and all(_is_number(row.changes[key]) for row in rows)
    ]
    return [each for each in found if any(len(line.rows) > 1 for line in lines_of(each, rows))]


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
    parts = [
        element("title", escape(f"{title_of(figure)} against {dimension.title}"), id=f"{name}-title"),
        element("desc", escape(_described(figure, dimension, lines)), id=f"{name}-desc"),
        axes(_FRAME, x, y, dimension.title, ""),
    ]
    for place, line, points in drawn:
        if not points:
            continue
        across, up = (np.array(values, dtype=np.float64) for values in zip(*points, strict=True))
        pixels = list(zip(x.pixels(across).tolist(), y.pixels(up).tolist(), strict=True))
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in pixels)
        inside = element("path", d=path, class_="curve")
        texts = format_column(figure, [row.figures for row in line.rows])
        shown = [text for row, text in zip(line.rows, texts, strict=True) if np.isfinite(value_of(figure, row.figures))]
        for (a, b), (value, _), text in zip(pixels, points, shown, strict=True):
            said = f"{line.label}: " if line.label else ""
            hint = element("title", escape(f"{said}{dimension.title} {value:g}: {text} {figure.unit}".rstrip()))
            inside += element("circle", hint, cx=round(a, 1), cy=round(b, 1), r=_POINT, class_="bar")
        parts.append(element("g", inside, class_=policy_class(place)))
    svg = element(
        "svg",
        "".join(parts),
        class_="chart panel",
        viewBox=f"0 0 {_FRAME.width} {_FRAME.height}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )
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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: Any) -> str:
    return f"{value:g}" if _is_number(value) else str(value)
