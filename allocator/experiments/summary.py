"""Results of a sweep as a study: means over seeds with their 95 % intervals, by series and load, and a picture."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from rich.table import Table

from allocator.report.figures import FIGURES, OF_SOME_RUNS, Figure, title_of
from allocator.studies import tables
from allocator.studies.study import Study, against_load, side_by_side
from allocator.studies.tables import Shown
from throughputs import InputError
from throughputs.errors import one_of

_OF_COMPUTING = (
    Figure("policy_seconds", "policy", "s", "time spent deciding", 2),
    Figure("run_seconds", "run", "s", "wall time of the run", 2),
    Figure("decision_seconds", "decision", "ms", "time of one decision", 2),
    Figure("objective", "objective", "", "value of the policy's objective", 4),
)
_KNOWN = {figure.key: figure for figure in (*FIGURES, *OF_SOME_RUNS, *_OF_COMPUTING)}
OF_SIMULATIONS = ("average_jct", "p99_jct", "makespan")
OF_DECISIONS = ("decision_seconds", "objective")
"""Figures that are shown where none are named."""

_LOADS = ("jobs_per_hour", "submitted_jobs", "load")

# What may tell series apart, beside the policy: shown where it differs.
_NOT_SETTINGS = ("point", "status", "status_detail", "saturated_load", "by_rule", "kind", "policy", "seed", "first_job",
                 "end_job", "max_clock_seconds")  # fmt: skip


def swept(results: pd.DataFrame, title: str, figures: Iterable[str] | None = None) -> tuple[Study, pd.DataFrame]:
    """The study of a sweep that has run, lines against the load, or bars where there is one load; and its results.

    Of results with one row per run, and these columns of them; None: the usual ones.

    Raises
    ------
    InputError
        There are no results, or no such figure.
    """
    if not len(results):
        raise InputError("sweep", found="no results yet", expected="a sweep of which runs have finished")
    load = next(name for name in _LOADS if name in results)
    usual = OF_DECISIONS if "decision_seconds" in results else OF_SIMULATIONS
    known = [name for name in usual if name in results and results[name].notna().any()]
    shown = dict(_shown(results, name) for name in (known if figures is None else figures))
    series = ("policy", *_differing(results, load))
    ready = results.sort_values(load, kind="stable")
    by, draw = (series, side_by_side) if ready[load].nunique() == 1 else ((load, *series), against_load)
    return Study(title, lambda _options: (), by, shown, draw), ready


def table(study: Study, results: pd.DataFrame, rows: int) -> Table:
    """The table of a sweep for a terminal, cut to so many rows, with the number of runs and what became of them."""
    groups = results.groupby(list(study.by), sort=False, dropna=False)["status"]
    cells = study.table(results)
    cells.insert(len(study.by), "runs", [str(len(states)) for _, states in groups])
    cells.insert(len(study.by) + 1, "status", [_status(states) for _, states in groups])
    more = f"{len(cells) - rows} more rows in results.parquet" if len(cells) > rows else ""
    return tables.on_screen(study.title, cells[:rows], "\n".join(filter(None, (more, tables.never_served(results)))))


def _status(states: pd.Series) -> str:
    counts = states.value_counts()
    return ", ".join(str(name) if count == len(states) else f"{count} {name}" for name, count in counts.items())


def _shown(results: pd.DataFrame, name: str) -> tuple[str, Shown]:
    measured = results.select_dtypes("number").dropna(axis="columns", how="all")
    if name not in measured:
        numbers = [str(column) for column in measured if "jobs" not in results or column in results.loc[:, "jobs":]]
        raise InputError("figures of a sweep", found=name, expected=one_of(name, numbers))
    figure = _KNOWN.get(name, Figure(name, name.replace("_", " "), "", ""))
    return title_of(figure), Shown(name, f",.{2 if figure.decimals is None else figure.decimals}f", figure.scale)


def _differing(results: pd.DataFrame, load: str) -> list[str]:
    """Settings that are not the same in all rows, and that nothing before them tells already."""
    settings = list(results.columns[: list(results.columns).index("jobs")]) if "jobs" in results else []
    different = [name for name in settings
                 if name not in (*_NOT_SETTINGS, load) and results[name].nunique(dropna=False) > 1]  # fmt: skip
    by_load = {"cluster"} if "cluster" in different and _one_each(results, [load], "cluster") else set()
    cases = ["policy", "case"] if "case" in different else ["policy"]
    by_case = {name for name in different if name not in cases and _one_each(results, cases, name)}
    return [name for name in different if name not in by_load | by_case]


def _one_each(results: pd.DataFrame, by: list[str], name: str) -> bool:
    """Whether rows that are alike in `by` are so in `name`."""
    return bool(results.groupby(by, dropna=False)[name].nunique(dropna=False).max() == 1)
