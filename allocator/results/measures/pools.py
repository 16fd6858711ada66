"""What each accelerator type, or each partition that is one, was used for, and what jobs use of the GPUs they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from allocator.results.measures.fragmentation import Fragmentation
from throughputs.arrays import Floats
from throughputs.numerics import quotient

if TYPE_CHECKING:
    import pandas as pd

    from allocator.results.record import RunRecord


def gpu_utilization(record: RunRecord, start: float, end: float) -> tuple[dict[str, float], Floats] | None:
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
    return figures, quotient(np.bincount(pool, worked, n), there, np.nan)


def accelerators_table(
    record: RunRecord,
    start: float,
    end: float,
    fragmentation: Fragmentation | None,
    gpu_utilization: Floats | None,
) -> pd.DataFrame:
    """One row per accelerator type: accelerator, gpus, gpu_hours, gpu_hours_per_job (of the jobs that completed: what
    they had of this type, over their number), utilization (as `RunRecord.utilization`, of the type),
    loaded_utilization (the same from `start` to `end`), gpu_utilization (what the jobs were measured to use of the GPUs
    of the type from `start` to `end`; only where that is known of a job), and the `Fragmentation` of the type, where it
    is known: fragmentation, gang_fits_fraction, gang_blocked_fraction.

    Parameters
    ----------
    record : of a run.
    start, end : seconds.
    fragmentation, gpu_utilization : from `start` to `end`, the latter by type; None: not known.
    """
    import pandas as pd

    cluster, pool = record.cluster, record.row_accelerator
    n, gpus = len(cluster.accelerators), cluster.capacity.astype(float)
    completed = ~np.isnan(record.jobs.completion_time)
    seconds = record.gpu_seconds_between(-np.inf, np.inf)
    used = np.bincount(pool, seconds, n)
    of_completed = np.bincount(pool, seconds * completed[record.row_job], n)
    busy = np.bincount(pool, record.gpu_seconds_between(0.0, record.end), n)
    loaded = np.bincount(pool, record.gpu_seconds_between(start, end), n)
    columns = {
        "accelerator": list(cluster.accelerators),
        "gpus": cluster.capacity,
        "gpu_hours": used / 3600.0,
        "gpu_hours_per_job": of_completed / 3600.0 / max(int(completed.sum()), 1),
        "utilization": quotient(busy, gpus * record.end, np.nan),
        "loaded_utilization": quotient(loaded, gpus * (end - start), np.nan),
    }
    if gpu_utilization is not None:
        columns["gpu_utilization"] = gpu_utilization
    if fragmentation is not None:
        columns |= fragmentation.by_pool
    return pd.DataFrame(columns)
