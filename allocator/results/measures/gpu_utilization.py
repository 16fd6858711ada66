"""What jobs use of the GPUs that they have, by what their profiles or logs measured, over a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from allocator.results.record import RunRecord

_Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MeasuredUtilization:
    """Means over GPU time, as shares.

    Attributes
    ----------
    overall : over all GPUs; idle ones count as 0.
    busy : over GPUs that jobs had.
    by_pool : (M,) as `overall`, by accelerator type; nan where nothing is known of a type.
    known : part of the busy GPU time of which it is known; the rest is left out of all three.
    """

    overall: float
    busy: float
    by_pool: _Floats
    known: float


def gpu_utilization(record: RunRecord, start: float, end: float) -> MeasuredUtilization | None:
    """Utilisation of the GPUs from `start` to `end` (seconds); None where no job that ran then has a figure.

    A job is taken to use of its GPUs at all times what it was measured to use of them. Of two jobs that share GPUs the
    figures add up, to 1 at most.
    """
    if np.isnan(record.jobs.gpu_utilization).all():
        return None
    seconds = record.gpu_seconds_between(start, end)
    used = _row_utilization(record)
    known = ~np.isnan(used)
    worked = np.where(known, seconds * np.where(known, used, 0.0), 0.0)
    pool, n = record.row_accelerator, len(record.cluster.accelerators)
    lost = np.bincount(pool, np.where(known, 0.0, seconds), n)
    busy = float(seconds[known].sum())
    if not busy > 0:
        return None
    there = record.cluster.capacity * (end - start) - lost
    by_pool = np.bincount(pool, worked, n)
    return MeasuredUtilization(
        float(worked.sum() / there.sum()),
        float(worked.sum() / busy),
        np.divide(by_pool, there, out=np.full(n, np.nan), where=there > 0),
        busy / float(seconds.sum()),
    )


def _row_utilization(record: RunRecord) -> _Floats:
    """(L,) what the jobs of each row use of its GPUs together; nan where it is not known of one of them."""
    by_job = record.jobs.gpu_utilization
    used = by_job[record.row_job]
    if record.packed:
        pairs = np.flatnonzero(record.row_partner >= 0)
        together = used[pairs] + by_job[record.row_partner[pairs]]
        used[pairs] = np.minimum(together, 1.0)
    return used
