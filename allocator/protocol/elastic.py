"""Throughput by number of GPUs, for jobs whose number the policy may choose."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allocator.cluster import Cluster
from throughputs import InputError, PackedColumns, ThroughputTable, Trace
from throughputs.configurations import Configurations

__all__ = ["Throughputs", "gang_rates", "of_table", "rates_by_duration"]

Throughputs: TypeAlias = ThroughputTable | PackedColumns | Configurations | ArrayLike
"""What a run is told of the speed of its jobs: a table by job type, what these very jobs do alone and in pairs, what
they do by number of GPUs, or an (N, M) array of the rates of their gangs."""


def of_table(trace: Trace, throughputs: Throughputs, cluster: Cluster) -> Configurations:
    """What the jobs of `trace` can run as on the pools of `cluster`.

    Raises
    ------
    InputError
        Throughputs without figures by number of GPUs, or configurations of other jobs or pools.
    """
    if isinstance(throughputs, ThroughputTable):
        found = Configurations.from_table(throughputs, trace.job_type.tolist(), cluster.accelerators)
    elif isinstance(throughputs, Configurations):
        found = throughputs
    else:
        expected = "a throughput table, or Configurations of the jobs, for a policy that chooses the number of GPUs"
        raise InputError("throughputs", field="configurations", found="none", expected=expected)
    if found.n_jobs != len(trace) or found.pools != cluster.accelerators:
        expected = f"the {len(trace)} jobs of the trace on {cluster.accelerators}"
        raise InputError("configurations", found=f"{found.n_jobs} jobs on {found.pools}", expected=expected)
    return found.fitting(cluster.capacity)


def rates_by_duration(trace: Trace, cluster: Cluster) -> NDArray[np.float64]:
    """(N, M) steps/s of each job with its own number of GPUs as its trace says: its steps over its duration.

    Raises
    ------
    InputError
        A job whose duration the trace does not say.
    """
    unknown = np.flatnonzero(np.isnan(trace.duration))
    if len(unknown):
        where = f"duration of job {unknown[0]}"
        raise InputError(trace.source, field=where, found="none", expected="seconds, where gang_rates=duration")
    speed: NDArray[np.float64] = trace.total_steps / trace.duration
    return np.repeat(speed[:, None], len(cluster.accelerators), axis=1)


def gang_rates(trace: Trace, throughputs: Throughputs, cluster: Cluster) -> ArrayLike:
    """(N, M) steps/s of each job with as many GPUs as its scale factor."""
    if isinstance(throughputs, ThroughputTable):
        return throughputs.rates(trace.job_type, trace.scale_factor, cluster.accelerators)
    if isinstance(throughputs, Configurations):
        n, m = len(trace), len(cluster.accelerators)
        job, pool = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
        rates: NDArray[np.float64] = of_table(trace, throughputs, cluster).rates_at(
            job, pool, np.repeat(trace.scale_factor, m)
        )
        return rates.reshape(n, m)
    return throughputs.rates if isinstance(throughputs, PackedColumns) else throughputs
