"""An audit in the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from allocator.audit.record import Audit, Explanation, Property


def properties_table(audit: Audit) -> Table:
    """One row per property: whether it holds, its value, its worst job, and the sentence on it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"Audit of {audit.policy}"), box=box.SIMPLE_HEAD)
    for name in ("property", "holds"):
        table.add_column(name)
    table.add_column("value", justify="right")
    table.add_column("worst job")
    table.add_column("", overflow="fold")
    for each in audit.properties:
        worst = "" if each.worst_job is None else str(each.worst_job)
        table.add_row(Text(each.name), _verdict(each), Text(_number(each.value)), Text(worst), Text(each.detail))
    return table


def explanations_table(audit: Audit, jobs: int) -> Table:
    """The sentences on the jobs that are slowest beside their fastest type, `jobs` at most."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    prices = ", ".join(f"{name} {_number(price)}" for name, price in audit.prices.items())
    table = Table(title=Text("Why jobs run where they run"), box=box.SIMPLE_HEAD, show_header=False, min_width=80)
    table.add_column("", overflow="fold")
    slowest = sorted(audit.explanations, key=_comfort)
    for each in slowest[:jobs]:
        table.add_row(Text(each.text))
    left_out = len(slowest) - jobs
    more = f"; {left_out} more jobs in JSON" if left_out > 0 else ""
    table.caption = Text(f"prices in {audit.price_unit}: {prices}{more}")
    return table


def _comfort(each: Explanation) -> float:
    """0 for a job that waits; otherwise the part of its time on its fastest type, spread out by its loss elsewhere."""
    if not each.mostly_on:
        return 0.0
    return each.share_of_fastest + (1.0 - each.share_of_fastest) / each.speedup


def _verdict(each: Property) -> Text:
    from rich.text import Text

    if each.holds is None:
        return Text("")
    return Text("yes", style="green") if each.holds else Text("no", style="bold red")


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "infinite"
