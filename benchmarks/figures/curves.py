"""Curves against load, and cumulative distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.figures.labels import LineEnd, key, name_lines
from benchmarks.figures.means import intervals, summary
from benchmarks.figures.style import looks

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

WHISKERS = 6
"""Up to so many loads intervals are lines beside each other, since bands of several series would hide each other."""


def curves(
    axes: Axes,
    results: pd.DataFrame,
    *,
    load: str,
    value: str,
    unit: float = 1.0,
    series: str = "policy",
    published: pd.DataFrame | None = None,
    top: float | None = None,
    bottom: float | None = 0.0,
    names: bool = True,
    logarithmic: bool = False,
) -> pd.DataFrame:
    """A line per series: `value` against `load`, with intervals, saturated loads and names.

    Parameters
    ----------
    axes : where to draw.
    results, load, value, unit, series : see `summary`.
    published : figures to compare with, columns `series`, `load` and ``value`` (in the unit of the axis): hollow
        markers.
    top, bottom : ends of the axis; None: what the lines need, intervals may be cut.
    names : whether lines are named.
    logarithmic : a logarithmic vertical axis, from below the lowest figure; else it begins at 0.

    Returns
    -------
    pandas.DataFrame
        What was drawn, as `summary` gives it.
    """
    table = summary(results, load=load, value=value, unit=unit, series=series)
    bottom = min(0.0, 1.15 * float(np.nanmin([0.0, *table["mean"]]))) if bottom is None else bottom
    styles = looks(table[series])
    ends = []
    loads = table[load].unique()
    for position, (label, style) in enumerate(styles.items()):
        rows = table[table[series] == label]
        done = rows[(rows["status"] == "completed") & rows["mean"].notna()]
        axes.plot(done[load], done["mean"], **style, zorder=4)
        known = done[done["half_width"].notna()]
        if len(known) and len(loads) <= WHISKERS:
            aside = 0.012 * (position - (len(styles) - 1) / 2)
            at = known[load]
            at = at * (loads.max() / loads.min()) ** aside if axes.get_xscale() == "log" else at + aside * np.ptp(loads)
            low = known["mean"] - known["half_width"]
            axes.vlines(
                at,
                low,
                known["mean"] + known["half_width"],
                color=style["color"],
                linewidth=1,
                alpha=0.7,
            )
        elif len(known):
            low = np.maximum(known["mean"] - known["half_width"], bottom)
            axes.fill_between(
                known[load], low, known["mean"] + known["half_width"], color=style["color"], alpha=0.15, linewidth=0
            )
        if len(done):
            ends.append(LineEnd(label, style["color"], float(done[load].iloc[-1]), float(done["mean"].iloc[-1])))
        if published is not None:
            printed = published[published[series] == label]
            axes.plot(
                printed[load],
                printed["value"],
                **{**style, "linestyle": "none"},
                markerfacecolor="none",
                markersize=7,
                alpha=0.8,
            )
    top = _top(table, published) if top is None else top
    if logarithmic:
        _logarithmic(axes, 0.7 * float(table["mean"].min()), 1.2 * top)
    else:
        axes.set_ylim(bottom, top)
    crossed = [
        _mark_saturation(axes, table[table[series] == label], load, style, top) for label, style in styles.items()
    ]
    notes = ["dotted, \N{MULTIPLICATION SIGN}: saturated"] if any(crossed) else []
    if (table["status"] == "failed").any():
        notes.append("gaps: runs that failed")
    if published is not None and len(published):
        notes.append("hollow: published")
    if notes:
        axes.set_title("; ".join(notes), fontsize=8, loc="right", color="#777777")
    if names:
        name_lines(axes, ends)
    return table


def _logarithmic(axes: Axes, low: float, high: float) -> None:
    """A logarithmic vertical axis with plain numbers at 1, 2 and 5 times the powers of ten."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _top(table: pd.DataFrame, published: pd.DataFrame | None) -> float:
    """Upper end of the axis: the lines and the published figures fit, wide bands may be cut."""
    highest = [float(table["mean"].max())]
    if published is not None and len(published):
        highest.append(float(published["value"].max()))
    known = [figure for figure in highest if np.isfinite(figure)]
    return 1.15 * max(known) if known and max(known) > 0 else 1.0


def _mark_saturation(axes: Axes, rows: pd.DataFrame, load: str, style: Mapping[str, Any], top: float) -> bool:
    """A cross at the top for the smallest load that saturated, with a dashed line from the last point before it."""
    saturated = rows[rows["status"] == "saturated"]
    if not len(saturated):
        return False
    at, height = float(saturated[load].min()), 0.97 * top
    before = rows[(rows["status"] == "completed") & (rows[load] < at)]
    if len(before):
        last = before.iloc[-1]
        axes.plot(
            [last[load], at], [last["mean"], height], linestyle=(0, (1, 1.5)), linewidth=1.1, color=style["color"]
        )
    axes.plot([at], [height], marker="x", markersize=7, markeredgewidth=2, color=style["color"], zorder=5)
    return True


def by_draw(table: pd.DataFrame, value: str, *, series: str = "policy", draw: str = "seed") -> dict[str, list[Any]]:
    """A column as `cumulative` takes it: for each series, in the order in which they come, its figures draw by draw."""
    return {
        name: [figures[value].to_numpy() for _, figures in rows.groupby(draw)]
        for name, rows in table.groupby(series, sort=False)
    }


def cumulative(
    axes: Axes, values: Mapping[str, Sequence[Any]], *, unit: float = 1.0, logarithmic: bool = False
) -> None:
    """Cumulative distributions, one line per name, with a key in which the names stand in their colours.

    Parameters
    ----------
    axes : where to draw.
    values : by name, the figures of each draw (`by_draw`), in any order; nan (jobs that did not complete) count as
        never reached. A line is the mean over draws, its band the 95 % confidence interval of that mean.
    unit : what the figures are divided by.
    """
    styles = looks(values)
    for name, draws in values.items():
        given = [np.sort(np.asarray(draw, dtype=np.float64) / unit) for draw in draws]
        together = np.unique(np.concatenate(given))
        known = together[~np.isnan(together)]
        shares = np.array([np.searchsorted(draw, known, side="right") / max(len(draw), 1) for draw in given])
        mean, half_width = intervals(shares)
        axes.step(known, mean, where="post", color=styles[name]["color"], linestyle=styles[name]["linestyle"])
        if len(given) > 1:
            low, high = np.maximum(mean - half_width, 0.0), np.minimum(mean + half_width, 1.0)
            axes.fill_between(known, low, high, step="post", color=styles[name]["color"], alpha=0.12, linewidth=0)
    axes.set_ylim(0, 1.02)
    if logarithmic:
        axes.set_xscale("log")
    axes.set_ylabel("share of jobs")
    key(axes, {name: style["color"] for name, style in styles.items()})
