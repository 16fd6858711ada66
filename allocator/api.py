"""The short way in: one call from a table of throughputs to an allocation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.audit import Audit, audit
from allocator.cluster import Cluster
from allocator.protocol import ClusterState, Policy
from allocator.protocol.allocation import Allocation
from allocator.protocol.colocated import on_types
from allocator.protocol.entities import Entities, EntitiesLike, Membership, arrival_ranks
from allocator.protocol.policy import checked_policy, fault_of
from allocator.protocol.views import columns_of_jobs, file_columns
from allocator.registry import get_policy
from allocator.report.terminal import allocation_table
from allocator.results.shown import as_text
from throughputs import (
    InputError,
    PackedColumns,
    PriceTable,
    ThroughputMatrix,
    default_colocation,
    default_table,
    read_table,
)
from throughputs.arrays import Floats
from throughputs.errors import one_of
from throughputs.goodput.trainings import Trainings, find_trainings
from throughputs.limits import require_distinct

if TYPE_CHECKING:
    import pandas as pd

    from throughputs import ThroughputTable


def solve(
    policy: str | Policy,
    throughputs: ThroughputMatrix | PackedColumns | pd.DataFrame | Mapping[str, Any],
    cluster: Cluster | str | Mapping[str, int],
    *,
    jobs: pd.DataFrame | None = None,
    gpu_prices: Mapping[str, float] | None = None,
    entities: EntitiesLike | None = None,
    **settings: Any,
) -> Solved:
    """One decision: shares of time for every job on every accelerator type.

    Parameters
    ----------
    policy : name of a policy (with its `settings`), or a policy.
    throughputs : (N, M) steps/s, one row per job and one column per accelerator type; a column ``scale_factor``
        gives the GPUs of each gang. As a DataFrame, or as a mapping of columns that pandas makes one of.
        `PackedColumns` say also what jobs do in pairs, for policies that pack.
    cluster : the cluster, GPUs by type, or text such as ``"v100:4,k80:8"``.
    jobs : what else the policy may read, by job label: the views of jobs that are columns in files (docs/policies.md),
        such as priority_weight, steps_remaining and slo_seconds; entity (name; empty: none), and arrival_rank (order of
        the jobs in entities that serve first come, first served; by default the longest in the cluster first, then by
        label). What is missing takes its default.
    gpu_prices : dollars per GPU hour of every type of the cluster, for policies that count them; 1 for each if omitted.
    entities : the entities that jobs name, in any form that `allocator.protocol.entities.Entities.parse` takes.
        Policies without water filling ignore them.

    Raises
    ------
    InputError
        Names of types, jobs or entities that do not match, or values that cannot be used.

    >>> speeds = {"v100": {"resnet": 4.0, "lstm": 2.0}, "k80": {"resnet": 1.0, "lstm": 1.0}}
    >>> answer = solve("max_sum_throughput_perf", speeds, "v100:1,k80:1")
    >>> answer.status, answer.objective_unit, answer.effective_throughput.round(6).tolist()
    ('optimal', 'steps/s', [4.0, 1.0])
    """
    cluster = Cluster.of(cluster)
    colocation = throughputs if isinstance(throughputs, PackedColumns) else None
    if isinstance(throughputs, PackedColumns):
        throughputs = throughputs.plain.matrix
    matrix = ThroughputMatrix.of(throughputs).on_types(cluster.accelerators)
    if isinstance(policy, str):
        policy = get_policy(policy, **settings)
    elif settings:
        raise InputError(
            "solve",
            field=", ".join(settings),
            found="settings beside a policy object",
            expected="a policy by name",
        )
    checked_policy(policy)
    columns = _job_columns(jobs, matrix)
    membership = _membership(jobs, matrix, entities, columns.get("elapsed_seconds"))
    if colocation is not None:
        colocation = on_types(colocation, cluster.accelerators)
    prices = (
        None
        if gpu_prices is None
        else PriceTable.constant(gpu_prices, "gpu_prices").price_at(0.0, cluster.accelerators)
    )
    state = ClusterState(cluster, matrix, **columns, gpu_prices=prices, membership=membership, colocation=colocation)
    declared = state.for_needs(policy.needs)
    try:
        answer = policy.allocate(declared)
    except Exception as error:
        if (fault := fault_of(error, type(policy))) is None:
            raise
        raise fault from error.__cause__
    known = {field.name: getattr(answer, field.name) for field in fields(Allocation)}
    return Solved(**known, state=declared, decided_by=policy)


@dataclass(frozen=True, eq=False)
class Solved(Allocation):
    """An allocation, with what it was decided from, and by whom."""

    state: ClusterState = field(kw_only=True, repr=False)
    decided_by: Policy = field(kw_only=True, repr=False)

    def __str__(self) -> str:
        return as_text([allocation_table(self)])

    def audit(self, *, seed: int = 0, probed_jobs: int = 8, misreports: int = 8) -> Audit:
        """What the allocation is worth: sharing incentive, envy, efficiency, strategy, utilisation, prices.

        `seed`, `probed_jobs`, `misreports` : as in `allocator.audit.audit`, which any allocation can be given to.
        """
        policy = self.decided_by
        return audit(self, self.state, policy, seed=seed, probed_jobs=probed_jobs, misreports=misreports)


def load_throughputs(
    source: str | Path | None = None, *, colocated: bool = False, accelerator: str | None = None
) -> ThroughputTable:
    """The throughput table in a file (public JSON, tidy CSV or Parquet) or a folder, or the embedded one.

    `accelerator` is the type of a folder where its name does not tell it.

    With `colocated` the embedded table comes with estimates for jobs that share GPUs, `throughputs.default_colocation`,
    gangs of all sizes included: a gang is taken to lose what one of its GPUs does.

    >>> load_throughputs().accelerators
    ('v100', 'p100', 'k80')
    """
    if source is not None:
        return read_table(source, accelerator)
    table = default_table()
    return table.with_colocation(default_colocation(), table.scale_factors) if colocated else table


def load_speeds(
    source: str | Path | None, *, colocated: bool = False, accelerator: str | None = None
) -> ThroughputTable | Trainings:
    """The same, or models of goodput where `source` names a file or a folder of these, or the embedded profiles."""
    trainings = None if source is None else find_trainings(source)
    return load_throughputs(source, colocated=colocated, accelerator=accelerator) if trainings is None else trainings


_ENTITY_COLUMNS = ("entity", "arrival_rank")


def _job_columns(jobs: pd.DataFrame | None, matrix: ThroughputMatrix) -> dict[str, Any]:
    if jobs is None:
        return {}
    absent = [job for job in matrix.jobs if job not in jobs.index]
    if absent:
        raise InputError(
            "jobs",
            field="index",
            found=f"no row {absent[0]!r}",
            expected="a row for every job of the throughputs",
        )
    require_distinct(jobs.index.tolist(), "jobs", "index")
    ordered, known = jobs.loc[list(matrix.jobs)], file_columns()
    names = [name for name in map(str, jobs.columns) if name not in _ENTITY_COLUMNS]
    for name in names:
        if name not in known:
            expected = one_of(name, [*known, *_ENTITY_COLUMNS])
            raise InputError("jobs", field=name, found="an unknown column", expected=expected)
    return columns_of_jobs(
        names,
        lambda name: ordered[name].tolist(),
        lambda name, i: f"{name} of {matrix.jobs[i]!r}",
        "jobs",
    )


def _membership(
    jobs: pd.DataFrame | None,
    matrix: ThroughputMatrix,
    entities: EntitiesLike | None,
    elapsed_seconds: Floats | None,
) -> Membership | None:
    named = jobs is not None and "entity" in jobs.columns
    if entities is None and not named:
        return None
    if jobs is None or not named:
        raise InputError("jobs", field="entity", expected="this column, as there are entities")
    if entities is None:
        raise InputError("solve", field="entities", expected="the entities that the jobs name")
    ordered, parsed = jobs.loc[list(matrix.jobs)], Entities.parse(entities)
    if "arrival_rank" in jobs.columns:
        rank = ordered["arrival_rank"].to_numpy(dtype=np.float64)
    else:
        rank = arrival_ranks(np.zeros(matrix.n_jobs) if elapsed_seconds is None else elapsed_seconds, matrix.jobs)
    return Membership(parsed, parsed.positions(ordered["entity"].to_numpy(dtype=object)), rank)
