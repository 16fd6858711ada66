"""Pictures of studies: one look for all of them, for notebooks and scripts.

    from benchmarks import figures

    figures.use_style()
    fig, axes = figures.panels(1)
    figures.curves(axes[0], results, load="jobs_per_hour", value="average_jct", unit=3600)

Colours are Okabe and Ito's, which colour-blind readers can tell apart; every line has a marker of its own as well, and
its name beside it. Lines are means over seeds with the 95 % confidence interval of the mean (Student's t) as a band. A
load at which a seed has saturated is marked and has no mean: what happened to complete by then says little.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from throughputs import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "FAINT",
    "INK",
    "STUDIES",
    "LineEnd",
    "busiest",
    "cumulative",
    "curves",
    "key",
    "looks",
    "name_lines",
    "panels",
    "published_curves",
    "recorded_decision_times",
    "summary",
    "use_style",
]

STUDIES = Path(__file__).resolve().parent / "studies"
"""The folder of the studies' definitions."""

COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, FAINT = "#333333", "#E4E4E4"

CONFIDENCE = 0.95
_PUBLISHED = "gavel/published_mean_jct_by_rate.csv"
_RECORDED_TIMES = "gavel/policy_runtime_scaling.csv"
_LINE_POINTS = 11.0
"""Least distance between two names, in points."""


class LineEnd(NamedTuple):
    """Where a line ends, in the units of the axes."""

    name: str
    colour: str
    x: float
    y: float


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


def summary(results: pd.DataFrame, *, load: str, value: str, unit: float = 1.0, series: str = "policy") -> pd.DataFrame:
    """Means over seeds.

    Parameters
    ----------
    results : of a sweep, one row per run.
    load, value, series : columns; of `value` in `unit`.

    Returns
    -------
    pandas.DataFrame
        One row per series, in the order in which they come, and load, ascending: `series`, `load`, ``seeds`` (runs),
        ``status`` (completed; saturated, as soon as one run has; or failed), ``mean`` and ``half_width`` of the
        confidence interval, nan where not all runs completed, the latter also with a single seed.

    Raises
    ------
    InputError
        A column is missing.
    """
    import pandas as pd

    for name in (series, load, value, "status"):
        if name not in results:
            raise InputError("results of a sweep", field=name, found=list(results.columns), expected="such a column")
    rows = []
    for (label, at), group in results.groupby([series, load], sort=False):
        states = set(group["status"])
        status = next((state for state in ("failed", "saturated") if state in states), "completed")
        figures = group[value].to_numpy(dtype=np.float64) / unit
        mean, half_width = _interval(figures) if status == "completed" else (np.nan, np.nan)
        rows.append((label, at, len(group), status, mean, half_width))
    table = pd.DataFrame(rows, columns=[series, load, "seeds", "status", "mean", "half_width"])
    order = {label: i for i, label in enumerate(dict.fromkeys(results[series]))}
    rank = table[series].map(order)
    return table.assign(_rank=rank).sort_values(["_rank", load]).drop(columns="_rank").reset_index(drop=True)


def _interval(figures: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float]:
    """Mean and half width of its confidence interval; nan for a single figure."""
    n = len(figures)
    if n < 2:
        return float(figures.mean()), np.nan
    from scipy.stats import t

    error = figures.std(ddof=1) / np.sqrt(n)
    return float(figures.mean()), float(t.ppf((1 + CONFIDENCE) / 2, n - 1) * error)


def busiest(table: pd.DataFrame, load: str) -> float:
    """The largest load at which every series of a `summary` has completed.

    Raises
    ------
    InputError
        There is none.
    """
    whole = (table["status"] == "completed").groupby(table[load]).all()
    if not whole.any():
        raise InputError(
            "results of a sweep", field="status", found="no load", expected="one that all series completed"
        )
    return float(whole[whole].index.max())


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
    names: bool = True,
    also: Sequence[LineEnd] = (),
) -> pd.DataFrame:
    """A line per series: `value` against `load`, with bands, saturated loads and names.

    Parameters
    ----------
    axes : where to draw.
    results, load, value, unit, series : see `summary`.
    published : figures to compare with, columns `series`, `load` and ``value`` (in the unit of the axis): hollow
        markers.
    top : upper end of the axis; None: what the lines need, bands may be cut.
    names : whether lines are named.
    also : further lines to name.

    Returns
    -------
    pandas.DataFrame
        What was drawn, as `summary` gives it.
    """
    table = summary(results, load=load, value=value, unit=unit, series=series)
    styles = looks(table[series])
    ends = []
    for label, style in styles.items():
        rows = table[table[series] == label]
        done = rows[rows["status"] == "completed"]
        axes.plot(done[load], done["mean"], **style, zorder=4)
        band = done[done["half_width"].notna()]
        if len(band):
            low = np.maximum(band["mean"] - band["half_width"], 0.0)
            axes.fill_between(
                band[load], low, band["mean"] + band["half_width"], color=style["color"], alpha=0.15, linewidth=0
            )
        if len(done):
            ends.append(LineEnd(label, style["color"], float(done[load].iloc[-1]), float(done["mean"].iloc[-1])))
        if published is not None:
            known = published[published[series] == label]
            axes.plot(
                known[load], known["value"], linestyle="none", markerfacecolor="none", markersize=7, alpha=0.8, **style
            )
    top = _top(table, published) if top is None else top
    axes.set_ylim(0, top)
    crossed = [
        _mark_saturation(axes, table[table[series] == label], load, style, top) for label, style in styles.items()
    ]
    notes = ["dashed, \N{MULTIPLICATION SIGN}: saturated"] if any(crossed) else []
    if (table["status"] == "failed").any():
        notes.append("gaps: runs that failed")
    if published is not None and len(published):
        notes.append("hollow: published")
    if notes:
        axes.set_title("; ".join(notes), fontsize=8, loc="right", color="#777777")
    if names:
        name_lines(axes, [*ends, *also])
    return table


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
        axes.plot([last[load], at], [last["mean"], height], linestyle=(0, (3, 2)), linewidth=1.1, color=style["color"])
    axes.plot([at], [height], marker="x", markersize=7, markeredgewidth=2, color=style["color"], zorder=5)
    return True


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
    for end, at in zip(ends, _apart(heights, _LINE_POINTS / height), strict=True):
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


def _apart(heights: Sequence[float], gap: float) -> list[float]:
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


def cumulative(axes: Axes, values: Mapping[str, Any], *, unit: float = 1.0, logarithmic: bool = False) -> None:
    """Cumulative distributions, one line per name, with a key in which the names stand in their colours.

    Parameters
    ----------
    axes : where to draw.
    values : by name, figures in any order; nan (jobs that did not complete) count as never reached.
    unit : what the figures are divided by.
    """
    styles = looks(values)
    for name, figures in values.items():
        given = np.asarray(figures, dtype=np.float64) / unit
        known = np.sort(given[~np.isnan(given)])
        share = np.arange(1, len(known) + 1) / max(len(given), 1)
        axes.step(known, share, where="post", color=styles[name]["color"])
    axes.set_ylim(0, 1.02)
    if logarithmic:
        axes.set_xscale("log")
    axes.set_ylabel("share of jobs")
    key(axes, {name: style["color"] for name, style in styles.items()})


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
            xytext=(0, i * _LINE_POINTS),
            textcoords="offset points",
            color=colour,
            fontsize=8.5,
            ha=align,
            va="bottom",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.8},
        )


def published_curves(trace: str, policies: Iterable[str]) -> pd.DataFrame | None:
    """The mean completion times that the paper's notebooks print: seed 0, jobs 4000 to 4999, 36 GPUs of each type.

    Parameters
    ----------
    trace : "single" or "multi", for jobs of one GPU and gangs.
    policies : names.

    Returns
    -------
    pandas.DataFrame or None
        Columns policy, jobs_per_hour and value, hours. None without the file, which the folder that the variable
        ALLOCATOR_REFERENCE names may hold: ``gavel/published_mean_jct_by_rate.csv``.
    """
    path = _reference(_PUBLISHED)
    if path is None:
        return None
    import pandas as pd

    table = pd.read_csv(path)
    wanted = (
        (table["trace"] == trace)
        & table["policy"].isin(list(policies))
        & table["meaning"].str.startswith("mean JCT hours")
    )
    chosen = table[wanted].rename(columns={"input_job_rate_per_hr": "jobs_per_hour"})
    columns = ["policy", "jobs_per_hour", "value"]
    return chosen[columns].drop_duplicates(["policy", "jobs_per_hour"]).reset_index(drop=True)


def recorded_decision_times() -> pd.DataFrame | None:
    """Seconds of wall time that the original system took for a decision with ECOS, recorded from its public code.

    Single-GPU jobs, a quarter as many GPUs of each of three types, a loaded machine.

    Returns
    -------
    pandas.DataFrame or None
        Columns policy, jobs (ascending for each policy) and seconds. None without the file
        ``gavel/policy_runtime_scaling.csv`` in the folder that the variable ALLOCATOR_REFERENCE names.
    """
    path = _reference(_RECORDED_TIMES)
    if path is None:
        return None
    import pandas as pd

    table = pd.read_csv(path)
    chosen = table[(table["solver"] == "ECOS") & ~table["multi_gpu_and_prio"] & table["wall_s"].notna()]
    chosen = chosen.rename(columns={"n": "jobs", "wall_s": "seconds"})[["policy", "jobs", "seconds"]]
    return chosen.sort_values(["policy", "jobs"]).reset_index(drop=True)


def _reference(relative: str) -> Path | None:
    """A file of the folder that the variable ALLOCATOR_REFERENCE names; None if there is none."""
    folder = os.environ.get("ALLOCATOR_REFERENCE")
    path = Path(folder) / relative if folder else None
    return path if path is not None and path.exists() else None
