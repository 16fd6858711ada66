"""Tables for the terminal: the comparison of policies, and one allocation."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from allocator.report.breakdowns import parts_tables
from allocator.report.figures import (
    MISSING,
    Figure,
    HalfWidths,
    Row,
    Rows,
    best_rows,
    differing_rows,
    format_column,
    format_count,
    format_differences,
    heading_of,
    ties,
)
from allocator.report.page.seeds import Policies
from allocator.report.presentation import Presentation, ended_otherwise, exceeded_shares, free_restarts, true_lengths
from throughputs.arrays import Floats, Ints

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

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

_MOST_ROWS = 40
"""Jobs, and pairs, that the table of an allocation shows."""

_LABELS = 12
"""Jobs named one by one in a caption."""


def comparison_table(
    summaries: Rows,
    *,
    title: str | None = None,
    width: int | None = None,
    half_widths: HalfWidths = (),
) -> Table:
    """Policies as rows, figures as columns, the best value of each column in bold green with a star.

    Parameters
    ----------
    summaries : one mapping per policy, as `SimulationResult.summary` returns it; missing or nan values are
        shown as "-".
    title : line above the table.
    width : columns of the terminal; on narrow ones details are left out, and then the least important columns until
        the names of the policies are whole; the caption says which. None: everything is shown.
    half_widths : of the intervals of means, by figure, for each of the policies.
    """
    shown = Presentation.of(summaries)
    short = _incomplete(summaries)
    table, figures, left_out = _grid(
        title,
        shown.names,
        {figure: format_column(figure, summaries, half_widths) for figure in shown.figures},
        lambda figure: best_rows(figure, summaries, half_widths),
        width,
        short,
    )
    notes = [] if shown.usual else [f"rho: {shown.meaning}"]
    if len(summaries) > 1:
        exempt = [figure.heading for figure in figures if not figure.outcome]
        among = ", among policies that completed the most jobs" + (
            f"; {' and '.join(exempt)}: among all" * bool(exempt)
        )
        notes.insert(0, "* best of the column" + (among if short else ""))
    notes += ties(summaries, half_widths)
    if any(half_widths):
        notes.append("\N{PLUS-MINUS SIGN} 95 % interval of the mean")
    several = len(summaries) > 1 or any(half_widths)
    notes += no_room(left_out, "report.html" if several else "summary.json")
    ends = zip(shown.names, map(ended_otherwise, summaries), strict=True)
    notes += [f"{name}: {words}" for name, words in ends if words]
    notes += true_lengths(shown.names, summaries)
    notes += free_restarts(summaries)
    notes += exceeded_shares(shown.names, summaries)
    table.caption = "\n".join(notes) or None
    return table


def differences_table(summaries: Rows, differences: Rows, *, width: int | None = None) -> Table:
    """Paired differences of policies from the first of them, as `Policies.differences` gives them, with intervals."""
    shown = Presentation.of(summaries)
    means, halves = ([row[name] for row in differences] for name in ("mean", "half_width"))
    pairs = max(row["pairs"] for row in differences)
    table, _, left_out = _grid(
        f"Differences from {shown.names[0]} with the same seeds: means of {pairs} pairs",
        shown.names[1:],
        {figure: format_differences(figure, means, halves) for figure in shown.figures},
        lambda figure: differing_rows(figure, means, halves),
        width,
    )
    notes = ["\N{PLUS-MINUS SIGN} 95 % interval of the mean of paired differences; * it does not contain 0"]
    table.caption = "\n".join(notes + no_room(left_out, "differences.json"))
    return table


def _grid(
    title: str | None,
    names: Sequence[str],
    texts: Mapping[Figure, Sequence[str]],
    marked: Callable[[Figure], Container[int]],
    width: int | None,
    done: Sequence[str] = (),
) -> tuple[Table, list[Figure], list[Figure]]:
    """A row for each name and a column for each figure that fits, and jobs done where that is told; which do not."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=box.SIMPLE_HEAD, padding=0)
    figures, left_out, longest = list(texts), list[Figure](), None
    if width is not None:
        longest = max((len(word) for name in names for word in name.split()), default=0)
        taken = max(longest, len("policy")) + (1 + max(map(len, [*done, "jobs"])) if done else 0)
        starred = {figure: [text + "*" for text in column] for figure, column in texts.items()}
        widths, left_out = fitting(starred, width, taken)
        figures, longest = list(widths), min(longest, max(width - _EDGES - sum(widths.values()), 1))
    table.add_column("policy", overflow="fold", min_width=longest)
    columns = []
    for figure in figures:
        table.add_column(heading_of(figure), justify="right", vertical="bottom", no_wrap=True)
        stars = marked(figure)
        columns.append(
            [
                # The star carries the emphasis where there is no colour: logs, pipes, the colour-blind.
                Text(f"{text}*", style="bold green") if row in stars else Text(f"{text} ")
                for row, text in enumerate(texts[figure])
            ]
        )
    if done:
        table.add_column("jobs\ndone\n ", justify="right", vertical="bottom", no_wrap=True)
        columns.append([Text(text) for text in done])
    for row, name in enumerate(names):
        table.add_row(Text(name), *(column[row] for column in columns))
    return table, figures, left_out


def no_room(left_out: Sequence[Figure], where: str) -> list[str]:
    """A line on figures left out, and where they are."""
    names = ", ".join(figure.heading for figure in left_out)
    return [f"no room here for {names}: see {where}"] if names else []


def fitting(
    texts: Mapping[Figure, Sequence[str]], width: int, taken: int, gap: int = 1
) -> tuple[dict[Figure, int], list[Figure]]:
    """Figures whose columns fit, with their widths, and those left out which are no details, in their order.

    Parameters
    ----------
    texts : of the column of each figure.
    width : columns of the terminal; details are shown on wide ones alone.
    taken : by other columns of the table.
    gap : spaces between columns.
    """
    widths = {
        figure: gap + max(map(len, [*heading_of(figure).split("\n"), *column]))
        for figure, column in texts.items()
        if width >= _WIDE or not figure.detail
    }
    rank = {heading: place for place, heading in enumerate(_LEAST_FIRST)}
    order = sorted(widths, key=lambda figure: (not figure.detail, rank.get(figure.heading, len(rank))))
    for figure in order[:-_FEWEST]:
        if sum(widths.values()) <= width - taken - _EDGES:
            break
        del widths[figure]
    return widths, [figure for figure in texts if figure not in widths and not figure.detail]


def shown_policies(
    policies: Policies, differences: Rows = (), *, title: str | None = None, width: int | None = None
) -> Iterator[Table | Text]:
    """All that a terminal shows of policies: their table, paired `differences`, lines and tables of what some have."""
    from rich.text import Text

    summaries = policies.summaries
    yield comparison_table(summaries, title=title, width=width, half_widths=policies.half_widths)
    if differences:
        yield differences_table(summaries, differences, width=width)
    for summary in summaries:
        for line in _extra_figures(summary):
            yield Text(f"{summary.get('label', summary['policy'])}: {line}")
    yield from parts_tables(summaries)


def _extra_figures(summary: Row) -> list[str]:
    """Lines for what only some runs have, beside the caption of their table: a limit that was met, deadlines."""
    lines = []
    if summary["status"] != "completed":
        unfinished = format_count(summary["unfinished_jobs"])
        lines.append(f"{summary['status']}: {summary['status_detail']}; {unfinished} jobs unfinished")
    if (count := summary.get("deadline_jobs")) and summary["wasted_gpu_hours"] is not None:
        counts = ", ".join(f"{format_count(summary[name])} {name}" for name in ("admitted", "met", "late"))
        wasted = f"{summary['wasted_gpu_hours']:.1f} GPU hours on jobs that were not in time"
        lines.append(f"{format_count(count)} job{'s' * (count > 1)} with a deadline: {counts}; {wasted}")
    for row in summary.get("by_priority", []):
        jct = MISSING if row["average_jct"] is None else f"{row['average_jct'] / 3600:.2f} h"
        lines.append(f"weight {row['priority_weight']:g}: {format_count(row['jobs'])} jobs, average JCT {jct}")
    return lines


def allocation_table(allocation: Allocation) -> Table:
    """Share of time per job and accelerator type, with the price of each type in the last row.

    Where jobs share GPUs, the share of a job is that of the job alone, its throughput includes what it does in pairs,
    and rows "a + b" below give the share of each pair and what it adds to the throughput of its two jobs.

    Longer tables keep the first and last rows of jobs and of pairs, `_MOST_ROWS` each, and say how many were left out.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    matrix, pairs = allocation.throughputs, allocation.pairs
    table = Table(title=Text(f"Allocation by {allocation.policy}"), box=box.SIMPLE_HEAD, show_footer=True)
    table.add_column("job", footer=Text("price per GPU"), overflow="fold")
    table.add_column("GPUs", justify="right")
    prices = [MISSING] * len(matrix.accelerators)
    if allocation.prices is not None:
        prices = [f"{price:.4g}" if np.isfinite(price) else MISSING for price in allocation.prices]
    for accelerator, price in zip(matrix.accelerators, prices, strict=True):
        table.add_column(Text(accelerator), footer=Text(price), justify="right")
    table.add_column(Text(f"throughput ({matrix.unit})"), justify="right")

    def add(names: Sequence[str], first: Ints, shares: Floats, rates: Sequence[str], what: str) -> int:
        """Rows of jobs or of pairs, and how many there was no room for."""
        count, tail = len(names), _MOST_ROWS // 4
        shown = range(count) if count <= _MOST_ROWS else [*range(_MOST_ROWS - tail), None, *range(count - tail, count)]
        for row in shown:
            if row is None:
                table.add_row(f"... {count - _MOST_ROWS} more{what}", *["..."] * (len(prices) + 2))
                continue
            cells = [Text(f"{share:.3f}", style="" if share > 0 else "dim") for share in shares[row]]
            table.add_row(Text(names[row]), str(int(matrix.scale_factors[first[row]])), *cells, rates[row])
        return max(count - _MOST_ROWS, 0)

    throughput = [f"{rate:.4g}" for rate in allocation.effective_throughput]
    left_out = add([*map(str, matrix.jobs)], np.arange(matrix.n_jobs), allocation.shares, throughput, "")
    pairs_left_out = 0
    if pairs is not None and len(pairs):
        members, of = np.unique(np.stack([pairs.first, pairs.second]), axis=1, return_inverse=True)
        shares, gained = np.zeros((members.shape[1], len(prices))), np.zeros((members.shape[1], 2))
        np.add.at(shares, (of.ravel(), pairs.accelerator), pairs.share)
        rates = [MISSING] * len(shares)
        if allocation.pair_rates is not None:
            np.add.at(gained, of.ravel(), allocation.pair_rates * pairs.share[:, None])
            rates = [f"{one:.4g} + {other:.4g}" for one, other in gained]
        names = [f"{matrix.jobs[one]} + {matrix.jobs[other]}" for one, other in members.T]
        table.add_section()
        pairs_left_out = add(names, members[0], shares, rates, " pairs")
    table.caption = Text(_certificate(allocation, left_out, pairs_left_out))
    return table


def _incomplete(summaries: Rows) -> list[str]:
    """Completed and all jobs of each policy; empty when every policy completed every job it tells of."""
    counts = [(summary.get("completed_jobs"), summary.get("jobs")) for summary in summaries]
    if all(done is None or jobs is None or done >= jobs for done, jobs in counts):
        return []
    return [
        MISSING if done is None else f"{format_count(done)}/{MISSING if jobs is None else format_count(jobs)}"
        for done, jobs in counts
    ]


def _certificate(allocation: Allocation, left_out: int, pairs_left_out: int) -> str:
    unit = f" {allocation.objective_unit}" if allocation.objective_unit else ""
    pairs, given_up = allocation.pairs, allocation.dropped_slos
    more = f" and {len(given_up) - _LABELS} more" if len(given_up) > _LABELS else ""
    parts = {
        allocation.status: True,
        f"objective {allocation.objective:.6g}{unit}": not math.isnan(allocation.objective),
        f"gap {allocation.gap:.1e}": not math.isnan(allocation.gap),
        f"{allocation.solver}, {allocation.seconds:.3f} s": allocation.solver,
        f"prices in{unit} per GPU": allocation.prices is not None and unit,
        **{f"price of {name} {price:.4g}": True for name, price in allocation.row_prices.items()},
        f"{len(allocation.unserved)} jobs cannot be served": allocation.unserved,
        f"deadlines given up: {', '.join(map(str, given_up[:_LABELS]))}{more}": given_up,
        "a + b: jobs that share GPUs, and what this adds to their throughputs above": pairs is not None and len(pairs),
        f"{left_out} of {allocation.throughputs.n_jobs} jobs not shown": left_out,
        f"{pairs_left_out} pairs not shown": pairs_left_out,
    }
    return "; ".join(text for text, said in parts.items() if said)
