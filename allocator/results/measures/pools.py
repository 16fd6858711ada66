"""What each accelerator type, or each partition that is one, was used for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.results.measures.fragmentation import Fragmentation

if TYPE_CHECKING:
    import pandas as pd

    from allocator.results.record import RunRecord

_Floats = NDArray[np.float64]


def accelerators_table(
    record: RunRecord,
    start: float,
    end: float,
    fragmentation: Fragmentation | None,
    gpu_utilization: _Floats | None,
) -> pd.DataFrame:
    """One row per accelerator type: accelerator, gpus, gpu_hours, gpu_hours_per_job (of the jobs that completed: what
    they had of this type, over their number), utilization (busy GPU time over GPU time up to the makespan),
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
    n, gpus = len(cluster.accelerators), cluster.capacity.astype(np.float64)
    completed = ~np.isnan(record.jobs.completion_time)
    used = np.bincount(pool, record.row_gpu_seconds, n)
    of_completed = np.bincount(pool, record.row_gpu_seconds * completed[record.row_job], n)
    loaded = np.bincount(pool, record.gpu_seconds_between(start, end), n)
    columns = {
        "accelerator": list(cluster.accelerators),
        "gpus": cluster.capacity,
        "gpu_hours": used / 3600.0,
        "gpu_hours_per_job": of_completed / 3600.0 / max(int(completed.sum()), 1),
        "utilization": _parts(used, gpus * record.makespan),
        "loaded_utilization": _parts(loaded, gpus * (end - start)),
    }
    if gpu_utilization is not None:
        columns["gpu_utilization"] = gpu_utilization
    if fragmentation is not None:
        columns |= fragmentation.by_pool
    return pd.DataFrame(columns)


def _parts(used: NDArray[Any], total: _Floats) -> _Floats:
    parts: _Floats = np.divide(used, total, out=np.full(len(used), np.nan), where=total > 0)
    return parts
