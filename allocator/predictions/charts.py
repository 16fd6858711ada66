"""Charts of the page: shape functions, and predicted against true durations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from allocator.report.svg import Axis, Frame, axes, dotted_curve, element, picture
from throughputs.predict import DurationPredictions
from throughputs.predict.durations import Shape
from throughputs.shown import escape

_Floats = NDArray[np.float64]

_PANEL = Frame(width=440, height=250, left=58, top=10, bottom=44)
_WIDE = Frame(width=760, height=380)
_ROW, _LABEL, _VALUE = 22, 150, 60
_LONGEST = 20

_SPREAD = 50.0
"""A column whose largest value is so many times its smallest is drawn on a logarithmic axis."""

_GROUPS = 12
"""Groups of equally many jobs, by their predictions, of which predicted and true durations are compared."""


def shape_chart(name: str, shape: Shape, reach: tuple[float, float]) -> str:
    """The factor by which predictions change with a column; `reach` is the range of factors of all charts."""
    figure = _rows(name, shape, reach) if shape.labels else _curve(name, shape, reach)
    return element("figure", element("figcaption", escape(shape.name)) + figure)


def _curve(name: str, shape: Shape, reach: tuple[float, float]) -> str:
    low, high = float(shape.values[0]), float(shape.values[-1])
    log = low > 0 and high / low > _SPREAD
    x, y = Axis(low, high, *_PANEL.x, log=log), Axis(*reach, *_PANEL.y, log=True)
    across, up = x.pixels(shape.values).tolist(), y.pixels(shape.factors).tolist()
    parts = [
        axes(_PANEL, x, y, "seconds" if shape.name.startswith(("last, ", "mean, ")) else shape.name, "factor"),
        _one(y),
    ]
    points = zip(shape.values.tolist(), shape.factors.tolist(), strict=True)
    hints = [f"{shape.name} {value:.6g}: {_times(factor)}" for value, factor in points]
    parts.append(element("g", dotted_curve(across, up, hints, 3), class_="c0"))
    return _svg(name, parts, _PANEL.width, _PANEL.height, shape)


def _rows(name: str, shape: Shape, reach: tuple[float, float]) -> str:
    width, height = _PANEL.width, _ROW * len(shape.labels) + 6
    x = Axis(*reach, _LABEL, width - _VALUE, log=True)
    begin = float(x.pixels(np.ones(1))[0])
    ends = x.pixels(shape.factors).tolist()
    parts = []
    for row, (label, end, factor) in enumerate(zip(shape.labels, ends, shape.factors.tolist(), strict=True)):
        middle = _ROW * row + _ROW / 2 + 2
        text = label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"
        share = f"{label}: {100 * shape.weights[row]:.1f} % of the jobs"
        parts.append(
            element("text", escape(text) + element("title", escape(share)), x=_LABEL - 8, y=middle + 4,
                    text_anchor="end", class_="name")
        )  # fmt: skip
        left, length = min(begin, end), abs(end - begin)
        bar = element("rect", x=round(left, 1), y=middle - 7, width=round(length, 1), height=14, class_="bar")
        parts.append(element("g", bar, class_="c0"))
        parts.append(element("text", _times(factor), x=width - 4, y=middle + 4, text_anchor="end", class_="value"))
    parts.append(element("path", d=f"M{begin:.1f} 0V{height}", class_="axis"))
    return _svg(name, parts, width, height, shape)


def _one(y: Axis) -> str:
    """The line of no change."""
    at = float(y.pixels(np.ones(1))[0])
    left, right = _PANEL.x
    return element("path", d=f"M{left} {at:.1f}H{right}", class_="reference")


def _times(factor: float) -> str:
    return f"×{factor:.2f}" if factor < 10 else f"×{factor:.0f}"


def _svg(name: str, parts: list[str], width: int, height: int, shape: Shape) -> str:
    names = shape.labels or tuple(f"{value:.4g}" for value in shape.values)
    said = "; ".join(f"{at}: {_times(factor)}" for at, factor in zip(names, shape.factors.tolist(), strict=True))
    title = f"Predictions by {shape.name}"
    return picture(name, width, height, title, said, "".join(parts), class_="chart panel")


def agreement_chart(predictions: DurationPredictions) -> str:
    """True durations by groups of predictions: median and the middle half; empty with too few jobs."""
    same = np.flatnonzero(~np.isnan(predictions.seconds + predictions.duration))
    if len(same) < 4 * _GROUPS:
        return ""
    order = same[np.argsort(predictions.seconds[same], kind="stable")]
    groups = np.array_split(order, _GROUPS)
    predicted = np.array([np.median(predictions.seconds[group]) for group in groups])
    quarters = np.array([np.quantile(predictions.duration[group], (0.25, 0.5, 0.75)) for group in groups])
    low = float(min(predicted.min(), quarters.min())) * 0.8
    high = float(max(predicted.max(), quarters.max())) * 1.25
    x, y = Axis(low, high, *_WIDE.x, log=True), Axis(low, high, *_WIDE.y, log=True)
    across = x.pixels(predicted).tolist()
    bottoms, middles, tops = (y.pixels(column).tolist() for column in quarters.T)
    (left, right), (bottom, top) = _WIDE.x, _WIDE.y
    parts = [
        axes(_WIDE, x, y, "predicted (s)", "true (s)"),
        element("path", d=f"M{left} {bottom}L{right} {top}", class_="reference"),
    ]
    inside = ""
    for place, (at, q1, q2, q3) in enumerate(zip(across, bottoms, middles, tops, strict=True)):
        said = f"{len(groups[place]):,} jobs, predicted {predicted[place]:,.0f} s: half of them took "
        said += f"{quarters[place, 0]:,.0f} to {quarters[place, 2]:,.0f} s, the median {quarters[place, 1]:,.0f} s"
        inside += element("path", d=f"M{at:.1f} {q1:.1f}V{q3:.1f}", class_="curve")
        inside += element("circle", element("title", said), cx=round(at, 1), cy=round(q2, 1), r=4, class_="bar")
    parts.append(element("g", inside, class_="c0"))
    described = "; ".join(f"{a:.0f} s: {b:.0f} s" for a, b in zip(predicted, quarters[:, 1], strict=True))
    title, size = "Predicted against true durations", (_WIDE.width, _WIDE.height)
    return picture("agreement", *size, title, described, "".join(parts), class_="chart panel")
