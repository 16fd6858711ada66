"""Tables for the terminal: the comparison of policies, and one allocation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.report.figures import FIGURES, MISSING, best_rows, format_column

if TYPE_CHECKING:
    from rich.table import Table

    from allocator.allocation import Allocation

__all__ = ["allocation_table", "comparison_table"]


def comparison_table(summaries: Sequence[Mapping[str, Any]], *, title: str | None = None) -> Table:
    """Policies as rows, figures as columns, the best value of each column in bold green with a star.

    Parameters
    ----------
    summaries : one mapping per policy, as `SimulationResult.summary` returns it; missing or nan values are
        shown as "-".
    title : line above the table.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=box.SIMPLE_HEAD, padding=0)
    table.add_column("policy", overflow="fold")
    columns = []
    for figure in FIGURES:
        unit = f"\n({figure.unit})" if figure.unit else "\n "
        table.add_column(figure.heading.replace(" ", "\n", 1) + unit, justify="right", vertical="bottom", no_wrap=True)
        best = best_rows(figure, summaries)
        texts = format_column(figure, summaries)
        columns.append(
            [
                # The star carries the emphasis where there is no colour: logs, pipes, the colour-blind.
                Text(f"{text}*", style="bold green") if row in best else Text(f"{text} ")
                for row, text in enumerate(texts)
            ]
        )
    short = _incomplete(summaries)
    if short:
        table.add_column("jobs\ndone\n ", justify="right", vertical="bottom", no_wrap=True)
        columns.append([Text(text) for text in short])
    for row, summary in enumerate(summaries):
        table.add_row(Text(str(summary.get("policy", MISSING))), *(column[row] for column in columns))
    if len(summaries) > 1:
        table.caption = "* best of the column" + (" among policies that completed the most jobs" if short else "")
    return table


def allocation_table(allocation: Allocation, *, max_rows: int = 40) -> Table:
    """Share of time per job and accelerator type, with the price of each type in the last row.

    Longer tables keep their first and last rows, `max_rows` in all, and say how many were left out.
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
    table.caption = Text(_certificate(allocation, left_out))
    return table


def _incomplete(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Completed and all jobs of each policy; empty when every policy completed every job it tells of."""
    counts = [(summary.get("completed_jobs"), summary.get("jobs")) for summary in summaries]
    if all(done is None or jobs is None or done >= jobs for done, jobs in counts):
        return []
    return [MISSING if done is None else f"{done}/{MISSING if jobs is None else jobs}" for done, jobs in counts]


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


def _certificate(allocation: Allocation, left_out: int) -> str:
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
    if left_out:
        parts.append(f"{left_out} of {allocation.throughputs.n_jobs} jobs not shown")
    return "; ".join(parts)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
