"""Pictures of the study of solvers: time against jobs; a panel per decision and family, a line per path.

``python -m benchmarks.solvers.plot FIGURES.json PICTURE`` draws figures that were measured before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import pandas as pd

from benchmarks import figures
from benchmarks.solvers.measure import PROBLEM, against_targets
from benchmarks.solvers.problems import DECISIONS, FAMILIES, PATHS
from benchmarks.tables import duration
from throughputs import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette and some more, which colour-blind readers can tell apart, in the order of `PATHS`; ours in
# strong lines, peers in thin ones.
_COLOURS = (
    "#D55E00", "#0072B2", "#8C6BB1", "#CC79A7", "#999999", "#E69F00", "#56B4E9", "#000000", "#556B7D", "#A05A2C",
)  # fmt: skip
_CROSS: dict[str, Any] = {"marker": "x", "linestyle": "none", "color": "#C00000", "markersize": 8, "zorder": 8}


def draw(rows: pd.DataFrame, target: Path) -> list[Path]:
    """Write the picture as PNG and SVG beside each other, named after `target`; the paths written.

    Families with several numbers of types at one size have a picture of their own, ``NAME-types``: time against the
    number of types. Raises InputError when nothing was measured.
    """
    measured = rows[rows["outcome"] == "measured"]
    if not len(measured):
        raise InputError("picture", field="rows", found="none that was measured", expected="some")
    several = measured.groupby(["family", "jobs"])["types"].nunique()
    by_types = measured["family"].isin(several[several > 1].index.get_level_values("family"))
    written = []
    for here, axis, name in ((~by_types, "jobs", target.stem), (by_types, "types", f"{target.stem}-types")):
        if here.any():
            figure = picture(measured[here], axis)
            written += [target.with_name(f"{name}.{kind}") for kind in ("png", "svg")]
            target.parent.mkdir(parents=True, exist_ok=True)
            for path in written[-2:]:
                figure.savefig(path, dpi=120)
    return written


def picture(rows: pd.DataFrame, axis: str) -> Figure:
    """CPU time against the number of jobs, or of types with a column of panels for each number of jobs."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    figures.use_style()
    columns = ["family"] if axis == "jobs" else ["family", "jobs"]
    below = rows["decision"].unique()
    beside = dict(iter(rows.groupby(columns, sort=False)))
    size = (2.0 + 2.7 * len(beside), 1.5 + 2.2 * len(below))
    figure, grid = plt.subplots(len(below), len(beside), figsize=size, sharex=True, sharey=True, squeeze=False)
    targets = against_targets(rows)
    targets = targets[targets["quantity"] == "seconds"]
    crosses = 0
    for i, decision in enumerate(below):
        for j, (column, part) in enumerate(beside.items()):
            here = part[part["decision"] == decision]
            axes = grid[i, j]
            _panel(axes, here, axis)
            if not len(here):
                axes.set_axis_off()  # a decision that is not taken on this family
            aimed = targets.merge(here[list(PROBLEM)].drop_duplicates(), on=list(PROBLEM)) if axis == "jobs" else ()
            if len(aimed):
                axes.plot(aimed["jobs"], aimed["limit"], **_CROSS)
                crosses += len(aimed)
            if i == 0:
                family, *jobs = column
                axes.set_title("\n".join([_title(FAMILIES, family), *(f"{n:,} jobs" for n in jobs)]))
            if j == 0:
                axes.set_ylabel(fill(_title(DECISIONS, decision), 22))
            if i == len(below) - 1:
                axes.set_xlabel("jobs" if axis == "jobs" else "accelerator types")
    marks = sorted(rows[axis].unique())
    grid[0, 0].set_xticks(marks, [f"{mark // 1000}k" if mark >= 1000 else str(mark) for mark in marks])
    handles = [Line2D([], [], label=_title(PATHS, name), **_style(name)) for name in rows["path"].unique()]
    handles += [Line2D([], [], label="target for auto", **_CROSS)] if crosses else []
    title, across = "CPU time of one decision (median)", max(2, int(size[0] / 2.2))
    figure.legend(handles=handles, loc="outside upper center", ncols=across, frameon=False, title=title)
    return figure


def _panel(axes: Any, rows: pd.DataFrame, axis: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    axes.set_xscale("log", base=10 if axis == "jobs" else 2)
    axes.set_yscale("log")
    for name, points in rows.sort_values(axis).groupby("path", sort=False):
        axes.plot(points[axis], points["cpu_seconds"], **_style(str(name)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: duration(seconds)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.tick_params(labelsize=8, length=2.5)


def _style(name: str) -> dict[str, Any]:
    place = list(PATHS).index(name) if name in PATHS else len(PATHS)
    own = name in PATHS and PATHS[name].kind == "own"
    line = {"linewidth": 2.6 if name == "auto" else 1.6} if own else {"linewidth": 1.1, "linestyle": "--"}
    marker = figures.MARKERS[place % len(figures.MARKERS)]
    return {"color": _COLOURS[place % len(_COLOURS)], "marker": marker, "markersize": 4.2, **line}


def _title(registered: dict[str, Any], name: str) -> str:
    return registered[name].title if name in registered else name


if __name__ == "__main__":
    for file in draw(pd.DataFrame(json.loads(Path(sys.argv[1]).read_text())["solvers"]), Path(sys.argv[2])):
        print(file)
