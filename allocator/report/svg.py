"""The little of SVG that the charts need: axes, ticks, step paths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from throughputs.arrays import Floats
from throughputs.shown import escape


def element(tag: str, content: str = "", **attributes: object) -> str:
    """One element; `content` is markup, values are escaped; names lose a last ``_``, others become ``-``."""
    names = ((name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items() if value is not None)
    inside = "".join(f' {name}="{escape(_number(value))}"' for name, value in names)
    return f"<{tag}{inside}>{content}</{tag}>"


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Axis:
    """Map from values [low, high] to pixels [start, stop]; `low` is positive when `log`."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def pixels(self, values: Floats) -> Floats:
        """Pixel of each value."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        inner = np.log(values) if self.log else values
        return np.asarray(self.start + (inner - low) / (high - low) * (self.stop - self.start))

    def ticks(self) -> list[float]:
        """Round values inside the axis."""
        return log_ticks(self.low, self.high) if self.log else linear_ticks(self.low, self.high)


def linear_ticks(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, at most eight of them."""
    raw = (high - low) / 8
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten where there is room for them, otherwise powers of ten."""
    factors = (1, 2, 5) if math.log10(high / low) < 3 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    slack = 1 + 1e-9
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    return [tick for tick in ticks if low <= tick * slack and tick <= high * slack]


def step_path(x: Floats, y: Floats) -> str:
    """Path at y[k] from x[k] to x[k + 1], in tenths of a pixel; points within one tenth are merged."""
    if not len(x):
        return ""
    x, y = np.round(x, 1), np.round(y, 1)
    last_of_column = np.append(np.diff(x) != 0, True)
    last_of_column[0] = True
    x, y = x[last_of_column], y[last_of_column]
    steps = "".join(f"H{a:g}V{b:g}" for a, b in zip(x[1:].tolist(), y[1:].tolist(), strict=True))
    return f"M{x[0]:g} {y[0]:g}{steps}"


@dataclass(frozen=True)
class Frame:
    """Pixels of a chart and of the area inside its axes."""

    width: int = 960
    height: int = 340
    left: int = 58
    right: int = 22
    top: int = 12
    bottom: int = 46

    @property
    def x(self) -> tuple[int, int]:
        """Left and right end of the area."""
        return self.left, self.width - self.right

    @property
    def y(self) -> tuple[int, int]:
        """Bottom and top end of the area: values grow upwards."""
        return self.height - self.bottom, self.top


def picture(name: str, width: int, height: int, title: str, described: str, content: str, **attributes: object) -> str:
    """A whole picture of so many pixels with a title and a description for those who cannot see it."""
    words = element("title", escape(title), id=f"{name}-title") + element("desc", escape(described), id=f"{name}-desc")
    labelled = {"role": "img", "aria_labelledby": f"{name}-title {name}-desc"}
    return element("svg", words + content, viewBox=f"0 0 {width} {height}", **labelled, **attributes)


def dotted_curve(across: Sequence[float], up: Sequence[float], hints: Sequence[str], radius: float = 3.5) -> str:
    """A curve through points in pixels, each with a dot that says something when one points at it."""
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(across, up, strict=True))
    inside = element("path", d=path, class_="curve")
    for a, b, hint in zip(across, up, hints, strict=True):
        told = element("title", escape(hint))
        inside += element("circle", told, cx=round(a, 1), cy=round(b, 1), r=radius, class_="bar")
    return inside


def axes(
    frame: Frame,
    x: Axis,
    y: Axis,
    x_label: str,
    y_label: str,
    y_percent: bool = False,
    x_ticks: Sequence[tuple[float, str]] | None = None,
) -> str:
    """Grid lines, tick labels and names of both axes; `x_ticks` with their texts stand for round values."""
    left, right = frame.x
    bottom, top = frame.y
    parts = []
    labelled = [(tick, _tick_label(tick)) for tick in x.ticks()] if x_ticks is None else x_ticks
    for (_, text), at in zip(labelled, x.pixels(np.array([tick for tick, _ in labelled])), strict=True):
        parts.append(element("path", d=f"M{at:.1f} {bottom}V{top}", class_="grid"))
        parts.append(element("text", text, x=float(at), y=bottom + 17, text_anchor="middle", class_="tick"))
    for tick, at in zip(y.ticks(), y.pixels(np.array(y.ticks())), strict=True):
        label = f"{100 * tick:.0f}%" if y_percent else _tick_label(tick)
        parts.append(element("path", d=f"M{left} {at:.1f}H{right}", class_="grid"))
        parts.append(element("text", label, x=left - 8, y=float(at) + 4, text_anchor="end"))
    parts.append(element("path", d=f"M{left} {bottom}H{right}", class_="axis"))
    middle_x, middle_y = (left + right) / 2, (bottom + top) / 2
    parts.append(element("text", escape(x_label), x=middle_x, y=bottom + 38, text_anchor="middle", class_="name"))
    turned = f"translate(13 {middle_y:g}) rotate(-90)"
    parts.append(element("text", escape(y_label), transform=turned, text_anchor="middle", class_="name"))
    return "".join(parts)


def _tick_label(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
