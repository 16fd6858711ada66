"""What a run costs: the hours its jobs kept GPUs busy, or all that there are, at the price of their type and time.

And the other prices, those of the decisions: what one more GPU of a type would have added to the objective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from throughputs import InputError
from throughputs.files import JsonObject
from throughputs.prices import PriceTable

if TYPE_CHECKING:
    import pandas as pd

    from allocator.protocol.allocation import Allocation
    from allocator.results.record import RunRecord


Prices = PriceTable | Mapping[str, float]
"""Dollars per GPU hour: histories, or one number per accelerator type."""


def price_table(prices: Prices, accelerators: Sequence[str]) -> PriceTable:
    """The prices as a table, which is known to have every one of the types.

    Raises
    ------
    InputError
        A type has no price, or one that is negative or not finite.
    """
    given: object = prices
    if not isinstance(given, PriceTable | Mapping):
        expected = "a price by accelerator type, as in {'v100': 2.5}, or a PriceTable"
        raise InputError("prices", found=type(given).__name__, expected=expected)
    table = prices if isinstance(prices, PriceTable) else PriceTable.constant(prices)
    table.price_at(0.0, accelerators)
    return table


def owned_cost(record: RunRecord) -> float | None:
    """Dollars for all GPUs of the cluster from the first arrival to the makespan, idle or not; None without prices."""
    if record.prices is None or not len(record.jobs):
        return None
    names = record.cluster.accelerators
    first = np.full(len(names), record.jobs.arrival_time.min())
    last = np.full(len(names), max(record.makespan, float(first[0])))
    return float((record.prices.cost(first, last, list(names)) * record.cluster.capacity).sum())


def average_prices(decisions: Sequence[tuple[int, float, Allocation]], timeline: pd.DataFrame) -> JsonObject:
    """Time average of the prices of the decisions, over the time in which they were in force and jobs ran.

    Returns
    -------
    dict
        average_prices: improvement of the objective per additional GPU, by accelerator type, None where no decision
        has one; price_unit: the unit of the objective. Nothing where the policy has no prices.
    """
    priced = [(clock, allocation) for _, clock, allocation in decisions if allocation.prices is not None]
    if not priced or not len(timeline):
        return {}
    clocks, prices = (np.array(column) for column in zip(*((clock, a.prices) for clock, a in priced), strict=True))
    start, end = (timeline[name].to_numpy(dtype=float) for name in ("start_time", "end_time"))
    in_force = np.searchsorted(clocks, start, side="right") - 1
    some = in_force >= 0
    seconds = np.bincount(in_force[some], (end - start)[some], len(clocks))
    weights = np.where(np.isfinite(prices), seconds[:, None], 0.0)
    total, sums = weights.sum(axis=0), (np.where(np.isfinite(prices), prices, 0.0) * weights).sum(axis=0)
    last = priced[-1][1]
    return {
        "average_prices": {
            name: price / time if time > 0 else None
            for name, price, time in zip(last.throughputs.accelerators, sums.tolist(), total.tolist(), strict=True)
        },
        "price_unit": last.objective_unit,
    }
