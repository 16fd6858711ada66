"""An explanation in words and a table, for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from allocator.explanations.reasons import REASONS
from allocator.explanations.redecide import gpus_in_words
from allocator.results.outcomes import RECORDED
from allocator.results.shown import text_table
from throughputs.trace import date_texts, dates_after

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from allocator.explanations.explanation import Explanation, Moment, Overview, Wait
    from allocator.explanations.occupancy import FreeGpus

_WAITS = 3
"""Waits that are shown with all there is to say, the longest ones."""

_HOLDERS = 6
"""Jobs that are shown by name among those that ran instead."""

_LINES = 12
"""Shorter waits that have a line each."""

_TO_THE_SECOND = len("2025-03-03T08:00:00")


def overview_text(overview: Overview) -> Iterator[RenderableType]:
    """The jobs that waited longest, a line each."""
    how = "left out of the recorded schedule" if overview.policy == RECORDED else "never served"
    unserved = f"; {overview.unserved:,} more were {how}" if overview.unserved else ""
    waited = f"{overview.jobs:,} jobs waited {_hours(overview.waited)}"
    yield f"{overview.run}: {overview.policy} on {overview.cluster}; {waited}{unserved}"
    longest = overview.longest
    if not longest:
        yield "No job waited."
        return
    yield _table(
        {
            "job": [job.trace_id or str(job.job) for job in longest],
            "GPUs": [f"{job.gpus:g}" for job in longest],
            "waited": [_hours(job.waited) for job in longest],
            "longest": [_hours(job.end - job.start) for job in longest],
            "from (s)": ["" if job.start_date else f"{job.start:,.0f}" for job in longest],
            "from (UTC)": [_short(job.start_date) for job in longest],
        },
        {
            "entity": [job.entity for job in longest],
            "most of its longest wait": [REASONS[job.reason] for job in longest],
        },
    )


def _table(numbers: dict[str, list[str]], words: dict[str, list[str]]) -> Table:
    """Columns by heading, numbers to the right; without those in which nothing stands."""
    shown = {heading: cells for heading, cells in (numbers | words).items() if any(cells)}
    left = [place for place, heading in enumerate(shown) if heading in words]
    return text_table(shown, zip(*shown.values(), strict=True), words=left, padding=(0, 1))


def explanation_text(told: Explanation) -> Iterator[RenderableType]:
    """One job: what happened to it, and of its longest waits why, who ran instead and what would have let it run."""
    at = _clock_of(told)
    kind = ", ".join(filter(None, (told.job_type, gpus_in_words(told.gpus), told.entity and f"of {told.entity}")))
    yield f"Job {told.trace_id or told.job} ({kind}) under {told.policy} on {told.cluster}: {told.status}"
    ended = "" if told.completion is None else f", completed at {at(told.completion)}"
    parts = [f"waited {_hours(told.waited)}", f"ran {_hours(told.ran)}"]
    if told.started:
        parts.append(f"{_hours(told.started)} of starts")
    there = told.waited + told.ran + told.started > 0
    at_once = "" if there or told.status != "rejected" else " and was turned away at once"
    yield f"Arrived at {at(told.arrival)}" + (at_once or f"{ended}; in all {', '.join(parts)}") + "."
    if told.deadline is not None:
        alone = "" if told.alone is None else f"; on the GPUs that it asks for it needs {_hours(told.alone)}"
        yield f"Its deadline is {at(told.deadline)}, {_hours(told.deadline - told.arrival)} after its arrival{alone}."
    if not told.waits:
        if there:
            yield f"It did not wait between {at(told.since)} and {at(told.until)}."
        return
    longest = sorted(told.waits, key=lambda wait: -wait.seconds)[:_WAITS]
    others = [wait for wait in told.waits if wait not in longest]
    for wait in told.waits:
        if wait not in others:
            yield from _wait(told, wait)
    if others:
        hours = _hours(sum(wait.seconds for wait in others))
        yield f"\n{len(others)} shorter wait{'s' * (len(others) != 1)}, {hours} in all:"
    for wait in others[:_LINES]:
        yield f"  {at(wait.start)} to {at(wait.end)}: {REASONS[next(iter(wait.reasons))]}"
    if len(others) > _LINES:
        yield "  ..."


def _wait(told: Explanation, wait: Wait) -> Iterator[RenderableType]:
    at = _clock_of(told)
    yield f"\n[bold]Waited {_hours(wait.seconds)}, from {at(wait.start)} to {at(wait.end)}[/]"
    for reason, seconds in wait.reasons.items():
        yield f"  {_hours(seconds):>8}  {_sentence(told, wait, reason)}"
    if wait.holders:
        yield _holders(wait)
    if wait.moment is not None and told.types:
        yield from _moment(wait.moment, at)


def _sentence(told: Explanation, wait: Wait, reason: str) -> str:
    """A reason with its figures."""
    from rich.markup import escape

    mine = [stretch for stretch in wait.stretches if stretch.reason == reason]
    words = REASONS[reason]
    if reason == "gang_does_not_fit":
        least, most = min(s.least_free for s in mine), max(s.most_free for s in mine)
        free = f"{least:g}" if least == most else f"{least:g} to {most:g}"
        words += f": it needs {told.gpus:g}, and had at most {free} of one type"
    elif reason == "excluded":
        words += f" of {gpus_in_words(told.gpus)}"
    texts = list(dict.fromkeys(stretch.text for stretch in mine if stretch.text))
    if texts:
        words += f": {escape(texts[0])}" + (f" ({len(texts) - 1:,} more like it)" if len(texts) > 1 else "")
    return words


def _holders(wait: Wait) -> Table:
    shown, left = wait.holders[:_HOLDERS], wait.holders[_HOLDERS:]
    weights = len({holder.weight for holder in wait.holders}) > 1
    table = _table(
        {
            "job": [holder.trace_id or str(holder.job) for holder in shown],
            "weight": [f"{holder.weight:g}" * weights for holder in shown],
            "GPUs": [f"{holder.gpus:g}" for holder in shown],
            "GPU h then": [f"{holder.total_gpu_hours:,.2f}" for holder in shown],
            "arrived": ["later" if holder.came_later else "before" for holder in shown],
            "GPU h before": [f"{holder.gpu_hours_before:,.1f}" for holder in shown],
            "of its time": [f"{100 * holder.time_before:.0f} %" for holder in shown],
        },
        {"entity": [holder.entity for holder in shown], "on": [", ".join(holder.gpu_hours) for holder in shown]},
    )
    table.title, table.title_justify = "Who ran on GPUs that it can use", "left"
    hours = sum(holder.total_gpu_hours for holder in left)
    rest = f"those not shown had {hours:,.1f} GPU h; " if left else ""
    later = sum(holder.came_later for holder in wait.holders)
    more = sum(holder.time_before > wait.time_before for holder in wait.holders)
    count = f"{len(wait.holders):,} job{'s' * (len(wait.holders) != 1)}"
    of_all = f"{count} in all: {later} came later than it, {more} had had more of their time on GPUs"
    table.caption = f"{of_all}\n{rest}{wait.free_gpu_hours:,.1f} of {wait.usable_gpu_hours:,.1f} GPU h were free"
    table.caption_justify = "left"
    return table


def _moment(moment: Moment, at: Callable[[float], str]) -> Iterator[str]:
    from rich.markup import escape

    number = "" if moment.decision is None else f", decision {moment.decision + 1}"
    yield f"At {at(moment.time)}{number}: {moment.active:,} jobs there, {moment.waiting:,} of them waiting."
    yield "  " + "; ".join(_free(name, free) for name, free in moment.free.items())
    if moment.policy_says:
        yield f"  the policy: {escape(moment.policy_says)}"
    if moment.decision is not None and moment.status != "order":
        shares = ", ".join(f"{100 * share:.1f} % of {name}" for name, share in moment.shares.items())
        yield f"  share of its time: {shares or 'none'}; {_balance(moment)}"
    for name, priority in moment.priority.items():
        last = moment.last_priority.get(name)
        beside = "" if last is None else f"; the least of those that ran by share {_priority(last)}"
        before = f"{moment.ahead[name]} that ran there came before it"
        unit = f" {moment.priority_unit}" if moment.priority_unit else ""
        yield f"  priority on {name}: {_priority(priority)}{unit}{beside}; {before}"
    if any(moment.prices.values()):
        prices = ", ".join(f"{name} {price:.4g}" for name, price in moment.prices.items())
        unit = f", {escape(moment.unit)}" if moment.unit else ""
        yield f"  price of one more GPU{unit}: {prices}"
    if moment.row_prices:
        prices = ", ".join(f"{name} {price:.4g}" for name, price in moment.row_prices.items())
        yield escape(f"  price of one more unit of a limit of the policy: {prices}")
    yield from _changes(moment)


def _priority(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"


def _free(name: str, free: FreeGpus) -> str:
    told = f"{free.gpus:g} of {free.in_use} {name} free"
    if not free.gpus or free.servers is None:
        return told
    on = f"on {free.servers} server{'s' * (free.servers != 1)}"
    if not free.parts:
        return f"{told} {on}"
    whole = f"{free.whole} whole {on}, and " if free.whole else ""
    most = f"{free.largest_part:g} of one"
    parts = f"parts of {free.parts} GPUs, at most {most}" if free.parts > 1 else f"{most} GPU that jobs share"
    return f"{told}: {whole}{parts}"


def _balance(moment: Moment) -> str:
    had = f"it had had {_hours(moment.received)}"
    return had if moment.promised is None else f"{had} of {_hours(moment.promised)} that decisions had promised"


def _changes(moment: Moment) -> Iterator[str]:
    if moment.redecided is None:
        yield "The record does not tell all that the policy decides from, so no change was tried."
        return
    what, done = ("decision", "Made") if moment.asked else ("round", "Chosen")
    if not moment.redecided:
        yield f"{done} once more from the record, the {what} is another one, so nothing is said of changes."
    elif not moment.changes:
        yield f"{done} once more, the {what} is the same; no change that was tried would have let it run."
    else:
        yield f"{done} once more, the {what} is the same; it would have run at once with any one of"
        yield from (f"  - {change.text}" for change in moment.changes)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f} h" if seconds >= 360 else f"{seconds:,.0f} s"


def _clock_of(told: Explanation) -> Callable[[float], str]:
    """How times are written: as dates where the trace has some, else seconds on the clock of the run."""
    arrived = np.array([told.arrival_date.removesuffix("+00:00") or "NaT"], dtype="datetime64[us]")

    def text(seconds: float) -> str:
        date = date_texts(dates_after(arrived, np.array([seconds - told.arrival])))[0]
        return f"{_short(date)} UTC" if date else f"{seconds:,.0f} s"

    return text


def _short(date: str) -> str:
    return date[:_TO_THE_SECOND].replace("T", " ")
