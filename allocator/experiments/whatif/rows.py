"""What came of scenarios: one row per run, beside the first, and what more GPUs would change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from allocator.cluster import Cluster
from allocator.report.figures import DEADLINE_FIGURES, FIGURES, MISSING, Figure, format_column, title_of, value_of
from allocator.report.presentation import exceeded_shares
from allocator.results.output import as_json
from throughputs.shown import escape

if TYPE_CHECKING:
    import pandas as pd

    from allocator.results.measures.calibration import Calibration

_DIGITS, _MOST_DECIMALS = 3, 3
"""Significant digits of a change, and digits after the point at most."""

_KEYS = (
    "average_jct",
    "median_jct",
    "p99_jct",
    "average_queueing_time",
    "average_bounded_slowdown",
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


@dataclass(frozen=True)
class Column:
    """A column of a table for people: the figure, and of each row a text with its ratio to the first, or nothing."""

    figure: Figure
    texts: list[str]
    ratios: list[str] | None = None

    @property
    def key(self) -> str:
        """Of the figure."""
        return self.figure.key

    @property
    def title(self) -> str:
        """The heading with the unit."""
        return title_of(self.figure)

    def cells(self) -> list[str]:
        """Values and ratios, aligned."""
        ratios = self.ratios or [""] * len(self.texts)
        widest = max(map(len, ratios), default=0)
        both = zip(self.texts, ratios, strict=True)
        return [f"{text} {ratio:<{widest}}" if widest else text for text, ratio in both]


_DONE = Figure("jobs_done", "jobs done", "", "completed of all jobs", better="high")
_PRICE = Figure("price", "price per GPU", "", "gain of the policy's objective by one more GPU, averaged over time")

# Rows

_PRINTED_ROWS = 8
_PRINTED_FIGURES = ("average_jct", "average_queueing_time", "loaded_utilization", "owned_cost")


@dataclass(frozen=True)
class NextGpus:
    """A row with more GPUs of one type.

    Attributes
    ----------
    accelerator : the type.
    status, status_detail, figures : of that run, as in `Row`.
    """

    accelerator: str
    status: str
    status_detail: str
    figures: Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes
    ----------
    label : what tells it from the other rows.
    cluster, load, restart_penalty, varied, policy : where it stands; the penalty is None where the preset says it.
    status, status_detail : "completed", "saturated", "failed" or "lost", and why.
    figures : the summary of the run, see `allocator.results.metrics.summarize`; empty where there is none.
    prices : time average of the prices of the accelerator types, in `price_unit` per GPU; empty without any.
    next_gpus : the same run with more GPUs of each type.
    jobs : table of its jobs, as `SimulationResult.jobs`; None where the run failed.
    """

    label: str
    cluster: Cluster
    load: float
    restart_penalty: float | None
    varied: Mapping[str, Any]
    policy: str
    status: str
    status_detail: str
    figures: Mapping[str, Any]
    prices: Mapping[str, float | None] = field(default_factory=dict)
    price_unit: str = ""
    next_gpus: tuple[NextGpus, ...] = ()
    jobs: pd.DataFrame | None = field(default=None, repr=False, compare=False)

    @property
    def changes(self) -> dict[str, Any]:
        """Where it stands, by dimension."""
        penalty = {} if self.restart_penalty is None else {"restart_penalty_seconds": self.restart_penalty}
        place = {"cluster": str(self.cluster), "gpus": self.cluster.total_gpus, "load": self.load}
        return {**place, **penalty, **self.varied, "policy": self.policy}


@dataclass(frozen=True, eq=False)
class WhatIf:
    """The rows, the first of which the others are compared with.

    Attributes
    ----------
    rows : in the order of the dimensions.
    trace, n_jobs : where the jobs are from, and how many there are.
    more_gpus : how many more GPUs `next_gpus` of a row has of a type; 0: there are none.
    recorded : the schedule that the trace records, on the first cluster, which is set beside the rows and is none of
        them: it was not simulated, and is of load 1 whatever they are of; None where the trace records none.
    told_of_record : what one must know of it, or why it is left out; empty: nothing.
    calibration : how near the first row comes to it; None where nothing says so.
    answer : what follows for waiting, in up to three sentences; of jobs of a log.
    """

    rows: tuple[Row, ...]
    trace: str
    n_jobs: int
    more_gpus: int
    recorded: Row | None = None
    told_of_record: str = ""
    calibration: Calibration | None = None
    answer: str = ""

    @property
    def side_by_side(self) -> tuple[Row, ...]:
        """The rows, and the recorded schedule after them, where there is one."""
        return self.rows if self.recorded is None else (*self.rows, self.recorded)

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """The figures that rows have."""
        return shown_figures([row.figures for row in self.side_by_side])

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per run, and one for the recorded schedule, where there is one.

        Columns: label, dimensions, status, jobs, figures, and of each figure the ratio to the first row's.

        Figures have the names and the units of `SimulationResult.summary`, times are in seconds; ratios end in _ratio.
        """
        import pandas as pd

        first = self.rows[0].figures
        return pd.DataFrame(
            [
                {"row": row.label, **row.changes, "status": row.status}
                | {name: row.figures.get(name) for name in ("jobs", "completed_jobs", "unserved_jobs", "preemptions")}
                | {figure.key: row.figures.get(figure.key) for figure in self.figures}
                | {f"{figure.key}_ratio": ratio_of(figure, row.figures, first) for figure in self.figures}
                for row in self.side_by_side
            ]
        )

    @cached_property
    def next_gpus(self) -> pd.DataFrame:
        """What more GPUs change, one row per row and accelerator type; empty where that was not simulated.

        Columns row, accelerator, gpus, status, the change of each figure (ending in _change, units as in `table`; nan
        where other jobs completed), and price with its price_unit: the time average of what one more GPU adds to
        the policy's objective.
        """
        import pandas as pd

        rows = [
            {"row": row.label, "accelerator": more.accelerator, "gpus": self.more_gpus, "status": more.status}
            | {f"{f.key}_change": f.scale * change_of(f, more.figures, row.figures) for f in CHANGES}
            | {"price": row.prices.get(more.accelerator), "price_unit": row.price_unit or None}
            for row in self.rows
            for more in row.next_gpus
        ]
        names = ["row", "accelerator", "gpus", "status", *(f"{f.key}_change" for f in CHANGES), "price", "price_unit"]
        return pd.DataFrame(rows, columns=names)

    @property
    def failed(self) -> list[str]:
        """A line for each run that has no figures."""
        runs: list[tuple[str, Row | NextGpus]] = []
        for row in self.rows:
            runs.append((row.label, row))
            runs += [(f"{row.label} with {self.more_gpus} more {more.accelerator}", more) for more in row.next_gpus]
        return [f"{name} {run.status}: {run.status_detail}" for name, run in runs if run.status in ("failed", "lost")]

    @property
    def _left_out(self) -> dict[str, int]:
        """Jobs that a cluster cannot run, by its name."""
        return {str(row.cluster): int(row.figures.get("unserved_jobs") or 0) for row in self.rows}

    @property
    def counted(self) -> str:
        """How many jobs there are, and how many of them no figure counts where they are too large."""
        counts = {*self._left_out.values()}
        some = f"{'up to ' * (len(counts) > 1)}{max(counts, default=0):,}"
        return f"{self.n_jobs:,} jobs" + (f", {some} of them left out as too large" if any(counts) else "")

    @property
    def notes(self) -> list[str]:
        """What one must know to read the figures, a line each."""
        found = [f"{row.label} {row.status}: {row.status_detail}" for row in self.rows if row.status == "saturated"]
        found += [
            f"{cluster}: {count} of {self.n_jobs} jobs need more GPUs than any type that they can run on has; figures "
            "leave them out"
            for cluster, count in self._left_out.items()
            if count
        ]
        found += exceeded_shares([row.label for row in self.rows], [row.figures for row in self.rows])
        return found + ([self.told_of_record] if self.told_of_record else [])

    def as_dict(self) -> dict[str, Any]:
        """Everything but the tables of jobs, ready for JSON."""
        told = {
            "trace": self.trace,
            "jobs": self.n_jobs,
            "more_gpus": self.more_gpus,
            **({"answer": self.answer} if self.answer else {}),
            **({"calibration": self.calibration.as_dict()} if self.calibration is not None else {}),
            "rows": [
                {
                    "row": row.label,
                    **row.changes,
                    "status": row.status,
                    "status_detail": row.status_detail,
                    "figures": dict(row.figures),
                    "ratios": {
                        figure.key: ratio_of(figure, row.figures, self.rows[0].figures) for figure in self.figures
                    },
                    "average_prices": dict(row.prices),
                    "price_unit": row.price_unit or None,
                    "next_gpus": [
                        {
                            "accelerator": more.accelerator,
                            "gpus": self.more_gpus,
                            "status": more.status,
                            "figures": dict(more.figures),
                            "changes": {f.key: f.scale * change_of(f, more.figures, row.figures) for f in CHANGES},
                            "price": row.prices.get(more.accelerator),
                            "price_unit": row.price_unit or None,
                        }
                        for more in row.next_gpus
                    ],
                }
                for row in self.side_by_side
            ],
            "notes": [*self.notes, *self.failed],
        }
        return dict(as_json(told))

    def __str__(self) -> str:
        """The rows with the figures that matter most, in about ten lines."""
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        lines = self._lines()
        return f"<b>{escape(lines[0])}</b><pre>{escape(chr(10).join(lines[1:]))}</pre>"

    def _lines(self) -> list[str]:
        shown = self.side_by_side[:_PRINTED_ROWS]
        columns = [c for c in self.columns() if c.key in _PRINTED_FIGURES]
        table = [["", *(row.label for row in shown)]]
        table += [[column.title, *column.cells()[: len(shown)]] for column in columns]
        widths = [max(map(len, column)) for column in table]
        lines = [self.answer] if self.answer else []
        lines.append(f"{self.counted}, of {self.trace}; × is the ratio to the first row")
        for label, *cells in zip(*table, strict=True):
            others = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
            lines.append("  ".join([label.ljust(widths[0]), *others]).rstrip())
        if len(self.side_by_side) > len(shown):
            lines.append(f"... and {len(self.side_by_side) - len(shown)} more rows, see .table")
        return lines + [f"note: {note}" for note in (*self.notes, *self.failed)][:2]

    def columns(self) -> list[Column]:
        """The figures of the rows as they are shown, with the ratios to the first; the jobs done, where not all are."""
        summaries = [row.figures for row in self.side_by_side]
        found = [
            Column(
                figure,
                format_column(figure, summaries),
                ["", *(format_ratio(ratio_of(figure, row, summaries[0])) for row in summaries[1:])],
            )
            for figure in self.figures
        ]
        counts = [(summary.get("completed_jobs"), summary.get("jobs")) for summary in summaries]
        if any(done is None or done < jobs for done, jobs in counts):
            ended = zip(self.side_by_side, counts, strict=True)
            found.append(
                Column(_DONE, [row.status if done is None else f"{done}/{jobs}" for row, (done, jobs) in ended])
            )
        return found

    def next_columns(self) -> tuple[list[tuple[int, Row, NextGpus]], list[Column]]:
        """What more GPUs change in each row: the rows with their places, and the columns that say something."""
        pairs = [(place, row, more) for place, row in enumerate(self.rows) for more in row.next_gpus]
        columns = []
        for figure in CHANGES:
            changes = [change_of(figure, more.figures, row.figures) for _, row, more in pairs]
            if any(map(math.isfinite, changes)):
                columns.append(Column(figure, list(map(format_change, changes))))
        prices = [row.prices.get(more.accelerator) for _, row, more in pairs]
        if any(price is not None for price in prices):
            units = sorted(
                {row.price_unit for (_, row, _), price in zip(pairs, prices, strict=True) if price is not None}
            )
            texts = [MISSING if price is None else f"{price:.3g}" for price in prices]
            columns.append(Column(replace(_PRICE, unit=", ".join(units)), texts))
        return pairs, columns
