"""What a study is: runs, a table of their figures with intervals, and a picture (docs/studies.md).

    STUDY = Study(
        "Two orders",
        lambda options: [Sweep.from_toml("orders.toml", small=options.quick)],
        by=("jobs_per_hour", "policy"),
        shown={"average JCT, h": Shown("average_jct", unit=3600.0)},
        draw=against_load,
    )

A run is a sweep (docs/sweeps.md), a simulation, or labels and a function that measures the rest of its row. What
sweeps and simulations gave is kept and not made again. ``allocator study`` makes the runs of studies, prints their
tables, and writes rows, tables and pictures.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console

from allocator.checkpoint.checkpoint import package_version
from allocator.report.progress import policy_progress
from allocator.studies import figures, tables
from allocator.studies.tables import Shown
from allocator.sweep import Sweep
from allocator.sweep import run as run_sweep
from throughputs.files import read_json, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec

    from allocator.results.result import SimulationResult

Row = dict[str, Any]

PRINTED = "printed_"
"""Before the name of a figure, as a column: what a paper prints."""


@dataclass(frozen=True)
class Options:
    """How a study is run.

    Attributes
    ----------
    quick : small sizes, few repetitions.
    folder : where sweeps and simulations are kept, run by run; what is there is not made again.
    processes : runs of a sweep at a time; None: one for each core.
    only : of other runs those with one of these values (text) under a label.
    """

    quick: bool = False
    folder: Path = Path("studies")
    processes: int | None = None
    console: Console = field(default_factory=lambda: Console(quiet=True))
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def say(self, line: str) -> None:
        """A line of progress."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def wants(self, labels: Row) -> bool:
        """Whether a run with these labels is to be made."""
        return all(str(labels.get(name)) in values for name, values in self.only.items())


@dataclass(frozen=True)
class Simulated:
    """A simulation of which some figures are the row.

    Attributes
    ----------
    labels : columns of the row; simulations of a study that differ, differ in them.
    beside : further columns, such as what a paper prints.
    figures : names of figures of its summary.
    make : the simulation, with `progress` as `allocator.simulate` takes it.
    """

    labels: Row
    beside: Row
    figures: tuple[str, ...]
    make: Callable[..., SimulationResult]

    def row(self, title: str, options: Options) -> Row:
        """The row, as it is kept for the study of that title and this version, or made now and kept."""
        key = hashlib.sha256(json.dumps([title, self.labels, self.figures, package_version()]).encode()).hexdigest()
        kept, name = options.folder / "runs" / f"{key[:16]}.json", _name(self.labels)
        if kept.is_file():
            options.say(f"{name}: kept in {kept}")
        else:
            begun = time.monotonic()
            with policy_progress([name], options.console) as start:
                result = self.make(progress=start(name))
            summary = result.summary()
            row = self.labels | {"status": result.status} | {figure: summary[figure] for figure in self.figures}
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_text(kept, json.dumps(row, indent=2) + "\n")
            options.say(f"{name}: {result.status}, in {time.monotonic() - begun:.1f} s")
        return {**read_json(kept), **self.beside}


Run = Sweep | Simulated | tuple[Row, Callable[[], Row | list[Row]]]


def _name(labels: Row) -> str:
    return ", ".join(map(str, labels.values()))


@dataclass(frozen=True)
class Study:
    """One question, and the runs that answer it.

    Attributes
    ----------
    runs : lists them.
    by : columns that tell groups of runs apart; runs of a group differ in their draw.
    shown : columns of the table.
    draw : the picture; None: the table says all.
    derived : adds columns that are made from others.
    """

    title: str
    runs: Callable[[Options], Iterable[Run]]
    by: tuple[str, ...]
    shown: Mapping[str, Shown]
    draw: Callable[..., Figure] | None = None
    derived: Callable[[pd.DataFrame], pd.DataFrame] | None = None

    def results(self, options: Options | None = None) -> pd.DataFrame:
        """One row per run; if it is interrupted, of those that were made."""
        options = options or Options()
        made: list[pd.DataFrame] = []
        try:
            for run in self.runs(options):
                if isinstance(run, Sweep):
                    folder = options.folder / run.name
                    made.append(run_sweep(run, folder, jobs=options.processes, console=options.console))
                    continue
                labels = run.labels if isinstance(run, Simulated) else run[0]
                if not options.wants(labels):
                    continue
                if isinstance(run, Simulated):
                    made.append(pd.DataFrame([run.row(self.title, options)]))
                    continue
                with options.console.status(_name(labels)):
                    found = run[1]()
                rows = found if isinstance(found, list) else [found]
                made.append(pd.DataFrame([labels | row for row in rows]))
                options.say(f"{_name(labels)}: measured")
        except KeyboardInterrupt:
            if not made:
                raise
            options.console.print("Interrupted: what was measured so far is kept.")
        results = pd.concat(made, ignore_index=True)
        return self.derived(results) if self.derived else results

    def table(self, results: pd.DataFrame) -> pd.DataFrame:
        """The table: a row per group of runs."""
        return tables.table(results, self.by, self.shown)

    def numbers(self, results: pd.DataFrame) -> pd.DataFrame:
        """The table as numbers."""
        return tables.numbers(results, self.by, self.shown)

    def write(self, results: pd.DataFrame, stem: Path) -> list[Path]:
        """Write the table, and the picture where there is one and matplotlib is installed; paths of the files."""
        figure = self.draw(self, results) if self.draw and find_spec("matplotlib") else None
        return tables.export(stem, self.table(results), figure, self.numbers(results))


def against_load(study: Study, results: pd.DataFrame, *, within: float | None = None, **settings: Any) -> Figure:
    """A panel for each column of the table: against the first column of `by`, a line for each value of the others.

    All of them have `within` inches side by side, and stand below each other where that is too narrow.
    """
    figures.use_style()
    figure, panels = figures.panels(len(study.shown), within=within)
    load, series = study.by[0], "series"
    results = results.assign(series=_joined(results, study.by[1:]))
    for axes, (title, shown) in zip(panels, study.shown.items(), strict=True):
        known = results.dropna(subset=[load])
        named = {"names": axes is panels[-1] or _place(axes).is_last_col(), **settings}
        figures.curves(axes, known, load=load, value=shown.column, unit=shown.unit, series=series, **named)
        axes.set(xlabel=load.replace("_", " "), title=title)
    return figure


def _place(axes: Axes) -> SubplotSpec:
    """Where a panel is among the others."""
    place = axes.get_subplotspec()
    assert place is not None
    return place


def side_by_side(study: Study, results: pd.DataFrame, *, within: float | None = None) -> Figure:
    """A panel for each column of the table, a bar for each group of runs, and a mark for what a paper prints of it;
    `within` as in `against_load`."""
    figures.use_style()
    # by their policy first, whose colours they have
    results = results.assign(series=_joined(results, sorted(study.by, key=lambda name: name != "policy")))
    height = max(3.2, 0.24 * results["series"].nunique())
    measured = {title: shown for title, shown in study.shown.items() if not shown.column.startswith(PRINTED)}
    figure, panels = figures.panels(len(measured), width=3.2, height=height, within=within)
    for axes, (title, shown) in zip(panels, measured.items(), strict=True):
        printed, first = PRINTED + shown.column, _place(axes).is_first_col()
        known = dict(zip(results["series"], results[printed], strict=True)) if printed in results else {}
        how: dict[str, Any] = {"series": "series", "names": first, "published": known}
        figures.bars(axes, results, value=shown.column, unit=shown.unit, **how)
        axes.set_title(title)
    return figure


def _joined(results: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    def told(name: str) -> pd.Series:
        """A number says what it is of."""
        texts, number = results[name].map(tables.label), pd.api.types.is_numeric_dtype(results[name])
        return texts.map(lambda text: f"{name} {text}" if text and number else text)

    texts = [told(name) for name in names]
    joined = [", ".join(text for text in row if text) for row in zip(*texts, strict=True)]
    return pd.Series(joined, index=results.index, dtype=object)


def cpu_seconds(call: Callable[[], Any], repetitions: int) -> float:
    """Median CPU time of `call` in seconds, after one run that is not counted: machines are noisy."""
    call()
    times = []
    for _ in range(repetitions):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return statistics.median(times)


def over_draws() -> dict[str, Shown]:
    """Columns for times that were measured on several draws."""
    kinds = {"mean": "mean", "median": "median", "worst": "max"}
    return {f"{name}, ms": Shown("seconds", ".1f", 1e-3, over) for name, over in kinds.items()}
