"""The picture: time against jobs, both logarithmic; a panel per decision and family, a line per path.

``python -m benchmarks.solvers.plot FIGURES.json PICTURE`` draws figures that were measured before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path as FilePath
from textwrap import fill
from typing import Any

from benchmarks.solvers.report import duration
from throughputs import InputError

Row = dict[str, Any]

# Okabe and Ito's palette, which colour-blind readers can tell apart; ours in strong lines, peers in thin ones.
_STYLES: dict[str, dict[str, Any]] = {
    "auto": {"color": "#D55E00", "linewidth": 2.6, "marker": "o", "zorder": 6},
    "structured": {"color": "#0072B2", "linewidth": 1.6, "marker": "s", "zorder": 5},
    "prices": {"color": "#8C6BB1", "linewidth": 1.6, "marker": "h", "zorder": 5},
    "cvxpy_ecos": {"color": "#000000", "linewidth": 1.1, "marker": "v", "linestyle": "--"},
    "cvxpy_vectorised": {"color": "#CC79A7", "linewidth": 1.1, "marker": "D", "linestyle": "--"},
    "cvxpy_parameters": {"color": "#999999", "linewidth": 1.1, "marker": "P", "linestyle": ":"},
    "highs": {"color": "#E69F00", "linewidth": 1.1, "marker": "<", "linestyle": "-."},
    "highs_ipm": {"color": "#56B4E9", "linewidth": 1.1, "marker": ">", "linestyle": "-."},
}
_CROSS: dict[str, Any] = {
    "marker": "x",
    "linestyle": "none",
    "color": "#C00000",
    "markersize": 8,
    "markeredgewidth": 2.2,
}
_OTHER = ("#556B7D", "#A05A2C", "#4C6A2F", "#8A1C4A")
_PROBLEM = ("decision", "family", "jobs", "types")
_INK, _FAINT = "#333333", "#E4E4E4"


def draw(figures: dict[str, Any], target: FilePath) -> list[FilePath]:
    """Write the picture as PNG and SVG beside each other, named after `target`; the paths written.

    Families with several numbers of types at one size have a picture of their own, ``NAME-types``: time against the
    number of types. Raises InputError when matplotlib is not installed or nothing was measured.
    """
    try:
        import_module("matplotlib")
    except ImportError as error:
        expected = "matplotlib to be installed: pip install cluster-allocator[plot]"
        raise InputError("picture", field="matplotlib", found="no such package", expected=expected) from error
    rows = [row for row in figures["rows"] if row["outcome"] == "measured"]
    if not rows:
        raise InputError("picture", field="rows", found="none that was measured", expected="some")
    by_types = _families_by_types(rows)
    written = []
    for wanted, axis, name in (
        ([row for row in rows if row["family"] not in by_types], "jobs", target.stem),
        ([row for row in rows if row["family"] in by_types], "types", f"{target.stem}-types"),
    ):
        if wanted:
            written += _picture(wanted, figures["targets"], axis, target.with_name(name))
    return written


def _families_by_types(rows: Sequence[Row]) -> set[str]:
    """Families that were measured with different numbers of types at the same number of jobs."""
    seen: dict[tuple[str, int], set[int]] = {}
    for row in rows:
        seen.setdefault((row["family"], row["jobs"]), set()).add(row["types"])
    return {family for (family, _), types in seen.items() if len(types) > 1}


def _picture(rows: Sequence[Row], targets: Sequence[Row], axis: str, stem: FilePath) -> list[FilePath]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    decisions = list(dict.fromkeys(row["decision"] for row in rows))
    # against types there is a column for each number of jobs
    column = (lambda row: (row["family"], 0)) if axis == "jobs" else (lambda row: (row["family"], row["jobs"]))
    columns = list(dict.fromkeys(column(row) for row in rows))
    paths = sorted({row["path"] for row in rows}, key=_rank)
    size = (2.0 + 2.7 * len(columns), 1.5 + 2.2 * len(decisions))
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    grid: Any = figure.subplots(len(decisions), len(columns), sharex=True, sharey=True, squeeze=False)
    crosses = 0
    for i, decision in enumerate(decisions):
        for j, (family, jobs) in enumerate(columns):
            here = [row for row in rows if row["decision"] == decision and column(row) == (family, jobs)]
            _panel(grid[i, j], here, paths, axis)
            if not here:
                # a decision that is not taken on this family
                grid[i, j].set_axis_off()
            if axis == "jobs":
                crosses += _targets(grid[i, j], targets, here)
            if i == 0:
                title = _family_title(family) + (f"\n{jobs:,} jobs" if jobs else "")
                grid[i, j].set_title(title, fontsize=9.5, color=_INK)
            if j == 0:
                grid[i, j].set_ylabel(fill(_decision_title(decision), 22), fontsize=10, color=_INK)
            if i == len(decisions) - 1:
                grid[i, j].set_xlabel("jobs" if axis == "jobs" else "accelerator types", fontsize=9, color=_INK)
    marks = sorted({row[axis] for row in rows})
    grid[0, 0].set_xticks(marks, [_count(mark) for mark in marks])
    _legend(figure, paths, crosses > 0)
    written = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    for path in written:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
    return written


def _panel(axes: Any, rows: Sequence[Row], paths: Sequence[str], axis: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    axes.set_xscale("log", base=10 if axis == "jobs" else 2)
    axes.set_yscale("log")
    for path in paths:
        points = sorted((row[axis], row["cpu_seconds"]) for row in rows if row["path"] == path)
        if points:
            axes.plot(*zip(*points, strict=True), **_style(path, paths))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: duration(seconds)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(True, color=_FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#AAAAAA")
    axes.tick_params(labelsize=8, colors=_INK, length=2.5)


def _targets(axes: Any, targets: Sequence[Row], rows: Sequence[Row]) -> int:
    """A cross at each target in seconds whose problem was measured; how many."""
    measured = {tuple(row[key] for key in _PROBLEM) for row in rows}
    here = [row for row in targets if row["quantity"] == "seconds" and tuple(row[key] for key in _PROBLEM) in measured]
    for row in here:
        axes.plot(row["jobs"], row["limit"], zorder=8, **_CROSS)
    return len(here)


def _count(number: int) -> str:
    """128, 2k, 1M."""
    for unit, factor in (("M", 10**6), ("k", 1000)):
        if number >= factor:
            return f"{number / factor:.0f}{unit}"
    return str(number)


def _legend(figure: Any, paths: Sequence[str], with_targets: bool) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=_path_title(path), **_style(path, paths)) for path in paths]
    if with_targets:
        handles.append(Line2D([], [], label="target for auto", **_CROSS))
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=min(len(handles), max(2, int(figure.get_figwidth() / 2.2))),
        frameon=False,
        fontsize=9,
        labelcolor=_INK,
        title="CPU time of one decision (median)",
        title_fontsize=11,
    )


def _style(path: str, paths: Sequence[str]) -> dict[str, Any]:
    common = {"markersize": 4.2, "markeredgewidth": 0}
    if path in _STYLES:
        return common | _STYLES[path]
    unknown = [name for name in paths if name not in _STYLES]
    return common | {"color": _OTHER[unknown.index(path) % len(_OTHER)], "linewidth": 1.1, "marker": "."}


def _rank(path: str) -> tuple[int, str]:
    order = list(_STYLES)
    return (order.index(path) if path in order else len(order), path)


def _path_title(name: str) -> str:
    from benchmarks.solvers.registry import PATHS

    return PATHS[name].title if name in PATHS else name


def _family_title(name: str) -> str:
    from benchmarks.solvers.registry import FAMILIES

    return FAMILIES[name].title if name in FAMILIES else name


def _decision_title(name: str) -> str:
    from benchmarks.solvers.registry import DECISIONS

    return DECISIONS[name].title if name in DECISIONS else name


if __name__ == "__main__":
    import benchmarks.solvers  # noqa: F401  titles of what is registered

    for file in draw(json.loads(FilePath(sys.argv[1]).read_text())["solvers"], FilePath(sys.argv[2])):
        print(file)
