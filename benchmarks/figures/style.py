"""One look for all pictures: quiet axes, Okabe and Ito's colours, a marker of its own for every line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "FAINT", "INK", "looks", "panels", "use_style"]

COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, FAINT = "#333333", "#E4E4E4"


def use_style() -> None:
    """Set matplotlib's defaults for this process: quiet axes, small pictures."""
    import matplotlib

    matplotlib.rcParams.update(
        {
            "figure.dpi": 90,
            "savefig.dpi": 90,
            "figure.facecolor": "white",
            "figure.constrained_layout.use": True,
            "font.size": 9.5,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": "#AAAAAA",
            "axes.titlesize": 10.5,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": FAINT,
            "grid.linewidth": 0.7,
            "xtick.color": INK,
            "ytick.color": INK,
            "lines.linewidth": 1.8,
            "lines.markersize": 4.5,
        }
    )


def panels(count: int, *, width: float = 5.0, height: float = 3.2, **settings: Any) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels side by side, each so many inches wide and high."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, count, figsize=(width * count, height), squeeze=False, **settings)
    return figure, list(axes[0])


def looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and marker for each name, in the order in which they come."""
    distinct = list(dict.fromkeys(names))
    return {
        name: {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        for i, name in enumerate(distinct)
    }
