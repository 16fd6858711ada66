"""How well a cluster of elastic jobs is used: cluster efficiency, over time (ElasticFlow, ASPLOS 2023, sec. 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from throughputs.arrays import Floats
from throughputs.configurations import Configurations

if TYPE_CHECKING:
    import pandas as pd

    from allocator.results.record import RunRecord

_NOTHING = 1e-12


def single_gpu_rates(configurations: Configurations) -> Floats:
    """(N, M) steps/s of each job on one GPU of each pool; nan where it cannot run there.

    Where one GPU was not profiled, the rate per GPU of the smallest number that was.
    """
    ways = configurations
    rates = np.full((ways.n_jobs, len(ways.pools)), np.nan)
    alone = np.flatnonzero((ways.partner < 0) & (ways.rate > 0))
    order = alone[np.argsort(-ways.gpus[alone], kind="stable")]  # the smallest number is written last
    rates[ways.job[order], ways.pool[order]] = ways.rate[order] / ways.gpus[order]
    return rates


def efficiency_table(record: RunRecord) -> pd.DataFrame:
    """Efficiency of the cluster over time: columns time (seconds) and efficiency, which holds from then on.

        (1 / G) sum_{j running} T_j(n_j) / T_j(1)

    with G the GPUs of the cluster, n_j those of job j on its pool, and T_j(n) its steps/s. Jobs whose rate on one GPU
    is not known count as many GPUs as they have. Empty where no job has a deadline, or throughput by number of GPUs is
    not known.
    """
    import pandas as pd

    worth = _worth(record)
    if worth is None:
        return pd.DataFrame({"time": np.empty(0), "efficiency": np.empty(0)})
    times, position = np.unique(np.concatenate([record.row_start, record.row_finish]), return_inverse=True)
    change = np.bincount(position, np.concatenate([worth, -worth]), len(times))
    efficiency = np.cumsum(change) / record.cluster.total_gpus
    # differences below are what is left of sums that cancel
    changed = np.abs(np.diff(efficiency, prepend=0.0)) > _NOTHING
    times, efficiency = times[changed], efficiency[changed]
    return pd.DataFrame({"time": times, "efficiency": np.where(efficiency < _NOTHING, 0.0, efficiency)})


def average_efficiency(record: RunRecord) -> float | None:
    """The time average up to the makespan; None where it is not known."""
    worth, makespan = _worth(record), record.makespan
    if worth is None or not makespan > 0:
        return None
    return float((worth * (record.row_finish - record.row_start)).sum()) / (record.cluster.total_gpus * makespan)


def _worth(record: RunRecord) -> Floats | None:
    """(L,) what each row of the record adds to the efficiency while it runs, in GPUs; None where it is not known."""
    if np.isnan(record.jobs.deadline).all() or record.configurations is None:
        return None
    job, pool, gpus = record.row_job, record.row_accelerator, record.row_gpu_count
    single = single_gpu_rates(record.configurations)[job, pool]
    rate = np.where(
        gpus == record.jobs.scale_factor[job],
        record.jobs.rates[job, pool],
        record.configurations.rates_at(job, pool, gpus),
    )
    known = (single > 0) & (rate > 0)
    worth = gpus.astype(float)
    np.divide(rate, single, out=worth, where=known)
    return worth * record.row_share if record.fluid else worth


def loaded_span(record: RunRecord) -> tuple[float, float] | None:
    """First and last arrival (seconds), as far as the run saw them; None where all jobs arrive at once.

    After the last arrival a cluster runs dry, and for how long is a matter of its longest job: what is measured up to
    the makespan says more about that job than about the policy.
    """
    if not len(record.jobs):
        return None
    first, last = float(record.jobs.arrival_time.min()), float(record.jobs.arrival_time.max())
    if record.unfinished.any():
        # a run that was cut short may not have seen the last arrival
        last = min(last, float(record.round_end.max(initial=0.0)))
    return (first, last) if last > first else None


def loaded_utilization(record: RunRecord) -> float | None:
    """Busy GPU time over GPU time from the first arrival to the last; None where all jobs arrive at once."""
    span = loaded_span(record)
    return None if span is None else record.utilization_between(*span)
