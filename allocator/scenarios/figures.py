"""The figures of scenarios, and how each is set beside that of the first row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from allocator.report.figures import DEADLINE_FIGURES, FIGURES, MISSING, Figure, value_of

_DIGITS, _MOST_DECIMALS = 3, 3
"""Significant digits of a change, and digits after the point at most."""

_KEYS = (
    "average_jct",
    "median_jct",
    "p99_jct",
    "average_queueing_time",
    "loaded_utilization",
    "makespan",
    "restart_gpu_hours",
    "owned_cost",
    "deadline_ratio",
    "best_effort_average_jct",
)

_BY_KEY = {figure.key: figure for figure in (*FIGURES, *DEADLINE_FIGURES)}

ALL = tuple(_BY_KEY[key] for key in _KEYS)

CHANGES = tuple(
    _BY_KEY[key] for key in ("average_jct", "p99_jct", "average_queueing_time", "loaded_utilization", "owned_cost")
)
"""Those of which the change by more GPUs is shown."""


def shown_figures(summaries: Sequence[Mapping[str, Any]]) -> tuple[Figure, ...]:
    """The figures that at least one row has; utilisation overall where none has the loaded one."""
    shown = tuple(figure for figure in ALL if any(math.isfinite(value_of(figure, row)) for row in summaries))
    if any(figure.key == "loaded_utilization" for figure in shown):
        return shown
    return (*shown, _BY_KEY["utilization"])


def title_of(figure: Figure) -> str:
    """The heading with the unit."""
    return f"{figure.heading} ({figure.unit})" if figure.unit else figure.heading


def ratio_of(figure: Figure, row: Mapping[str, Any], first: Mapping[str, Any]) -> float:
    """The figure of a row over that of the first; nan where one is missing or the first is 0."""
    value, base = value_of(figure, row), value_of(figure, first)
    return value / base if math.isfinite(value) and math.isfinite(base) and base > 0 else math.nan


def format_ratio(ratio: float) -> str:
    """As ``×0.94``; nothing where there is none."""
    return f"×{ratio:,.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}" if math.isfinite(ratio) else ""


def change_of(figure: Figure, later: Mapping[str, Any], before: Mapping[str, Any]) -> float:
    """Difference of a figure in its shown unit, later minus before.

    nan where one is missing, and where other jobs completed: the two are then of different jobs.
    """
    if later.get("completed_jobs") != before.get("completed_jobs"):
        return math.nan
    return value_of(figure, later) - value_of(figure, before)


def format_change(change: float) -> str:
    """A change with its sign and three significant digits; small ones keep them beside large ones."""
    if math.isnan(change):
        return MISSING
    digits = f"{abs(change):.{_DIGITS}g}"
    decimals = max(_DIGITS - 1 - math.floor(math.log10(abs(change))), 0) if float(digits) else 0
    sign = "+" if change > 0 else "−" if change < 0 else ""
    return f"{sign}{abs(change):,.{min(decimals, _MOST_DECIMALS)}f}"
