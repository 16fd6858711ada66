"""Results of a sweep as a table on the screen: one row per series and load, means over seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

_HOUR = 3600.0


class _Figure(NamedTuple):
    """A column of means: its title, that of the results, the unit, digits, and whether only completed runs count."""

    title: str
    name: str
    unit: float = 1.0
    digits: int = 2
    of_completed: bool = True


OF_SIMULATIONS = (
    _Figure("average JCT (h)", "average_jct", _HOUR),
    _Figure("p99 JCT (h)", "p99_jct", _HOUR),
    _Figure("makespan (h)", "makespan", _HOUR, 1),
    _Figure("policy (s)", "policy_seconds"),
    _Figure("run (s)", "run_seconds", of_completed=False),
)
OF_DECISIONS = (
    _Figure("decision (ms)", "decision_seconds", 1e-3, of_completed=False),
    _Figure("objective", "objective", digits=4),
    _Figure("run (s)", "run_seconds", of_completed=False),
)

_LOADS = {"jobs_per_hour": "jobs/h", "submitted_jobs": "jobs", "load": "load"}

# What may tell series apart, beside the policy: shown where it differs.
_NOT_SETTINGS = ("point", "status", "status_detail", "saturated_load", "by_rule", "kind", "policy", "seed", "first_job",
                 "end_job", "max_clock_seconds")  # fmt: skip


def summary_table(results: pd.DataFrame, *, title: str, rows: int) -> Table:
    """The table, cut to so many rows."""
    from rich.markup import escape
    from rich.table import Table

    load = next(name for name in _LOADS if name in results)
    differing = _differing(results, load)
    table = Table(title=escape(title))
    for name in ("policy", *differing, _LOADS[load], "runs"):
        widest = int(results["policy"].str.len().max()) if name == "policy" else None
        table.add_column(name.replace("_", " "), justify="right" if widest is None else "left", min_width=widest)
    table.add_column("status", no_wrap=True)
    shown = OF_DECISIONS if "decision_seconds" in results else OF_SIMULATIONS
    for figure in shown:
        table.add_column(figure.title, justify="right")
    groups = list(results.groupby(["policy", *differing, load], sort=False, dropna=False))
    for keys, group in groups[:rows]:
        cells = [_cell(key) for key in (keys if isinstance(keys, tuple) else (keys,))]
        table.add_row(*map(escape, cells), *_cells(group, shown))
    if len(groups) > rows:
        table.caption = f"{len(groups) - rows} more rows in results.parquet"
    return table


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


def _cells(group: pd.DataFrame, shown: tuple[_Figure, ...]) -> list[str]:
    done = group[group["status"] == "completed"]
    counts = group["status"].value_counts()
    status = ", ".join(str(name) if count == len(group) else f"{count} {name}" for name, count in counts.items())
    return [
        str(len(group)),
        status,
        *(_mean(done if figure.of_completed else group, figure.name, figure.unit, figure.digits) for figure in shown),
    ]


def _mean(group: pd.DataFrame, name: str, unit: float = 1.0, digits: int = 2) -> str:
    mean = group[name].mean() / unit if name in group and len(group) else float("nan")
    return "-" if mean != mean else f"{mean:.{digits}f}"


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
