"""Tables of runs: means over draws with their intervals, for screens, pages, files and papers.

    table = tables.table(results, ("jobs", "policy"), {"average JCT, h": Shown("average_jct", unit=3600.0)})
    tables.export(Path("results/jct"), table, figure)          # jct.csv, jct.tex, jct.svg, jct.pdf

Results have one row per run; runs that differ in nothing but the draw of their jobs are a group. Intervals are 95 %
confidence intervals of the mean (Student's t).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from allocator.report.page.seeds import half_width
from allocator.results.shown import text_table
from throughputs import InputError
from throughputs.arrays import Positions
from throughputs.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

PLUS_MINUS = " \N{PLUS-MINUS SIGN} "


class Shown(NamedTuple):
    """What a table shows of a column, for the runs of a group.

    Attributes
    ----------
    column : of the results.
    form : of a figure, as in a format string, or a function to its text.
    unit : what figures are divided by.
    over : of the draws the mean, with its interval; or "median", "max", "min", "sum".
    """

    column: str
    form: str | Callable[[float], str] = ".2f"
    unit: float = 1.0
    over: str = "mean"

    def value(self, runs: pd.DataFrame) -> tuple[float, float]:
        """The figure of a group and half the width of its interval, in the unit; nan where not known.

        It is not known where a run of the group has saturated or failed: means of the others would be of other draws.
        """
        known = runs[self.column].dropna().to_numpy(dtype=np.float64) / self.unit
        if not len(known) or status_of(runs) != "completed":
            return math.nan, math.nan
        return interval(known) if self.over == "mean" else (float(getattr(np, self.over)(known)), math.nan)

    def text(self, runs: pd.DataFrame) -> str:
        """The cell of a group; a dash where nothing is known."""
        figure, width = self.value(runs)
        if math.isnan(figure):
            return "-"
        return self._one(figure) + (PLUS_MINUS + self._one(width) if np.isfinite(width) else "")

    def _one(self, figure: float) -> str:
        return self.form(figure) if callable(self.form) else format(figure, self.form)


def table(results: pd.DataFrame, by: Sequence[str], shown: Mapping[str, Shown]) -> pd.DataFrame:
    """Cells as text: a row per group, in the order in which they come; first the columns `by` which tell them apart.

    Raises
    ------
    InputError
        A column is missing.
    """
    rows = [
        [*map(label, labels), *(each.text(group) for each in shown.values())]
        for labels, group in _groups(results, by, shown)
    ]
    return pd.DataFrame(rows, columns=[*(name.replace("_", " ") for name in by), *shown])


def numbers(results: pd.DataFrame, by: Sequence[str], shown: Mapping[str, Shown]) -> pd.DataFrame:
    """The same as numbers: a column for each figure, and behind it its half width where any group has one."""
    rows = [
        [*labels, *(number for each in shown.values() for number in each.value(group))]
        for labels, group in _groups(results, by, shown)
    ]
    halves = [f"{title}, half width" for title in shown]
    columns = [*by, *(name for pair in zip(shown, halves, strict=True) for name in pair)]
    made = pd.DataFrame(rows, columns=columns)
    return made.drop(columns=[name for name in halves if made[name].isna().all()])


def _groups(results: pd.DataFrame, by: Sequence[str], shown: Mapping[str, Shown]) -> Iterable[tuple[Any, pd.DataFrame]]:
    check_columns(results, (*by, *(each.column for each in shown.values())))
    return results.groupby(list(by), sort=False, dropna=False)


def check_columns(results: pd.DataFrame, names: Iterable[str]) -> None:
    """InputError if a column is missing."""
    for name in names:
        if name not in results:
            raise InputError("results of a study", field=name, found=list(results.columns), expected="such a column")


def label(value: Any) -> str:
    """The text of what tells groups apart; empty where it is not known."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:g}"
    return f"{value:,}" if isinstance(value, int | np.integer) else str(value)


def on_screen(title: str, cells: pd.DataFrame, caption: str = "") -> Table:
    """A table for a terminal: words to the left, figures to the right."""
    headings = (str(name).replace(", ", ",\n") for name in cells)
    words = [place for place, name in enumerate(cells) if _words(cells[name])]
    return text_table(headings, cells.itertuples(index=False), words=words, title=title, caption=caption)


def never_served(results: pd.DataFrame) -> str:
    """A line on runs with jobs that no accelerator type can run; empty where there are none."""
    runs = int((results.get("unserved_jobs", pd.Series(dtype=float)) > 0).sum())
    return f"in {runs} of {len(results)} runs some jobs were never served: see the column unserved_jobs" if runs else ""


def _words(cells: pd.Series) -> bool:
    return any(re.match(r"[^-\d(]", str(cell)) for cell in cells)


def markdown(cells: pd.DataFrame) -> str:
    """A table for a page."""
    rows = [list(cells.columns), ["---"] * len(cells.columns), *cells.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def latex(cells: pd.DataFrame) -> str:
    """A table for a paper, with the rules of the package booktabs; means and half widths share a column."""
    if {"mean", "half_width"} <= set(cells.columns):
        means = [_rounded(*pair) for pair in zip(cells["mean"], cells["half_width"], strict=True)]
        cells = cells.assign(mean=means).drop(columns="half_width")
    cells = cells.astype(object).where(cells.notna(), "-")
    sides = "".join("l" if _words(cells[name]) else "r" for name in cells)
    heads = _tex(str(name).replace("_", " ") for name in cells)
    lines = [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", heads, r"\midrule"]
    return "\n".join([*lines, *map(_tex, cells.itertuples(index=False)), r"\bottomrule", r"\end{tabular}", ""])


def csv(numbers: pd.DataFrame) -> str:
    """A table for other programs."""
    return numbers.to_csv(index=False, lineterminator="\n")


def _rounded(mean: float, width: float) -> str:
    """Three digits of the mean, and as many decimals of the half width; a dash where it is not known."""
    if math.isnan(mean):
        return "-"
    digits = max(0, 2 - math.floor(math.log10(abs(mean)))) if mean else 2
    return f"{mean:.{digits}f}" + (f"{PLUS_MINUS}{width:.{digits}f}" if np.isfinite(width) else "")


def _tex(cells: Iterable[Any]) -> str:
    texts = (f"{cell:g}" if isinstance(cell, float) else str(cell) for cell in cells)
    plain = (re.sub(r"([&%$#_{}])", r"\\\1", re.sub(r"[\\^~]", " ", text)) for text in texts)
    escaped = (text.replace("\N{PLUS-MINUS SIGN}", r"$\pm$") for text in plain)
    return " & ".join(escaped) + r" \\"


def export(
    stem: Path, cells: pd.DataFrame, figure: Figure | None = None, numbers: pd.DataFrame | None = None
) -> list[Path]:
    """Write STEM.csv and STEM.tex, and the picture as STEM.svg and STEM.pdf; `numbers` where the cells are text."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    written = [stem.with_name(f"{stem.name}.{kind}") for kind in ("csv", "tex", *(("svg", "pdf") if figure else ()))]
    write_text(written[0], csv(cells if numbers is None else numbers))
    write_text(written[1], latex(cells))
    for path in written[2:]:
        assert figure is not None
        save_picture(figure, path)
    return written


def save_picture(figure: Figure, path: Path) -> None:
    """Write a picture as its name says, the same bytes every time."""
    dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    figure.savefig(path, metadata=dated.get(path.suffix.lower()))


def duration(seconds: float) -> str:
    """Three digits with a fitting unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 0.9995 * factor or unit == "us":
            break
    return f"{seconds / factor:.3g} {unit}" if seconds < 999.5 * factor else f"{seconds / factor:,.0f} {unit}"


# Means and differences


def interval(figures: Iterable[float]) -> tuple[float, float]:
    """Mean and half width of its confidence interval; nan for a single figure."""
    values = np.asarray(list(figures), dtype=np.float64)
    return float(values.mean()), half_width(values.tolist())


def status_of(runs: pd.DataFrame) -> str:
    """Of a group of runs: failed or saturated as soon as one of them has, else completed."""
    states = set(runs.get("status", ()))
    return next((state for state in ("failed", "saturated") if state in states), "completed")


def summary(results: pd.DataFrame, *, load: str, value: str, unit: float = 1.0, series: str = "policy") -> pd.DataFrame:
    """Means over seeds.

    Parameters
    ----------
    results : of a study, one row per run.
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
    check_columns(results, (series, load, value, "status"))
    rows = [
        (label, at, len(group), status_of(group), *Shown(value, unit=unit).value(group))
        for label, runs in results.groupby(series, sort=False)
        for at, group in runs.groupby(load)
    ]
    return pd.DataFrame(rows, columns=[series, load, "seeds", "status", "mean", "half_width"])


def busiest(means: pd.DataFrame, load: str) -> float:
    """The largest load at which every series of a `summary` has completed; InputError if there is none."""
    whole = (means["status"] == "completed").groupby(means[load]).all()
    if not whole.any():
        raise InputError(
            "results of a study", field="status", found="no load", expected="one that all series completed"
        )
    return float(whole[whole].index.max())


def paired_differences(
    results: pd.DataFrame, *, value: str, series: str, baseline: Any, by: Sequence[str]
) -> pd.DataFrame:
    """How much a figure differs from that of a baseline on the same jobs, mean over seeds.

    Parameters
    ----------
    results : of a study, one row per run.
    value, series : columns.
    baseline : the value of `series` that the others are compared with.
    by : columns that tell the comparisons apart.

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
    check_columns(results, (value, series, "seed", "status", *by))
    done = results[results["status"] == "completed"]
    base = done[done[series] == baseline]
    if not len(base):
        raise InputError("results of a study", field=series, found=baseline, expected="a value with completed runs")
    merged = done[done[series] != baseline].merge(
        base[[*by, "seed", value]], on=[*by, "seed"], suffixes=("", "_of_base")
    )
    merged["difference"] = merged[value] - merged[f"{value}_of_base"]
    rows = [
        (*labels, len(group), *interval(group["difference"]))
        for labels, group in merged.groupby([*by, series], sort=False)
    ]
    return pd.DataFrame(rows, columns=[*by, series, "pairs", "mean", "half_width"])


def pareto_front(points: Any) -> Positions:
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
    order: Positions = front[np.lexsort(figures[front].T[::-1])]
    return order
