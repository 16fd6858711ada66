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
        found = _configurations_of_table(trace, throughputs, cluster)
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
    """(N, M) steps/s of each job with as many GPUs as its scale factor.

    On a cluster of one type, a job that a table does not have goes at the rate that the trace states, steps over
    duration, where it states a duration.
    """
    if isinstance(throughputs, ThroughputTable):
        return _rates_of_table(trace, throughputs, cluster)
    if isinstance(throughputs, Configurations):
        n, m = len(trace), len(cluster.accelerators)
        job, pool = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
        rates: NDArray[np.float64] = of_table(trace, throughputs, cluster).rates_at(
            job, pool, np.repeat(trace.scale_factor, m)
        )
        return rates.reshape(n, m)
    return throughputs.rates if isinstance(throughputs, PackedColumns) else throughputs


def _rates_of_table(trace: Trace, table: ThroughputTable, cluster: Cluster) -> NDArray[np.float64]:
    known = table.has(trace.job_type, trace.scale_factor)
    stated = ~known & _states_rate(trace, cluster)
    if not stated.any():
        return table.rates(trace.job_type, trace.scale_factor, cluster.accelerators)
    rates = np.zeros((len(trace), 1))
    rates[stated, 0] = trace.total_steps[stated] / trace.duration[stated]
    if not stated.all():
        told = table.rates(trace.job_type[~stated], trace.scale_factor[~stated], cluster.accelerators)
        rates[~stated] = told
    return rates


def _configurations_of_table(trace: Trace, table: ThroughputTable, cluster: Cluster) -> Configurations:
    """Those of the table; a job type that it does not have runs with its own number of GPUs only."""
    known = np.isin(trace.job_type.astype(str), np.array(table.job_types, dtype=str))
    stated = np.flatnonzero(~known & _states_rate(trace, cluster))
    if not len(stated):
        return Configurations.from_table(table, trace.job_type.tolist(), cluster.accelerators)
    others = np.setdiff1d(np.arange(len(trace)), stated)
    types = trace.job_type[others].tolist()
    told = Configurations.from_table(table, types, cluster.accelerators) if types else None
    job, pool, gpus, rate = (
        [others[told.job], told.pool, told.gpus, told.rate] if told is not None else [np.zeros(0, dtype=np.int64)] * 4
    )
    return Configurations(
        np.concatenate([job, stated]),
        np.concatenate([pool, np.zeros(len(stated), dtype=np.int64)]),
        np.concatenate([gpus, trace.scale_factor[stated]]),
        np.concatenate([rate, trace.total_steps[stated] / trace.duration[stated]]),
        jobs=range(len(trace)),
        pools=cluster.accelerators,
    )


def _states_rate(trace: Trace, cluster: Cluster) -> NDArray[np.bool_]:
    """(N,) whether a job's rate follows from the trace, as the type that its duration is of is the only one."""
    return ~np.isnan(trace.duration) & (len(cluster.accelerators) == 1)
