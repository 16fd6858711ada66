"""Tables for the terminal: the comparison of policies, and one allocation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.report.figures import MISSING, Figure, best_rows, format_column, format_count
from allocator.report.presentation import Presentation, ended_otherwise, exceeded_shares, free_restarts

if TYPE_CHECKING:
    from rich.table import Table

    from allocator.protocol.allocation import Allocation

_WIDE = 130
"""Columns of a terminal with room for every figure."""

_EDGES = 2
"""Columns of a terminal that the edges of a table take."""

_FEWEST = 2
"""Figures that a table has however narrow the terminal is."""

_LEAST_FIRST = (
    "owned cost",
    "starts",
    "preemptions",
    "GPU utilisation",
    "best-effort JCT",
    "cluster efficiency",
    "unfair jobs",
    "worst rho_isolated",
    "busy cost",
    "utilisation loaded",
    "waiting",
    "makespan",
    "p99 JCT",
    "worst rho",
)
"""Headings of the figures that narrow terminals do without, the least important first; others stay the longest."""

_LABELS = 12
"""Jobs named one by one in a caption."""


def comparison_table(
    summaries: Sequence[Mapping[str, Any]], *, title: str | None = None, width: int | None = None
) -> Table:
    """Policies as rows, figures as columns, the best value of each column in bold green with a star.

    Parameters
    ----------
    summaries : one mapping per policy, as `SimulationResult.summary` returns it; missing or nan values are
        shown as "-".
    title : line above the table.
    width : columns of the terminal; on narrow ones details are left out, and then the least important columns until
        the names of the policies are whole; the caption says which. None: everything is shown.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=box.SIMPLE_HEAD, padding=0)
    shown = Presentation.of(summaries)
    short = _incomplete(summaries)
    figures = list(shown.figures)
    left_out: list[Figure] = []
    longest = None
    if width is not None:
        longest = max((len(word) for name in shown.names for word in name.split()), default=0)
        room = width - max(longest, len("policy")) - _EDGES - (1 + max(map(len, [*short, "jobs"])) if short else 0)
        figures, left_out = _fitting(figures, summaries, room, details=width >= _WIDE)
        longest = min(longest, max(width - _EDGES - sum(_width(each, summaries) for each in figures), 1))
    table.add_column("policy", overflow="fold", min_width=longest)
    columns = []
    for figure in figures:
        table.add_column(_heading(figure), justify="right", vertical="bottom", no_wrap=True)
        best = best_rows(figure, summaries)
        texts = format_column(figure, summaries)
        columns.append(
            [
                # The star carries the emphasis where there is no colour: logs, pipes, the colour-blind.
                Text(f"{text}*", style="bold green") if row in best else Text(f"{text} ")
                for row, text in enumerate(texts)
            ]
        )
    if short:
        table.add_column("jobs\ndone\n ", justify="right", vertical="bottom", no_wrap=True)
        columns.append([Text(text) for text in short])
    for row, name in enumerate(shown.names):
        table.add_row(Text(name), *(column[row] for column in columns))
    notes = [] if shown.usual else [f"rho: {shown.meaning}"]
    if len(summaries) > 1:
        exempt = [figure.heading for figure in figures if not figure.outcome]
        among = ", among policies that completed the most jobs" + (
            f"; {' and '.join(exempt)}: among all" * bool(exempt)
        )
        notes.insert(0, "* best of the column" + (among if short else ""))
    if left_out:
        notes.append(f"no room here for {', '.join(figure.heading for figure in left_out)}: see summary.json")
    ends = [(name, ended_otherwise(summary)) for name, summary in zip(shown.names, summaries, strict=True)]
    notes += [f"{name}: {words}" for name, words in ends if words]
    notes += free_restarts(summaries)
    notes += exceeded_shares(shown.names, summaries)
    table.caption = "\n".join(notes) or None
    return table


def _heading(figure: Figure) -> str:
    return figure.heading.replace(" ", "\n", 1) + (f"\n({figure.unit})" if figure.unit else "\n ")


def _width(figure: Figure, summaries: Sequence[Mapping[str, Any]]) -> int:
    """Of the column of a figure, with the star of the best and the space before it."""
    lines = [*_heading(figure).split("\n"), *(text + "*" for text in format_column(figure, summaries))]
    return 1 + max(map(len, lines))


def _fitting(
    figures: Sequence[Figure], summaries: Sequence[Mapping[str, Any]], room: int, *, details: bool
) -> tuple[list[Figure], list[Figure]]:
    """Figures whose columns fit into so much room, and those left out of it which are no details, in their order."""
    kept = [figure for figure in figures if details or not figure.detail]
    rank = {heading: place for place, heading in enumerate(_LEAST_FIRST)}
    order = sorted(kept, key=lambda figure: (not figure.detail, rank.get(figure.heading, len(rank))))
    for figure in order[:-_FEWEST]:
        if sum(_width(each, summaries) for each in kept) <= room:
            break
        kept.remove(figure)
    return kept, [figure for figure in figures if figure not in kept and not figure.detail]


def entities_table(summaries: Sequence[Mapping[str, Any]]) -> Table:
    """What each entity got, policy by policy; entities inside others are indented.

    Parameters
    ----------
    summaries : as `SimulationResult.summary` returns them; of runs with entities.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Entities", box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in ("entity", "shares by"):
        table.add_column(heading, overflow="fold", vertical="bottom")
    for heading in _ENTITY_FIGURES:
        table.add_column(heading, justify="right", vertical="bottom", no_wrap=True)
    for summary in summaries:
        rows = summary.get("by_entity", [])
        if len(summaries) > 1:
            table.add_section()
            table.add_row(Text(str(summary.get("label", summary.get("policy", MISSING))), style="bold"))
        for depth, row in _tree(rows):
            name = Text("  " * depth + row["entity"] if row["entity"] else "(no entity)")
            table.add_row(name, Text(row["policy"]), *[Text(text(row)) for text in _ENTITY_FIGURES.values()])
    return table


def _tree(
    rows: Sequence[Mapping[str, Any]], parent: str = "", depth: int = 0
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Entities with how deep they are, each followed by those inside it; jobs outside entities come last."""
    for row in rows:
        if row["entity"] and row["parent"] == parent:
            yield depth, row
            yield from _tree(rows, row["entity"], depth + 1)
    if depth == 0:
        yield from ((0, row) for row in rows if not row["entity"])


def extra_figures(summary: Mapping[str, Any]) -> list[str]:
    """Lines for what only some runs have, beside the caption of their table: a limit that was met, cost, deadlines."""
    lines = []
    if summary["status"] != "completed":
        unfinished = format_count(summary["unfinished_jobs"])
        lines.append(f"{summary['status']}: {summary['status_detail']}; {unfinished} jobs unfinished")
    if summary["cost"] is not None:
        lines.append(f"cost ${summary['cost']:,.2f}")
    if count := summary.get("deadline_jobs"):
        jobs = f"{format_count(count)} job{'s' * (count > 1)}"
        lines.append(f"{summary['deadline_ratio']:.1%} of {jobs} with a deadline in time")
        counts = ", ".join(f"{format_count(summary[name])} {name}" for name in ("admitted", "met", "late"))
        lines.append(f"deadlines: {counts}; {summary['wasted_gpu_hours']:.1f} GPU hours on jobs that were not in time")
    if count := summary.get("fallback_decisions"):
        decisions = f"{format_count(count)} of {format_count(summary['policy_calls'])} decisions"
        lines.append(f"{decisions} were left to another solver or rule, see warnings")
    for row in summary.get("by_priority", []):
        jct = _hours(row["average_jct"], " h")
        lines.append(f"weight {row['priority_weight']:g}: {format_count(row['jobs'])} jobs, average JCT {jct}")
    return lines


def _hours(seconds: float | None, unit: str = "") -> str:
    return MISSING if seconds is None else f"{seconds / 3600:.2f}{unit}"


def _part(share: float | None) -> str:
    return MISSING if share is None else f"{share:.1%}"


_ENTITY_FIGURES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "weight": lambda row: MISSING if row["weight"] is None else f"{row['weight']:g}",
    "jobs\ndone": lambda row: f"{format_count(row['completed_jobs'])}/{format_count(row['jobs'])}",
    "average\nJCT (h)": lambda row: _hours(row["average_jct"]),
    "p99\nJCT (h)": lambda row: _hours(row["p99_jct"]),
    "worst\nrho": lambda row: MISSING if row["worst_rho"] is None else f"{row['worst_rho']:.2f}",
    "GPU\ntime": lambda row: _part(row["gpu_share"]),
    "work\ndone": lambda row: _part(row["throughput_share"]),
}


def allocation_table(allocation: Allocation, *, max_rows: int = 40) -> Table:
    """Share of time per job and accelerator type, with the price of each type in the last row.

    Where jobs share GPUs, the share of a job is that of the job alone, its throughput includes what it does in pairs,
    and rows "a + b" below give the share of each pair and what it adds to the throughput of its two jobs.

    Longer tables keep the first and last rows of jobs and of pairs, `max_rows` each, and say how many were left out.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    matrix = allocation.throughputs
    table = Table(title=f"Allocation by {_plain(allocation.policy)}", box=box.SIMPLE_HEAD, show_footer=True)
    table.add_column("job", footer=Text("price per GPU"), overflow="fold")
    table.add_column("GPUs", justify="right")
    for position, accelerator in enumerate(matrix.accelerators):
        footer = Text(_price(allocation, position))
        table.add_column(Text(accelerator), footer=footer, justify="right")
    table.add_column(Text(f"throughput ({matrix.unit})"), justify="right")
    rows, left_out = _shortened(matrix.n_jobs, max_rows)
    throughput = allocation.effective_throughput
    for row in rows:
        if row is None:
            table.add_row(Text(f"... {left_out} more"), *[Text("...")] * (len(matrix.accelerators) + 2))
            continue
        shares = [Text(f"{share:.3f}", style="" if share > 0 else "dim") for share in allocation.shares[row]]
        label, gpus = Text(str(matrix.jobs[row])), Text(str(int(matrix.scale_factors[row])))
        table.add_row(label, gpus, *shares, Text(f"{throughput[row]:.4g}"))
    pairs_left_out = _add_pairs(table, allocation, max_rows)
    table.caption = Text(_certificate(allocation, left_out, pairs_left_out))
    return table


def _add_pairs(table: Table, allocation: Allocation, max_rows: int) -> int:
    """Rows of the pairs, and how many there was no room for."""
    from rich.text import Text

    pairs, matrix = allocation.pairs, allocation.throughputs
    if pairs is None or not len(pairs):
        return 0
    names = matrix.accelerators
    members, of = np.unique(np.stack([pairs.first, pairs.second]), axis=1, return_inverse=True)
    of = of.ravel()
    shares, gained = np.zeros((members.shape[1], len(names))), np.zeros((members.shape[1], 2))
    np.add.at(shares, (of, pairs.accelerator), pairs.share)
    if allocation.pair_rates is not None:
        np.add.at(gained, of, allocation.pair_rates * pairs.share[:, None])
    table.add_section()
    rows, left_out = _shortened(members.shape[1], max_rows)
    for row in rows:
        if row is None:
            table.add_row(Text(f"... {left_out} more pairs"), *[Text("...")] * (len(names) + 2))
            continue
        one, other = members[:, row].tolist()
        cells = [Text(f"{share:.3f}", style="" if share > 0 else "dim") for share in shares[row]]
        rates = " + ".join(f"{rate:.4g}" for rate in gained[row]) if allocation.pair_rates is not None else MISSING
        label, gpus = f"{matrix.jobs[one]} + {matrix.jobs[other]}", str(int(matrix.scale_factors[one]))
        table.add_row(Text(label), Text(gpus), *cells, Text(rates))
    return left_out


def _incomplete(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Completed and all jobs of each policy; empty when every policy completed every job it tells of."""
    counts = [(summary.get("completed_jobs"), summary.get("jobs")) for summary in summaries]
    if all(done is None or jobs is None or done >= jobs for done, jobs in counts):
        return []
    return [
        MISSING if done is None else f"{format_count(done)}/{MISSING if jobs is None else format_count(jobs)}"
        for done, jobs in counts
    ]


def _shortened(n_rows: int, max_rows: int) -> tuple[list[int | None], int]:
    """Row positions to show, None where rows are left out, and how many are."""
    if n_rows <= max_rows:
        return list(range(n_rows)), 0
    tail = max_rows // 4
    head = max_rows - tail
    return [*range(head), None, *range(n_rows - tail, n_rows)], n_rows - max_rows


def _price(allocation: Allocation, position: int) -> str:
    if allocation.prices is None or not np.isfinite(allocation.prices[position]):
        return MISSING
    return f"{allocation.prices[position]:.4g}"


def _certificate(allocation: Allocation, left_out: int, pairs_left_out: int) -> str:
    parts = [allocation.status]
    unit = f" {allocation.objective_unit}" if allocation.objective_unit else ""
    if not math.isnan(allocation.objective):
        parts.append(f"objective {allocation.objective:.6g}{unit}")
    if not math.isnan(allocation.gap):
        parts.append(f"gap {allocation.gap:.1e}")
    if allocation.solver:
        parts.append(f"{allocation.solver}, {allocation.seconds:.3f} s")
    if allocation.prices is not None and unit:
        parts.append(f"prices in{unit} per GPU")
    if allocation.unserved:
        parts.append(f"{len(allocation.unserved)} jobs cannot be served")
    if allocation.dropped_slos:
        parts.append(f"deadlines given up: {_some(allocation.dropped_slos)}")
    if allocation.pairs is not None and len(allocation.pairs):
        parts.append("a + b: jobs that share GPUs, and what this adds to their throughputs above")
    if left_out:
        parts.append(f"{left_out} of {allocation.throughputs.n_jobs} jobs not shown")
    if pairs_left_out:
        parts.append(f"{pairs_left_out} pairs not shown")
    return "; ".join(parts)


def _some(labels: Sequence[Any]) -> str:
    """The first labels, and how many more there are."""
    shown = ", ".join(str(label) for label in labels[:_LABELS])
    return shown if len(labels) <= _LABELS else f"{shown} and {len(labels) - _LABELS} more"


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
