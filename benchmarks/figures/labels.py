"""Names of lines: at their ends, moved apart where they would overlap, or stacked in a corner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE_POINTS = 11.0
"""Least distance between two names, in points."""


class LineEnd(NamedTuple):
    """Where a line ends, in the units of the axes."""

    name: str
    colour: str
    x: float
    y: float


def name_lines(axes: Axes, ends: Sequence[LineEnd]) -> None:
    """Names of lines at the right border, level with where each line ends, moved apart where they would overlap.

    Parameters
    ----------
    axes : with its limits as they will be.
    ends : of the lines.
    """
    axes.figure.canvas.draw()  # the height of the panel is known only now
    height = axes.get_window_extent().height / axes.figure.dpi * 72
    heights = [float(axes.transAxes.inverted().transform(axes.transData.transform((end.x, end.y)))[1]) for end in ends]
    for end, at in zip(ends, apart(heights, LINE_POINTS / height), strict=True):
        axes.annotate(
            end.name,
            xy=(end.x, end.y),
            xytext=(1.03, at),
            textcoords="axes fraction",
            color=end.colour,
            fontsize=8.5,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": end.colour, "linewidth": 0.6, "alpha": 0.5, "shrinkB": 3},
        )


def apart(heights: Sequence[float], gap: float) -> list[float]:
    """The same heights, moved as little as needed for neighbours to be `gap` apart, in the same order."""
    order = np.argsort(heights, kind="stable")
    raised = np.asarray(heights, dtype=np.float64)[order] - gap * np.arange(len(heights))
    # Least squares under an order is isotonic regression: neighbours that would cross are pooled at their mean.
    pools: list[list[float]] = []
    for figure in raised:
        pools.append([float(figure), 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, count = pools.pop()
            total = pools[-1][1] + count
            pools[-1] = [(pools[-1][0] * pools[-1][1] + mean * count) / total, total]
    settled = np.concatenate([np.full(int(count), mean) for mean, count in pools]) if pools else np.empty(0)
    placed = np.empty(len(heights))
    placed[order] = settled + gap * np.arange(len(heights))
    return [float(at) for at in placed]


def key(
    axes: Axes,
    colours: Mapping[str, str],
    *,
    x: float = 0.98,
    y: float = 0.04,
    align: Literal["left", "right"] = "right",
) -> None:
    """Names in their colours, stacked from the corner (x, y) upwards, in fractions of the panel."""
    for i, (name, colour) in enumerate(reversed(list(colours.items()))):
        axes.annotate(
            name,
            (x, y),
            xycoords="axes fraction",
            xytext=(0, i * LINE_POINTS),
            textcoords="offset points",
            color=colour,
            fontsize=8.5,
            ha=align,
            va="bottom",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.8},
        )
