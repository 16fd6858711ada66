"""Pictures of studies: one look for all of them, for notebooks and scripts.

    from allocator.studies import figures, tables

    figures.use_style()
    figure, axes = figures.panels(1)
    figures.curves(axes[0], results, load="jobs_per_hour", value="average_jct", unit=3600)
    tables.export(Path("results/jct"), figures.drawn(figure), figure)

A policy has one colour and one marker in all of them; its variants are darker or lighter, and settings have shades.
Colours can be told apart with any kind of colour vision, and every line has its name beside it. Lines are means over
seeds with the 95 % confidence interval of the mean (Student's t) as a band. A load at which a seed has saturated is
marked and has no mean: what happened to complete by then says little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from allocator.presets import preset
from allocator.registry import list_policies
from allocator.report.colours import LIGHT, Look, policy_looks
from allocator.studies.tables import Shown, check_columns, interval, pareto_front, summary
from throughputs.arrays import Values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHADES = ("#440154", "#443983", "#31688e", "#21918c", "#2fa56b")
"""Settings and whatever else is no policy, dark to light: their order can be seen with any kind of colour vision."""

# One for each colour of policies, so that colour-blind readers, and those without colours, have a second means.
MARKERS = "os^DvPX<>h"
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.2)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)))

# The first variant of a policy has its colour, the next is darker, then lighter: parts of black (< 0) or of white.
_VARIANTS = (0.0, -0.45, 0.5, -0.7, 0.7)
_VARIANT_MARKERS = "*p8H"
INK = "#333333"

_NARROWEST = 3.0
"""Inches below which a panel has no room for its labels."""

_POLICIES = {label: policy for policy, label in preset("shockwave").comparison.labels.items()}


def use_style() -> None:
    """Set matplotlib's defaults for this process: quiet axes, small pictures."""
    from matplotlib import style

    style.use(Path(__file__).with_name("paper.mplstyle"))


def panels(
    count: int,
    *,
    columns: int | None = None,
    width: float = 5.0,
    height: float = 3.2,
    within: float | None = None,
    **settings: Any,
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, all side by side or in rows of `columns`, each so many inches wide and high.

    With `within`, the width of all in inches, there are as many side by side as that has room for.
    """
    import matplotlib.pyplot as plt

    columns = columns if within is None else max(int(within / _NARROWEST), 1)
    beside = min(count, columns or count)
    width = width if within is None else within / beside
    below = -(-count // beside)
    figure, grid = plt.subplots(below, beside, figsize=(width * beside, height * below), squeeze=False, **settings)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    return figure, list(grid.flat[:count])


def policy_of(label: str) -> str | None:
    """The policy that a label names: itself, a paper's name of it, or ``POLICY, VARIANT``; None if it names none."""
    name = label.partition(", ")[0]
    name = _POLICIES.get(name, name)
    return name if name in {entry.name for entry in list_policies()} else None


def looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and line style for each name, for keyword arguments of matplotlib.

    Parameters
    ----------
    names : labels of policies (`policy_of`), which look as in the report (`policy_looks`), variants in the order in
        which they come; any others are settings and have `SHADES` in their order.
    """
    distinct = list(dict.fromkeys(names))
    settings = [name for name in distinct if policy_of(name) is None]
    found: dict[str, dict[str, Any]] = {name: _shade(i, len(settings)) for i, name in enumerate(settings)}
    policies = list(dict.fromkeys(policy for policy in map(policy_of, distinct) if policy is not None))
    own = dict(zip(policies, policy_looks(policies), strict=True))
    seen: dict[str, int] = {}
    for name in distinct:
        policy = policy_of(name)
        if policy is not None:
            found[name] = _policy_look(own[policy], seen.setdefault(policy, 0))
            seen[policy] += 1
    return {name: found[name] for name in distinct}


def _policy_look(look: Look, variant: int) -> dict[str, Any]:
    variant %= len(_VARIANTS)
    marker = _VARIANT_MARKERS[variant - 1] if variant else MARKERS[look.colour]
    return {"color": _mixed(LIGHT[look.colour], _VARIANTS[variant]), "marker": marker, "linestyle": DASHES[look.dash]}


def _shade(position: int, count: int) -> dict[str, Any]:
    """One of so many settings, spread over the shades."""
    place = round(position * (len(SHADES) - 1) / max(count - 1, 1)) if count <= len(SHADES) else position % len(SHADES)
    return {"color": SHADES[place], "marker": MARKERS[position % len(MARKERS)], "linestyle": "-"}


def _mixed(colour: str, tone: float) -> str:
    """A colour with black or white in it."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round((1 - abs(tone)) * part + max(tone, 0) * 255):02x}" for part in parts)


# Names of lines

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
    from scipy.optimize import isotonic_regression

    # Least squares under an order is isotonic regression.
    order, steps = np.argsort(heights, kind="stable"), gap * np.arange(len(heights))
    placed = np.empty(len(heights))
    if len(heights):
        placed[order] = isotonic_regression(np.asarray(heights, dtype=np.float64)[order] - steps).x + steps
    return [float(at) for at in placed]


def key(axes: Axes, colours: Mapping[str, str], *, y: float = 0.04) -> None:
    """Names in their colours at the right border, stacked from `y` upwards, in fractions of the panel."""
    for i, (name, colour) in enumerate(reversed(list(colours.items()))):
        axes.annotate(
            name,
            (0.98, y),
            xycoords="axes fraction",
            xytext=(0, i * LINE_POINTS),
            textcoords="offset points",
            color=colour,
            fontsize=8.5,
            ha="right",
            va="bottom",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.8},
        )


# Pictures

QUANTILES = (0.1, 0.5, 0.9, 0.99)
"""Of cumulative distributions in tables."""

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
    bottom = 1.15 * float(np.nanmin([0.0, *table["mean"]])) if bottom is None else bottom
    styles = looks(table[series])
    loads = np.sort(table[load].unique())
    ends = []
    for position, (label, style) in enumerate(styles.items()):
        rows = table[table[series] == label]
        done = rows[rows["mean"].notna()]
        axes.plot(done[load], done["mean"], **style, zorder=4)
        if len(done):
            ends.append(LineEnd(label, style["color"], float(done[load].iloc[-1]), float(done["mean"].iloc[-1])))
        aside = 0.012 * (position - (len(styles) - 1) / 2)
        _intervals(axes, done[done["half_width"].notna()], load, loads, aside, style["color"], bottom)
        if published is not None:
            printed = published[published[series] == label]
            hollow = {**style, "linestyle": "none", "markerfacecolor": "none", "markersize": 7, "alpha": 0.8}
            axes.plot(printed[load], printed["value"], **hollow)
    top = _top(table, published) if top is None else top
    if logarithmic:
        axes.set(yscale="log", ylim=(0.7 * float(table["mean"].min()), 1.2 * top))
        plain_numbers(axes.yaxis)
    else:
        axes.set_ylim(bottom, top)
    crossed = [
        _mark_saturation(axes, table[table[series] == label], load, style, top) for label, style in styles.items()
    ]
    notes = {
        "dotted, \N{MULTIPLICATION SIGN}: saturated": any(crossed),
        "gaps: runs that failed": (table["status"] == "failed").any(),
        "some intervals go beyond the axis": (table["mean"] + table["half_width"] > top).any(),
        "hollow: published": published is not None and len(published),
    }
    if any(notes.values()):
        told = "; ".join(note for note, true in notes.items() if true)
        axes.set_title(told, fontsize=8, loc="right", color="#777777")
    if names:
        name_lines(axes, ends)
    return _note(axes, table)


def _intervals(
    axes: Axes, rows: pd.DataFrame, load: str, loads: Values, aside: float, colour: str, bottom: float
) -> None:
    """Lines beside each other, or a band where there are many loads."""
    at, low, high = rows[load], rows["mean"] - rows["half_width"], rows["mean"] + rows["half_width"]
    if len(loads) <= WHISKERS:
        at = at * (loads[-1] / loads[0]) ** aside if axes.get_xscale() == "log" else at + aside * np.ptp(loads)
        axes.vlines(at, low, high, color=colour, linewidth=1, alpha=0.7)
    else:
        axes.fill_between(at, np.maximum(low, bottom), high, color=colour, alpha=0.15, linewidth=0)


def plain_numbers(axis: Any) -> None:
    """Plain numbers at 1, 2 and 5 times the powers of ten on a logarithmic axis."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(NullLocator())


def _top(table: pd.DataFrame, published: pd.DataFrame | None) -> float:
    """Upper end of the axis: the lines and the published figures fit, and intervals up to twice as high."""
    most = float(np.nanmax([0.0, *table["mean"], *(() if published is None else published["value"])]))
    ends = float(np.nanmax([0.0, *(table["mean"] + table["half_width"].fillna(0.0))]))
    return max(1.15 * most, min(1.03 * ends, 2.0 * most)) if most > 0 else 1.0


def _mark_saturation(axes: Axes, rows: pd.DataFrame, load: str, style: Mapping[str, Any], top: float) -> bool:
    """A cross at the top for the smallest load that saturated, with a dashed line from the last point before it."""
    saturated = rows[rows["status"] == "saturated"]
    if not len(saturated):
        return False
    at, height = float(saturated[load].min()), 0.97 * top
    before = rows[rows["mean"].notna() & (rows[load] < at)]
    if len(before):
        last = before.iloc[-1]
        axes.plot(
            [last[load], at], [last["mean"], height], linestyle=(0, (1, 1.5)), linewidth=1.1, color=style["color"]
        )
    axes.plot([at], [height], marker="x", markersize=7, markeredgewidth=2, color=style["color"], zorder=5)
    return True


def by_draw(table: pd.DataFrame, value: str, *, series: str = "policy") -> dict[str, list[Any]]:
    """A column as `cumulative` takes it: for each series, in the order in which they come, its figures draw by draw."""
    return {
        str(name): [figures[value].to_numpy() for _, figures in rows.groupby("seed")]
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
        mean, half_width = np.array([interval(share) for share in shares.T]).reshape(-1, 2).T
        axes.step(known, mean, where="post", color=styles[name]["color"], linestyle=styles[name]["linestyle"])
        if len(given) > 1:
            half_width = np.nan_to_num(half_width)  # where all draws are alike
            low, high = np.maximum(mean - half_width, 0.0), np.minimum(mean + half_width, 1.0)
            axes.fill_between(known, low, high, step="post", color=styles[name]["color"], alpha=0.12, linewidth=0)
    axes.set_ylim(0, 1.02)
    if logarithmic:
        axes.set_xscale("log")
    axes.set_ylabel("share of jobs")
    key(axes, {name: style["color"] for name, style in styles.items()})
    rows = [
        (name, share, *interval(np.quantile(draw, share) / unit for draw in draws))
        for name, draws in values.items()
        for share in QUANTILES
    ]
    _note(axes, pd.DataFrame(rows, columns=["name", "share of jobs", "mean", "half_width"]))


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

    check_columns(results, (series, value, "status"))
    styles = looks(results[series])
    outline = [withStroke(linewidth=2.4, foreground="white")]
    ends, rows = [], []
    for place, (label, style) in enumerate(styles.items()):
        runs = results[results[series] == label]
        mean, half_width = Shown(value, unit=unit).value(runs)
        known = (published or {}).get(label, np.nan)
        rows.append((label, len(runs), mean, half_width, known))
        ends.append(max((figure for figure in (mean, mean + half_width, known) if np.isfinite(figure)), default=0.0))
        if np.isfinite(mean):
            axes.barh(place, mean, height=0.66, color=style["color"], alpha=0.85)
        if np.isfinite(half_width):
            span = [mean - half_width, mean + half_width]
            axes.plot(span, [place, place], color=INK, linewidth=1.1, path_effects=outline)
        if np.isfinite(known):
            hollow: dict[str, Any] = {"linestyle": "none", "marker": "D", "markerfacecolor": "none", "markersize": 6}
            axes.plot(known, place, color=INK, path_effects=outline, **hollow)
        text = f"{mean:.{digits}f}" if np.isfinite(mean) else "not completed"
        beside: dict[str, Any] = {"xytext": (8 if ends[-1] == known else 5, 0), "textcoords": "offset points"}
        axes.annotate(text, (ends[-1], place), va="center", fontsize=8.5, color=INK, **beside)
    axes.set_yticks(range(len(styles)), list(styles) if names else [""] * len(styles))
    axes.set_ylim(len(styles) - 0.45, -0.55)
    axes.set_xlim(0, 1.22 * max(ends, default=1.0) or 1.0)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    means = pd.DataFrame(rows, columns=[series, "seeds", "mean", "half_width", "published"])
    _note(axes, means.dropna(axis=1, how="all"))


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
    check_columns(table, (x, y, colour, marker))
    colours, markers = looks(table[colour]), looks(table[marker])
    candidates = table if front is None else table[np.asarray(front, dtype=bool)]
    best = candidates.iloc[pareto_front(candidates[[x, y]])]
    if len(best):
        axes.step(best[x], best[y], where="post", color=INK, linewidth=0.9, zorder=2)
    for _, row in table.iterrows():
        style = {"color": colours[row[colour]]["color"], "marker": markers[row[marker]]["marker"], "markersize": 6}
        axes.plot(row[x], row[y], linestyle="none", alpha=0.85, **style)
    axes.margins(0.08)
    _note(axes, table[list(dict.fromkeys((colour, marker, x, y, *widths.values())))])
    if widths:
        _crosses(axes, table, x, y, widths, [colours[name]["color"] for name in table[colour]])


def _crosses(axes: Axes, table: pd.DataFrame, x: str, y: str, widths: Mapping[str, str], colours: list[str]) -> None:
    """Intervals through points, under limits that hold the points."""
    axes.set_xlim(axes.get_xlim())
    axes.set_ylim(axes.get_ylim())
    how: dict[str, Any] = {"fmt": "none", "ecolor": colours, "elinewidth": 0.7, "alpha": 0.4}
    how |= {f"{side}err": table[widths[column]] for side, column in (("x", x), ("y", y)) if column in widths}
    axes.errorbar(table[x], table[y], **how)


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
    check_columns(table, (rows, series, "mean", "half_width"))
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
    marks = np.abs(table["mean"].to_numpy(dtype=np.float64)) / unit
    reach = float(np.nanmax([0.0, *marks]))
    widest = float(np.nanmax([0.0, *(marks + np.nan_to_num(table["half_width"].to_numpy(dtype=np.float64)) / unit)]))
    # An interval from two seeds is so wide that nothing else could be seen beside all of it.
    side = min(max(2.5 * reach, 1e-3 * widest), 1.08 * widest) or 1.0
    axes.set_xlim(-side, side)
    axes.tick_params(axis="y", length=0)
    _note(axes, table.assign(mean=table["mean"] / unit, half_width=table["half_width"] / unit))


# What was drawn, for tables beside pictures


def _note(axes: Axes, table: pd.DataFrame) -> pd.DataFrame:
    vars(axes)["drawn"] = table
    return table


def drawn(figure: Figure) -> pd.DataFrame:
    """What the panels show, one below the other, each with its title."""
    shown = [axes for axes in figure.axes if "drawn" in vars(axes)]
    found = []
    for axes in shown:
        table: pd.DataFrame = vars(axes)["drawn"].copy()
        if len(shown) > 1:
            table.insert(0, "panel", axes.get_title(loc="left") or axes.get_ylabel() or axes.get_xlabel())
        found.append(table)
    return pd.concat(found, ignore_index=True)
