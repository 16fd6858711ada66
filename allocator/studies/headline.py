"""The main table of a paper: runs on its public data, and beside them the figures that it prints.

Packages bring theirs by entry points in the group ``allocator.studies``, whose values are studies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from allocator.results.result import SimulationResult
from allocator.studies import figures
from allocator.studies.study import Options, Run, Simulated, Study
from allocator.studies.tables import Shown
from throughputs import InputError
from throughputs.entry_points import entries_of
from throughputs.errors import one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRINTED = "printed_"
"""Before the name of a figure, as a column: what the paper prints."""

Key = tuple[Any, ...]
Made = tuple[Key, int, Callable[..., SimulationResult]]
"""What tells a line of the table, the number of the draw, and the run, which takes `progress`."""


def studies() -> tuple[str, ...]:
    """Names of the studies of installed packages."""
    return tuple(entries_of("allocator.studies"))


def study(name: str) -> Study:
    """The study of that name; raises `InputError` for an unknown one."""
    known = entries_of("allocator.studies")
    if name not in known:
        raise InputError("study", found=name, expected=one_of(name, known))
    found: Study = known[name].load()
    return found


def headline(
    title: str,
    by: tuple[str, ...],
    shown: Mapping[str, Shown],
    printed: Mapping[Key, tuple[float, ...]],
    runs: Callable[[Options], Iterable[Made]],
) -> Study:
    """The study of a paper's table.

    Parameters
    ----------
    by : columns that tell its lines apart, the last of them the policy.
    shown : its figures, of the summary of a run.
    printed : by line, in the units that are shown.
    runs : lists the runs.
    """
    columns: dict[str, Shown] = {}
    for name, each in shown.items():
        columns |= {name: each, f"{name}, printed": Shown(PRINTED + each.column, each.form, over="max")}

    def listed(options: Options) -> Iterator[Run]:
        for key, draw, make in runs(options):
            known = dict(zip((PRINTED + each.column for each in shown.values()), printed[key], strict=True))
            labels = dict(zip(by, key, strict=True)) | {"seed": draw}
            yield Simulated(labels, known, tuple(each.column for each in shown.values()), make)

    return Study(title, listed, by, columns, partial(_bars, shown=shown))


def _bars(study: Study, results: pd.DataFrame, *, shown: Mapping[str, Shown]) -> Figure:
    """A panel for each figure, a bar for each line, and a mark for what is printed."""
    figures.use_style()
    series = results[study.by[-1]].astype(str)
    for name in study.by[-2::-1]:
        series = series + ", " + results[name].astype(str)
    results = results.assign(series=series)
    figure, panels = figures.panels(len(shown), width=3.4, height=max(2.6, 0.3 * series.nunique()))
    for axes, (title, each) in zip(panels, shown.items(), strict=True):
        known = dict(zip(results["series"], results[PRINTED + each.column], strict=True))
        names = axes is panels[0]
        figures.bars(axes, results, value=each.column, unit=each.unit, series="series", names=names, published=known)
        axes.set_title(title)
    return figure
