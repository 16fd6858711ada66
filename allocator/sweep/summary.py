"""Results of a sweep as a table on the screen: one row per series and load, means over seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

__all__ = ["summary_table"]

_HOUR = 3600.0

_LOADS = {"jobs_per_hour": "jobs/h", "submitted_jobs": "jobs"}

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
        table.add_column(name.replace("_", " "), justify="left" if name == "policy" else "right")
    table.add_column("status", no_wrap=True)
    for name in ("average JCT (h)", "p99 JCT (h)", "makespan (h)", "policy (s)", "run (s)"):
        table.add_column(name, justify="right")
    groups = list(results.groupby(["policy", *differing, load], sort=False, dropna=False))
    for keys, group in groups[:rows]:
        cells = [_cell(key) for key in (keys if isinstance(keys, tuple) else (keys,))]
        table.add_row(*map(escape, cells), *_figures(group))
    if len(groups) > rows:
        table.caption = f"{len(groups) - rows} more rows in results.parquet"
    return table


def _differing(results: pd.DataFrame, load: str) -> list[str]:
    """Settings that are not the same in all rows."""
    settings = list(results.columns[: list(results.columns).index("jobs")]) if "jobs" in results else []
    return [name for name in settings
            if name not in (*_NOT_SETTINGS, load) and results[name].nunique(dropna=False) > 1]  # fmt: skip


def _figures(group: pd.DataFrame) -> list[str]:
    done = group[group["status"] == "completed"]
    counts = group["status"].value_counts()
    status = ", ".join(str(name) if count == len(group) else f"{count} {name}" for name, count in counts.items())
    return [
        str(len(group)),
        status,
        _mean(done, "average_jct", _HOUR),
        _mean(done, "p99_jct", _HOUR),
        _mean(done, "makespan", _HOUR, digits=1),
        _mean(done, "policy_seconds"),
        _mean(group, "run_seconds"),
    ]


def _mean(group: pd.DataFrame, name: str, unit: float = 1.0, digits: int = 2) -> str:
    mean = group[name].mean() / unit if name in group and len(group) else float("nan")
    return "-" if mean != mean else f"{mean:.{digits}f}"


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
