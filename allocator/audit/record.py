"""What an audit finds, as data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from allocator.audit.report import explanations_table, properties_table
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
    explanations : one per job, in the order of the allocation.
    prices : worth of one more GPU of each type.
    price_unit : unit of the prices.
    """

    policy: str
    properties: tuple[Property, ...]
    explanations: tuple[Explanation, ...]
    prices: dict[str, float]
    price_unit: str

    def __getitem__(self, name: str) -> Property:
        """The property of that name; KeyError otherwise."""
        for each in self.properties:
            if each.name == name:
                return each
        raise KeyError(name)

    def to_frame(self) -> pd.DataFrame:
        """One row per property; the columns are the fields of `Property`."""
        import pandas as pd

        return pd.DataFrame([asdict(each) for each in self.properties]).set_index("name")

    def explanations_frame(self) -> pd.DataFrame:
        """One row per job; the columns are the fields of `Explanation`."""
        import pandas as pd

        columns = list(Explanation.__dataclass_fields__)
        return pd.DataFrame([asdict(each) for each in self.explanations], columns=columns).set_index("job")

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON; numbers that are infinite or do not exist are null."""
        return {
            "policy": self.policy,
            "properties": [_plain(asdict(each)) for each in self.properties],
            "prices": _plain(self.prices),
            "price_unit": self.price_unit,
            "explanations": [_plain(asdict(each)) for each in self.explanations],
        }

    def _repr_html_(self) -> str:
        rows = [(each.name, _VERDICT[each.holds], each.value, each.worst_job, each.detail) for each in self.properties]
        return html_table(("property", "holds", "value", "worst job", ""), rows, caption=f"Audit of {self.policy}")

    def tables(self, *, jobs: int = 10) -> tuple[Table, Table]:
        """The properties, and the explanations of the first `jobs` that are slowest beside their fastest type, for
        the terminal."""
        return properties_table(self), explanations_table(self, jobs)


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()
    }
