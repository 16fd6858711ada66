"""What came of scenarios: one row per run, beside the first, and what more GPUs would change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from allocator.cluster import Cluster
from allocator.report.figures import DEADLINE_FIGURES, FIGURES, MISSING, Figure, format_column, heading_of, value_of
from allocator.report.presentation import exceeded_shares
from allocator.report.terminal import fitting, no_room
from allocator.results.output import as_json
from allocator.results.shown import as_text, html_lines, text_table
from throughputs.shown import counted

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from allocator.results.measures.calibration import Calibration

_DIGITS, _MOST_DECIMALS = 3, 3
"""Significant digits of a change, and digits after the point at most."""

_BY_KEY = {figure.key: figure for figure in (*FIGURES, *DEADLINE_FIGURES)}

_SHOWN = tuple(
    _BY_KEY[key]
    for key in (
        "average_jct", "median_jct", "p99_jct", "average_queueing_time", "average_bounded_slowdown",
        "loaded_utilization", "makespan", "restart_gpu_hours", "owned_cost", "deadline_ratio",
        "best_effort_average_jct",
    )
)  # fmt: skip

_CHANGES = tuple(
    _BY_KEY[key] for key in ("average_jct", "p99_jct", "average_queueing_time", "loaded_utilization", "owned_cost")
)
"""Those of which the change by more GPUs is shown."""

_DONE = Figure("jobs_done", "jobs done", "", "completed of all jobs", better="high")
_PRICE = Figure("price", "price per GPU", "", "gain of the policy's objective by one more GPU, averaged over time")

_GAP = 2
"""Spaces between the columns of a table."""

_PRINTED_ROWS = 8
_PRINTED_FIGURES = ("average_jct", "average_queueing_time", "loaded_utilization", "owned_cost")


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes
    ----------
    label : what tells it from the other rows.
    cluster : where it ran.
    changes : where it stands, by dimension: cluster, gpus, load, settings that vary, policy.
    status, status_detail : "completed", "saturated", "failed" or "lost", and why.
    figures : the summary of the run, see `allocator.results.metrics.summarize`; empty where there is none.
    prices : time average of the prices of the accelerator types, in `price_unit` per GPU; empty without any.
    next_gpus : the same run with more GPUs of a type, by type.
    jobs : table of its jobs, as `SimulationResult.jobs`; None where the run failed.
    """

    label: str
    cluster: Cluster
    changes: Mapping[str, Any]
    status: str = "lost"
    status_detail: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    prices: Mapping[str, float | None] = field(default_factory=dict)
    price_unit: str = ""
    next_gpus: Mapping[str, Row] = field(default_factory=dict)
    jobs: pd.DataFrame | None = field(default=None, repr=False, compare=False)

    @property
    def policy(self) -> str:
        """The policy, with its own settings."""
        return str(self.changes["policy"])

    @property
    def load(self) -> float:
        """How many times as often as in the trace jobs arrive."""
        return float(self.changes["load"])

    def over(self, first: Row, figure: Figure) -> float:
        """A figure over that of the first row; nan where one is missing or the first is 0."""
        value, base = value_of(figure, self.figures), value_of(figure, first.figures)
        return value / base if math.isfinite(value) and math.isfinite(base) and base > 0 else math.nan

    def change(self, larger: Row, figure: Figure) -> float:
        """Difference of a figure in its shown unit, that with more GPUs minus that of this row.

        nan where one is missing, and where other jobs completed: the two are then of different jobs.
        """
        if larger.figures.get("completed_jobs") != self.figures.get("completed_jobs"):
            return math.nan
        return value_of(figure, larger.figures) - value_of(figure, self.figures)


def usual_row(rows: Sequence[Row]) -> Row:
    """The first row at the load that the trace has; the first of all where none is."""
    return next((row for row in rows if row.load == 1), rows[0])


@dataclass(frozen=True)
class Column:
    """A column of a table for people: the figure, and of each row a text with its ratio to the first, or nothing."""

    figure: Figure
    texts: list[str]
    ratios: list[str] | None = None

    def cells(self) -> list[str]:
        """Values and ratios, aligned."""
        ratios = self.ratios or [""] * len(self.texts)
        widest = max(map(len, ratios), default=0)
        both = zip(self.texts, ratios, strict=True)
        return [f"{text} {ratio:<{widest}}" if widest else text for text, ratio in both]


@dataclass(frozen=True, eq=False)
class WhatIf:
    """The rows, the first of which the others are compared with.

    Attributes
    ----------
    rows : in the order of the dimensions.
    trace, n_jobs : where the jobs are from, and how many there are.
    more_gpus : how many more GPUs the runs of `Row.next_gpus` have; 0: there are none.
    recorded : the schedule that the trace records, on the first cluster, which is set beside the rows and is none of
        them: it was not simulated, and is of load 1 whatever they are of; None where the trace records none.
    told_of_record : what one must know of it, or why it is left out; empty: nothing.
    calibration : how near the first row at load 1 comes to it; None where nothing says so.
    answer : what follows for waiting, in a few sentences; of jobs of a log.
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
        """The figures that at least one row has; utilisation overall where none has the loaded one."""
        every = [row.figures for row in self.side_by_side]
        shown = tuple(figure for figure in _SHOWN if any(math.isfinite(value_of(figure, each)) for each in every))
        return shown if _BY_KEY["loaded_utilization"] in shown else (*shown, _BY_KEY["utilization"])

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per run, and one for the recorded schedule, where there is one.

        Columns: label, dimensions, status, jobs, figures, and of each figure the ratio to the first row's.

        Figures have the names and the units of `SimulationResult.summary`, times are in seconds; ratios end in _ratio.
        """
        import pandas as pd

        counts = ("jobs", "completed_jobs", "unserved_jobs", "preemptions")
        names = (*counts, *(figure.key for figure in self.figures))
        return pd.DataFrame(
            [
                {"row": row.label, **row.changes, "status": row.status}
                | {name: row.figures.get(name) for name in names}
                | {f"{figure.key}_ratio": row.over(self.rows[0], figure) for figure in self.figures}
                for row in self.side_by_side
            ]
        )

    @property
    def next_gpus(self) -> pd.DataFrame:
        """What more GPUs change, one row per row and accelerator type; empty where that was not simulated.

        Columns row, accelerator, gpus, status, the change of each figure (ending in _change, units as in `table`; nan
        where other jobs completed), and price with its price_unit: the time average of what one more GPU adds to
        the policy's objective.
        """
        import pandas as pd

        rows = [
            {"row": row.label, "accelerator": name, "gpus": self.more_gpus, "status": larger.status}
            | {f"{key}_change": change for key, change in _changes(row, larger).items()}
            | {"price": row.prices.get(name), "price_unit": row.price_unit or None}
            for row, name, larger in self.larger
        ]
        names = ["row", "accelerator", "gpus", "status", *(f"{f.key}_change" for f in _CHANGES), "price", "price_unit"]
        return pd.DataFrame(rows, columns=names)

    @property
    def larger(self) -> list[tuple[Row, str, Row]]:
        """Each row with each type of which there may be more, and the run with more."""
        return [(row, name, larger) for row in self.rows for name, larger in row.next_gpus.items()]

    @property
    def failed(self) -> list[str]:
        """A line for each run that has no figures."""
        runs = [(row.label, row) for row in self.rows]
        runs += [(f"{row.label} with {self.more_gpus} more {name}", larger) for row, name, larger in self.larger]
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
        return counted(self.n_jobs, "job") + (f", {some} of them left out as too large" if any(counts) else "")

    @property
    def notes(self) -> list[str]:
        """What one must know to read the figures, a line each."""
        found = [f"{row.label} {row.status}: {row.status_detail}" for row in self.rows if row.status == "saturated"]
        why = "jobs need more GPUs than any type that they can run on has; figures leave them out"
        found += [f"{name}: {count} of {self.n_jobs} {why}" for name, count in self._left_out.items() if count]
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
                    "ratios": {figure.key: row.over(self.rows[0], figure) for figure in self.figures},
                    "average_prices": dict(row.prices),
                    "price_unit": row.price_unit or None,
                    "next_gpus": [
                        {
                            "accelerator": name,
                            "gpus": self.more_gpus,
                            "status": larger.status,
                            "figures": dict(larger.figures),
                            "changes": _changes(row, larger),
                            "price": row.prices.get(name),
                            "price_unit": row.price_unit or None,
                        }
                        for name, larger in row.next_gpus.items()
                    ],
                }
                for row in self.side_by_side
            ],
            "notes": [*self.notes, *self.failed],
        }
        return dict(as_json(told))

    def __str__(self) -> str:
        """The rows with the figures that matter most, in about ten lines."""
        columns = [column for column in self.columns() if column.figure.key in _PRINTED_FIGURES]
        table = _table([[row.label] for row in self.side_by_side[:_PRINTED_ROWS]], [""], columns)
        more = len(self.side_by_side) - _PRINTED_ROWS
        notes = [f"note: {note}" for note in (*self.notes, *self.failed)][:2]
        ahead = [self.answer] if self.answer else []
        ahead.append(f"{self.counted}, of {self.trace}; × is the ratio to the first row")
        rest = [f"... and {more} more rows, see .table"] if more > 0 else []
        return "\n".join([*ahead, as_text([table], width=200).strip("\n"), *rest, *notes])

    def _repr_html_(self) -> str:
        return html_lines(str(self))

    def columns(self) -> list[Column]:
        """The figures of the rows as they are shown, with the ratios to the first; the jobs done, where not all are."""
        rows = self.side_by_side
        summaries = [row.figures for row in rows]
        found = []
        for figure in self.figures:
            ratios = [format_ratio(row.over(rows[0], figure)) for row in rows[1:]]
            found.append(Column(figure, format_column(figure, summaries), ["", *ratios]))
        counts = [(summary.get("completed_jobs"), summary.get("jobs")) for summary in summaries]
        if any(done is None or done < jobs for done, jobs in counts):
            texts = [f"{done}/{jobs}" for done, jobs in counts]
            ended = zip(rows, counts, texts, strict=True)
            found.append(Column(_DONE, [row.status if done is None else text for row, (done, _), text in ended]))
        return found

    def next_columns(self) -> list[Column]:
        """What more GPUs change in each row and type: the columns that say something."""
        pairs, columns = self.larger, []
        for figure in _CHANGES:
            changes = [row.change(larger, figure) for row, _, larger in pairs]
            if any(map(math.isfinite, changes)):
                columns.append(Column(figure, list(map(format_change, changes))))
        prices = [(row.prices.get(name), row.price_unit) for row, name, _ in pairs]
        if units := sorted({unit for price, unit in prices if price is not None}):
            texts = [MISSING if price is None else f"{price:.3g}" for price, _ in prices]
            columns.append(Column(replace(_PRICE, unit=", ".join(units)), texts))
        return columns


def _changes(row: Row, larger: Row) -> dict[str, float]:
    """The change of each figure by more GPUs, in its own unit."""
    return {figure.key: figure.scale * row.change(larger, figure) for figure in _CHANGES}


def format_ratio(ratio: float) -> str:
    """As ``×0.94``; nothing where there is none."""
    return f"×{ratio:,.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}" if math.isfinite(ratio) else ""


def format_change(change: float) -> str:
    """A change with its sign and three significant digits; small ones keep them beside large ones."""
    if math.isnan(change):
        return MISSING
    digits = f"{abs(change):.{_DIGITS}g}"
    decimals = max(_DIGITS - 1 - math.floor(math.log10(abs(change))), 0) if float(digits) else 0
    text = f"{abs(change):,.{min(decimals, _MOST_DECIMALS)}f}"
    return text if not text.strip("0.") else f"+{text}" if change > 0 else f"−{text}"


# On a terminal


def rows_table(result: WhatIf, *, title: str | None = None, width: int | None = None) -> Table:
    """The rows, each figure with its ratio to that of the first.

    Parameters
    ----------
    result : the rows.
    title : line above the table.
    width : columns of the terminal; on narrow ones details are left out, and then the least important columns. None:
        everything is shown.
    """
    rows = result.side_by_side
    notes = [f"×: times that of {rows[0].label}"] if len(rows) > 1 else []
    return _table([[row.label] for row in rows], [""], result.columns(), width, notes, title=title)


def next_gpus_table(result: WhatIf, *, width: int | None = None) -> Table:
    """What more GPUs of each type change in each row; of runs that have them, for a terminal of so many columns."""
    title = f"Change by {result.more_gpus} more {'GPU' if result.more_gpus == 1 else 'GPUs'} of a type"
    labels = [[row.label, name] for row, name, _ in result.larger]
    return _table(labels, ["", "type"], result.next_columns(), width, title=title)


def _table(
    labels: Sequence[Sequence[str]],
    headings: Sequence[str],
    columns: Sequence[Column],
    width: int | None = None,
    notes: Sequence[str] = (),
    **about: Any,
) -> Table:
    texts = {column.figure: column.cells() for column in columns}
    if width is not None:
        words = [max(len(word) for text in (heading, *column) for word in text.split())
                 for heading, *column in zip(headings, *labels, strict=True)]  # fmt: skip
        kept, left_out = fitting(texts, width, sum(words) + _GAP * len(words), _GAP)
        texts, notes = {figure: texts[figure] for figure in kept}, [*notes, *no_room(left_out, "whatif.html")]
    heads = [*headings, *map(heading_of, texts)]
    rows = zip(labels, *texts.values(), strict=False)
    about["caption"] = "\n".join(notes) or None
    return text_table(heads, ((*label, *cells) for label, *cells in rows), words=range(len(headings)), **about)
