"""An allocation: the share of time each job gets on each accelerator type, with its proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from formulations import Pairs
from throughputs import ThroughputMatrix
from throughputs.arrays import Floats
from throughputs.shown import html_table

if TYPE_CHECKING:
    import pandas as pd

    from allocator.protocol.assignment import Assignment

CLAIMED = "claimed: "
"""What a status begins with that nobody has proven."""

# Rows of an allocation that a notebook shows.
_SHOWN_JOBS = 20

_CLAIMS_NOTHING = ("closed form", "order", "plan", "empty")


@dataclass(frozen=True, eq=False)
class Allocation:
    """What a policy decided for N jobs on M accelerator types.

    Attributes
    ----------
    policy : name of the policy.
    throughputs : (N, M) true throughputs of the jobs, with their labels.
    shares : (N, M) share of time of each job on each type, in [0, 1].
    status : "optimal" when the gap is proven to be within tolerance, "feasible" when it is not, "closed form", "order"
        or "plan" when the policy is not a program, "empty" when there was nothing to decide. Without `certified` any
        other word than these last four is nobody's but the policy's own, and becomes "claimed: " and the word.
    objective : value of the policy's objective in `objective_unit`; nan for a policy without one.
    bound : proven bound on the objective; nan without one.
    gap : relative gap between the two; nan without one.
    prices : (M,) improvement of the objective per additional GPU of each type, in `objective_unit` per GPU; nan where
        it is not known (see `formulations.Solution`), None from policies that solve no program.
    row_prices : by name of a row that the policy adds to the program, improvement of the objective per unit by which
        its limit is loosened; of several rows of one name, by which all of them are.
    unserved : labels of the jobs that no type of the cluster can run.
    solver : what solved the program; empty for none.
    seconds : time the decision took.
    fallbacks : backends that were tried before `solver` and missed the tolerance.
    stage : which of the programs that a policy asks for in turn gave the answer, 1 the first; None where there is one.
    dropped_slos : labels of the jobs whose deadline the policy had to give up.
    pairs : shares of time of pairs of jobs on the same GPUs; None from policies that do not pack. `shares` are then
        those of jobs alone.
    pair_rates : (P, 2) throughput of the two jobs of each pair on its type, steps/s.
    assignment : who runs as what from now on, from policies that plan (jobs as positions); None from share policies.
    rejected : labels of the jobs that were not admitted.
    certified : whether status, bound and gap are those of `formulations`, which proves them. A policy that solves its
        program by other means has nothing to set here.

    >>> import allocator
    >>> speeds = {"v100": {"resnet": 4.0, "lstm": 2.0}, "k80": {"resnet": 1.0, "lstm": 1.0}}
    >>> allocation = allocator.solve("max_sum_throughput_perf", speeds, "v100:1,k80:1")
    >>> allocation.to_frame().loc["resnet", "v100"].round(6).item(), allocation.price_series().index.tolist()
    (1.0, ['v100', 'k80'])
    """

    policy: str
    throughputs: ThroughputMatrix
    shares: Floats
    status: str
    objective: float = np.nan
    objective_unit: str = ""
    bound: float = np.nan
    gap: float = np.nan
    prices: Floats | None = None
    row_prices: Mapping[str, float] = field(default_factory=dict)
    unserved: tuple[Any, ...] = ()
    solver: str = ""
    seconds: float = 0.0
    fallbacks: tuple[str, ...] = ()
    stage: int | None = None
    dropped_slos: tuple[Any, ...] = ()
    pairs: Pairs | None = None
    pair_rates: Floats | None = None
    assignment: Assignment | None = field(default=None, repr=False)
    rejected: tuple[Any, ...] = ()
    certified: bool = False

    def __post_init__(self) -> None:
        if not self.certified and self.status not in _CLAIMS_NOTHING and not self.status.startswith(CLAIMED):
            object.__setattr__(self, "status", CLAIMED + self.status)

    @cached_property
    def effective_throughput(self) -> Floats:
        """(N,) steps/s each job gets on average."""
        alone = np.asarray((self.throughputs.rates * self.shares).sum(axis=1))
        pairs, rates = self.pairs, self.pair_rates
        if pairs is None or rates is None or not len(pairs):
            return alone
        return np.asarray(alone + pairs.throughput(rates, len(alone)))

    @cached_property
    def shares_of_time(self) -> Floats:
        """(N,) share of the time in which each job has GPUs, alone or with another."""
        time: Floats = self.shares.sum(axis=1)
        return time if self.pairs is None else time + self.pairs.time(len(time))

    def to_frame(self) -> pd.DataFrame:
        """Shares of jobs alone as a table: one row per job, one column per accelerator type."""
        import pandas as pd

        return pd.DataFrame(self.shares, index=list(self.throughputs.jobs), columns=list(self.throughputs.accelerators))

    def pairs_frame(self) -> pd.DataFrame:
        """Shares of pairs of jobs as a table: one row per pair and type on which they share GPUs.

        Columns first, second (labels), accelerator, share, and first_rate, second_rate: what the two do then, steps/s.
        """
        import pandas as pd

        pairs = Pairs.none() if self.pairs is None else self.pairs
        rates = np.full((len(pairs), 2), np.nan) if self.pair_rates is None else self.pair_rates
        labels = self.throughputs.jobs
        return pd.DataFrame(
            {
                "first": pd.Series([labels[i] for i in pairs.first], dtype=None if len(pairs) else "int64"),
                "second": pd.Series([labels[k] for k in pairs.second], dtype=None if len(pairs) else "int64"),
                "accelerator": pd.Categorical.from_codes(pairs.accelerator, pd.Index(self.throughputs.accelerators)),
                "share": pairs.share,
                "first_rate": rates[:, 0],
                "second_rate": rates[:, 1],
            }
        )

    def price_series(self) -> pd.Series[float]:
        """Price of each accelerator type, in `objective_unit` per GPU; nan where it is not known."""
        import pandas as pd

        accelerators = list(self.throughputs.accelerators)
        values = np.full(len(accelerators), np.nan) if self.prices is None else self.prices
        return pd.Series(values, index=accelerators, name=f"price ({self.objective_unit or '-'} per GPU)")

    def _repr_html_(self) -> str:
        names = self.throughputs.accelerators
        rows = [
            (label, int(gpus), *shares, throughput)
            for label, gpus, shares, throughput in zip(
                self.throughputs.jobs,
                self.throughputs.scale_factors[:_SHOWN_JOBS],
                self.shares[:_SHOWN_JOBS].tolist(),
                self.effective_throughput[:_SHOWN_JOBS].tolist(),
                strict=False,
            )
        ]
        if self.prices is not None:
            rows.append(("price of a GPU", None, *self.prices.tolist(), None))
        caption = f"{self.policy}: {self.status}"
        if not np.isnan(self.objective):
            caption += f", objective {self.objective:.6g} {self.objective_unit}".rstrip()
        if not np.isnan(self.gap):
            caption += f", gap {self.gap:.1e}"
        caption += "".join(f"; price of {name} {price:.4g}" for name, price in self.row_prices.items())
        hidden = self.throughputs.n_jobs - _SHOWN_JOBS
        if hidden > 0:
            caption += f"; {hidden:,} more jobs"
        if self.pairs is not None and len(self.pairs):
            caption += f"; {len(self.pairs):,} shares of pairs are in pairs_frame()"
        return html_table(("job", "GPUs", *names, "steps/s"), rows, caption=caption)
