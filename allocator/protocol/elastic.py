"""What a run is told of the speed of its jobs, by number of GPUs where the policy may choose it."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allocator.cluster import Cluster
from throughputs import InputError, PackedColumns, ThroughputTable, Trace
from throughputs.configurations import Configurations

__all__ = ["Throughputs", "checked_rates", "gang_rates", "of_table"]

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


def checked_rates(rates: ArrayLike, trace: Trace, cluster: Cluster, name: str) -> NDArray[np.float64]:
    """(N, M) copy with 0 where the gang is larger than the type."""
    n, m = len(trace), len(cluster.accelerators)
    given = np.array(rates, dtype=np.float64)
    if given.size == 0:
        given = given.reshape(n, m) if n * m == 0 else given
    if given.shape != (n, m):
        raise InputError(
            "throughputs",
            field=name,
            found=given.shape,
            expected=f"shape ({n}, {m}) (jobs, accelerators)",
        )
    bad = ~(np.isfinite(given) & (given >= 0))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            "throughputs",
            field=f"{name.removesuffix('s')} of job {row} on {cluster.accelerators[column]!r}",
            found=float(given[row, column]),
            expected="a finite rate of at least 0 steps/s",
        )
    return np.where(trace.scale_factor[:, None] <= cluster.capacity[None, :], given, 0.0)
