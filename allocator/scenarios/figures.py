"""The figures of scenarios, and how each is set beside that of the first row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from allocator.report.figures import DEADLINE_FIGURES, FIGURES, MISSING, Figure, format_number, value_of

__all__ = ["CHANGES", "change_of", "format_changes", "format_ratio", "ratio_of", "shown_figures", "title_of"]

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
    return f"×{ratio:.2f}" if math.isfinite(ratio) else ""


def change_of(figure: Figure, later: Mapping[str, Any], before: Mapping[str, Any]) -> float:
    """Difference of a figure in its shown unit, later minus before.

    nan where one is missing, and where other jobs completed: the two are then of different jobs.
    """
    if later.get("completed_jobs") != before.get("completed_jobs"):
        return math.nan
    return value_of(figure, later) - value_of(figure, before)


def format_changes(values: Sequence[float]) -> list[str]:
    """Changes with their signs, with as many decimals as two digits of the largest take."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    decimals = 2 if largest == 0 else min(max(2 - math.floor(math.log10(largest)), 0), 5)
    return [_signed(value, decimals) for value in values]


def _signed(value: float, decimals: int) -> str:
    if math.isnan(value):
        return MISSING
    text = format_number(abs(value), decimals)
    sign = "" if not any(digit in text for digit in "123456789") else "+" if value > 0 else "−"
    return sign + text
