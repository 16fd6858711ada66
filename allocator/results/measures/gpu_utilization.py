"""What jobs use of the GPUs that they have, by what their profiles or logs measured, over a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from allocator.results.record import RunRecord

_Floats = NDArray[np.float64]


def gpu_utilization(record: RunRecord, start: float, end: float) -> tuple[dict[str, float], _Floats] | None:
    """Utilisation of the GPUs from `start` to `end` (seconds); None where no job that ran then has a figure.

    A job is taken to use of its GPUs at all times what it was measured to use of them. Of two jobs that share GPUs the
    figures add up, to 1 at most.

    Returns
    -------
    By name means over GPU time, as shares: gpu_utilization over all GPUs, of which idle ones count as 0,
    busy_gpu_utilization over GPUs that jobs had, and known_gpu_utilization, the part of the busy GPU time of which it
    is known; the rest is left out of the others. And the first of them by accelerator type (M,), nan where nothing is
    known of a type.
    """
    by_job = record.jobs.gpu_utilization
    if np.isnan(by_job).all():
        return None
    seconds, used = record.gpu_seconds_between(start, end), by_job[record.row_job]
    if record.packed:
        pairs = np.flatnonzero(record.row_partner >= 0)
        together = used[pairs] + by_job[record.row_partner[pairs]]
        used[pairs] = np.minimum(together, 1.0)
    known = ~np.isnan(used)
    busy = float(seconds[known].sum())
    if not busy > 0:
        return None
    pool, n = record.row_accelerator, len(record.cluster.accelerators)
    worked = np.where(known, seconds * np.where(known, used, 0.0), 0.0)
    there = record.cluster.capacity * (end - start) - np.bincount(pool, np.where(known, 0.0, seconds), n)
    figures = {
        "gpu_utilization": float(worked.sum() / there.sum()),
        "busy_gpu_utilization": float(worked.sum() / busy),
        "known_gpu_utilization": busy / float(seconds.sum()),
    }
    by_pool = np.divide(np.bincount(pool, worked, n), there, out=np.full(n, np.nan), where=there > 0)
    return figures, by_pool
