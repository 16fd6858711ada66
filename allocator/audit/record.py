"""What an audit finds, as data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from allocator.results.output import as_json
from allocator.results.shown import text_table
from throughputs.files import JsonObject
from throughputs.shown import html_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

_VERDICT = {True: "yes", False: "no", None: ""}


@dataclass(frozen=True)
class Property:
    """One property of an allocation.

    Attributes
    ----------
    name, definition : what it is called and what it says, in symbols.
    value : how far it holds, see the definition.
    holds : whether it holds up to rounding; None for a figure that is neither good nor bad.
    worst_job : label of the job to which the allocation does least in this respect; None where there is none.
    detail : one sentence on the worst case.
    """

    name: str
    definition: str
    value: float
    holds: bool | None
    worst_job: Any
    detail: str


@dataclass(frozen=True)
class Explanation:
    """Why a job runs where it runs, by prices.

    Attributes
    ----------
    job : its label.
    fastest : the accelerator type on which its gang is fastest; empty for a job that runs on none.
    mostly_on : the type that has most of its time; empty for a job that gets nothing.
    share_of_fastest : share of time on the fastest type.
    speedup : how many times as fast it is on `fastest` as on `mostly_on`.
    exchange : hours of a GPU of `mostly_on` that an hour of `fastest` is worth at the prices; inf where the former
        costs nothing, nan where neither does.
    text : the sentence.
    """

    job: Any
    fastest: str
    mostly_on: str
    share_of_fastest: float
    speedup: float
    exchange: float
    text: str


@dataclass(frozen=True, eq=False)
class Audit:
    """Properties of an allocation, and an explanation for each job.

    Attributes
    ----------
    policy : name of the policy that made the allocation.
    properties : in the order of the report.
    prices : worth of one more GPU of each type.
    price_unit : unit of the prices.
    explanations : one per job, in the order of the allocation.
    """

    policy: str
    properties: tuple[Property, ...]
    prices: dict[str, float]
    price_unit: str
    explanations: tuple[Explanation, ...]

    def __getitem__(self, name: str) -> Property:
        """The property of that name; KeyError otherwise."""
        return {each.name: each for each in self.properties}[name]

    def to_frame(self) -> pd.DataFrame:
        """One row per property; the columns are the fields of `Property`."""
        import pandas as pd

        names = [field.name for field in fields(Property)]
        return pd.DataFrame([asdict(each) for each in self.properties], columns=names).set_index(names[0])

    def to_json(self) -> JsonObject:
        """Ready for JSON; numbers that are infinite or do not exist are null."""
        return dict(as_json(self))

    def _repr_html_(self) -> str:
        rows = [(each.name, _VERDICT[each.holds], each.value, each.worst_job, each.detail) for each in self.properties]
        return html_table(("property", "holds", "value", "worst job", ""), rows, caption=f"Audit of {self.policy}")

    def tables(self, *, jobs: int = 10) -> tuple[Table, Table]:
        """The properties, and the explanations of the first `jobs` that are slowest beside their fastest type, for
        the terminal."""
        from rich.text import Text

        rows = []
        for each in self.properties:
            worst = "" if each.worst_job is None else each.worst_job
            holds = Text(_VERDICT[each.holds], style="green" if each.holds else "bold red")
            rows.append((each.name, holds, _number(each.value), worst, each.detail))
        headings = ("property", "holds", "value", "worst job", "")
        properties = text_table(headings, rows, words=(0, 1, 3, 4), title=Text(f"Audit of {self.policy}"))
        told = ([each.text] for each in sorted(self.explanations, key=_comfort)[:jobs])
        reasons = text_table([""], told, title="Why jobs run where they run", show_header=False, min_width=80)
        prices = ", ".join(f"{name} {_number(price)}" for name, price in self.prices.items())
        left_out = len(self.explanations) - jobs
        more = f"; {left_out} more jobs in JSON" if left_out > 0 else ""
        reasons.caption = Text(f"prices in {self.price_unit}: {prices}{more}")
        return properties, reasons


def _comfort(each: Explanation) -> float:
    """0 for a job that waits; otherwise the part of its time on its fastest type, spread out by its loss elsewhere."""
    return each.share_of_fastest + (1.0 - each.share_of_fastest) / each.speedup if each.mostly_on else 0.0


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "infinite"
