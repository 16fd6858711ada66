"""How full a cluster was while jobs were still to come, and what it costs whoever owns it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from allocator.results.record import RunRecord

__all__ = ["loaded_utilization", "owned_cost"]


def loaded_utilization(record: RunRecord | None) -> float | None:
    """Busy GPU time over GPU time from the first arrival to the last; None where all jobs arrive at once.

    After the last arrival a cluster runs dry, and for how long is a matter of its longest job: utilisation up to the
    makespan says more about that job than about the policy.
    """
    if record is None or not len(record.jobs):
        return None
    first, last = float(record.jobs.arrival_time.min()), float(record.jobs.arrival_time.max())
    if record.unfinished.any():
        # a run that was cut short may not have seen the last arrival
        last = min(last, float(record.round_end.max(initial=0.0)))
    return record.utilization_between(first, last) if last > first else None


def owned_cost(record: RunRecord | None) -> float | None:
    """Dollars for all GPUs of the cluster from the first arrival to the makespan, idle or not; None without prices."""
    if record is None or record.prices is None or not len(record.jobs):
        return None
    names = record.cluster.accelerators
    first = np.full(len(names), record.jobs.arrival_time.min())
    last = np.full(len(names), max(record.makespan, float(first[0])))
    return float((record.prices.cost(first, last, list(names)) * record.cluster.capacity).sum())
