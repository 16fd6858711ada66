"""What a run is told of the speed of its jobs, by number of GPUs where the policy may choose it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from allocator.cluster import Cluster
from throughputs import InputError, PackedColumns, ThroughputTable, Trace
from throughputs.arrays import Flags, Floats
from throughputs.configurations import Configurations
from throughputs.errors import did_you_mean
from throughputs.trace import allowed_types

if TYPE_CHECKING:
    from allocator.protocol.jobs import JobTable

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
    allowed = allowed_types(trace.gpu_type, trace.partition, cluster.accelerators)
    return (found if allowed is None else found.take(allowed[found.job, found.pool])).fitting(cluster.capacity)


def rates_by_duration(trace: Trace, cluster: Cluster) -> Floats:
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
    speed: Floats = trace.total_steps / trace.duration
    return np.repeat(speed[:, None], len(cluster.accelerators), axis=1)


def gang_rates(trace: Trace, throughputs: Throughputs, cluster: Cluster) -> ArrayLike:
    """(N, M) steps/s of each job with as many GPUs as its scale factor.

    A job of known duration that a table does not have goes at the rate that the trace states, steps over duration, on a
    cluster of one type and on one of types of which the table has none.
    """
    if isinstance(throughputs, ThroughputTable):
        return _rates_of_table(trace, throughputs, cluster)
    if isinstance(throughputs, Configurations):
        n, m = len(trace), len(cluster.accelerators)
        job, pool = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
        rates: Floats = of_table(trace, throughputs, cluster).rates_at(job, pool, np.repeat(trace.scale_factor, m))
        return rates.reshape(n, m)
    return throughputs.rates if isinstance(throughputs, PackedColumns) else throughputs


def _rates_of_table(trace: Trace, table: ThroughputTable, cluster: Cluster) -> Floats:
    known = table.has(trace.job_type, trace.scale_factor)
    stated = ~known & _states_rate(trace, table, cluster)
    if not stated.any():
        _check_named(trace, table, known)
        return table.rates(trace.job_type, trace.scale_factor, cluster.accelerators)
    rates = np.zeros((len(trace), len(cluster.accelerators)))
    rates[stated] = (trace.total_steps[stated] / trace.duration[stated])[:, None]
    if not stated.all():
        told = table.rates(trace.job_type[~stated], trace.scale_factor[~stated], cluster.accelerators)
        rates[~stated] = told
    return rates


def _check_named(trace: Trace, table: ThroughputTable, known: Flags) -> None:
    """Say which job a table does not name, and what may be done about one of known duration."""
    names = set(table.job_types)
    for job in np.flatnonzero(~known).tolist():
        name = trace.job_type[job]
        if name in names:
            continue
        expected = f"a job type of the table{did_you_mean(name, table.job_types)}"
        if trace.duration[job] > 0:
            expected += (
                f", as {table.source} tells the types of the cluster apart; or --cluster with other types; or "
                "--set gang_rates=duration, which takes all as equally fast"
            )
        raise InputError(trace.source, field=f"job_type of job {job}", found=name, expected=expected)


def _configurations_of_table(trace: Trace, table: ThroughputTable, cluster: Cluster) -> Configurations:
    """Those of the table; a job type that it does not have runs with its own number of GPUs only."""
    known = np.isin(trace.job_type.astype(str), np.array(table.job_types, dtype=str))
    stated = np.flatnonzero(~known & _states_rate(trace, table, cluster))
    if not len(stated):
        return Configurations.from_table(table, trace.job_type.tolist(), cluster.accelerators)
    others = np.setdiff1d(np.arange(len(trace)), stated)
    types = trace.job_type[others].tolist()
    told = Configurations.from_table(table, types, cluster.accelerators) if types else None
    job, pool, gpus, rate = (
        [others[told.job], told.pool, told.gpus, told.rate] if told is not None else [np.zeros(0, dtype=np.int64)] * 4
    )
    M = len(cluster.accelerators)
    return Configurations(
        np.concatenate([job, np.repeat(stated, M)]),
        np.concatenate([pool, np.tile(np.arange(M), len(stated))]),
        np.concatenate([gpus, np.repeat(trace.scale_factor[stated], M)]),
        np.concatenate([rate, np.repeat(trace.total_steps[stated] / trace.duration[stated], M)]),
        jobs=range(len(trace)),
        pools=cluster.accelerators,
    )


def _states_rate(trace: Trace, table: ThroughputTable, cluster: Cluster) -> Flags:
    """(N,) whether a job's rate follows from the trace: nothing is known that would set the types apart."""
    alike = len(cluster.accelerators) == 1 or not set(cluster.accelerators) & set(table.accelerators)
    return ~np.isnan(trace.duration) & alike


def checked_rates(rates: ArrayLike, jobs: Trace | JobTable, cluster: Cluster, name: str) -> Floats:
    """(N, M) copy with 0 where the gang is larger than the type, or its partition is another one."""
    n, m = len(jobs), len(cluster.accelerators)
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
    runs = jobs.scale_factor[:, None] <= cluster.capacity[None, :]
    allowed = allowed_types(jobs.gpu_type, jobs.partition, cluster.accelerators)
    return np.where(runs if allowed is None else runs & allowed, given, 0.0)
