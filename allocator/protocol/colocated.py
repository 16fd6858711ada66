"""Jobs and what they do in pairs, by groups of jobs with equal rates; nothing here grows with the square of the jobs.

A *group* is a job type with a scale factor. The columns of a whole job table hold every group of the throughput table,
so that tables of later jobs have the same ones; what a policy sees is cut down to the groups of the jobs at hand.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from allocator.cluster import Cluster
from allocator.protocol.elastic import checked_rates
from throughputs import InputError, PackedColumns, ThroughputMatrix, ThroughputTable
from throughputs.arrays import Flags, Floats, Ints, Positions

if TYPE_CHECKING:
    from throughputs import Trace


def of_trace(trace: Trace, throughputs: object, cluster: Cluster, gangs: ArrayLike) -> PackedColumns:
    """What the jobs of `trace` do alone and in pairs on the types of `cluster`.

    Two jobs share only where both make progress, and where the type has GPUs for the gang. Jobs that a table does not
    have share with nobody.

    Parameters
    ----------
    throughputs : a throughput table with co-location, or `PackedColumns` of the very jobs of the trace.
    gangs : (N, M) steps/s of the jobs alone, for those that a table does not have.

    Raises
    ------
    InputError
        Throughputs without figures for pairs, of other jobs or types, or of some of the jobs only.
    """
    known = np.ones(len(trace), dtype=np.bool_)
    if isinstance(throughputs, ThroughputTable):
        known = throughputs.has(trace.job_type, trace.scale_factor)
        if len(trace) and not known.any():
            rates = checked_rates(gangs, trace, cluster, "rates")
            return without_sharing(rates, trace.scale_factor, range(len(trace)), cluster.accelerators)
    _check_known(trace, known)
    if isinstance(throughputs, PackedColumns):
        return _checked(throughputs, trace, cluster)
    if not (isinstance(throughputs, ThroughputTable) and throughputs.has_colocation):
        raise InputError(
            getattr(throughputs, "source", "throughputs"),
            field="co-location",
            found="none",
            expected="throughputs of jobs that share GPUs, for a policy that packs; "
            "`table.with_colocation(default_colocation())` adds estimates",
        )
    table = throughputs
    position = {key: a for a, key in enumerate(table.keys)}
    columns = [table.accelerators.index(name) for name in cluster.accelerators]
    G, M = len(table.keys), len(columns)
    measured = np.nan_to_num(table.colocated[:, columns], nan=0.0)
    one, other = table.pairs[:, 0], table.pairs[:, 1]
    together = np.zeros((G, G, M))
    together[other, one] = measured[:, :, 1]
    together[one, other] = measured[:, :, 0]
    kinds = zip(trace.job_type, trace.scale_factor.tolist(), strict=True)
    group = np.fromiter((position[kind] for kind in kinds), dtype=np.int64, count=len(trace))
    alone = np.nan_to_num(table.isolated[:, columns], nan=0.0)
    sizes = np.array([size for _, size in table.keys], dtype=np.int64)
    return _fitting(group, alone, together, sizes, range(len(trace)), cluster)


def take(
    columns: PackedColumns,
    jobs: Positions,
    labels: Sequence[Hashable] | None = None,
    together: Floats | None = None,
    all_groups: bool = False,
) -> PackedColumns:
    """The columns of some jobs (positions) with the groups that they have; `labels` are the old ones if omitted.

    `together` (G, G, M) stands for what jobs do in pairs if it is given; with `all_groups` none is left out.
    """
    together = columns.together if together is None else together
    names = tuple(columns.jobs[i] for i in jobs) if labels is None else tuple(labels)
    if all_groups:
        return replace(columns, group=columns.group[jobs], together=together, jobs=names)
    present, group = np.unique(columns.group[jobs], return_inverse=True)
    return replace(
        columns,
        group=group.ravel(),
        alone=columns.alone[present],
        together=together[np.ix_(present, present)],
        group_scale_factors=columns.group_scale_factors[present],
        jobs=names,
    )


def on_types(columns: PackedColumns, accelerators: Sequence[str]) -> PackedColumns:
    """The columns with only these accelerator types, all of which it must have, in this order."""
    at = [columns.accelerators.index(name) for name in accelerators]
    return replace(
        columns, alone=columns.alone[:, at], together=columns.together[:, :, at], accelerators=tuple(accelerators)
    )


def from_json(pairs: object, matrix: ThroughputMatrix, source: str) -> PackedColumns:
    """Columns of the jobs of an instance and its list of pairs.

    Parameters
    ----------
    pairs : ``[{"pair": [0, 2], "throughputs": {"v100": [2.1, 3.0]}}]``: two job ids, and what the two do on shared GPUs
        of a type, in that order, steps/s. Pairs and types that are missing cannot share.
    matrix : (N, M) throughputs of the jobs alone.

    Raises
    ------
    InputError
        Says which entry is not of that form, names an unknown job, or repeats a pair.
    """
    if not isinstance(pairs, list):
        raise InputError(source, field="pairs", found=type(pairs).__name__, expected="a list of pairs")
    position = {job: i for i, job in enumerate(matrix.jobs)}
    N, M = matrix.rates.shape
    together = np.zeros((N, N, M))
    seen: set[frozenset[int]] = set()
    for p, entry in enumerate(pairs):
        where = f"pairs[{p}]"
        jobs = entry.get("pair") if isinstance(entry, dict) else None
        rates = entry.get("throughputs") if isinstance(entry, dict) else None
        if not isinstance(jobs, list) or len(jobs) != 2 or not all(isinstance(job, Hashable) for job in jobs):
            raise InputError(source, field=f"{where}.pair", found=jobs, expected="two job ids")
        if jobs[0] not in position or jobs[1] not in position or jobs[0] == jobs[1]:
            raise InputError(source, field=f"{where}.pair", found=jobs, expected="two different jobs of the instance")
        one, other = position[jobs[0]], position[jobs[1]]
        if frozenset((one, other)) in seen:
            raise InputError(source, field=f"{where}.pair", found=jobs, expected="each pair once")
        seen.add(frozenset((one, other)))
        if not isinstance(rates, dict):
            raise InputError(source, field=f"{where}.throughputs", found=rates, expected="an object by type")
        for j, name in enumerate(matrix.accelerators):
            figures = rates.get(name, [0.0, 0.0])
            good = isinstance(figures, list) and len(figures) == 2
            if not good or not all(_is_throughput(figure) for figure in figures):
                raise InputError(
                    source,
                    field=f"{where}.throughputs.{name}",
                    found=figures,
                    expected="two throughputs of at least 0 steps/s",
                )
            together[one, other, j], together[other, one, j] = figures
    return PackedColumns.from_jobs(matrix, together)


def _is_throughput(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max


def appended(columns: PackedColumns, later: PackedColumns) -> PackedColumns:
    """The jobs of both, numbered anew; they must have been made from the same throughput table."""
    same = np.array_equal(columns.together, later.together) and np.array_equal(columns.alone, later.alone)
    if not same:
        raise InputError("jobs to append", field="co-location", found="other groups", expected="those of this table")
    group = np.concatenate([columns.group, later.group])
    return replace(columns, group=group, jobs=tuple(range(len(group))))


def without_sharing(
    rates: Floats,
    scale_factors: Ints,
    jobs: Sequence[Hashable],
    accelerators: Sequence[str],
) -> PackedColumns:
    """Columns of N jobs of which no two can share; jobs with equal `rates` (N, M) and gangs are one group."""
    kinds, first, group = np.unique(
        np.column_stack([scale_factors, rates]), axis=0, return_index=True, return_inverse=True
    )
    nothing = np.zeros((len(kinds), len(kinds), rates.shape[1]))
    return PackedColumns(
        group.ravel(), rates[first], nothing, scale_factors[first], jobs=jobs, accelerators=accelerators
    )


def where_allowed(columns: PackedColumns, allowed: Flags) -> PackedColumns:
    """The columns of jobs that may not use every type: elsewhere than `allowed` (N, M) they have no rate.

    Jobs of one group that may use different types are of different groups then.
    """
    if (allowed | ~(columns.alone[columns.group] > 0)).all():
        return columns
    kinds, group = np.unique(np.column_stack([columns.group, allowed]), axis=0, return_inverse=True)
    before, there = kinds[:, 0], kinds[:, 1:].astype(np.bool_)
    return replace(
        columns,
        group=group.ravel(),
        alone=np.where(there, columns.alone[before], 0.0),
        together=np.where(there[:, None] & there, columns.together[np.ix_(before, before)], 0.0),
        group_scale_factors=columns.group_scale_factors[before],
    )


def _check_known(trace: Trace, known: Flags) -> None:
    if not known.all():
        job = int(np.argmin(known))
        expected = "jobs of the throughput table that may use every type, for a policy that packs"
        raise InputError(trace.source, field=f"job_type of job {job}", found=trace.job_type[job], expected=expected)


def _checked(columns: PackedColumns, trace: Trace, cluster: Cluster) -> PackedColumns:
    if columns.accelerators != cluster.accelerators:
        expected = f"the types of the cluster, {cluster.accelerators}"
        raise InputError("throughputs", field="accelerators", found=columns.accelerators, expected=expected)
    if columns.n_jobs != len(trace) or not np.array_equal(columns.scale_factors, trace.scale_factor):
        expected = f"the {len(trace)} jobs of the trace with their scale factors"
        raise InputError("throughputs", field="jobs", found=f"{columns.n_jobs} jobs", expected=expected)
    sizes = columns.group_scale_factors
    return _fitting(columns.group, columns.alone, columns.together, sizes, range(len(trace)), cluster)


def _fitting(
    group: Ints,
    alone: Floats,
    together: Floats,
    sizes: Ints,
    jobs: Sequence[Hashable],
    cluster: Cluster,
) -> PackedColumns:
    """The columns with 0 where a gang is larger than the type, and where one of two jobs would stand still."""
    fits = sizes[:, None] <= cluster.capacity
    both = (together > 0) & (together.transpose(1, 0, 2) > 0) & fits[:, None, :]
    return PackedColumns(
        group,
        np.where(fits, alone, 0.0),
        np.where(both, together, 0.0),
        sizes,
        jobs=jobs,
        accelerators=cluster.accelerators,
    )
