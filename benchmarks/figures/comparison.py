"""Policies beside each other: bars for one figure, and one figure against another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures.means import interval
from benchmarks.figures.style import INK, looks
from throughputs import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def bars(
    axes: Axes,
    results: pd.DataFrame,
    *,
    value: str,
    unit: float = 1.0,
    series: str = "policy",
    digits: int = 2,
    names: bool = True,
    published: Mapping[str, float] | None = None,
) -> None:
    """A horizontal bar for each series, the first one on top: the mean over seeds, with its figure at the end.

    A line through the end is the 95 % confidence interval of the mean, if there are seeds enough for one. A series of
    which a run did not complete has no bar.

    Parameters
    ----------
    axes : where to draw.
    results : of a sweep, one row per run.
    value, series : columns; of `value` in `unit`.
    digits : of the figures.
    names : whether the series are named at the left.
    published : figures by series, in `unit`, drawn as hollow marks.

    Raises
    ------
    InputError
        A column is missing.
    """
    from matplotlib.patheffects import withStroke

    _check_columns(results, (series, value, "status"))
    styles = looks(results[series])
    outline = [withStroke(linewidth=2.4, foreground="white")]
    ends = []
    for place, (label, style) in enumerate(styles.items()):
        rows = results[results[series] == label]
        done = (rows["status"] == "completed").all()
        mean, half_width = interval(rows[value].to_numpy(dtype=np.float64) / unit) if done else (np.nan, np.nan)
        known = (published or {}).get(label, np.nan)
        marks = [figure for figure in (mean, mean + half_width, known) if np.isfinite(figure)]
        ends.append(max(marks, default=0.0))
        if np.isfinite(mean):
            axes.barh(place, mean, height=0.66, color=style["color"], alpha=0.85)
        if np.isfinite(half_width):
            span = [mean - half_width, mean + half_width]
            axes.plot(span, [place, place], color=INK, linewidth=1.1, path_effects=outline)
        if np.isfinite(known):
            axes.plot(
                known,
                place,
                linestyle="none",
                marker="D",
                markerfacecolor="none",
                color=INK,
                markersize=6,
                path_effects=outline,
            )
        text = f"{mean:.{digits}f}" if np.isfinite(mean) else "not completed"
        gap = 8 if ends[-1] == known else 5  # points
        axes.annotate(
            text, (ends[-1], place), xytext=(gap, 0), textcoords="offset points", va="center", fontsize=8.5, color=INK
        )
    axes.set_yticks(range(len(styles)), list(styles) if names else [""] * len(styles))
    axes.set_ylim(len(styles) - 0.45, -0.55)
    axes.set_xlim(0, 1.22 * max(ends, default=1.0) or 1.0)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def pareto_front(points: Any) -> NDArray[np.intp]:
    """Positions of those points to which no other is equal or better in every figure and better in one.

    Parameters
    ----------
    points : (N, K) figures, of which less is better; points with nan are no candidates.

    Returns
    -------
    (F,) positions in ascending order of the first figure. Equal points are all on the front.
    """
    figures = np.asarray(points, dtype=np.float64)
    known = ~np.any(np.isnan(figures), axis=1)
    no_worse = np.all(figures[:, None, :] <= figures[None, :, :], axis=2)
    better = np.any(figures[:, None, :] < figures[None, :, :], axis=2)
    beaten = np.any(no_worse & better & known[:, None], axis=0)
    front = np.flatnonzero(known & ~beaten)
    order: NDArray[np.intp] = front[np.lexsort(figures[front].T[::-1])]
    return order


def trade_off(
    axes: Axes,
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    colour: str,
    marker: str,
    front: Any | None = None,
    widths: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """One figure against another, less being better: a point per row, and a stepped line along the Pareto front.

    Parameters
    ----------
    axes : where to draw; its limits hold all points.
    table : one row per point.
    x, y : columns of the figures.
    colour, marker : columns whose values have a colour and a marker each, in the order in which they come; `key_beside`
        names them.
    front : (N,) flags of the rows among which the front is sought; None: all.
    widths : columns with half widths of confidence intervals, by `x` and `y`: thin lines, which may be cut.

    Raises
    ------
    InputError
        A column is missing.
    """
    _check_columns(table, (x, y, colour, marker))
    colours, markers = looks(table[colour]), looks(table[marker])
    candidates = table if front is None else table[np.asarray(front, dtype=bool)]
    best = candidates.iloc[pareto_front(candidates[[x, y]])]
    if len(best):
        axes.step(best[x], best[y], where="post", color=INK, linewidth=0.9, zorder=2)
    for _, row in table.iterrows():
        axes.plot(
            row[x],
            row[y],
            linestyle="none",
            color=colours[row[colour]]["color"],
            marker=markers[row[marker]]["marker"],
            markersize=6,
            alpha=0.85,
        )
    axes.margins(0.08)
    if widths:
        _crosses(axes, table, x, y, widths, [colours[name]["color"] for name in table[colour]])


def _crosses(axes: Axes, table: pd.DataFrame, x: str, y: str, widths: Mapping[str, str], colours: list[str]) -> None:
    """Intervals through points, under limits that hold the points."""
    axes.set_xlim(axes.get_xlim())
    axes.set_ylim(axes.get_ylim())
    for (_, row), colour in zip(table.iterrows(), colours, strict=True):
        for column in (name for name in (x, y) if name in widths):
            ends = row[column] + np.array([-1.0, 1.0]) * row[widths[column]]
            across = [row[y if column == x else x]] * 2
            axes.plot(*((ends, across) if column == x else (across, ends)), color=colour, linewidth=0.7, alpha=0.4)


def key_beside(axes: Axes, table: pd.DataFrame, *, colour: str, marker: str, titles: Sequence[str] = ("", "")) -> None:
    """What colours and markers of a `trade_off` stand for, at the right of it; once if they are of one column."""
    from matplotlib.lines import Line2D

    colours, markers = looks(table[colour]), looks(table[marker])

    def handle(name: Any, **style: Any) -> Line2D:
        return Line2D([], [], label=name, **{**style, "linestyle": "none"})

    if colour == marker:
        handles = [handle(name, **style) for name, style in colours.items()]
    else:
        handles = [
            handle(titles[0], alpha=0.0),
            *(handle(name, marker="s", color=style["color"]) for name, style in colours.items()),
            handle(titles[1], alpha=0.0),
            *(handle(name, marker=style["marker"], color=INK) for name, style in markers.items()),
        ]
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False, fontsize=8.5, handlelength=1.0
    )


def paired_differences(
    results: pd.DataFrame, *, value: str, series: str, baseline: Any, by: Sequence[str], pair: str = "seed"
) -> pd.DataFrame:
    """How much a figure differs from that of a baseline on the same jobs, mean over seeds.

    Parameters
    ----------
    results : of a sweep, one row per run.
    value, series : columns.
    baseline : the value of `series` that the others are compared with.
    by : columns that tell the comparisons apart.
    pair : column that is the same in two runs that are compared.

    Returns
    -------
    pandas.DataFrame
        One row for each combination of `by` and value of `series` other than the baseline, in the order in which they
        come: ``pairs``, ``mean`` of value minus baseline, ``half_width`` of its 95 % confidence interval (nan with
        one pair). Pairs of which a run did not complete do not count.

    Raises
    ------
    InputError
        A column is missing, or there is no such baseline.
    """
    import pandas as pd

    _check_columns(results, (value, series, pair, "status", *by))
    done = results[results["status"] == "completed"]
    base = done[done[series] == baseline]
    if not len(base):
        raise InputError("results of a sweep", field=series, found=baseline, expected="a value with completed runs")
    merged = done[done[series] != baseline].merge(base[[*by, pair, value]], on=[*by, pair], suffixes=("", "_of_base"))
    merged["difference"] = merged[value] - merged[f"{value}_of_base"]
    rows: list[dict[Any, Any]] = []
    for labels, group in merged.groupby([*by, series], sort=False):
        mean, half_width = interval(group["difference"].to_numpy(dtype=np.float64))
        keys: dict[Any, Any] = dict(zip([*by, series], labels, strict=True))
        rows.append(keys | {"pairs": len(group), "mean": mean, "half_width": half_width})
    return pd.DataFrame(rows, columns=[*by, series, "pairs", "mean", "half_width"])


def differences(axes: Axes, table: pd.DataFrame, *, rows: str, series: str, unit: float = 1.0) -> None:
    """A row for each group of `paired_differences`, a mark for each series in it, with its confidence interval.

    Parameters
    ----------
    axes : where to draw; the baseline is the line at 0. All marks are in view; wide intervals may be cut.
    table : of `paired_differences`.
    rows, series : columns with the names of the rows, the first one on top, and of the series.
    unit : what differences are divided by.

    Raises
    ------
    InputError
        A column is missing.
    """
    _check_columns(table, (rows, series, "mean", "half_width"))
    places = {name: place for place, name in enumerate(dict.fromkeys(table[rows]))}
    styles = looks(table[series])
    shifts = dict(zip(styles, np.linspace(-0.18, 0.18, len(styles)) if len(styles) > 1 else [0.0], strict=True))
    axes.axvline(0.0, color=INK, linewidth=0.9)
    for _, row in table.iterrows():
        style, mean, width = styles[row[series]], row["mean"] / unit, row["half_width"] / unit
        at = places[row[rows]] + shifts[row[series]]
        if np.isfinite(width):
            axes.plot([mean - width, mean + width], [at, at], color=style["color"], linewidth=1.1)
        axes.plot(mean, at, **{**style, "linestyle": "none"}, markersize=6)
    axes.set_yticks(range(len(places)), list(places))
    axes.set_ylim(len(places) - 0.4, -0.6)
    reach, widest = (float(np.nanmax([0.0, *figures / unit])) for figures in _reaches(table))
    # An interval from two seeds is so wide that nothing else could be seen beside all of it.
    side = min(max(2.5 * reach, 1e-3 * widest), 1.08 * widest) or 1.0
    axes.set_xlim(-side, side)
    axes.tick_params(axis="y", length=0)


def _reaches(table: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How far marks are from 0, and the ends of their intervals."""
    means = np.abs(table["mean"].to_numpy(dtype=np.float64))
    return means, means + np.nan_to_num(table["half_width"].to_numpy(dtype=np.float64))


def _check_columns(table: pd.DataFrame, names: Sequence[str]) -> None:
    for name in names:
        if name not in table:
            raise InputError("results of a sweep", field=name, found=list(table.columns), expected="such a column")
