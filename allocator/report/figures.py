"""The figures by which policies are compared, and how each is written on the terminal and on the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

MISSING = "-"

_ALL = 100 + 1e-6
"""Percent, and what rounding may add."""

Row = Mapping[str, Any]
"""Figures by name, of a run as its summary has them, or of a part of one."""

Rows = Sequence[Row]

HalfWidths = Sequence[Mapping[str, float]]
"""Half the width of the interval of a mean, by the name of the figure; of each run."""

OFF = "simulation_off"
"""Key of what `off_by` says, in the summary of a recorded schedule."""


@dataclass(frozen=True)
class Figure:
    """One column of the comparison, which is left out where no run has a value.

    Attributes
    ----------
    key : key of the value in a summary.
    heading, unit : what the column is called, and the unit it is shown in ("" for none).
    about : one line of explanation.
    decimals : digits after the point; None for four significant digits of the largest value.
    better : which end of the column is better.
    outcome : whether the value depends on which jobs completed.
    detail : whether the column is for pages and wide terminals.
    """

    key: str
    heading: str
    unit: str
    about: str
    decimals: int | None = None
    better: Literal["low", "high"] = "low"
    outcome: bool = True
    detail: bool = False

    @property
    def scale(self) -> float:
        """Value of one shown unit in the units of the summary."""
        return {"h": 3600.0, "%": 0.01, "ms": 1e-3}.get(self.unit, 1.0)


FIGURES: tuple[Figure, ...] = (
    Figure("average_jct", "average JCT", "h", "mean job completion time, from arrival to completion"),
    Figure("median_jct", "median JCT", "h", "half of the jobs completed within this time", detail=True),
    Figure("p99_jct", "p99 JCT", "h", "99 of 100 jobs completed within this time"),
    Figure(
        "average_queueing_time",
        "waiting",
        "h",
        "part of the average JCT without GPUs, from arrival on and whenever preempted",
        2,
    ),
    Figure(
        "p99_queueing_time",
        "p99 waiting",
        "h",
        "99 of 100 jobs were without GPUs for at most this time",
        2,
        detail=True,
    ),
    Figure("makespan", "makespan", "h", "clock when the last job completed"),
    Figure(
        "loaded_utilization",
        "utilisation loaded",
        "%",
        "busy GPU time over all GPU time up to the last arrival",
        1,
        better="high",
    ),
    Figure(
        "utilization",
        "utilisation overall",
        "%",
        "busy GPU time over all GPU time up to the makespan",
        1,
        better="high",
        detail=True,
    ),
    Figure(
        "gpu_utilization",
        "GPU utilisation",
        "%",
        "measured utilisation of all GPUs up to the last arrival, idle ones as 0",
        1,
        better="high",
    ),
    Figure(
        "fragmentation",
        "fragmentation",
        "%",
        "free GPU time on partly used servers, over all that was free, up to the last arrival",
        1,
        detail=True,
    ),
    Figure(
        "average_bounded_slowdown",
        "slowdown",
        "",
        "mean completion time over that of the job alone, of which at least ten minutes count (bounded slowdown)",
        2,
    ),
    Figure("p99_bounded_slowdown", "p99 slowdown", "", "99 of 100 jobs had at most this slowdown", 1),
    Figure("worst_rho", "worst rho", "", "largest finish-time fairness of any job", 2),
    Figure(
        "unfair_fraction", "unfair jobs", "%", "completed jobs that took clearly longer than on their isolated share", 1
    ),
    Figure(
        "preemptions",
        "preemptions",
        "",
        "times a job that ran was not given the GPUs it had, migrations included",
        0,
    ),
    Figure(
        "migrations",
        "migrations",
        "",
        "preemptions after which the job went on at once with other GPUs",
        0,
        detail=True,
    ),
    Figure(
        "restart_gpu_hours",
        "starts",
        "GPU h",
        "GPU hours that starts took: the first of each job, and those after preemptions",
        1,
    ),
    Figure("cost", "busy cost", "$", "price of the GPUs while they were busy", 0),
    Figure(
        "owned_cost",
        "owned cost",
        "$",
        "price of all GPUs of the cluster up to the makespan, idle or not",
        0,
    ),
    Figure("policy_seconds", "policy time", "s", "time spent deciding", outcome=False, detail=True),
)

DEADLINE_FIGURES: tuple[Figure, ...] = (
    Figure(
        "deadline_ratio",
        "in time",
        "%",
        "jobs with a deadline that were in time",
        1,
        better="high",
        outcome=False,
    ),
    Figure(
        "cluster_efficiency",
        "cluster efficiency",
        "%",
        "speedups of running jobs over all GPUs",
        1,
        better="high",
    ),
    Figure("best_effort_average_jct", "best-effort JCT", "h", "mean JCT of jobs without a deadline"),
)
"""Those of runs in which jobs have deadlines."""

OF_SOME_RUNS = (
    Figure(
        "worst_rho_isolated",
        "worst rho_isolated",
        "",
        "largest ratio of a job's completion time to its completion time under isolated_plus",
        2,
    ),
    *DEADLINE_FIGURES,
)
"""Shown behind the others where a run has them."""


def title_of(figure: Figure) -> str:
    """Its heading with its unit."""
    return f"{figure.heading} ({figure.unit})" if figure.unit else figure.heading


def heading_of(figure: Figure) -> str:
    """The same over lines of a narrow column."""
    return figure.heading.replace(" ", "\n", 1) + (f"\n({figure.unit})" if figure.unit else "\n ")


def value_of(figure: Figure, summary: Row) -> float:
    """The value in the column's unit; nan when it is missing, and for a zero of a run in which no job completed."""
    value = summary.get(figure.key)
    if value is None or (figure.outcome and value == 0 == summary.get("completed_jobs")):
        return math.nan
    return float(value) / figure.scale


def format_number(value: float, decimals: int) -> str:
    """Fixed-point text; `MISSING` for nan."""
    if math.isnan(value):
        return MISSING
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.") else text  # no minus before a rounded zero


def format_count(number: float) -> str:
    """A count as it is, and a mean of counts with a digit of its fraction."""
    return str(int(number)) if number == int(number) else f"{number:.1f}"


def format_column(figure: Figure, summaries: Rows, half_widths: HalfWidths = ()) -> list[str]:
    """The column as text, with the same number of decimals in every row so that figures line up.

    `half_widths` of intervals, by figure, where they are to be told.
    """
    values = [value_of(figure, summary) for summary in summaries]
    decimals = _column_decimals(values) if figure.decimals is None else figure.decimals
    texts = [format_number(value, decimals) for value in values]
    for row, widths in enumerate(half_widths):
        if math.isfinite(half := widths.get(figure.key, math.nan)):
            texts[row] += f" \N{PLUS-MINUS SIGN} {format_number(half / figure.scale, decimals)}"
    return texts


def best_rows(figure: Figure, summaries: Rows, half_widths: HalfWidths = ()) -> set[int]:
    """Rows that hold the best value, and those that show the same; empty where all do, and where there is nothing to
    compare.

    Where the figure depends on which jobs completed, only policies that completed the most jobs compete: a
    run that was cut short would otherwise win with the few short jobs it finished. What differs by no more than noise
    is as good as the best: noise is how far the simulation is off what was recorded
    (`OFF` in a summary), and of means the `half_widths` of their intervals. More than all GPUs were not busy: where a
    log used more than the cluster has, its utilisation does not compete.
    """
    completed = [float(summary.get("completed_jobs") or 0) for summary in summaries]
    most = max(completed, default=0.0)
    values = [value_of(figure, summary) for summary in summaries]
    rivals = [
        row
        for row, value in enumerate(values)
        if math.isfinite(value)
        and not (figure.outcome and completed[row] < most)
        and not (figure.key.endswith("utilization") and value > _ALL)
    ]
    if len(summaries) < 2 or not rivals:
        return set()
    best = (min if figure.better == "low" else max)(rivals, key=lambda row: values[row])
    texts = format_column(figure, summaries)
    off = max((float(summary[OFF].get(figure.key, 0.0)) for summary in summaries if OFF in summary), default=0.0)
    half = [each.get(figure.key, 0.0) / figure.scale for each in half_widths] or [0.0] * len(values)
    noise = {row: max(off * max(abs(values[row]), abs(values[best])), half[row] + half[best]) for row in rivals}
    near = {row for row in rivals if texts[row] == texts[best] or abs(values[row] - values[best]) <= noise[row]}
    return near if len(near) < len(rivals) else set()


def ties(summaries: Rows, half_widths: HalfWidths = ()) -> list[str]:
    """A line that says what `best_rows` takes for a tie; none where only figures that look the same tie."""
    noise = []
    if any(OFF in summary for summary in summaries):
        noise.append("differences no larger than the simulation is off what was recorded")
    if any(half_widths):
        noise.append("intervals that overlap")
    told = f"ties are marked alike, and nothing where all tie: {', and '.join(noise)}"
    return [told] if noise and len(summaries) > 1 else []


def format_differences(figure: Figure, means: HalfWidths, half_widths: HalfWidths = ()) -> list[str]:
    """A column of differences as text, those above 0 with a sign, too."""
    texts = format_column(figure, means, half_widths)
    return [f"+{text}" if row.get(figure.key, 0.0) > 0 else text for row, text in zip(means, texts, strict=True)]


def differing_rows(figure: Figure, means: HalfWidths, half_widths: HalfWidths) -> dict[int, str]:
    """Rows whose interval does not contain 0, and whether such a difference is "better" or "worse"."""
    differences = [(mean.get(figure.key, 0.0), half.get(figure.key, math.inf))
                   for mean, half in zip(means, half_widths, strict=True)]  # fmt: skip
    return {
        row: "better" if (mean < 0) == (figure.better == "low") else "worse"
        for row, (mean, half) in enumerate(differences)
        if abs(mean) > half
    }


def off_by(simulated: Row, recorded: Row) -> dict[str, float]:
    """How far figures of a simulation are off those recorded, as a part of the larger of the two, by key."""
    pairs = {figure.key: (value_of(figure, simulated), value_of(figure, recorded)) for figure in FIGURES}
    return {key: abs(a - b) / max(abs(a), abs(b), 1e-300) for key, (a, b) in pairs.items() if math.isfinite(a - b)}


def _column_decimals(values: Sequence[float]) -> int:
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return 2 if largest == 0 else min(max(3 - math.floor(math.log10(largest)), 0), 5)
